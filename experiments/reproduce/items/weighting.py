"""Ours: gravity over pairs or over items, the paper's footnote 4 on reweighting.

An item weighs (its training pairs)^γ in its side's Gramian: γ = 1 is a mean over pairs, the paper's equation
4, and γ = 0 a mean over distinct items. Every (γ left, γ right) of the plan is trained at the recommended
config, λ and all, with the config of the option ``config``; and solved by exact ALS, which minimises the
same objective for free vectors without any estimate, on the data sets of the option ``exact``.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pandas as pd

from experiments.report.sections import Section, Seeds, Table, lift, spread
from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

Gamma = tuple[float, float]
EXACT = "exact ALS"


def label(gamma: Gamma) -> str:
    """The name of a weighting in tables and claims."""
    return f"γ=({gamma[0]:g}, {gamma[1]:g})"


def gamma_settings(section: str, gamma: Gamma) -> tuple[str, ...]:
    """The settings of a weighting relative to a recommended config, whose γ is 0 on both sides."""
    sides = zip(("left", "right"), gamma, strict=True)
    return tuple(f"{section}.gamma_{side}={value:g}" for side, value in sides if value)


def gammas(plan: Plan) -> list[Gamma]:
    """The weightings of a plan."""
    return [(float(left), float(right)) for left, right in plan.options["gammas"]]


def trained_method(plan: Plan, gamma: Gamma) -> Method:
    """A training run of one weighting."""
    return Method(label(gamma), plan.options["config"], gamma_settings("train", gamma))


def exact_method(gamma: Gamma) -> Method:
    """Exact ALS of the same objective."""
    return Method(f"{EXACT} {label(gamma)}", "exact-als", gamma_settings("baseline", gamma), "baseline")


def methods(plan: Plan, dataset: str) -> tuple[list[Method], list[Method]]:
    """The training runs and the exact ALS solutions of a data set."""
    solved = dataset in plan.options.get("exact", ())
    return (
        [trained_method(plan, gamma) for gamma in gammas(plan)],
        [exact_method(gamma) for gamma in gammas(plan)] if solved else [],
    )


def tasks(plan: Plan) -> list[Task]:
    """Training runs of every data set, and exact ALS where it is asked for."""
    return [
        task
        for dataset in plan.datasets
        for some in methods(plan, dataset)
        for task in rankings.tasks(replace(plan, datasets=(dataset,)), some)
    ]


def section(plan: Plan) -> Section:
    """Tables for each data set."""
    tables = []
    for dataset in plan.datasets:
        trained, exact = methods(plan, dataset)
        frame, solved = (rankings.measure(plan, dataset, some) for some in (trained, exact))
        basis = rankings.caption(replace(plan, datasets=(dataset,)), dataset, trained)
        caption = f"{basis} Config {plan.options['config']}; its λ was chosen for γ = (0, 0)."
        tables.append(Table(dataset, caption, table(plan, frame, solved)))
        found = {gamma: rankings.column(frame, label(gamma), "validation") for gamma in gammas(plan)}
        tables.append(
            Table(
                f"effects-{dataset}",
                f"{dataset}: the relative change of the validation MAP@10 of trained towers from γ "
                f"= 0 to 1 on "
                "one side, paired by seed, with 95 % t-intervals of its logarithm.",
                effects(found),
            )
        )
    return Section(
        plan.item,
        "Gravity over pairs or over items",
        "",
        "γ = 1 weighs an item by its pairs, γ = 0 all items alike.",
        tuple(tables),
        runs=tuple(task.output for task in tasks(plan)),
    )


def effects(found: dict[Gamma, Seeds]) -> pd.DataFrame:
    """The effect of γ = 1 instead of 0 on one side, with the other side's γ fixed."""
    rows = []
    for side, (own, other) in enumerate((("left", "right"), ("right", "left"))):
        for a, b in combinations(sorted(found), 2):
            if a[1 - side] == b[1 - side] and (a[side], b[side]) == (0, 1):
                ratios = tuple(y / x for x, y in zip(found[a], found[b], strict=True))
                rows.append(
                    {
                        "side": own,
                        "held": f"{other} γ = {a[1 - side]:g}",
                        "change": lift(ratios),
                    }
                )
    return pd.DataFrame(rows)


def table(plan: Plan, frame: pd.DataFrame, solved: pd.DataFrame) -> pd.DataFrame:
    """A row a weighting, popularity last."""
    rows = []
    for gamma in gammas(plan):
        row = {"γ left": f"{gamma[0]:g}", "γ right": f"{gamma[1]:g}"}
        for name, what in (("validation", "validation"), ("train", "training")):
            row[f"{what} MAP@10"] = spread(rankings.column(frame, label(gamma), name))
        if not solved.empty:
            found = rankings.column(solved, exact_method(gamma).label, "validation")
            row[f"{EXACT}, validation MAP@10"] = spread(found)
        rows.append(row)
    last = {"γ left": "popularity", "validation MAP@10": f"{frame['popularity'].iloc[0]:.4f}"}
    return pd.DataFrame([*rows, last]).fillna("")
