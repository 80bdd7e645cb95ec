"""Figure 7: SOGram's error where the exact Gramian costs too much (Appendix D): several α, two η.

One trajectory for each learning rate η of the tables (the dense layers' rate keeps its ratio to it), driven
by sampling and measured for SOGram with each α. The reference is a Gramian of a large sample; the table shows
its standard error. Options: ``samples``, the size of that sample, and ``steps``, which may be tables
by corpus; ``learning_rates``, the larger first; ``alphas``; ``part``, the name of the table of one of several
plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.report import keys
from experiments.report.keys import Decay
from experiments.report.sections import Section, Seeds, Table, spread, write_figure
from experiments.reproduce.items.gramian_error import EARLY, LATE, late
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan, scalar
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.runs import figures, plotting
from gramrun.training.trajectory import CSV as TRAJECTORY

BATCH = 1024  # the paper's, Section 4.1
SETTLED = 2.0  # settled: below this multiple of a late error


def tasks(plan: Plan) -> list[Task]:
    """A trajectory for each data set, learning rate and seed."""
    return [
        task
        for dataset in plan.datasets
        for rate in plan.options["learning_rates"]
        for task in _tasks(plan, dataset, rate)
    ]


def _tasks(plan: Plan, dataset: str, rate: float) -> list[Task]:
    train = load_config(RunConfig, Path("configs") / dataset / "gram-error.yaml").train
    estimators = [
        {"name": "sogram", "alpha": alpha, "gramian_batch_size": BATCH} for alpha in plan.options["alphas"]
    ]
    settings = {
        "train.learning_rate": rate,
        "gram_error.reference": "sampled",
        "gram_error.reference_samples": plan.option("samples", dataset),
        "gram_error.estimators": estimators,
    }
    if train.dense_learning_rate:
        dense = rate * train.dense_learning_rate / train.learning_rate
        settings["train.dense_learning_rate"] = float(f"{dense:.6g}")
    if steps := plan.option("steps", dataset):
        settings["train.steps"] = steps
    return plan.tasks(
        "gram-error", dataset, "gram-error", *(f"{key}={scalar(value)}" for key, value in settings.items())
    )


def section(plan: Plan) -> Section:
    """The errors under each learning rate side by side, and how they decay."""
    drawn, rows = [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        frame = pd.concat(
            [
                errors([task.output for task in _tasks(plan, dataset, rate)], rate)
                for rate in plan.options["learning_rates"]
            ],
            ignore_index=True,
        )
        caption = (
            f"{dataset}: SOGram's error against a Gramian of {plan.option('samples', dataset):,} sampled "
            f"embeddings, {plan.seeds_shown}. Grey: below the sample's own standard error."
        )
        figure = plotting.learning_rates_figure(frame)
        drawn.append(write_figure(plan.folder, figure, f"error-at-scale-{dataset}", caption))
        found = decay(dataset, frame)
        measured |= found | {keys.scale_steps(dataset): (float(frame["step"].max()),)}
        rows += _rows(dataset, plan, found, frame)
    caption = (
        f"|B| = {BATCH}; {plan.seeds_shown}. Late: mean over the "
        f"last {LATE:.0%} of the steps. Settled: the step from which on the error stays below "
        f"{SETTLED:g} times the larger of the two late errors of that α, or {SETTLED:g} times its own, on a "
        "logarithmic scale between measured steps; not yet: at the end the zero start's (1 − α)^t is over "
        "half the error. "
        "Drift: mean ‖G(t) − G(t−1)‖/‖G(t)‖ of the measured steps, where it was measured."
    )
    return Section(
        plan.item,
        "Gramian error at scale, under two learning rates",
        "Appendix D",
        "The paper has similar late errors, and a much faster decay under the smaller η.",
        (Table(plan.named("error_at_scale"), caption, pd.DataFrame(rows)),),
        tuple(drawn),
        measured,
        tuple(task.output for task in tasks(plan)),
    )


def errors(paths: Sequence[Path], rate: float) -> pd.DataFrame:
    """The errors of trajectories of one learning rate, with the other columns of trajectory.csv.

    Returns:
        The columns of ``gram_error.csv``, and ``seed``, ``label``, ``learning_rate``, ``reference_error``
        and ``relative_drift``.
    """
    frames = []
    for path in paths:
        measured = pd.read_csv(path / TRAJECTORY)
        measured["relative_drift"] = measured["drift"] / measured["gramian_norm"]
        beside = measured[["step", "side", "reference_error", "relative_drift"]]
        frames.append(figures.gram_error_frame([path]).merge(beside, on=["step", "side"]))
    frame = pd.concat(frames, ignore_index=True)
    return frame.assign(label=frame["alpha"].map("SOGram α={:g}".format), learning_rate=rate)


def decay(dataset: str, frame: pd.DataFrame) -> dict[str, Seeds]:
    """How each side's error decays, by α and learning rate: a value for each seed.

    Args:
        dataset: its name.
        frame: what `errors` gives of several learning rates.
    """
    found: dict[str, list[float]] = {}
    for (alpha, side, _), curves in frame.sort_values("step").groupby(["alpha", "side", "seed"]):
        late_rows = late(curves)
        late_errors = late_rows.groupby("learning_rate")["error"].mean()
        for rate, rows in curves.groupby("learning_rate"):
            curve = rows.set_index("step")["error"]
            early = float(curve[curve.index >= EARLY * curve.index[-1]].iloc[0])
            # While the zero start is most of the error, the curve has not come to its own level.
            start = (1 - alpha) ** curve.index[-1]
            unsettled = start > late_errors[rate] / SETTLED
            levels = {Decay.COMMON: late_errors.max(), Decay.OWN: late_errors[rate]}
            values = {
                Decay.EARLY: early,
                Decay.LATE: late_errors[rate],
                **{n: np.inf if unsettled else settled(curve, SETTLED * x) for n, x in levels.items()},
                Decay.DRIFT: rows["relative_drift"].mean(),
            }
            for name, value in values.items():
                key = keys.decay(dataset, f"{alpha:g}", side, name, f"{rate:g}")
                found.setdefault(key, []).append(float(value))
    return {name: tuple(values) for name, values in found.items()}


def settled(curve: pd.Series[float], level: float) -> float:
    """The step from which on an error stays below a level; infinite where there is none.

    Interpolated exponentially between measured steps, so that seeds are not compared on the grid of steps.
    """
    above = np.flatnonzero(curve >= level)
    if not len(above):
        return float(curve.index[0])
    i = int(above[-1])
    if i == len(curve) - 1:
        return float("inf")
    (x0, x1), (y0, y1) = curve.index[i : i + 2], np.log(curve.iloc[i : i + 2])
    return float(x0 + (x1 - x0) * (y0 - np.log(level)) / (y0 - y1))


def _rows(dataset: str, plan: Plan, found: dict[str, Seeds], frame: pd.DataFrame) -> list[dict[str, str]]:
    errors = frame.groupby(["side", "learning_rate"])["reference_error"].mean()
    rows = []
    for alpha, side, rate in product(
        plan.options["alphas"], ("left", "right"), plan.options["learning_rates"]
    ):
        values = {name: found[keys.decay(dataset, f"{alpha:g}", side, name, f"{rate:g}")] for name in Decay}
        rows.append(
            {
                "corpus": dataset,
                "α": f"{alpha:g}",
                "side": side,
                "η": f"{rate:g}",
                "error at a tenth": spread(values[Decay.EARLY]),
                "late error": spread(values[Decay.LATE]),
                "settled at step": _steps(values[Decay.COMMON]),
                "at its own level": _steps(values[Decay.OWN]),
                "drift a step": "" if np.isnan(values[Decay.DRIFT]).any() else spread(values[Decay.DRIFT], 5),
                "reference's standard error": f"{errors[side, rate]:.4f}",
            }
        )
    return rows


def _steps(settling: Seeds) -> str:
    never = sum(map(np.isinf, settling))
    if not never:
        return spread(settling, 0)
    return f"not yet in {never} of {len(settling)} seeds" if len(settling) > 1 else "not yet"
