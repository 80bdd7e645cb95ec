"""Two processes that write one directory: the second is refused in one line and changes nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import BASELINE, CONFIG, ROOT, SMALL, settings, timeless
from injection import Command, gramrun, succeed

from gramrun import runs
from gramrun.base.errors import InputError
from gramrun.base.files import read_json
from gramrun.base.locks import locked
from gramrun.runs import checkpoints

LONG = settings(*SMALL, "train.steps=1000000", "train.checkpoint_every=10", "evaluation.every=0")


@pytest.fixture
def lines(corpus_path):
    """Commands that write the directory r."""
    data = settings(f"data.path={corpus_path}")
    return {
        "train": ["train", "--config", CONFIG, *LONG, *data, "--output", "r"],
        "gram-error": ["gram-error", "--config", CONFIG, *LONG, *data, "--output", "r"],
        "baseline": ["baseline", "--config", BASELINE, *data, "--output", "r"],
        "prepare": ["prepare", "synthetic", "--output", "r"],
    }


@pytest.fixture
def training(lines, tmp_path):
    """A training of r under way in a folder, with a first checkpoint; killed at the end."""
    command = Command(tmp_path / "f", *lines["train"])
    command.wait_for(lambda: list((tmp_path / "f" / "r").glob("checkpoints/step-*.pt")))
    yield tmp_path / "f", command
    command.kill()


def assert_refused(outcome, number):
    """One line that names the process that holds the lock."""
    assert outcome.code == 2
    assert outcome.one_line().startswith(f"r: is being written by process {number} on ")


def test_a_run_under_way_is_left_alone_and_can_be_read(training, lines):
    folder, first = training
    manifest = (folder / "r" / "manifest.json").read_bytes()
    for name, *flags in (
        ["train"],
        ["train", "--force"],
        ["train", "--resume"],
        ["gram-error", "--force"],
        ["baseline", "--force"],
    ):
        assert_refused(gramrun(folder, *lines[name], *flags), first.number)
    succeed(folder, *lines["train"], "--dry-run")
    assert (folder / "r" / "manifest.json").read_bytes() == manifest
    assert sorted(os.listdir(folder)) == [".r.lock", "r"]
    succeed(folder, "evaluate", "r")
    assert first.running()


def test_the_newest_checkpoint_can_be_read_while_newer_ones_replace_it(lines, tmp_path):
    """With one kept, a listed checkpoint may be gone when it is opened."""
    often = settings("train.checkpoint_every=1", "train.checkpoints_kept=1")
    command = Command(tmp_path / "f", *lines["train"], *often)
    command.wait_for(lambda: list((tmp_path / "f").glob("r/checkpoints/step-*.pt")))
    run = runs.open_run(tmp_path / "f" / "r")
    steps = [checkpoints.load_newest(run)["trainer"]["step"] for _ in range(100)]
    assert command.kill()
    assert steps == sorted(steps)
    assert steps[-1] > steps[0]


SLOWER = {
    "prepare": settings("synthetic.left_items=100000"),
    "gram-error": [],
    "baseline": settings("baseline.sweeps=100000", "baseline.tolerance=0"),
}


@pytest.mark.parametrize("name", SLOWER)
def test_each_writer_holds_its_lock_until_it_is_killed(lines, tmp_path, name):
    first = Command(tmp_path / "f", *lines[name], *SLOWER[name])
    lock = tmp_path / "f" / ".r.lock"
    first.wait_for(lambda: lock.exists() and lock.read_text().endswith("}"))
    os.kill(first.number, signal.SIGSTOP)  # it must not end meanwhile
    assert_refused(gramrun(tmp_path / "f", *lines[name]), first.number)
    assert first.kill()
    with locked(tmp_path / "f" / "r"):  # the kernel has freed it
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_releases_its_lock(training, number):
    folder, command = training
    os.kill(command.number, number)
    ended = command.end()
    assert ended.code == 130
    assert "state saved; go on with `gramrun train --output r --resume`" in ended.err
    assert os.listdir(folder) == ["r"]


def test_a_refused_command_leaves_no_lock_and_no_folders(lines, tmp_path):
    line = [*lines["train"][:-1], "deep/down/r", *settings("train.batch_size=10000000")]
    assert gramrun(tmp_path / "f", *line).code == 2
    assert os.listdir(tmp_path / "f") == []


def test_two_evaluations_at_once_record_what_two_in_turn_do(lines, tmp_path):
    folder = tmp_path / "f"
    succeed(folder, *lines["train"], *settings("train.steps=20"))
    with locked(folder / "r" / "evaluation.json"):  # both wait for it
        both = [Command(folder, "evaluate", "r", "--split", s) for s in ("train", "validation")]
    assert [command.end().code for command in both] == [0, 0]
    assert not list(folder.rglob("*.lock"))
    at_once = {split: timeless(r) for split, r in read_json(folder / "r" / "evaluation.json").items()}
    (folder / "r" / "evaluation.json").unlink()
    for split in ("train", "validation"):
        succeed(folder, "evaluate", "r", "--split", split)
    in_turn = {split: timeless(r) for split, r in read_json(folder / "r" / "evaluation.json").items()}
    assert at_once == in_turn and in_turn.keys() == {"train", "validation"}


COUNT = """
import sys, pathlib
from gramrun.base.locks import locked
for turn in range(100):
    with locked(pathlib.Path(sys.argv[1]), wait_seconds=60):
        counter = pathlib.Path(sys.argv[1])
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_no_two_processes_ever_hold_a_lock(tmp_path):
    """Four processes count in one file, 100 times each; the lock file is unlinked at each release."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", COUNT, str(counter)]
    processes = [subprocess.Popen(command, cwd=ROOT) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    assert counter.read_text() == "400"
    assert os.listdir(tmp_path) == ["counter"]


def test_two_names_of_one_folder_share_a_lock(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    for other in (tmp_path / "link", Path(".")):
        with (
            locked(tmp_path / "real"),
            pytest.raises(InputError, match="is being written by process"),
            locked(other),
        ):
            pass
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_a_stale_lock_file_is_taken_over(tmp_path):
    for content in ("", "{", '{"process": 1}'):
        (tmp_path / ".r.lock").write_text(content)
        with locked(tmp_path / "r"):
            assert json.loads((tmp_path / ".r.lock").read_text())["process"] == os.getpid()
        assert not os.listdir(tmp_path)


def test_one_reproduction_at_a_time(tmp_path):
    """The second is refused before it prepares or runs anything."""
    for name in ("configs", "experiments", "gramrun"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "results").mkdir()
    with locked(tmp_path / "results"):
        command = [sys.executable, "-m", "experiments.reproduce"]
        second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert second.returncode == 2, second.stderr
    assert second.stderr.startswith("reproduce: results: is being written by process")
    assert not (tmp_path / "data").exists()


def test_a_reproduction_does_not_mark_a_run_of_another_process_as_failed(training):
    from experiments.reproduce.jobs import Task, remember_failure

    folder, first = training
    remember_failure(Task("train", CONFIG, (), folder / "r"), "refused")
    assert read_json(folder / "r" / "manifest.json")["status"] == "running"
    first.kill()
    remember_failure(Task("train", CONFIG, (), folder / "r"), "killed")
    assert read_json(folder / "r" / "manifest.json")["status"] == "failed"
