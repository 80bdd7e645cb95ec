"""Ours: every estimator at the recommended setting (linear towers, gravity over distinct items)."""

from __future__ import annotations

from experiments.report.section_files import draw_runs
from experiments.report.sections import Section, Table
from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

METHODS = (
    Method(rankings.SAMPLING, "sampling"),
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
    tables, drawn, words, measured = [], [], [], {}
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, METHODS)
        tables.append(Table(dataset, rankings.caption(plan, dataset, METHODS), rankings.table(frame)))
        words.append(rankings.judgement(frame, dataset))
        measured |= rankings.measured(dataset, frame, "recommended ")
        shown = [m for m in rankings.present(dataset, METHODS) if m.config != "hidden-sogram"]
        paths = [path for method in shown for path in rankings.paths(plan, dataset, method)]
        caption = f"linear towers, MAP@10 against steps, epochs and time {rankings.SIDE_BY_SIDE}."
        drawn.append(draw_runs(plan, "map", paths, dataset, caption))
    return Section(
        plan.item,
        "Estimators at the recommended setting",
        "",
        " ".join(words),
        tuple(tables),
        tuple(drawn),
        measured,
        tuple(task.output for task in tasks(plan)),
    )
