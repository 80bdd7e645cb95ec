"""A wall clock that jumps changes recorded times and nothing else."""

import datetime
import itertools
import time

import pytest
from injection import CONFIG, Command, assert_same, results, settings, succeed

from gramrun import runs
from gramrun.base.files import read_json

HOUR, DAY = 3600, 86_400
TRAINING = settings(
    "train.steps=60", "train.batch_size=64", "estimator.gramian_batch_size=32", "train.checkpoint_every=10",
    "evaluation.every=20", "gram_error.every=10", "gram_error.estimators=[{name: sogram}]",
)  # fmt: skip


def jump():
    """From 1970 on, each reading of the clock jumps an hour back or a day ahead, in turn."""
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


@pytest.mark.parametrize(
    "name", [name if name == "train" else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS]
)
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
        assert manifest["started"].startswith("1970-")  # the clock was really replaced
        seconds = [record["seconds"] for record in runs.open_run(jumping / "r").metrics()]
        assert seconds == sorted(seconds)
        assert 0 < seconds[0] <= seconds[-1] < HOUR
        assert manifest["seconds"] < HOUR


def test_periods_in_minutes_use_a_monotonic_clock(corpus_path, tmp_path):
    every = settings(
        f"data.path={corpus_path}", "evaluation.every='5 minutes'", "train.checkpoint_every='5 minutes'"
    )
    line = ["train", "--config", CONFIG, *TRAINING, *every, "--output", "r"]
    outcome = Command(tmp_path / "f", *line, before=jump).end()
    assert outcome.code == 0, outcome.err
    assert [record["step"] for record in runs.open_run(tmp_path / "f" / "r").metrics()] == [60]
