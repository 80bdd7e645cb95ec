"""A wall clock that jumps changes recorded times and nothing else."""

import datetime
import itertools
import time

from helpers import CONFIG, SMALL, settings
from injection import Command, assert_same, results, succeed

from gramrun import runs

HOUR, DAY = 3600, 86_400
TRAINING = settings(
    *SMALL, "evaluation.every=20", "gram_error.every=10", "gram_error.estimators=[{name: sogram}]"
)


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


def test_jumps_change_no_result(corpus_path, tmp_path):
    straight, jumping = tmp_path / "straight", tmp_path / "jumping"
    every = "train.checkpoint_every='5 minutes'"  # of a monotonic clock: never in so short a run
    data = settings(f"data.path={corpus_path}", every)
    line = ["train", "--config", CONFIG, *TRAINING, *data, "--output", "r"]
    for arguments in ([*line, *settings("train.steps=20")], [*line, "--resume"], ["evaluate", "r"]):
        succeed(straight, *arguments)
        outcome = Command(jumping, *arguments, before=jump).end()
        assert outcome.code == 0, outcome.err
    assert_same(jumping, results(straight))
    run = runs.open_run(jumping / "r")
    assert run.manifest["started"].startswith("1970-")  # the clock was really replaced
    assert len(run.checkpoints()) == 2  # at the end of each command
    seconds = [record["seconds"] for record in run.metrics()]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] <= seconds[-1] < HOUR
    assert run.manifest["seconds"] < HOUR
