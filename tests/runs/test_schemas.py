"""Files name their layout and the version that wrote them; another layout is refused with a remedy."""

import json
import shlex
from pathlib import Path

import helpers
import pytest
import torch
from helpers import BASELINE, CONFIG, settings

from experiments.report.runs import read_record
from gramrun import __version__, runs
from gramrun.base.files import read_json, write_json
from gramrun.data import shards
from gramrun.runs import checkpoints, directory

SMALL = settings(*helpers.SMALL, "train.steps=2")


def rewrite(path: Path, **fields) -> dict:
    """Replace fields of a JSON file; None removes one."""
    values = {**read_json(path), **fields}
    write_json(path, {key: value for key, value in values.items() if value is not None})
    return values


@pytest.fixture
def trained(gramrun):
    """A corpus and a run of it, made by the command line."""
    assert gramrun("prepare", "synthetic", "--output", "data/synthetic", "--set", "split.seed=3")[0] == 0
    assert gramrun("train", "--config", CONFIG, *SMALL, "--output", "run")[0] == 0
    return Path("run")


def test_every_manifest_says_version_and_schema(gramrun, trained):
    assert gramrun("gram-error", "--config", CONFIG, *SMALL, "--output", "errors")[0] == 0
    assert gramrun("baseline", "--config", BASELINE, "--output", "baseline")[0] == 0
    for run in (trained, Path("errors"), Path("baseline")):
        manifest = read_json(run / directory.MANIFEST)
        assert (manifest["schema_version"], manifest["versions"]["gramrun"]) == (1, __version__)
        assert f"gramrun {__version__}" in read_record(run).environment  # what a report shows
    corpus = shards.read_manifest(Path("data/synthetic"))
    assert (corpus["schema_version"], corpus["origin"]["versions"]["gramrun"]) == (1, __version__)


def newer_shards(run: Path) -> Path:
    path = Path("data/synthetic/manifest.json")
    rewrite(path, schema_version=shards.SCHEMA_VERSION + 1)
    return path


def newer_run(run: Path) -> Path:
    rewrite(run / directory.MANIFEST, schema_version=directory.SCHEMA_VERSION + 1)
    (run / directory.CONFIG).write_text("something: else\n")  # as a newer config may be
    return run / directory.MANIFEST


def newer_checkpoint(run: Path) -> Path:
    path = runs.open_run(run).checkpoints()[-1]
    state = torch.load(path, weights_only=True)
    torch.save({**state, "schema_version": checkpoints.SCHEMA_VERSION + 1, "more": 1}, path)
    return path


@pytest.mark.parametrize("make", [newer_shards, newer_run, newer_checkpoint])
@pytest.mark.parametrize("command", ["evaluate", "train --resume --output"])
def test_a_newer_layout_is_one_line_that_says_to_update(gramrun, trained, make, command):
    path = make(trained)
    before = path.read_bytes()
    code, out, err = gramrun(*command.split(), trained)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{path}: schema " in err and "update gramrun" in err
    assert path.read_bytes() == before


def test_an_older_corpus_is_named_with_the_command_that_makes_it_again(gramrun, trained):
    path = Path("data/synthetic/manifest.json")
    made = json.loads(path.read_text())
    rewrite(path, schema_version=0)
    code, _, err = gramrun("train", "--config", CONFIG, *SMALL, "--output", "again")
    assert (code, "schema version 0" in err) == (2, True)
    command = shlex.split(err.partition("`")[2].partition("`")[0])
    assert command[0] == "gramrun"
    assert gramrun(*command[1:])[0] == 0
    again = shards.read_manifest(Path("data/synthetic"))
    assert again["content_hash"] == made["content_hash"]
    assert again["origin"]["fingerprint"] == made["origin"]["fingerprint"]


def test_an_older_checkpoint_says_what_to_do(gramrun, trained):
    path = runs.open_run(trained).checkpoints()[-1]
    torch.save({"schema_version": 1, "trainer": {}}, path)
    code, _, err = gramrun("evaluate", trained)
    assert (code, "schema version 1" in err, "start the run anew with --force" in err) == (2, True, True)


def test_a_run_from_before_manifests_had_a_schema_is_read(gramrun, trained):
    rewrite(trained / directory.MANIFEST, schema_version=None)
    assert gramrun("evaluate", trained)[0] == 0
    code, out, err = gramrun("train", "--resume", "--output", trained, "--set", "train.steps=3")
    assert (code, "step 3" in out) == (0, True), err
