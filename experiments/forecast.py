"""How long runs will take, from how long runs like them have taken.

A run's seconds per step, evaluations included, are those of finished runs: with the same data set, config and
settings but for the seed, where there are such; else with the same data set and config; else with the data
set; else of all that are known. Nothing is known before the first run has finished.
"""

from __future__ import annotations

import heapq
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from experiments.tasks import Task
from gramrun import runs
from gramrun.data.shards import read_manifest
from gramrun.errors import GramrunError


class Forecast:
    """Seconds that tasks will take; it learns from each that has finished.

    Args:
        tasks: those that will be asked about, and finished ones, which are learnt from.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._pace: dict[tuple[str, ...], list[float]] = defaultdict(list)
        self._steps: dict[Task, int] = {}
        for task in tasks:
            config = task.wanted()
            pairs = read_manifest(config.data.path)["corpus"]["train_pairs"]
            self._steps[task] = config.train.total_steps(pairs)
            self.learn(task)

    def learn(self, task: Task) -> None:
        """Learn from a task's run, if there is one and it has finished."""
        try:
            manifest = runs.open_run(task.output).manifest
        except GramrunError:
            return
        if manifest["status"] == "finished":
            for likeness in _likenesses(task):
                self._pace[likeness].append(manifest["seconds"] / self._steps[task])

    def seconds(self, task: Task) -> float | None:
        """What the whole of a task will take; None where nothing like it is known."""
        for likeness in _likenesses(task):
            if likeness in self._pace:
                return self._steps[task] * statistics.fmean(self._pace[likeness])
        return None


def together(seconds: Sequence[float], cores: int) -> float:
    """How long tasks take on so many cores, each on one of them, begun in the order given."""
    free = [0.0] * cores
    for taken in seconds:
        heapq.heappush(free, heapq.heappop(free) + taken)
    return max(free)


def in_words(seconds: float) -> str:
    """A duration, roughly."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _likenesses(task: Task) -> list[tuple[str, ...]]:
    """Kinds of runs that a task is one of, the narrowest first."""
    dataset, config = task.config.parent.name, task.config.name
    settings = tuple(o for o in task.overrides if not o.startswith("train.seed="))
    return [
        (task.command, dataset, config, *settings),
        (task.command, dataset, config),
        (task.command, dataset),
        (),
    ]
