"""Figure 3: SOGram's error for several Gramian learning rates α; the curves cross."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from experiments.report.sections import Section, Seeds, Table, draw_runs
from experiments.reproduce.items import gramian_error
from experiments.reproduce.items.gramian_error import tasks
from experiments.reproduce.plans import Plan

__all__ = ["section", "tasks"]


def section(plan: Plan) -> Section:
    """The curves, and where each pair of neighbouring α's crosses."""
    tables, drawn, runs = [], [], []
    measured: dict[str, Seeds] = {}
    training = gramian_error.training_of(plan)
    for dataset in plan.datasets:
        paths = [task.output for task in gramian_error.of_dataset(plan, dataset)]
        runs += paths
        text = f"SOGram's error for several α{training}."
        name = plan.named(dataset)
        drawn.append(draw_runs(plan.folder, "trade-off", paths, name, text))
        frame, pairs = gramian_error.errors(plan, dataset), gramian_error.pairs_of(dataset)
        measured |= gramian_error.measurements(name, frame, pairs)
        caption = (
            f"{dataset}{training}: the first measured step from which the smaller α keeps the smaller error, "
            f"by the mean curve of {len(plan.seeds)} seeds. {gramian_error.conditions(frame, pairs)}"
        )
        tables.append(Table(name, caption, crossings(frame[frame["estimator"] == "SOGram"])))
    return Section(
        plan.item,
        "Bias and variance over α",
        "Figure 3, Section 4.2",
        "A larger α forgets the start sooner, and averages less.",
        tuple(tables),
        tuple(drawn),
        measured,
        tuple(runs),
    )


def crossings(frame: pd.DataFrame) -> pd.DataFrame:
    """For each side and batch size, the step from which neighbouring α's keep their order.

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
