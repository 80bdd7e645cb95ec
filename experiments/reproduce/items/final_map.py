"""Table 2: the final MAP@10 of each method, and its lift over batch sampling."""

from __future__ import annotations

from experiments.report.sections import Section, Seeds
from experiments.reproduce import rankings
from experiments.reproduce.items.map_curves import methods_of, tasks
from experiments.reproduce.plans import Plan

__all__ = ["section", "tasks"]


def section(plan: Plan) -> Section:
    """A table for each data set."""
    methods = methods_of(plan)
    tables = []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods)
        optimum = rankings.optimum(plan, dataset)
        tables.append(rankings.table(plan, dataset, methods, frame, optimum))
        measured |= rankings.measured(plan.named(dataset), frame, optimum=optimum)
    runs = tuple(task.output for task in tasks(plan))
    return Section(plan.item, "Final MAP@10", "Table 2, Section 4.3", "", tuple(tables), (), measured, runs)
