import json
import os

import pytest
import torch

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.base.files import read_json
from gramrun.base.interruption import Interrupted
from gramrun.evaluation.trained import evaluate_run
from gramrun.runs import checkpoints, directory, figures
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer


def start(path, config, corpus, **options):
    return runs.create(path, "train", config, corpus.content_hash, **options)


def run_to_the_end(path, config, corpus):
    run = start(path, config, corpus)
    fit(run, Trainer(config, corpus), corpus)
    return run


def timeless(run):
    """The metrics without what a clock decided."""
    return [{k: v for k, v in r.items() if "second" not in k} for r in run.metrics()]


def test_a_finished_run_holds_everything(tmp_path, make_config, corpus):
    run = run_to_the_end(tmp_path / "r", make_config("train.checkpoint_every=15"), corpus)
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
    assert {
        "command",
        "versions",
        "git_commit",
        "seed",
        "threads",
        "config_hash",
        "started",
        "finished",
    } <= set(manifest)
    assert runs.open_run(run.path).config == run.config


def test_existing_directories_are_never_overwritten(tmp_path, make_config, corpus):
    config = make_config()
    run = start(tmp_path / "r", config, corpus)
    (run.path / "note.txt").write_text("mine")
    with pytest.raises(
        InputError, match="exists already; continue it with --resume or replace it with --force"
    ):
        start(run.path, config, corpus)
    start(run.path, config, corpus, force=True)
    assert not (run.path / "note.txt").exists()
    other = tmp_path / "photos"
    other.mkdir()
    (other / "a.jpg").write_text("x")
    with pytest.raises(InputError, match="is not a run directory, so --force will not replace it"):
        start(other, config, corpus, force=True)
    (tmp_path / "empty").mkdir()
    start(tmp_path / "empty", config, corpus)


def resume(run, config, corpus):
    reopened = runs.resume(run.path, "train", config, corpus.content_hash)
    trainer = Trainer(config, corpus)
    saved = checkpoints.restore(reopened, trainer)
    fit(reopened, trainer, corpus, saved.get("losses", ()))
    return reopened


def test_resume_may_lengthen(tmp_path, make_config, corpus):
    longer = make_config("train.steps=60")
    run = resume(run_to_the_end(tmp_path / "r", make_config(), corpus), longer, corpus)
    straight = run_to_the_end(tmp_path / "s", longer, corpus)
    # The 40-step run wrote its last record at 40, which is also where evaluation.every=20 falls.
    assert timeless(run) == timeless(straight)
    assert runs.open_run(run.path).config == longer
    assert run.manifest["config_hash"] == straight.manifest["config_hash"]


def test_resume_may_change_nothing_else(tmp_path, make_config, corpus):
    run = run_to_the_end(tmp_path / "r", make_config(), corpus)
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    refused = {
        "estimator.alpha=0.5": r"was started with another estimator\.alpha; --resume may change only",
        "train.seed=1": r"another train\.seed",
        "train.steps=10": "is at step 40 already; train.steps or train.epochs asks for 10 steps",
    }
    for override, message in refused.items():
        with pytest.raises(ConfigError, match=message):
            resume(run, make_config(override), corpus)
    with pytest.raises(InputError, match="was made by `gramrun train`; resume it with that command"):
        runs.resume(run.path, "gram-error", run.config, corpus.content_hash)
    with pytest.raises(InputError, match="holds another corpus"):
        runs.resume(run.path, "train", make_config("train.steps=90"), "0" * 64)
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before


def test_a_run_shortened_to_its_checkpoint_still_gets_its_last_record(tmp_path, make_config, corpus):
    run = run_to_the_end(tmp_path / "r", make_config("train.checkpoint_every=15"), corpus)
    run.checkpoints()[-1].unlink()  # killed after the checkpoint of step 30
    shorter = make_config("train.checkpoint_every=15", "train.steps=30")
    assert [r["step"] for r in resume(run, shorter, corpus).metrics()] == [20, 30]


