"""Figure 3: SOGram's error for several Gramian learning rates α; the curves cross."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from experiments import gramian_errors
from experiments.gramian_errors import tasks
from experiments.plans import Plan
from experiments.sections import Figure, Section, Table
from gramrun import figures

__all__ = ["section", "tasks"]


def section(plan: Plan) -> Section:
    """The curves, and where each pair of neighbouring α's crosses."""
    tables, drawn, words, runs = [], [], [], []
    for dataset in plan.datasets:
        paths = [task.output for task in gramian_errors.of_dataset(plan, dataset)]
        runs += paths
        name = f"trade-off-{dataset}"
        for suffix in ("png", "svg"):
            figures.draw("trade-off", paths, plan.folder / f"{name}.{suffix}")
        drawn.append(Figure(name, f"{dataset}: SOGram's error for several α."))
        frame = gramian_errors.errors(plan, dataset)
        rows = crossings(frame[frame["estimator"] == "SOGram"])
        tables.append(
            Table(
                dataset,
                f"{dataset}: the first measured step from which the smaller α keeps the smaller error, by "
                f"the mean curve of {len(plan.seeds)} seeds (of {frame['step'].max():,} steps).",
                rows,
            )
        )
        crossed = (rows["crosses at step"] != "never").sum()
        words.append(
            f"On {dataset}, {crossed} of {len(rows)} pairs of neighbouring α's cross, from the larger α "
            "being better to the smaller."
        )
    return Section(
        plan.item,
        "Bias and variance over α",
        "Figure 3, Section 4.2",
        " ".join(words),
        tuple(tables),
        tuple(drawn),
        {},
        tuple(runs),
    )


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
