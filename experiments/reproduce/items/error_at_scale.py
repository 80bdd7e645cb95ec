"""SOGram's error where the exact Gramian costs too much (paper, Appendix D): several α, two η.

One trajectory for each learning rate η of the model (of the tables; the dense layers' rate keeps its ratio
to it), driven by sampling as in ``gram-error`` and watched by SOGram with each α. They are held against a
Gramian estimated from a large sample, whose own standard error stands beside it. Options: ``samples``, the
size of that sample; ``learning_rates``, the larger first; ``alphas``; ``steps``; ``every``, how often to
measure. What concerns a corpus may be a table by corpus.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from experiments.report.section_files import write_figure
from experiments.report.sections import Section, Seeds, Table, interval, spread
from experiments.reproduce.gramian_errors import EARLY, LATE, late
from experiments.reproduce.plans import Plan, scalar
from experiments.reproduce.scheduler import Task
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.runs import figures, plotting
from gramrun.training.trajectory import CSV as TRAJECTORY

BATCH = 1024  # the paper's, Section 4.1
SETTLED = 2.0  # a curve has settled where it stays below this multiple of the late error, the larger η's or
# the smaller's, whichever is greater: one level for both


def tasks(plan: Plan) -> list[Task]:
    """A trajectory for each data set, learning rate and seed."""
    return [
        task
        for dataset in plan.datasets
        for rate in plan.options["learning_rates"]
        for task in _tasks(plan, dataset, rate)
    ]


def _tasks(plan: Plan, dataset: str, rate: float) -> list[Task]:
    options = plan.options
    train = load_config(RunConfig, Path("configs") / dataset / "gram-error.yaml").train
    estimators = [{"name": "sogram", "alpha": a, "gramian_batch_size": BATCH} for a in options["alphas"]]
    settings = {
        "train.learning_rate": rate,
        "gram_error.reference": "sampled",
        "gram_error.reference_samples": plan.option("samples", dataset),
        "gram_error.estimators": estimators,
    }
    if train.dense_learning_rate:
        settings["train.dense_learning_rate"] = float(
            f"{rate * train.dense_learning_rate / train.learning_rate:.6g}"
        )
    if steps := plan.option("steps", dataset):
        settings["train.steps"] = steps
    if every := plan.option("every", dataset):
        settings["gram_error.every"] = every
    return plan.tasks(
        "gram-error", dataset, "gram-error", *(f"{key}={scalar(value)}" for key, value in settings.items())
    )


def section(plan: Plan) -> Section:
    """Draw the errors under each learning rate side by side, and tell how they decay."""
    verdicts, drawn, rows = [], [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        frame = pd.concat(
            [
                errors([task.output for task in _tasks(plan, dataset, rate)], rate)
                for rate in plan.options["learning_rates"]
            ],
            ignore_index=True,
        )
        drawing = plotting.learning_rates_figure(frame)
        caption = f"{_caption(plan, dataset)} {_starts(frame)}"
        drawn.append(write_figure(plan, drawing, f"error-at-scale-{dataset}", caption))
        found = decay(frame)
        measured |= {f"{dataset}/{key}": values for key, values in found.items()}
        measured[f"{dataset}/scale trajectory steps"] = (float(frame["step"].max()),)
        rows += _rows(dataset, plan, found, reference_error(frame))
        verdicts.append(f"{dataset}: {verdict(found, plan)} {_reference(frame)}")
    caption = (
        f"Left Gramian, |B| = {BATCH}; {len(plan.seeds)} seeds, ± standard deviation. Late: mean over the "
        f"last {LATE:.0%} of the steps. Settled: the step from which on the error stays below "
        f"{SETTLED:g} times the larger of the two late errors of that α, on a logarithmic scale between "
        "measured steps; not yet: at the end the zero start's (1 − α)^t is over half the error. "
        "Drift: mean ‖G(t) − G(t−1)‖/‖G(t)‖ of the measured steps."
    )
    table = Table("error_at_scale", caption, pd.DataFrame(rows))
    return Section(
        plan.item,
        "Gramian error at scale, under two learning rates",
        "Appendix D",
        "\n\n".join(verdicts),
        (table,),
        tuple(drawn),
        measured,
        tuple(task.output for task in tasks(plan)),
    )


def _caption(plan: Plan, dataset: str) -> str:
    samples = plan.option("samples", dataset)
    return (
        f"{dataset}: SOGram's error against a Gramian of {samples:,} sampled embeddings "
        f"under η = {' and '.join(f'{rate:g}' for rate in plan.options['learning_rates'])}, "
        f"{len(plan.seeds)} seeds. Grey: below the sample's own standard error."
    )


def _starts(frame: pd.DataFrame) -> str:
    """What is left of the zero start at the end, by α."""
    last = int(frame["step"].max())
    alphas = sorted(frame["alpha"].unique(), reverse=True)
    left = ", ".join(f"{(1 - alpha) ** last:.2g} for α = {alpha:g}" for alpha in alphas)
    return f"Of the zero start (1 − α)^t is left after {last:,} steps: {left}."


def errors(paths: list[Path], rate: float) -> pd.DataFrame:
    """The errors of trajectories of one learning rate, with what `Trajectory` measured beside them.

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


