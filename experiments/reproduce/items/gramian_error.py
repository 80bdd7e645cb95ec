"""Figure 2: errors of SAGram, SOGram and sampling on one trajectory, Gramian batches of 128 and 1,024."""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiments.report.section_files import draw_runs
from experiments.report.sections import Section, Table
from experiments.reproduce import gramian_errors
from experiments.reproduce.gramian_errors import tasks
from experiments.reproduce.plans import Plan

__all__ = ["section", "tasks"]


def section(plan: Plan) -> Section:
    """The curves, late errors, and the order that they put the methods in."""
    tables, drawn, words, measured, runs = [], [], [], {}, []
    for dataset in plan.datasets:
        paths = [task.output for task in gramian_errors.of_dataset(plan, dataset)]
        runs += paths
        frame = gramian_errors.errors(plan, dataset)
        for kind, caption in (
            ("gram-error", "errors on one trajectory a seed, driven by batch sampling."),
            ("theory", "measured errors beside Proposition 5's bounds."),
        ):
            drawn.append(draw_runs(plan, kind, paths, dataset, caption))
        tables.append(
            Table(
                dataset,
                f"{dataset}: ‖Ĝ − G‖_F / ‖G‖_F, mean over the last {100 * gramian_errors.LATE:.0f} % of "
                f"{frame['step'].max():,} steps; ± over {len(plan.seeds)} seeds. "
                + gramian_errors.conditions(frame, gramian_errors.pairs_of(dataset)),
                gramian_errors.table(frame),
            )
        )
        measured |= gramian_errors.measured(dataset, frame, gramian_errors.pairs_of(dataset))
        words.append(_order(dataset, frame))
    return Section(
        plan.item,
        "Gramian error",
        "Figure 2, Section 4.2",
        " ".join(words),
        tuple(tables),
        tuple(drawn),
        measured,
        tuple(runs),
    )


def _order(dataset: str, frame: pd.DataFrame) -> str:
    """The estimators from the least late error to the largest, at each batch size, both sides' mean."""
    rest = gramian_errors.late(frame)
    parts = []
    for size in sorted(frame["batch_size"].unique()):
        means = {
            label: float(
                np.mean([gramian_errors.by_seed(rest, label, side, size) for side in ("left", "right")])
            )
            for label in frame["label"].unique()
        }
        ordered = sorted(means, key=lambda label: means[label])
        parts.append(f"at B = {size:,} " + " < ".join(f"{label} ({means[label]:.3f})" for label in ordered))
    return f"On {dataset}, late errors from least to largest: {'; '.join(parts)}."
