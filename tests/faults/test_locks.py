"""Two processes on one directory: the second is refused in one line and touches nothing, whoever they are."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from injection import BASELINE, CONFIG, Command, gramrun, settings, succeed

from gramrun.base.errors import InputError, RunError
from gramrun.base.files import read_json
from gramrun.base.locks import locked
from gramrun.runs import checkpoints
from gramrun.runs import lifecycle as runs

ROOT = Path(__file__).parents[2]
LONG = settings("train.steps=1000000", "train.batch_size=64", "train.checkpoint_every=10",
                "estimator.gramian_batch_size=32", "evaluation.every=0")  # fmt: skip


def data(corpus_path):
    return settings(f"data.path={corpus_path}")


def lines(corpus_path):
    """Commands that write the directory r."""
    return {
        "train": ["train", "--config", CONFIG, *LONG, *data(corpus_path), "--output", "r"],
        "gram-error": ["gram-error", "--config", CONFIG, *LONG, *data(corpus_path), "--output", "r"],
        "baseline": ["baseline", "--config", BASELINE, *data(corpus_path), "--output", "r"],
        "prepare": ["prepare", "synthetic", "--output", "r"],
    }


@pytest.fixture
def training(corpus_path, tmp_path):
    """A training of r under way, in a folder; it is killed at the end."""
    command = Command(tmp_path / "f", *lines(corpus_path)["train"])
    command.wait_for(lambda: list((tmp_path / "f" / "r").glob("checkpoints/step-*.pt")))
    yield tmp_path / "f", command
    command.kill()


def refused(outcome, number, path="r"):
    """It names who holds the lock: process, command, since when; and what to do."""
    assert outcome.code == 2
    assert re.fullmatch(
        rf"{path}: is being written by process {number} on \S+ since \S+ \(gramrun .+\); "
        "wait until that has ended, or stop it",
        outcome.one_line(),
    ), outcome.err


@pytest.mark.parametrize(
    "second", ["train", "train --force", "train --resume", "gram-error --force", "baseline --force"]
)
def test_a_run_under_way_is_left_alone(training, corpus_path, second):
    folder, first = training
    name, *flags = second.split()
    manifest = (folder / "r" / "manifest.json").read_bytes()
    refused(gramrun(folder, *lines(corpus_path)[name], *flags), first.number)
    assert first.running()
    assert (folder / "r" / "manifest.json").read_bytes() == manifest
    assert sorted(os.listdir(folder)) == [".r.lock", "r"]


def test_readers_and_dry_runs_take_no_lock(training, corpus_path):
    folder, first = training
    succeed(folder, "evaluate", "r")
    succeed(folder, *lines(corpus_path)["train"], "--dry-run")
    assert first.running()


def test_the_newest_checkpoint_is_read_while_newer_ones_replace_it(corpus_path, tmp_path):
    """One is kept, and each step makes another: what has just been listed may be gone."""
    line = lines(corpus_path)["train"]
    often = settings("train.checkpoint_every=1", "train.checkpoints_kept=1")
    command = Command(tmp_path / "f", *line, *often)
    command.wait_for(lambda: list((tmp_path / "f").glob("r/checkpoints/step-*.pt")))
    run = runs.open_run(tmp_path / "f" / "r")
    steps = [checkpoints.load_newest(run)["trainer"]["step"] for _ in range(100)]
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]
    assert command.kill()


@pytest.mark.parametrize("name", ["prepare", "gram-error", "baseline"])
def test_each_writer_holds_its_lock(corpus_path, tmp_path, name):
    """Seen from outside, while it runs: by its file, and by the refusal of a second one."""
    line = lines(corpus_path)[name]
    slow = {
        "prepare": settings("synthetic.left_items=100000"),
        "gram-error": [],
        "baseline": settings("baseline.sweeps=100000", "baseline.tolerance=0"),
    }
    first = Command(tmp_path / "f", *line, *slow[name])
    holder = tmp_path / "f" / ".r.lock"
    first.wait_for(lambda: holder.exists() and holder.read_text().endswith("}"))
    os.kill(first.number, signal.SIGSTOP)  # it must not end meanwhile
    refused(gramrun(tmp_path / "f", *line), first.number)
    assert first.kill()
    assert holder.exists()  # but the kernel has freed it
    if name == "gram-error":
        return  # which would take as long again
    succeed(tmp_path / "f", *line, *(["--force"] if (tmp_path / "f" / "r").exists() else []))
    assert os.listdir(tmp_path / "f") == ["r"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_gives_the_lock_back(corpus_path, tmp_path, number):
    command = Command(tmp_path / "f", *lines(corpus_path)["train"])
    command.wait_for(lambda: list((tmp_path / "f").glob("r/checkpoints/step-*.pt")))
    os.kill(command.number, number)
    assert command.end().code == 130
    assert os.listdir(tmp_path / "f") == ["r"]


def test_a_refusal_gives_the_lock_back_and_leaves_no_folders(corpus_path, tmp_path):
    line = [*lines(corpus_path)["train"][:-1], "deep/down/r", *settings("train.batch_size=10000000")]
    assert gramrun(tmp_path / "f", *line).code == 2
    assert os.listdir(tmp_path / "f") == []


def test_two_evaluations_at_once_lose_neither_result(corpus_path, tmp_path):
    folder = tmp_path / "f"
    succeed(folder, *lines(corpus_path)["train"], *settings("train.steps=20"))
    for _ in range(3):
        (folder / "r" / "evaluation.json").unlink(missing_ok=True)
        with locked(folder / "r" / "evaluation.json"):  # given back while both are under way
            both = [Command(folder, "evaluate", "r", "--split", s) for s in ("train", "validation")]
        assert [command.end().code for command in both] == [0, 0]
        assert set(read_json(folder / "r" / "evaluation.json")) == {"train", "validation"}
    assert not list(folder.rglob("*.lock"))


RECORDER = """
import pathlib, sys
from gramrun.runs import lifecycle as runs
run = runs.open_run(pathlib.Path(sys.argv[1]))
for turn in range(int(sys.argv[3])):
    runs.record_evaluation(run, {"split": f"{sys.argv[2]} {turn}"})