def decay(frame: pd.DataFrame) -> dict[str, Seeds]:
    """How the left Gramian's error decays, by label and learning rate: a value for each seed.

    Args:
        frame: what `errors` gives of several learning rates.

    Returns:
        ``<label>/error decay η=<η>`` (the late error over that at a tenth of the steps), and likewise
        ``early error``, ``late error``, ``settling steps`` and ``relative drift``.
    """
    found: dict[str, list[float]] = {}
    left = frame[frame["side"] == "left"].sort_values("step")
    for keys, curves in left.groupby(["label", "seed"]):
        label, _ = cast("tuple[str, int]", keys)
        late_rows = late(curves)
        late_errors = late_rows.groupby("learning_rate")["error"].mean()
        for rate, rows in curves.groupby("learning_rate"):
            curve = rows.set_index("step")["error"]
            # What Ĝ = 0 at the start still takes away at the end: where it is most of the error, no curve has
            # come to its own level.
            start = (1 - rows["alpha"].iloc[0]) ** curve.index[-1]
            early = float(curve[curve.index >= EARLY * curve.index[-1]].iloc[0])
            values = {
                "error decay": late_errors[rate] / early,
                "early error": early,
                "late error": late_errors[rate],
                "settling steps": float("inf")
                if start > late_errors[rate] / SETTLED
                else settled(curve, SETTLED * late_errors.max()),
                "relative drift": rows["relative_drift"].mean(),
            }
            for name, value in values.items():
                found.setdefault(f"{label}/{name} η={rate:g}", []).append(float(value))
    return {name: tuple(values) for name, values in found.items()}


def settled(curve: pd.Series[float], level: float) -> float:
    """The step from which on an error stays below a level; infinite where there is none.

    Between two measured steps errors are taken to fall as exponentials do, so that what is compared over
    seeds does not sit on the grid of measured steps.
    """
    above = np.flatnonzero(curve >= level)
    if not len(above):
        return float(curve.index[0])
    i = int(above[-1])
    if i == len(curve) - 1:
        return float("inf")
    (x0, x1), (y0, y1) = curve.index[i : i + 2], np.log(curve.iloc[i : i + 2])
    return float(x0 + (x1 - x0) * (y0 - np.log(level)) / (y0 - y1))


def _settling(steps: Seeds) -> str:
    """Mean and deviation, or in how many seeds it has not settled."""
    late = sum(map(np.isinf, steps))
    if not late:
        return spread(steps, 0)
    return "not yet" if late == len(steps) else f"not yet in {late} of {len(steps)} seeds"


def reference_error(frame: pd.DataFrame) -> dict[float, float]:
    """The sampled reference's own relative standard error on the left side, by learning rate."""
    left = frame[frame["side"] == "left"]
    return {
        cast("float", rate): float(value)
        for rate, value in left.groupby("learning_rate")["reference_error"].mean().items()
    }


