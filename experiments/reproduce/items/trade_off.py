"""Figure 3: SOGram's error for several Gramian learning rates α; the curves cross."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from experiments.report.section_files import draw_runs
from experiments.report.sections import Section, Seeds, Table
from experiments.reproduce import gramian_errors
from experiments.reproduce.gramian_errors import tasks
from experiments.reproduce.plans import Plan

__all__ = ["section", "tasks"]


def section(plan: Plan) -> Section:
    """The curves, and where each pair of neighbouring α's crosses."""
    tables, drawn, words, runs = [], [], [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        paths = [task.output for task in gramian_errors.of_dataset(plan, dataset)]
        runs += paths
        drawn.append(draw_runs(plan, "trade-off", paths, dataset, "SOGram's error for several α."))
        frame = gramian_errors.errors(plan, dataset)
        rows = crossings(frame[frame["estimator"] == "SOGram"])
        measured |= gramian_errors.measured(dataset, frame, gramian_errors.pairs_of(dataset))
        tables.append(
            Table(
                dataset,
                f"{dataset}: the first measured step from which the smaller α keeps the smaller error, by "
                f"the mean curve of {len(plan.seeds)} seeds (of {frame['step'].max():,} steps). "
                f"{_starts(frame)}",
                rows,
            )
        )
        words.append(_told(dataset, rows["crosses at step"]))
    return Section(
        plan.item,
        "Bias and variance over α",
        "Figure 3, Section 4.2",
        " ".join(words),
        tuple(tables),
        tuple(drawn),
        measured,
        tuple(runs),
    )


def _told(dataset: str, when: pd.Series) -> str:
    """How many pairs of curves cross, and which of the two is ahead all along where they do not."""
    never, start = (int((when == word).sum()) for word in ("never", "from the start"))
    text = (
        f"On {dataset}, {len(when) - never - start} of {len(when)} pairs of neighbouring α's cross, from the "
        "larger α being better to the smaller."
    )
    text += f" In {never} the larger α is the better one at the end." if never else ""
    return text + (f" In {start} the smaller α is better from the start." if start else "")


def _starts(frame: pd.DataFrame) -> str:
    """What is left of the zero start at the end, by α: until that is little, a curve is of its start."""
    alphas = sorted(frame["alpha"].dropna().unique(), reverse=True)
    left = (f"{(1 - alpha) ** frame['step'].max():.2g} for α = {alpha:g}" for alpha in alphas)
    return f"Of the zero start (1 − α)^t is left at the end: {', '.join(left)}."


def crossings(frame: pd.DataFrame) -> pd.DataFrame:
    """For each side and batch size, where neighbouring α's change places for good.

    Args:
        frame: SOGram's rows of ``gram_error.csv``.

    Returns:
        Columns ``side``, ``B``, ``larger α``, ``smaller α`` and ``crosses at step``: a number; ``never``
        where the larger α is better at the end; ``from the start`` where it never was.
    """
    rows = []
    for (side, size), part in frame.groupby(["side", "batch_size"]):
        curves = part.groupby(["alpha", "step"])["error"].mean().unstack("alpha")
        alphas = sorted(curves.columns, reverse=True)
        for larger, smaller in itertools.pairwise(alphas):
            better = (curves[smaller] < curves[larger]).to_numpy()
            worse = np.flatnonzero(~better)
            if not better[-1]:
                when = "never"
            elif not len(worse):
                when = "from the start"
            else:
                when = f"{curves.index[worse[-1] + 1]:,}"
            rows.append(
                {"side": side, "B": size, "larger α": larger, "smaller α": smaller, "crosses at step": when}
            )
    return pd.DataFrame(rows)
