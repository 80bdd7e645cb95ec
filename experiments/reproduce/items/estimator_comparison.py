"""Ours: every estimator at the recommended setting (linear towers, gravity over distinct items)."""

from __future__ import annotations

from experiments.report.keys import SAMPLING
from experiments.report.sections import Section, draw_runs
from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

METHODS = (
    Method(SAMPLING, "sampling"),
    Method("SOGram debiased α=0.1", "sogram", ("estimator.alpha=0.1",)),
    Method("SOGram debiased α=0.01", "sogram", ("estimator.alpha=0.01",)),
    Method("SAGram β=1, per item", "sagram"),
    Method("exact Gramian", "exact"),
    Method("hidden towers with SOGram debiased α=0.1", "hidden-sogram"),
)


def tasks(plan: Plan) -> list[Task]:
    """All of `METHODS` for which a data set has a config."""
    return rankings.tasks(plan, METHODS)


def section(plan: Plan) -> Section:
    """A table and curves for each data set; hidden towers in the table only."""
    tables, drawn = [], []
    linear = [method for method in METHODS if method.config != "hidden-sogram"]
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, METHODS)
        tables.append(rankings.table(plan, dataset, METHODS, frame))
        caption = f"linear towers, MAP@10 along training {rankings.SIDE_BY_SIDE}."
        paths = rankings.paths(plan, dataset, linear)
        drawn.append(draw_runs(plan.folder, "map", paths, dataset, caption))
    return Section(
        plan.item,
        "Estimators at the recommended setting",
        "",
        "",
        tuple(tables),
        tuple(drawn),
        runs=tuple(task.output for task in tasks(plan)),
    )