def _rows(
    dataset: str, plan: Plan, found: dict[str, Seeds], reference: dict[float, float]
) -> list[dict[str, str]]:
    rows = []
    for alpha in plan.options["alphas"]:
        for rate in plan.options["learning_rates"]:
            settling = found[f"SOGram α={alpha:g}/settling steps η={rate:g}"]

            def of(name: str, digits: int = 4, at: str = f"η={rate:g}", a: float = alpha) -> str:
                return spread(found[f"SOGram α={a:g}/{name} {at}"], digits)

            rows.append(
                {
                    "corpus": dataset,
                    "α": f"{alpha:g}",
                    "η": f"{rate:g}",
                    "error at a tenth": of("early error"),
                    "late error": of("late error"),
                    "late / at a tenth": of("error decay", 2),
                    "settled at step": _settling(settling),
                    "drift a step": of("relative drift", 5),
                    "reference's standard error": f"{reference[rate]:.4f}",
                }
            )
    return rows


def verdict(found: dict[str, Seeds], plan: Plan) -> str:
    """Whether the error settles sooner under the smaller learning rate, and at a similar value, in words."""
    large, small = (f"η={rate:g}" for rate in plan.options["learning_rates"])
    labels = [f"SOGram α={alpha:g}" for alpha in plan.options["alphas"]]

    def mean(label: str, name: str) -> float:
        return float(np.mean(found[f"{label}/{name}"]))

    sentences = [_trade_off(found, labels, rate) for rate in (large, small)]
    for label in labels:
        steps = {rate: found[f"{label}/settling steps {rate}"] for rate in (large, small)}
        late = {rate: mean(label, f"late error {rate}") for rate in (large, small)}
        if not np.isfinite([*steps[small], *steps[large]]).all():
            settling = " and ".join(f"{_settling(steps[rate])} under {rate}" for rate in (small, large))
            sentences.append(
                f"{label} has not settled in all seeds (steps: {settling}): at the end, at late errors of "
                f"{late[small]:.4f} under {small} and {late[large]:.4f} under {large}, its zero start still "
                "counts."
            )
            continue
        sentences.append(
            f"{label} settles at step {np.mean(steps[small]):,.0f} under {small} and "
            f"{np.mean(steps[large]):,.0f} under {large} ({_sooner(steps[small], steps[large])}), at late "
            f"errors of {late[small]:.4f} and {late[large]:.4f}, a ratio of {late[small] / late[large]:.2f}."
        )
    drift = {rate: mean(labels[0], f"relative drift {rate}") for rate in (large, small)}
    sentences.append(
        f"A step moves the Gramian by {drift[large]:.5f} of its norm under {large} and by {drift[small]:.5f} "
        f"under {small}. The paper has similar late errors, and a much faster decay under the smaller η."
    )
    return " ".join(sentences)


def _trade_off(found: dict[str, Seeds], labels: list[str], rate: str) -> str:
    def best(when: str) -> str:
        return min(labels, key=lambda label: float(np.mean(found[f"{label}/{when} error {rate}"])))

    early, late = best("early"), best("late")
    end = "and at the end" if early == late else f"and {late} at the end"
    return f"Under {rate}, {early} has the least error at a tenth of the steps, {end}."


def _sooner(small: Seeds, large: Seeds) -> str:
    if len(small) < 2:
        return "one seed decides nothing"
    if small == large:
        return "no difference in any seed"
    bottom, top = interval(tuple(a - b for a, b in zip(small, large, strict=True)))
    span = f"95 % interval of the difference {bottom:,.0f} to {top:,.0f}"
    if top < 0:
        return f"sooner, as in the paper; {span}"
    return f"later, against the paper; {span}" if bottom > 0 else f"undecided; {span}"


def _reference(frame: pd.DataFrame) -> str:
    worst = max(reference_error(frame).values())
    least = float(frame.loc[frame["side"] == "left", "error"].min())
    which = "below" if worst < least else "not below"
    return (
        f"The sampled reference's own standard error is at most {worst:.4f}, {which} the least error "
        f"measured ({least:.4f})."
    )
