"""Table 2: the final MAP@10 of each method, and its lift over batch sampling."""

from __future__ import annotations

from experiments.report.sections import Section, Table
from experiments.reproduce import rankings
from experiments.reproduce.items.map_curves import tasks
from experiments.reproduce.plans import Plan

__all__ = ["section", "tasks"]


def section(plan: Plan) -> Section:
    """A table for each data set."""
    methods = rankings.paper_methods(plan.options["alphas"])
    tables, words, measured = [], [], {}
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods)
        tables.append(Table(dataset, rankings.caption(plan, dataset, methods), rankings.table(frame)))
        words.append(rankings.judgement(frame, dataset))
        measured |= rankings.measured(dataset, frame)
    return Section(
        plan.item,
        "Final MAP@10",
        "Table 2, Section 4.3",
        " ".join(words),
        tuple(tables),
        (),
        measured,
        tuple(task.output for task in tasks(plan)),
    )
