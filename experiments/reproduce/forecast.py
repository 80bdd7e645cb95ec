"""How long jobs will take, from how long jobs like them have taken.

A run's seconds per step, evaluations included, are those of finished runs: with the same data set, config and
settings but for the seed, where there are such; else with the same data set and config; else with the data
set; else of all that are known. Baselines and scripts have no steps: they take what their like has taken.
Nothing is known before the first job has finished.
"""

from __future__ import annotations

import heapq
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from experiments.reproduce.jobs import Job, Script, seconds_of
from gramrun.config import RunConfig
from gramrun.data.shards import read_manifest


class Forecast:
    """Seconds that jobs will take; it learns from each that has finished.

    Args:
        jobs: those that will be asked about, and finished ones, which are learnt from.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._pace: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._steps: dict[Job, int] = {}
        for job in jobs:
            self._steps[job] = _steps_of(job)
            self.learn(job)

    def learn(self, job: Job) -> None:
        """Learn from a job, if it has finished."""
        seconds = seconds_of(job)
        if seconds is not None:
            for likeness in _likenesses(job):
                self._pace[likeness].append(seconds / self._steps[job])

    def seconds(self, job: Job) -> float | None:
        """What the whole of a job will take; None where nothing like it is known."""
        for likeness in _likenesses(job):
            if likeness in self._pace:
                return self._steps[job] * statistics.fmean(self._pace[likeness])
        return None


def together(seconds: Sequence[float], cores: int) -> float:
    """How long jobs take on so many cores, each on one of them, begun in the order given."""
    free = [0.0] * cores
    for taken in seconds:
        heapq.heappush(free, heapq.heappop(free) + taken)
    return max(free)


def _steps_of(job: Job) -> int:
    """The steps of a run; 1 for what has none."""
    config = None if isinstance(job, Script) else job.wanted()
    if not isinstance(config, RunConfig):
        return 1
    return config.train.total_steps(read_manifest(config.data.path)["corpus"]["train_pairs"])


def _likenesses(job: Job) -> list[tuple[str, ...]]:
    """Kinds of jobs that a job is one of, the narrowest first."""
    if isinstance(job, Script):
        return [(job.module, *job.arguments), (job.module,)]
    dataset, config = job.config.parent.name, job.config.name
    settings = tuple(o for o in job.overrides if not o.startswith(("train.seed=", "baseline.seed=")))
    narrow = [(job.command, dataset, config, *settings), (job.command, dataset, config)]
    return narrow if job.command == "baseline" else [*narrow, (job.command, dataset), ()]
