"""A changed byte, a cut file, a missing file: each kind of file that gramrun writes is checked when it is used.

Damage is refused in one line that names the file, or it changes nothing that is read (the spaces of a JSON file).
"""

import contextlib
import json
import random
import shutil
from pathlib import Path

import pytest
from helpers import BASELINE, CONFIG, SMALL, settings
from injection import succeed

from gramrun import runs
from gramrun.base.errors import InputError
from gramrun.base.files import read_json, write_json
from gramrun.data import shards
from gramrun.runs import checkpoints

SEED = 1

WATCHED = settings(
    *SMALL, "train.checkpoint_every=20", "evaluation.every=20", "evaluation.inner_products=50", "gram_error.every=10",
    "gram_error.estimators=[{name: sampling, gramian_batch_size: 16}, {name: sogram, gramian_batch_size: 16}]",
)  # fmt: skip

# Each file of a run, and the commands that must notice its damage.
USED = {
    "t/config.yaml": ("evaluate t", "train --output t --resume", "plot map t --output x.png"),
    "t/manifest.json": ("evaluate t", "train --output t --resume", "plot map t --output x.png"),
    "t/metrics.jsonl": ("train --output t --resume", "plot map t --output x.png"),
    "t/inner_products.csv": ("train --output t --resume", "plot inner-products t --output x.png"),
    "t/evaluation.json": ("evaluate t", "plot map t --output x.png"),
    "g/config.yaml": ("plot gram-error g --output x.png", "gram-error --output g --resume"),
    "g/manifest.json": ("plot theory g --output x.png", "gram-error --output g --resume"),
    "g/gram_error.csv": ("plot gram-error g --output x.png", "plot trade-off g --output x.png"),
    "g/trajectory.csv": ("plot theory g --output x.png",),
    "b/config.yaml": ("evaluate b",),
    "b/manifest.json": ("evaluate b",),
    "b/metrics.jsonl": ("evaluate b",),
    "b/embeddings.npz": ("evaluate b",),
    "b/evaluation.json": ("evaluate b",),
}
REMEDIES = ("--force", "from a copy", "remove it and evaluate again", "`gramrun train` makes one")


@pytest.fixture(scope="module")
def written_once(corpus_path, tmp_path_factory):
    """A training run t, a gram-error run g and a baseline b."""
    folder = tmp_path_factory.mktemp("written") / "folder"
    data = settings(f"data.path={corpus_path}")
    for line in (
        ("train", "--config", CONFIG, *WATCHED, *data, "--output", "t"),
        ("evaluate", "t"),
        ("gram-error", "--config", CONFIG, *WATCHED, *data, "--output", "g"),
        ("baseline", "--config", BASELINE, *data, "--output", "b"),
    ):
        succeed(folder, *line)
    return folder


@pytest.fixture
def written(gramrun, written_once, tmp_path):
    """A copy of these in the folder that commands run in."""
    return Path(shutil.copytree(written_once, tmp_path, dirs_exist_ok=True))


def changed(content: bytes, position: int, bit: int) -> bytes:
    copy = bytearray(content)
    copy[position] ^= 1 << bit
    return bytes(copy)


def test_every_kind_of_file_is_listed(written):
    found = {str(f.relative_to(written)) for f in written.rglob("*") if f.is_file()}
    # tests/runs/test_checkpoints.py and tests/runs/test_session.py damage these.
    others = {name for name in found if "/checkpoints/step-" in name or "/average_precision." in name}
    assert found - others == set(USED)