def test_damaged_run_files_are_named(tmp_path, make_config, corpus):
    run = run_to_the_end(tmp_path / "r", make_config(), corpus)
    (run.path / "metrics.jsonl").write_text('{"step": 1\n{"step": 2}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl: has 23 bytes instead of"):
        run.metrics()
    run.update_manifest(files={})  # as while it goes on
    with pytest.raises(InputError, match=r"metrics\.jsonl line 1: damaged"):
        run.metrics()
    (run.path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"manifest\.json: damaged \(kind\)"):
        runs.open_run(run.path)


@pytest.mark.parametrize(
    "files", [7, [1], {"config.yaml": []}, {"config.yaml": {"bytes": "1", "sha256": ""}}]
)
def test_a_manifest_that_was_edited_is_refused(tmp_path, make_config, corpus, files):
    """With a checksum in order, and with none, as older versions wrote it."""
    run = start(tmp_path / "r", make_config(), corpus)
    run.update_manifest(files=files)
    for _ in range(2):
        with pytest.raises(InputError, match=r"manifest\.json: damaged \(files\)"):
            runs.open_run(run.path)
        content = json.loads((run.path / "manifest.json").read_text())
        (run.path / "manifest.json").write_text(
            json.dumps({k: v for k, v in content.items() if k != "checksum"})
        )


def test_resume_on_other_data_is_refused(tmp_path, make_config, corpus):
    run = start(tmp_path / "r", make_config(), corpus)
    with pytest.raises(InputError, match="holds another corpus"):
        runs.check_same_data(run, "0" * 64)


def test_interruption_saves_and_resume_ends_like_a_straight_run(tmp_path, make_config, corpus, monkeypatch):
    config = make_config()
    straight = run_to_the_end(tmp_path / "straight", config, corpus)
    run = start(tmp_path / "r", config, corpus)
    trainer = Trainer(config, corpus)
    original = trainer.steps

    def interrupted_at_25():
        for record in original():
            if record.step == 25:
                os.kill(os.getpid(), 2)
            yield record

    monkeypatch.setattr(trainer, "steps", interrupted_at_25)
    with pytest.raises(
        Interrupted, match=r"interrupted at step 25 of 40, state saved; go on with .*--resume"
    ):
        fit(run, trainer, corpus)
    assert run.manifest["status"] == "interrupted"
    assert [p.name for p in run.checkpoints()] == ["step-000000025.pt"]
    resumed = resume(run, config, corpus)
    assert timeless(resumed) == timeless(straight)
    assert resumed.manifest["status"] == "finished"


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


def test_a_torn_metrics_line_is_left_out(tmp_path, make_config, corpus):
    run = start(tmp_path / "r", make_config(), corpus)
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
    with (run.path / directory.METRICS).open("a") as file:
        file.write('{"step": 4, "lo')
    assert [r["step"] for r in run.metrics()] == [1, 2, 3]
    run.truncate_metrics(2)
    assert [r["step"] for r in run.metrics()] == [1, 2]
    assert (run.path / directory.METRICS).read_text().endswith("\n")


def test_evaluation_matches_the_last_metrics(tmp_path, make_config, corpus):
    run = run_to_the_end(tmp_path / "r", make_config(), corpus)
    result = evaluate_run(run, corpus, "validation")
    assert result["map@10"] == run.metrics()[-1]["map@10"]
    expected = {
        "map@10", "map@10_relevant", "recall@10", "recall@100", "ndcg@10", "left_items", "candidates",
        "train_positives", "ci95", "seconds", "candidate_hash", "popularity",
    }  # fmt: skip
    assert expected <= set(json.loads(json.dumps(result)))
    assert result["train_positives"] == "excluded"
    assert result["ci95"][0] <= result["map@10"] <= result["ci95"][1]
    train = evaluate_run(run, corpus, "train", candidates=30)
    assert train["train_positives"] == "included"
    assert (train["candidates"], train["full"]) == (30, False)
    assert evaluate_run(run, corpus, "train", candidates=corpus.right.items)["full"]
    runs.record_evaluation(run, result)
    runs.record_evaluation(run, train)
    assert set(read_json(run.path / directory.EVALUATION)) == {"validation", "train"}


def test_evaluating_an_untrained_run_is_refused(tmp_path, make_config, corpus):
    run = start(tmp_path / "r", make_config(), corpus)
    with pytest.raises(InputError, match="has no checkpoint yet; train it first"):
        evaluate_run(run, corpus, "validation")


def test_a_disk_that_fills_is_one_line_and_keeps_the_last_checkpoint(
    tmp_path, make_config, corpus, monkeypatch
):
    config = make_config("train.checkpoint_every=10")
    run = start(tmp_path / "r", config, corpus)
    saved, original = [], torch.save

    def full(state, path, *args, **kwargs):
        saved.append(path)
        original(state, path)
        if len(saved) == 3:
            path.write_bytes(path.read_bytes()[:100])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(RunError, match="No space left on device.*the last good checkpoint is"):
        fit(run, Trainer(config, corpus), corpus)
    monkeypatch.undo()
    assert checkpoints.load_newest(run)["trainer"]["step"] == 20
    assert not [p for p in (run.path / "checkpoints").iterdir() if "partial" in p.name]


def test_labels_say_what_differs(make_config):
    base, seed, alpha, gravity = (
        make_config(*o) for o in ([], ["train.seed=4"], ["estimator.alpha=0.5"], ["train.gravity=3"])
    )
    assert figures.labels([base, seed]) == ["SOGram α=0.1", "SOGram α=0.1"]
    assert figures.labels([base, alpha]) == ["SOGram α=0.1", "SOGram α=0.5"]
    assert figures.labels([base, gravity]) == ["SOGram α=0.1, gravity 10", "SOGram α=0.1, gravity 3"]
