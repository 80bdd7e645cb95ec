"""`gramrun baseline`: what it writes is what the method and the evaluation say, and what it refuses."""

import itertools
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import BASELINE, settings, timeless

from gramrun import runs
from gramrun.base import capacity
from gramrun.base.errors import ConfigError, InputError
from gramrun.base.files import read_json, write_json
from gramrun.base.interruption import Interrupted
from gramrun.config import BaselineSection
from gramrun.config.loading import config_hash
from gramrun.evaluation.baselines import ease, exact_als
from gramrun.evaluation.baselines import run as baseline
from gramrun.evaluation.protocol import evaluate_embeddings
from gramrun.evaluation.trained import evaluate_run
from gramrun.runs import directory

NAMES = ("popularity", "implicit-als", "exact-als", "feature-popularity", "tfidf")


@pytest.fixture
def arguments(corpus_path):
    """A baseline of the small corpus, on the command line."""

    def make(name, *more):
        common = (f"data.path={corpus_path}", f"baseline.name={name}", "baseline.sweeps=4")
        return ["baseline", "--config", BASELINE, *settings(*common, *more)]

    return make


@pytest.mark.parametrize("name", NAMES)
def test_a_run_holds_what_was_fitted_and_measured(gramrun, arguments, corpus, name):
    code, out, err = gramrun(*arguments(name), "--output", "r")
    assert (code, err) == (0, "")
    files = {path.name for path in Path("r").iterdir()}
    per_item = {directory.per_item(split) for split in ("validation", "train")}
    assert files - per_item == {
        "config.yaml", "manifest.json", "metrics.jsonl", "embeddings.npz", "evaluation.json",
    }  # fmt: skip
    assert per_item <= files
    manifest = read_json(Path("r/manifest.json"))
    assert (manifest["kind"], manifest["status"], manifest["seed"]) == ("baseline", "finished", 0)
    run = runs.open_directory(Path("r"))
    assert manifest["config_hash"] == config_hash(run.config)
    assert manifest["data_hash"] == corpus.content_hash
    with np.load("r/embeddings.npz") as stored:
        left, right = (torch.from_numpy(stored[side]) for side in ("left", "right"))
    assert (len(left), len(right)) == (corpus.left.items, corpus.right.items)
    measured = read_json(Path("r/evaluation.json"))
    for split in ("validation", "train"):
        expected = evaluate_embeddings(left, right, corpus, split, run.config.evaluation)
        per_item = expected.pop(directory.PER_ITEM)
        np.testing.assert_array_equal(np.load(Path("r") / directory.per_item(split)), per_item)
        assert timeless(expected).items() <= measured[split].items()
        assert measured[split]["method"] == run.config.baseline.label
    assert measured["validation"]["step"] == (4 if name.endswith("-als") else 0)
    assert run.metrics()[-1]["step"] == measured["validation"]["step"]
    code, out, _ = gramrun("evaluate", "r", "--json")
    assert (code, timeless(json.loads(out))) == (0, timeless(measured["validation"]))