@pytest.mark.parametrize("name", USED)
def test_damage_is_refused_by_each_command_that_uses_the_file(gramrun, written, name):
    file = written / name
    whole = file.read_bytes()
    others = {f: f.read_bytes() for f in written.rglob("*") if f.is_file() and f != file}
    middle = whole.index(b"0.") + 2 if b"0." in whole else len(whole) // 2  # of a number, where there is one
    for damage in (changed(whole, middle, 0), whole[: len(whole) // 2], None):
        for command in USED[name]:
            file.write_bytes(damage or b"")
            if damage is None:
                file.unlink()
            code, out, err = gramrun(*command.split())
            if damage is None and name.endswith("evaluation.json"):  # not measured yet
                assert code == 0
            else:
                assert (code, err.count("\n")) == (2, 1), (damage, command, out, err)
                assert err.startswith("gramrun: ") and file.name in err
                assert any(words in err for words in REMEDIES), err
                assert {f: f.read_bytes() for f in others} == others, (damage, command)
            for new in (written / "x.png", file):
                new.unlink(missing_ok=True)
            file.write_bytes(whole)


@pytest.mark.parametrize("positions", [3, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_random_bit_is_noticed_or_harmless(written, positions):
    def read(name):
        path = written / name.split("/")[0]
        run = runs.open_directory(path)
        if name.endswith("evaluation.json"):
            return read_json(path / "evaluation.json")
        if name.endswith("manifest.json"):
            return run.manifest
        return run.config, run.file(Path(name).name).read_bytes()

    draw = random.Random(SEED)
    harmless = 0
    for name in USED:
        whole, expected = (written / name).read_bytes(), read(name)
        for _ in range(positions):
            (written / name).write_bytes(changed(whole, draw.randrange(len(whole)), draw.randrange(8)))
            with contextlib.suppress(InputError):
                assert read(name) == expected
                assert name.endswith(".json")  # a space
                harmless += 1
        (written / name).write_bytes(whole)
    assert harmless <= 0.05 * positions * len(USED)


def refusal(folder):
    """Why a corpus is not opened, or None."""
    try:
        shards.open_corpus(folder)
    except InputError as error:
        return str(error)


def test_each_file_of_a_corpus(tmp_path, gramrun):
    """Every array, every vocabulary and the manifest; by open_corpus and by prepare itself."""
    folder = tmp_path / "d"
    line = ["prepare", "synthetic", "--output", "d", *settings("synthetic.left_items=50")]
    assert gramrun(*line)[0] == 0
    whole_manifest = shards.read_manifest(folder)
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    assert {f.suffix for f in files} == {".npy", ".parquet", ".json"}
    draw = random.Random(SEED)
    for file in files:
        whole = file.read_bytes()
        positions = {0, 1, 8, len(whole) - 1, draw.randrange(len(whole))}
        damages = [changed(whole, position, draw.randrange(8)) for position in positions]
        for damage in [*damages, whole[: len(whole) // 2], whole[:1]]:
            file.write_bytes(damage)
            message = refusal(folder)
            if message is None:  # a space of the manifest
                assert shards.open_corpus(folder).manifest == whole_manifest
            else:
                assert message.startswith(f"{file}: ")
                assert "prepare the corpus again with --force" in message
        file.unlink()
        code, _, err = gramrun(*line)
        assert (code, err.count("\n"), file.name in err) == (2, 1, True), err
        file.write_bytes(whole)
    assert gramrun(*line)[0] == 0


@pytest.mark.parametrize("name", ["candidates", "full", "map@10", "split"])
def test_an_evaluation_without_a_field_is_refused(gramrun, written, name):
    for file in (written / "t" / "evaluation.json", written / "b" / "evaluation.json"):
        whole = file.read_bytes()
        known = read_json(file).items()
        write_json(file, {split: {k: v for k, v in x.items() if k != name} for split, x in known})
        code, _, err = gramrun("plot", "map", "t", "b", "--output", "x.png")
        assert (code, err.count("\n")) == (2, 1), err
        assert str(file.relative_to(written)) in err and "evaluate again" in err
        file.write_bytes(whole)


def test_the_newest_whole_checkpoint_is_used(gramrun, written, caplog):
    """With a warning; with none whole the command stops, and with none at all it starts at step 0."""
    older, newest = sorted((written / "t" / "checkpoints").iterdir())
    content = newest.read_bytes()
    newest.write_bytes(changed(content, len(content) // 2, 3))
    assert gramrun("evaluate", "t")[0] == 0
    assert f"{newest.relative_to(written)}: torn or damaged checkpoint" in caplog.text
    assert read_json(written / "t" / "evaluation.json")["validation"]["step"] == 20
    older.write_bytes(b"")
    for command in (["evaluate", "t"], ["train", "--output", "t", "--resume"]):
        code, _, err = gramrun(*command)
        assert (code, "--force" in err) == (2, True)
    older.unlink(), newest.unlink()
    assert gramrun("evaluate", "t")[0] == 2
    caplog.clear()
    assert gramrun("train", "--output", "t", "--resume")[0] == 0
    assert "starts again at step 0" in caplog.text
    assert checkpoints.load(newest)["trainer"]["step"] == 40


def test_older_folders_without_checksums_are_read(gramrun, written, corpus_path):
    """As earlier versions wrote them: manifests without `files`, JSON without `checksum`."""

    def strip(file):
        content = {k: v for k, v in json.loads(file.read_text()).items() if k not in ("checksum", "files")}
        file.write_text(json.dumps(content))

    for name in ("t/manifest.json", "t/evaluation.json", "g/manifest.json", "b/manifest.json"):
        strip(written / name)
    shutil.copytree(corpus_path, written / "old")
    manifest = json.loads((written / "old" / shards.MANIFEST).read_text())
    del manifest["checksum"]
    (written / "old" / shards.MANIFEST).write_text(json.dumps(manifest))
    assert shards.open_corpus(written / "old").content_hash == manifest["content_hash"]
    for line in ("evaluate t", "plot map t --output x.png", "plot theory g --output x.png", "evaluate b",
                 "train --output t --resume --set train.steps=60"):  # fmt: skip
        code, _, err = gramrun(*line.split())
        assert (code, err) == (0, "")
    assert set(runs.open_run(written / "t").manifest["files"]) >= {"config.yaml", "metrics.jsonl"}


def test_torn_last_lines_of_a_killed_run_are_left_out(gramrun, written):
    run = runs.open_run(written / "t")
    run.update_manifest(status="running", files={})
    for name in ("metrics.jsonl", "inner_products.csv"):
        with (run.path / name).open("a") as file:
            file.write((run.path / name).read_text().splitlines()[-1][:-3])
    assert [record["step"] for record in run.metrics()] == [20, 40]
    assert gramrun("plot", "inner-products", "t", "--output", "x.png")[0] == 0
    assert gramrun("train", "--output", "t", "--resume", "--set", "train.steps=60")[0] == 0
    assert [record["step"] for record in run.metrics()] == [20, 40, 60]


def test_a_json_checksum_is_of_the_content_and_not_of_the_layout(tmp_path):
    file = tmp_path / "x.json"
    content = {"b": [1, 2.5, None, {"é": "ü"}], "a": {"2": 1, "10": float("inf")}}
    write_json(file, content)
    file.write_text(json.dumps(dict(reversed(json.loads(file.read_text()).items())), indent=7))
    assert read_json(file) == content
    write_json(file, {2: "a", 10: "b"})  # keys become text, which sorts otherwise
    assert read_json(file) == {"2": "a", "10": "b"}
    write_json(file, content)
    whole = file.read_bytes()
    renamed = [whole.replace(b'"checksum"', changed(b'"checksum"', 4, bit)) for bit in range(8)]
    texts = ("", "{", "[]", "null", '{"a": 1, "checksum": "0"}', "[" * 100_000, "\udc80")
    for damaged in [*renamed, *(text.encode(errors="surrogateescape") for text in texts)]:
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged"):
            read_json(file)
    file.unlink()
    with pytest.raises(InputError, match="missing"):
        read_json(file)
