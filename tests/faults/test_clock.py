"""A clock that jumps: nothing but what is recorded of the time depends on it."""

import datetime
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from injection import CONFIG, Command, assert_same, results, settings, succeed

from gramrun.base.files import read_json
from gramrun.runs import lifecycle as runs

HOUR, DAY = 3600, 86_400
FAKETIME = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)

TRAINING = settings(
    "train.steps=60", "train.batch_size=64", "estimator.gramian_batch_size=32", "train.checkpoint_every=10",
    "evaluation.every=20", "gram_error.every=10", "gram_error.estimators=[{name: sogram}]",
)  # fmt: skip


def jump():
    """An hour back and a day on, in turn, at each question of what time it is; the process starts in 1970."""
    shifts = itertools.cycle([-HOUR, DAY])
    real = time.time

    def now():
        jump.shift += next(shifts)
        return real() % DAY + jump.shift

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(now(), tz)

    jump.shift = 0
    time.time, time.time_ns = now, lambda: int(now() * 1e9)
    datetime.datetime = Jumping
    from gramrun.base import provenance

    provenance.datetime = Jumping


COMMANDS = {
    "prepare": [["prepare", "synthetic", "--output", "d", *settings("synthetic.left_items=300")]],
    "train": [
        ["train", "--config", CONFIG, *TRAINING, *settings("train.steps=40"), "--output", "r"],
        ["train", "--config", CONFIG, *TRAINING, "--output", "r", "--resume"],
        ["evaluate", "r"],
    ],
    "gram-error": [["gram-error", "--config", CONFIG, *TRAINING, "--output", "r"]],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_jumps_change_no_result(corpus_path, tmp_path, name):
    straight, jumping = tmp_path / "straight", tmp_path / "jumping"
    for line in COMMANDS[name]:
        line = [*line, *(settings(f"data.path={corpus_path}") if line[0] in ("train", "gram-error") else [])]
        succeed(straight, *line)
        outcome = Command(jumping, *line, before=jump).end()
        assert outcome.code == 0, outcome.err
    assert_same(jumping, results(straight))
    if name == "train":
        manifest = read_json(jumping / "r" / "manifest.json")
        assert manifest["started"].startswith("1970-")  # it was really misled
        seconds = [record["seconds"] for record in runs.open_run(jumping / "r").metrics()]
        assert seconds == sorted(seconds)
        assert seconds[0] > 0 and seconds[-1] < HOUR
        assert manifest["seconds"] < HOUR


def test_minutes_of_training_are_counted_by_a_clock_that_cannot_jump(corpus_path, tmp_path):
    """Every 5 minutes, with a wall clock that goes a day on and an hour back at each look."""
    line = ["train", "--config", CONFIG, *TRAINING, *settings(f"data.path={corpus_path}", "evaluation.every='5 minutes'",
            "train.checkpoint_every='5 minutes'"), "--output", "r"]  # fmt: skip
    outcome = Command(tmp_path / "f", *line, before=jump).end()
    assert outcome.code == 0, outcome.err
    assert [record["step"] for record in runs.open_run(tmp_path / "f" / "r").metrics()] == [
        60
    ]  # the last step


@pytest.mark.skipif(FAKETIME is None, reason="needs Debian's libfaketime")
@pytest.mark.parametrize("start", ["1970-01-02 00:00:00", "2106-02-07 06:28:15"])
def test_a_process_that_starts_in_another_age(corpus_path, tmp_path, start):
    """Under the system's own idea of the time, which C libraries share; an hour passes each second."""
    straight, elsewhen = tmp_path / "straight", tmp_path / "elsewhen"
    line = [*COMMANDS["train"][1][:-1], *settings(f"data.path={corpus_path}")]
    succeed(straight, *line)
    elsewhen.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(FAKETIME), "FAKETIME": f"@{start} x3600",
                   "FAKETIME_DONT_FAKE_MONOTONIC": "1"}  # fmt: skip
    command = [sys.executable, "-m", "gramrun", *map(str, line)]
    done = subprocess.run(command, cwd=elsewhen, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert read_json(elsewhen / "r" / "manifest.json")["started"].startswith(start[:3])
    assert_same(elsewhen, results(straight))
