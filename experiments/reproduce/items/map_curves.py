"""Figure 4: MAP@10 of the training and the validation set along training, under the paper's own objective."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.report.keys import SAMPLING
from experiments.report.sections import Section, Seeds, Table, write_figure
from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method
from gramrun.runs import figures, open_run


def methods_of(plan: Plan) -> tuple[Method, ...]:
    """The methods of a plan.

    Options: ``alphas``, ``exact`` and ``sagram`` of `rankings.paper_methods`, ``estimator_settings`` (more
    ``--set`` settings by estimator), ``estimator_seeds`` (the seeds of an estimator, if not all). The
    last two call SAGram ``SAGram``, whether its caches are per pair or per item.
    """
    options = plan.options
    methods = rankings.paper_methods(
        options["alphas"], options.get("exact", True), options.get("sagram", "pair")
    )
    named = ((method.label or "SAGram", method) for method in methods)
    return tuple(
        replace(m, settings=(*m.settings, *plan.settings_of(name)), seeds=plan.seeds_of(name))
        for name, m in named
    )


def tasks(plan: Plan) -> list[Task]:
    """Sampling, SOGram at every α of the plan, SAGram, the exact Gramian; and exact ALS."""
    trained = rankings.tasks(plan, methods_of(plan))
    return trained + [task for name in plan.datasets for task in rankings.optimum_tasks(plan, name)]


def section(plan: Plan) -> Section:
    """The curves, and the speed-up of each method to the final MAP@10 of sampling."""
    methods = methods_of(plan)
    drawn, tables, runs = [], [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods)
        paths = rankings.paths(plan, dataset, methods)
        runs += paths
        name, optimum = plan.named(dataset), rankings.optimum(plan, dataset)
        caption = (
            f"{name}: MAP@10 against epochs and, where one kind of machine made the runs, training time "
            f"{rankings.SIDE_BY_SIDE}; {open_run(paths[0]).config.train.optimizer}, {plan.seed_count}."
        )
        ceiling = {rankings.EXACT_ALS: float(np.mean(optimum))} if optimum else {}
        drawn.append(write_figure(plan.folder, figures.map_of(paths, ceiling), f"map-{name}", caption))
        measured |= rankings.measured(name, frame, optimum=optimum)
        caption = (
            f"{name}: speed-up over sampling until the validation MAP@10 at which sampling ends is "
            "reached for good: the least and the greatest of the seeds. Time is left out where several kinds "
            "of machine made the runs."
        )
        tables.append(Table(f"speed-ups-{name}", caption, pd.DataFrame(_speeds(frame))))
    return Section(
        plan.item,
        "MAP@10 along training",
        "Figure 4, Section 4.3",
        "",
        tuple(tables),
        tuple(drawn),
        measured,
        tuple(runs),
    )


def _speeds(frame: pd.DataFrame) -> list[dict[str, str]]:
    def ends(values: Seeds) -> str:
        low, high = (f"{x:.2f}" if x else "never" for x in (min(values), max(values)))
        return low if low == high else f"{low} to {high}"

    axes = {"in time": rankings.SECONDS, "in steps": rankings.STEPS}
    if not rankings.one_machine(frame):
        del axes["in time"]
    return [
        {
            "method": label,
            **{name: ends(rankings.speed_ups(frame, label, axis)) for name, axis in axes.items()},
        }
        for label in frame["label"].unique()
        if label != SAMPLING
    ]