def test_a_run_of_ease_holds_its_weights(gramrun, arguments, corpus):
    code, out, err = gramrun(*arguments("ease", "baseline.l2=5"), "--output", "r", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["method"] == "EASE l2=5"
    files = {path.name for path in Path("r").iterdir()}
    per_item = {directory.per_item(split) for split in ("validation", "train")}
    assert files == per_item | {
        "config.yaml", "manifest.json", "metrics.jsonl", "item_weights.npy", "evaluation.json",
    }  # fmt: skip
    run = runs.open_directory(Path("r"))
    weights = np.load("r/item_weights.npy")
    np.testing.assert_array_equal(weights, ease.fit(corpus.train, corpus.left.items, corpus.right.items, 5.0))
    measured = read_json(Path("r/evaluation.json"))
    for split in ("validation", "train"):
        expected = ease.evaluate(weights, corpus, split, run.config.evaluation)
        np.testing.assert_array_equal(
            np.load(Path("r") / directory.per_item(split)), expected.pop(directory.PER_ITEM)
        )
        assert timeless(expected).items() <= measured[split].items()
        assert measured[split]["map@10"] > measured[split]["popularity"]["map@10"]
    code, out, _ = gramrun("evaluate", "r", "--json")
    assert (code, timeless(json.loads(out))) == (0, timeless(measured["validation"]))
    assert gramrun("evaluate", "r", "--full")[0] == 0
    for command in (["export", "r", "--output", "x.npy"], ["neighbors", "r", "1"]):
        code, _, err = gramrun(*command)
        assert (code, err) == (
            2,
            "gramrun: r: holds EASE, which has no embeddings; its matrix B is item_weights.npy\n",
        )


def test_damaged_weights_of_ease_are_refused(gramrun, arguments, corpus):
    assert gramrun(*arguments("ease"), "--output", "r")[0] == 0
    path, whole = Path("r/item_weights.npy"), Path("r/item_weights.npy").read_bytes()
    path.write_bytes(whole[:-4] + b"abcd")
    code, _, err = gramrun("evaluate", "r")
    assert (code, err.count("\n"), "item_weights.npy: " in err) == (2, 1, True)
    run = runs.open_directory(Path("r"))
    run.update_manifest(files={})
    for content in (whole[:-40], b"", b"PK\x03\x04 no archive"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="missing or damaged; fit the baseline anew"):
            evaluate_run(run, corpus, "validation")
    size = corpus.right.items
    for array in (np.ones((size, 3), "f"), np.ones((size, size)), np.full((size, size), np.nan, "f")):
        np.save(path, array)
        with pytest.raises(InputError, match="damaged .not a finite float32 matrix of 80 x 80 items"):
            evaluate_run(run, corpus, "validation")


def test_ease_that_does_not_fit_is_refused_and_writes_nothing(gramrun, arguments, monkeypatch, tmp_path):
    for kind, remedy in (("memory", "set baseline.name: implicit-als"), ("disk", "choose another --output")):
        with monkeypatch.context() as patched:
            patched.setattr(capacity, f"available_{kind}", lambda *_: 1000)
            code, out, err = gramrun(*arguments("ease"), "--output", "r")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"of {kind}, 1.0 KB are available" in err and remedy in err
    assert not any(tmp_path.iterdir())


def test_popularity_is_level_with_popularity(gramrun, arguments):
    assert gramrun(*arguments("popularity"), "--output", "r")[0] == 0
    for result in read_json(Path("r/evaluation.json")).values():
        assert {name: result[name] for name in result["popularity"]} == result["popularity"]


def test_exact_als_solves_the_objective_of_its_section(corpus):
    """γ, λ and the side they belong to reach the problem; the objective is of the embeddings that are kept."""
    section = BaselineSection(
        name="exact-als", embedding_dim=3, sweeps=5, gravity=7, gamma_left=1, gamma_right=0.5
    )
    problem = baseline.exact_als_problem(section, corpus)
    assert (problem.gravity, problem.prior) == (7, None)
    pairs = torch.bincount(torch.from_numpy(corpus.train.left).long(), minlength=corpus.left.items).double()
    torch.testing.assert_close(problem.left_weights, pairs / len(corpus.train))
    roots = torch.bincount(torch.from_numpy(corpus.train.right).long(), minlength=corpus.right.items).sqrt()
    torch.testing.assert_close(problem.right_weights, (roots / roots.sum()).double())
    assert problem.target.unique().tolist() == [1]
    fitted = baseline.fit_baseline(section, corpus)
    sweeps = list(exact_als.fit(problem, embedding_dim=3, sweeps=5))
    assert [record["objective"] for record in fitted.records] == [sweep.objective for sweep in sweeps]
    assert [record["step"] for record in fitted.records] == [1, 2, 3, 4, 5]
    kept = exact_als.objective(problem, fitted.left.double(), fitted.right.double())
    assert kept == pytest.approx(sweeps[-1].objective, rel=1e-6)  # float32


@pytest.fixture
def interrupted(gramrun, arguments, monkeypatch):
    """r.unfinished, of an exact ALS that was interrupted in its third sweep; and the command."""
    command = [*arguments("exact-als", "baseline.sweeps=5", "baseline.tolerance=0"), "--output", "r"]
    fit = exact_als.fit

    def stopped(*args, **options):
        yield from itertools.islice(fit(*args, **options), 2)
        raise Interrupted("interrupted")

    monkeypatch.setattr(baseline, "SAVE_SECONDS", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(exact_als, "fit", stopped)
        assert gramrun(*command)[0] == 130
    assert [path.name for path in Path().iterdir()] == ["r.unfinished"]
    return command


def test_an_interrupted_exact_als_goes_on_with_the_same_bits(gramrun, interrupted, caplog):
    assert gramrun(*interrupted[:-1], "straight")[0] == 0
    assert gramrun(*interrupted)[0] == 0
    assert caplog.messages == ["r.unfinished: goes on after sweep 2"]
    assert sorted(path.name for path in Path().iterdir()) == ["r", "straight"]
    for name in ("embeddings.npz", "average_precision.validation.npy"):
        assert (Path("r") / name).read_bytes() == (Path("straight") / name).read_bytes()
    once, twice = (runs.open_directory(Path(name)).metrics() for name in ("straight", "r"))
    assert [timeless(record) for record in once] == [timeless(record) for record in twice]
    seconds = [record["seconds"] for record in twice]
    assert seconds == sorted(seconds)
    assert runs.open_directory(Path("r")).manifest["seconds"] > seconds[-1]


def test_an_exact_als_that_was_interrupted_at_its_end_sweeps_no_more(gramrun, interrupted, monkeypatch):
    ended = [*interrupted, "--set", "baseline.sweeps=2"]  # the same sweeps, another identity
    content = read_json(Path("r.unfinished/sweep.json"))
    content["identity"]["baseline"]["sweeps"] = 2
    write_json(Path("r.unfinished/sweep.json"), content)
    monkeypatch.setattr(exact_als, "best_left", None)
    assert gramrun(*ended)[0] == 0
    assert [record["step"] for record in runs.open_directory(Path("r")).metrics()] == [1, 2]


def test_sweeps_of_another_fit_and_damaged_ones(gramrun, interrupted, caplog):
    left = Path("r.unfinished/left.npy")
    whole = left.read_bytes()
    for damaged in (whole[:-8], whole[:-4] + b"abcd"):
        left.write_bytes(damaged)
        code, out, err = gramrun(*interrupted)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("gramrun: r.unfinished/left.npy: ") and "or start anew with --force" in err
    assert gramrun(*interrupted, "--set", "baseline.seed=1")[0] == 0
    assert "r.unfinished: is of another baseline or corpus" in caplog.text
    assert not Path("r.unfinished").exists()


def test_a_replacement_goes_on_too_and_a_damaged_one_starts_anew(gramrun, interrupted, caplog):
    """--force replaces a finished run; where the replacement is interrupted, the same command goes on."""
    shutil.copytree("r.unfinished", "kept")
    assert gramrun(*interrupted, "--set", "baseline.seed=1", "--set", "baseline.name=popularity")[0] == 0
    assert Path("r.unfinished").exists(), "of a baseline that keeps nothing there"
    assert gramrun(*interrupted)[0] == 2 and Path("r.unfinished").exists(), "r is another run"
    assert gramrun(*interrupted, "--force")[0] == 0
    assert caplog.messages[-1] == "r.unfinished: goes on after sweep 2"
    Path("kept").rename("r.unfinished")
    code, _, err = gramrun(*interrupted)
    assert (code, "exists already" in err, Path("r.unfinished").exists()) == (2, True, False)
    Path("r.unfinished").mkdir()
    code, _, err = gramrun(*interrupted, "--force")
    assert (code, "r.unfinished: is in the way" in err, Path("r.unfinished").exists()) == (2, True, True)


def test_force_starts_anew_where_a_sweep_is_damaged(gramrun, interrupted, caplog):
    Path("r.unfinished/left.npy").unlink()
    assert gramrun(*interrupted, "--force")[0] == 0
    assert caplog.messages[-1].endswith("; starts anew")
    assert [record["step"] for record in runs.open_directory(Path("r")).metrics()] == [1, 2, 3, 4, 5]
    assert not Path("r.unfinished").exists()


def test_targets_of_the_corpus(corpus):
    section = BaselineSection(name="exact-als", target="value")
    with pytest.raises(ConfigError, match=r"baseline\.target is value, but the pairs of .* carry no target"):
        baseline.exact_als_problem(section, corpus)
    ratings = np.arange(len(corpus.train), dtype=np.float32)
    rated = replace(corpus, train=replace(corpus.train, target=ratings))
    assert torch.equal(baseline.exact_als_problem(section, rated).target, torch.from_numpy(ratings).double())


def test_what_is_refused_writes_nothing(gramrun, arguments, monkeypatch, tmp_path):
    for name in ["implicit", *(name for name in sys.modules if name.startswith("implicit."))]:
        monkeypatch.setitem(sys.modules, name, None)
    refused = {
        "pip install 'gramrun[baselines]'": arguments("implicit-als"),
        "nowhere: no prepared corpus here": arguments("exact-als", "data.path=nowhere"),
        "baseline.target is value": arguments("exact-als", "baseline.target=value"),
        "unknown key baseline.alpha": arguments("exact-als", "baseline.alpha=1"),
    }
    for message, command in refused.items():
        code, out, err = gramrun(*command, "--output", "r")
        assert (code, out, err.count("\n")) == (2, "", 1), message
        assert message in err
    assert not any(tmp_path.iterdir())


def test_other_commands_say_that_it_is_a_baseline(gramrun, arguments):
    assert gramrun(*arguments("popularity"), "--output", "r")[0] == 0
    for command in (["plot", "map", "r", "--output", "x.png"], ["train", "--output", "r", "--resume"]):
        code, _, err = gramrun(*command)
        assert (code, err.startswith("gramrun: r: holds a baseline")) == (2, True)


def test_another_corpus_and_damage_are_refused(gramrun, arguments, corpus):
    assert gramrun(*arguments("popularity"), "--output", "r")[0] == 0
    run = runs.open_directory(Path("r"))
    run.update_manifest(data_hash="0" * 64)
    with pytest.raises(InputError, match="holds another corpus"):
        evaluate_run(run, corpus, "validation")
    run.update_manifest(data_hash=corpus.content_hash)
    whole = Path("r/embeddings.npz").read_bytes()
    for damaged in (whole[:-40], b"", b"PK\x03\x04 no archive"):
        Path("r/embeddings.npz").write_bytes(damaged)
        with pytest.raises(InputError, match=r"embeddings\.npz: has \d+ bytes instead of \d+; bring it back"):
            evaluate_run(run, corpus, "validation")
    run.update_manifest(files={})  # as those of older versions, which had none
    with pytest.raises(InputError, match="missing or damaged"):
        evaluate_run(run, corpus, "validation")
    np.savez("r/embeddings.npz", left=np.ones((3, 1)), right=np.ones((2, 1)))
    with pytest.raises(InputError, match=r"embeddings\.npz: damaged"):
        evaluate_run(run, corpus, "validation")
