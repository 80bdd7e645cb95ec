"""Ours: what decides whether a better Gramian ranks better. Optimizer × estimator × Gramian batch B.

All runs have the paper's towers and objective. Those of one optimizer have its best rates (`training`), and
those of one seed the same start and gradient batches. The exact Gramian's lift over sampling is the ceiling:
the most that any estimator can gain there. Sampling draws B for each side, once for both sides (shared), or
takes the gradient batch itself, whose gradient then goes through both Gramians (equation 15).

Options: ``optimizers`` (``--set`` settings by name), ``batches`` (B), ``estimators`` (names in `ESTIMATORS`),
``part`` (what the tables of one of several plans of a corpus are called).
"""

from __future__ import annotations

from itertools import product

import pandas as pd

from experiments.report.keys import EXACT, SAMPLING
from experiments.report.sections import Section, Seeds, Table, spread, with_interval
from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

DEFAULT_BATCH = 1024  # of the configs
SAME_BATCH = "sampling, B = B′"
ESTIMATORS = {
    SAMPLING: ("paper-sampling",),
    "sampling, shared B": ("paper-sampling", "estimator.batch=shared"),
    SAME_BATCH: ("paper-sampling", "estimator.batch=gradient"),
    "SOGram α=0.5": ("paper-sogram", "estimator.alpha=0.5"),
    "SOGram α=0.1": ("paper-sogram", "estimator.alpha=0.1"),
    "SOGram α=0.01": ("paper-sogram", "estimator.alpha=0.01"),
    "SOGram α=0.001": ("paper-sogram", "estimator.alpha=0.001"),
    "SAGram per item": ("paper-sagram", "estimator.cache=item"),
    EXACT: ("paper-exact",),
}


def label(optimizer: str, batch: int, estimator: str) -> str:
    """The name of one cell."""
    return f"{optimizer}, B={batch}, {estimator}"


def estimators(plan: Plan) -> list[str]:
    """The estimators of a plan."""
    return list(plan.options.get("estimators", ESTIMATORS))


def measured(batch: int, estimator: str) -> bool:
    """Whether there is such a cell: B' has one size, that of the configs."""
    return estimator != SAME_BATCH or batch == DEFAULT_BATCH


def methods(plan: Plan) -> list[Method]:
    """Every cell of the experiment."""
    found = []
    for (optimizer, own), batch, name in product(
        plan.options["optimizers"].items(), plan.options["batches"], estimators(plan)
    ):
        if not measured(batch, name):
            continue
        config, *settings = ESTIMATORS[name]
        # Without a setting that changes nothing, so that `map_curves` has the same runs.
        size = [] if name == EXACT or batch == DEFAULT_BATCH else [f"estimator.gramian_batch_size={batch}"]
        found.append(Method(label(optimizer, batch, name), config, (*own, *settings, *size)))
    return found


def tasks(plan: Plan) -> list[Task]:
    """A run for each cell and seed, and exact ALS of the objective."""
    trained = rankings.tasks(plan, methods(plan))
    return trained + [task for name in plan.datasets for task in rankings.optimum_tasks(plan, name)]


def section(plan: Plan) -> Section:
    """For each data set a row for each optimizer and B, with the lift of each estimator over sampling."""
    tables = []
    values: dict[str, Seeds] = {}
    count = len(plan.seeds)
    seeds = f"paired by seed, with 95 % t-intervals over {count} seeds" if count > 1 else "one seed"
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods(plan))
        optimum = rankings.optimum(plan, dataset)
        required = rankings.required_map(frame["popularity"].iloc[0], optimum)
        rows = [
            _row(plan, frame, optimizer, batch, required, known=bool(optimum))
            for optimizer, batch in product(plan.options["optimizers"], plan.options["batches"])
        ]
        caption = (
            f"{dataset}: validation MAP@10 of sampling, and each estimator's lift over it, {seeds}. "
            f"Popularity {frame['popularity'].iloc[0]:.4f}; " + _gate(optimum, required)
        )
        name = f"{dataset}-{plan.options['part']}" if "part" in plan.options else dataset
        tables.append(Table(name, caption, pd.DataFrame(rows)))
        values |= rankings.measured(dataset, frame.drop(columns="curve"))
    return Section(
        plan.item,
        "When does a better Gramian rank better?",
        "",
        "The exact Gramian is the ceiling: an estimator can gain no more than it does.",
        tuple(tables),
        (),
        values,
        tuple(task.output for task in tasks(plan)),
    )


def _gate(optimum: Seeds, required: float) -> str:
    if not optimum:
        return f"{rankings.EXACT_ALS} was not solved, so that it is not known whether towers are trained."
    return f"{rankings.EXACT_ALS} {spread(optimum)}; towers count as trained from {required:.4f}."


def _row(
    plan: Plan, frame: pd.DataFrame, optimizer: str, batch: int, required: float, known: bool = True
) -> dict[str, str]:
    base = label(optimizer, batch, SAMPLING)
    values = rankings.column(frame, base, "validation")
    best = max(
        frame.loc[frame["label"] == label(optimizer, batch, name), "validation"].mean()
        for name in estimators(plan)
        if measured(batch, name)
    )
    return {
        "optimizer": optimizer,
        "B": str(batch),
        "trained": ("yes" if known else "not known") if best >= required else "NOT TRAINED",
        "sampling MAP@10": spread(values),
        **{
            name: with_interval(rankings.lifts(frame, label(optimizer, batch, name), base), "+.1%")
            if measured(batch, name)
            else ""
            for name in estimators(plan)
            if name != SAMPLING
        },
    }
