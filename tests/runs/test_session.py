"""A run directory from its start to its end: what it holds, what is never overwritten, what resume may change."""

import json
import os
import signal

import numpy as np
import pytest
import torch
from helpers import resume, start, timeless, train

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.base.files import read_json
from gramrun.base.interruption import Interrupted
from gramrun.evaluation.trained import evaluate_run
from gramrun.runs import checkpoints, directory
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer


def test_a_finished_run_holds_everything(tmp_path, make_config, corpus):
    run, _ = train(tmp_path / "r", make_config("train.checkpoint_every=15"), corpus)
    assert sorted(os.listdir(run.path)) == ["checkpoints", "config.yaml", "manifest.json", "metrics.jsonl"]
    assert [p.name for p in run.checkpoints()] == ["step-000000030.pt", "step-000000040.pt"]
    records = run.metrics()
    assert [r["step"] for r in records] == [20, 40]
    assert {"epoch", "seconds", "train_seconds", "loss", "gravity", "map@10", "train_map@10"} <= set(
        records[0]
    )
    manifest = run.manifest
    assert manifest["status"] == "finished"
    assert manifest["data_hash"] == corpus.content_hash
    expected = "command versions git_commit seed threads config_hash started finished"
    assert set(expected.split()) <= set(manifest)
    assert runs.open_run(run.path).config == run.config


def test_existing_directories_are_never_overwritten(tmp_path, make_config, corpus):
    config = make_config()
    run = start(tmp_path / "r", config, corpus)
    (run.path / "note.txt").write_text("mine")
    with pytest.raises(
        InputError, match="exists already; replace it with --force, or go on with a training: --resume"
    ):
        start(run.path, config, corpus)
    start(run.path, config, corpus, force=True)
    assert not (run.path / "note.txt").exists()
    other = tmp_path / "photos"
    other.mkdir()
    (other / "a.jpg").write_text("x")
    with pytest.raises(InputError, match="is no run directory, so it is not replaced"):
        start(other, config, corpus, force=True)
    (tmp_path / "empty").mkdir()
    start(tmp_path / "empty", config, corpus)


def test_resume_may_lengthen(tmp_path, make_config, corpus):
    longer = make_config("train.steps=60")
    first, _ = train(tmp_path / "r", make_config(), corpus)
    run = resume(first.path, longer, corpus)
    straight, _ = train(tmp_path / "s", longer, corpus)
    # The 40-step run wrote its last record at 40, which is also where evaluation.every=20 falls.
    assert [*map(timeless, run.metrics())] == [*map(timeless, straight.metrics())]
    assert runs.open_run(run.path).config == longer
    assert run.manifest["config_hash"] == straight.manifest["config_hash"]


def test_resume_may_change_nothing_else(tmp_path, make_config, corpus):
    run, _ = train(tmp_path / "r", make_config(), corpus)
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    refused = {
        "estimator.alpha=0.5": r"was started with another estimator\.alpha; --resume may change only",
        "train.seed=1": r"another train\.seed",
        "train.steps=10": "is at step 40 already; train.steps or train.epochs asks for 10 steps",
    }
    for override, message in refused.items():
        with pytest.raises(ConfigError, match=message):
            resume(run.path, make_config(override), corpus)
    with pytest.raises(InputError, match="was made by `gramrun train`; resume it with that command"):
        runs.resume(run.path, "gram-error", run.config, corpus.content_hash)
    with pytest.raises(InputError, match="holds another corpus"):
        runs.resume(run.path, "train", make_config("train.steps=90"), "0" * 64)
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before


def test_a_run_shortened_to_its_checkpoint_still_gets_its_last_record(tmp_path, make_config, corpus):
    run, _ = train(tmp_path / "r", make_config("train.checkpoint_every=15"), corpus)
    run.checkpoints()[-1].unlink()  # killed after the checkpoint of step 30
    shorter = make_config("train.checkpoint_every=15", "train.steps=30")
    assert [r["step"] for r in resume(run.path, shorter, corpus).metrics()] == [20, 30]


def test_nan_stops_with_the_last_good_checkpoint(tmp_path, make_config, corpus):
    config = make_config(
        "train.optimizer=sgd", "train.learning_rate=1e4", "train.checkpoint_every=1", "train.steps=200"
    )
    run = start(tmp_path / "r", config, corpus)
    with pytest.raises(
        RunError, match=r"lower train.learning_rate.*; the last good checkpoint is .*step-\d+\.pt"
    ):
        fit(run, Trainer(config, corpus), corpus)
    assert run.manifest["status"] == "failed"
    state = checkpoints.load_newest(run)
    assert all(torch.isfinite(t).all() for t in state["trainer"]["model"].values())


def test_a_run_that_memory_ends_says_so(tmp_path, make_config, corpus):
    run = start(tmp_path / "r", make_config(), corpus)
    with pytest.raises(MemoryError), runs.outcome(run, 1):
        raise MemoryError("out of memory")
    assert (run.manifest["status"], run.manifest["error"]) == ("failed", "out of memory")


def test_a_signal_while_the_end_is_recorded_loses_nothing(tmp_path, make_config, corpus, monkeypatch):
    """As torchrun sends it to the first process when another one has died."""
    run = start(tmp_path / "r", make_config(), corpus)
    write = directory.Run.update_manifest

    def interrupted(self, **fields):
        if fields.get("status") == "failed":
            os.kill(os.getpid(), signal.SIGTERM)
        write(self, **fields)

    def interrupt(number, frame):
        raise Interrupted("interrupted")

    monkeypatch.setattr(directory.Run, "update_manifest", interrupted)
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with pytest.raises(RunError, match="lost the others"), runs.outcome(run, 1):
            raise RunError("lost the others")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert runs.open_run(run.path).manifest["status"] == "failed"


def test_evaluation_matches_the_last_metrics(tmp_path, make_config, corpus):
    run, _ = train(tmp_path / "r", make_config(), corpus)
    result = evaluate_run(run, corpus, "validation")
    assert result["map@10"] == run.metrics()[-1]["map@10"]
    expected = {
        "map@10", "map@10_relevant", "recall@10", "recall@100", "ndcg@10", "left_items", "candidates",
        "train_positives", "ci95", "effective_rank", "seconds", "candidate_hash", "popularity",
    }  # fmt: skip
    per_item = result[directory.PER_ITEM]
    assert per_item.shape == (result["left_items"],) and per_item.mean() == pytest.approx(result["map@10"])
    record = runs.record_evaluation(run, result)
    assert expected <= set(json.loads(json.dumps(record)))
    np.testing.assert_array_equal(runs.average_precision(run, "validation"), per_item)
    file = run.path / "average_precision.validation.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-4])
    with pytest.raises(InputError, match="average_precision.validation.npy: .*evaluate again"):
        runs.average_precision(run, "validation")
    file.write_bytes(whole)
    with pytest.raises(InputError, match="train was not evaluated"):
        runs.average_precision(run, "train")
    assert result["train_positives"] == "excluded"
    assert result["ci95"][0] <= result["map@10"] <= result["ci95"][1]
    on_train = evaluate_run(run, corpus, "train", candidates=30)
    assert on_train["train_positives"] == "included"
    assert (on_train["candidates"], on_train["full"]) == (30, False)
    assert evaluate_run(run, corpus, "train", candidates=corpus.right.items)["full"]
    runs.record_evaluation(run, on_train)
    assert set(read_json(run.path / directory.EVALUATION)) == {"validation", "train"}