"""


def test_results_recorded_at_once_are_all_kept(corpus_path, tmp_path):
    """Two processes that read, add and write the same file all the time: without a lock they lose some."""
    succeed(tmp_path / "f", *lines(corpus_path)["train"], *settings("train.steps=2"))
    run, turns = tmp_path / "f" / "r", 50
    both = [
        subprocess.Popen([sys.executable, "-c", RECORDER, str(run), name, str(turns)]) for name in ("a", "b")
    ]
    assert [process.wait(120) for process in both] == [0, 0]
    found = read_json(run / "evaluation.json")
    assert set(found) == {f"{name} {turn}" for name in ("a", "b") for turn in range(turns)}


HOLDER = """
import sys, pathlib
from gramrun.base.locks import locked
for turn in range(int(sys.argv[2])):
    with locked(pathlib.Path(sys.argv[1]), wait_seconds=60):
        counter = pathlib.Path(sys.argv[1])
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_no_two_ever_hold_it(tmp_path):
    """Four processes count in one file, a hundred times each; it is unlinked each time the lock is given back."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", HOLDER, str(counter), "100"]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    assert counter.read_text() == "400"
    assert os.listdir(tmp_path) == ["counter"]


def test_the_same_folder_by_another_name_is_the_same(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    names = (tmp_path / "real", tmp_path / "link", Path("."), Path("../real"))
    for one in names:
        for other in names:
            with locked(one), pytest.raises(InputError, match="is being written by process"), locked(other):
                pass
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_a_lock_file_of_anything_is_taken_over(tmp_path):
    """As a killed process left it, half-written, or another program."""
    for content in ("", "{", "[]", '{"process": 1}', "\x00"):
        (tmp_path / ".r.lock").write_text(content)
        with locked(tmp_path / "r"):
            assert json.loads((tmp_path / ".r.lock").read_text())["process"] == os.getpid()
        assert not os.listdir(tmp_path)


def test_a_folder_that_cannot_be_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match="cannot be written: (Not a directory|File exists)"),
        locked(tmp_path / "file" / "r"),
    ):
        pass


def test_without_kernel_locks_the_librarys_own_stand_in(tmp_path, monkeypatch):
    """As on some network file systems, whose flock says that it is not implemented."""

    def flock(*arguments):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            locked(tmp_path / "r"),
            pytest.raises(InputError, match="is being written"),
            locked(tmp_path / "r"),
        ):
            pass
        with locked(tmp_path / "r"):
            pass
    assert not os.listdir(tmp_path)


def test_one_reproduction_at_a_time(tmp_path):
    """A second one is refused before it prepares or runs anything; another folder's is another matter."""
    for name in ("configs", "experiments", "gramrun"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "experiments.reproduce.pipeline"]
    (tmp_path / "results").mkdir()
    with locked(tmp_path / "results"):
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert second.returncode == 2, second.stderr
    assert second.stderr.startswith("reproduce: results: is being written by process")
    assert not (tmp_path / "data").exists()


def test_a_run_of_another_is_not_noted_as_failed(training, corpus_path):
    """The main job is refused by a run that a user goes on with, and leaves its manifest alone."""
    from experiments.reproduce.jobs import Task, remember_failure

    folder, first = training
    remember_failure(Task("train", CONFIG, (), folder / "r"), "refused")
    assert read_json(folder / "r" / "manifest.json")["status"] == "running"
    first.kill()
    remember_failure(Task("train", CONFIG, (), folder / "r"), "killed")
    assert read_json(folder / "r" / "manifest.json")["status"] == "failed"
