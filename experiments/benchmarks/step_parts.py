"""Where the time of a compiled step goes: a stopwatch around each of its parts.

A part's time is its own: what a part within it takes is not counted twice. What counts is the thread that
takes the steps, whose parts add up to the step's time on the clock. Where the towers work side by side, it
embeds and walks back the right one and updates its share of the tables, and then waits for the left one's.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from gramrun.data.batches import IndexStream
from gramrun.data.corpus import SplitCorpus
from gramrun.gramian.population import Population
from gramrun.model import bags, compiled_engine
from gramrun.model.compiled_engine import CompiledEngine
from gramrun.model.towers import Tower
from gramrun.training import step
from gramrun.training.trainer import Trainer

REST = "the rest: Python between the parts"


class Stopwatch:
    """Seconds by part, of the thread that made it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._within: list[float] = []  # seconds of the parts inside each part that is running
        self._thread = threading.get_ident()

    def timed(self, part: str | Callable[[], str], function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose time counts for a part, or for the one that a function names when called."""

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread:
                return function(*arguments, **named)
            name = part if isinstance(part, str) else part()
            self._within.append(0.0)
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                seconds = time.perf_counter() - started
                self.seconds[name] += seconds - self._within.pop()
                if self._within:
                    self._within[-1] += seconds

        return call


def _forward() -> str:
    which = "B'" if torch.is_grad_enabled() else "the Gramian batch B"
    return f"dense forward of {which}"


@contextmanager
def watched(trainer: Trainer) -> Iterator[Stopwatch]:
    """Time the parts of a trainer's steps; it must have the compiled engine."""
    watch, engine = Stopwatch(), trainer.engine
    assert isinstance(engine, CompiledEngine)
    parts: list[tuple[object, str, str | Callable[[], str]]] = [
        (IndexStream, "batch", "drawing B' and B"),
        (Population, "members", "drawing B' and B"),
        (bags, "count_rows", "listing the rows of their bags"),
        (bags, "list_rows", "listing the rows of their bags"),
        (engine, "gather", "making room for the inputs"),
        (bags, "gather_bags", "gathering the rows"),
        (Tower, "dense", _forward),
        (step, "observe", "Gramian update"),
        (trainer.objective, "terms", "objective and its gradient"),
        (torch.Tensor, "backward", "objective and its gradient"),
        (step, "backward_through_tower", "dense backward"),
        (bags, "sum_gradients", "summing the rows' gradients"),
        (bags, "update_adagrad", "table update"),
        (bags, "update_sgd", "table update"),
        (compiled_engine, "wait", "waiting for the other tower"),
    ]
    if engine._dense_optimizer is not None:
        parts += [(engine._dense_optimizer, name, "dense update") for name in ("step", "zero_grad")]
    with ExitStack() as stack:
        for owner, name, part in parts:
            stack.enter_context(patch.object(owner, name, watch.timed(part, getattr(owner, name))))
        yield watch


def account(trainer: Trainer, steps: int) -> dict[str, float]:
    """Milliseconds a step of every part, in the order of a step; with `REST` they add up to the step's.

    Args:
        trainer: with the compiled engine, warmed up.
        steps: how many to take.
    """
    stepper = trainer.steps()
    with watched(trainer) as watch:
        started = time.perf_counter()
        for _ in range(steps):
            next(stepper)
        seconds = time.perf_counter() - started
    parts = {name: 1e3 * taken / steps for name, taken in watch.seconds.items()}
    return {**parts, REST: 1e3 * seconds / steps - sum(parts.values())}


def parts_table(by_threads: Mapping[int, Mapping[str, float]], title: str) -> str:
    """A Markdown table of the parts of a step, ms and share, a column for each number of threads."""
    totals = {threads: sum(parts.values()) for threads, parts in by_threads.items()}
    lines = [
        f"### {title}",
        "",
        "| part |" + "".join(f" ms, {threads} threads | share |" for threads in by_threads),
        "|---|" + "---|---|" * len(by_threads),
    ]
    names = dict.fromkeys(name for parts in by_threads.values() for name in parts if name != REST)
    for name in [*names, REST]:
        cells = ((parts.get(name, 0.0), totals[threads]) for threads, parts in by_threads.items())
        lines.append(f"| {name} |" + "".join(f" {ms:.2f} | {ms / total:.0%} |" for ms, total in cells))
    lines.append("| the step |" + "".join(f" {total:.2f} | 100% |" for total in totals.values()))
    return "\n".join(lines)


def distinct_items(corpus: SplitCorpus, sizes: tuple[int, ...] = (1024, 2048)) -> dict[int, float]:
    """How many distinct items a batch of so many pairs has, on average over both sides."""
    random = np.random.default_rng(0)
    columns = (np.asarray(corpus.train.left), np.asarray(corpus.train.right))
    return {
        size: float(
            np.mean(
                [len(np.unique(c[random.integers(len(c), size=size)])) for c in columns for _ in range(50)]
            )
        )
        for size in sizes
    }
