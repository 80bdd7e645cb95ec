"""Checkpoint files: torn, damaged, foreign, left over, and how many of them stay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import restored, start, train

from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.evaluation.trained import evaluate_run
from gramrun.runs import checkpoints
from gramrun.training.loop import fit
from gramrun.training.trainer import Trainer


def names(run):
    return sorted(os.listdir(run.path / "checkpoints"))


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_state_that_is_not_finite_is_not_saved(tmp_path, make_config, corpus, value):
    run = start(tmp_path / "r", make_config(), corpus)
    trainer = Trainer(run.config, corpus)
    parameter = next(iter(trainer.model.parameters())).data
    parameter[0] = 3e38  # whose sum is infinite, unlike any of them
    checkpoints.save(run, trainer)
    parameter[1, 0] = float(value)
    trainer.step = 1
    with pytest.raises(RunError, match="step 1: .* is not finite; lower train.learning_rate"):
        checkpoints.save(run, trainer)
    assert names(run) == ["step-000000000.pt"]


@pytest.mark.parametrize("override", ["train.seed=1", "estimator.name=sampling"])
def test_the_checkpoint_of_another_run_is_refused(tmp_path, make_config, corpus, override):
    """Also where every shape agrees, so that torch alone would take it."""
    run = start(tmp_path / "r", make_config(), corpus)
    other, _ = train(tmp_path / "o", make_config(override), corpus)
    run.checkpoint_path(40).write_bytes(other.checkpoints()[-1].read_bytes())
    with pytest.raises(InputError, match="is the checkpoint of another configuration, command or corpus"):
        checkpoints.restore(run, Trainer(run.config, corpus))
    with pytest.raises(InputError, match="is the checkpoint of another"):
        evaluate_run(run, corpus, "validation")


def test_a_file_cut_at_any_length_is_torn(tmp_path, make_config, corpus):
    run, _ = train(tmp_path / "r", make_config(), corpus)
    file = run.checkpoints()[-1]
    whole = file.read_bytes()
    lengths = {*range(8), *range(0, len(whole), 4001), *range(len(whole) - 8, len(whole))}
    for length in sorted(lengths, reverse=True):
        os.truncate(file, length)
        with pytest.raises(checkpoints.TornCheckpoint, match=f"{file}: torn or damaged checkpoint"):
            checkpoints.load(file)


@pytest.mark.parametrize("damage", ["cut", "one bit"])
def test_training_goes_on_from_the_one_before_a_torn_one(tmp_path, make_config, corpus, caplog, damage):
    config = make_config("train.checkpoint_every=10")
    run, _ = train(tmp_path / "r", config, corpus)
    newest = run.checkpoints()[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 16  # in a tensor
    newest.write_bytes({"cut": bytes(content[:-1]), "one bit": bytes(content)}[damage])
    reopened, trainer, _ = restored(run.path, config, corpus)
    assert trainer.step == 30
    assert f"{newest}: torn or damaged checkpoint; falling back on the one before" in caplog.text
    fit(reopened, trainer, corpus)
    assert names(run) == ["step-000000030.pt", "step-000000040.pt", "step-000000040.torn"]
    assert checkpoints.load(newest)["trainer"]["step"] == 40


def test_a_torn_checkpoint_takes_no_place_among_those_kept(tmp_path, make_config, corpus):
    """With two kept, a torn newest one would otherwise push the only whole one out."""
    run, _ = train(tmp_path / "r", make_config("train.checkpoint_every=10"), corpus)
    os.truncate(run.checkpoints()[-1], 9)
    config = make_config("train.checkpoint_every=10", "train.checkpoints_kept=1")
    reopened, trainer, _ = restored(run.path, config, corpus)
    next(iter(trainer.steps()))
    checkpoints.save(reopened, trainer)
    assert [path.name for path in reopened.checkpoints()] == ["step-000000031.pt"]
    assert checkpoints.load_newest(reopened)["trainer"]["step"] == 31


def test_what_a_killed_save_left_is_removed_by_the_next_resume_and_save(tmp_path, make_config, corpus):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    config = make_config("train.checkpoint_every=10")
    run, _ = train(tmp_path / "r", config, corpus)
    half = run.path / "checkpoints" / f".step-000000033.pt.{dead.pid}.partial.pt"
    others = run.path / "checkpoints" / f".step-000000033.pt.{os.getppid()}.partial.pt"  # alive, and writing
    others.touch()
    half.touch()
    _, trainer, _ = restored(run.path, config, corpus)
    assert not half.exists()
    half.touch()
    checkpoints.save(run, trainer)
    assert names(run) == [others.name, "step-000000030.pt", "step-000000040.pt"]


def test_a_refused_resume_leaves_torn_files_where_they_are(tmp_path, make_config, corpus):
    run, _ = train(tmp_path / "r", make_config("train.checkpoint_every=10"), corpus)
    os.truncate(run.checkpoints()[-1], 9)
    with pytest.raises(ConfigError, match="is at step 30 already"):
        restored(run.path, make_config("train.checkpoint_every=10", "train.steps=20"), corpus)
    assert names(run) == ["step-000000030.pt", "step-000000040.pt"]


def test_all_is_on_the_disk_in_the_order_in_which_it_is_relied_on(tmp_path, make_config, corpus, monkeypatch):
    """Records, then the temporary file, then its new name: a power failure in between loses nothing relied on."""
    run = start(tmp_path / "r", make_config(), corpus)
    run.append_metrics({"step": 1})
    acts, fsync, replace = [], os.fsync, Path.replace

    def synced(descriptor):
        acts.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def renamed(self, target):
        acts.append(("rename", Path(target).name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    checkpoints.save(run, Trainer(run.config, corpus))
    file = "step-000000000.pt"
    order = [
        ("sync", "metrics.jsonl"),
        ("sync", "r"),
        ("sync", f".{file}.{os.getpid()}.partial.pt"),
        ("rename", file),
    ]
    assert [act for act in acts if act in order] == order
    assert acts[-1] == ("sync", "checkpoints")
