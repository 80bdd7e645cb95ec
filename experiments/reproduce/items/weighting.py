"""Ours: gravity over pairs or over items, the paper's footnote 4 on reweighting.

An item weighs (its training pairs)^γ in its side's Gramian: γ = 1 is a mean over pairs, the paper's equation
4, and γ = 0 a mean over distinct items. Every (γ left, γ right) of the plan is trained at the recommended
config, λ and all, with the estimator of the option ``config``; and beside it exact ALS, which minimises the
same objective for free vectors without any estimate, on the data sets of the option ``exact``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pandas as pd

from experiments.report.points_figure import points_figure
from experiments.report.section_files import write_figure
from experiments.report.sections import Section, Seeds, Table, interval, spread
from experiments.reproduce import rankings
from experiments.reproduce.baseline_runs import baseline_tasks, measure_baseline
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

Gamma = tuple[float, float]
NAMES = {"validation": "validation set", "train": "training set"}
EXACT, TRAINED = "exact ALS", "trained towers"


def label(gamma: Gamma) -> str:
    """What tables and claims call a weighting."""
    return f"γ=({gamma[0]:g}, {gamma[1]:g})"


def gamma_settings(section: str, gamma: Gamma) -> tuple[str, ...]:
    """What a weighting changes in a recommended config, whose γ is 0 on both sides (a test holds that)."""
    return tuple(
        f"{section}.gamma_{side}={value:g}"
        for side, value in zip(("left", "right"), gamma, strict=True)
        if value
    )


def gammas(plan: Plan) -> list[Gamma]:
    """The weightings of a plan."""
    return [(float(left), float(right)) for left, right in plan.options["gammas"]]


def methods(plan: Plan) -> list[Method]:
    """A training run for each weighting."""
    config = plan.options["config"]
    return [Method(label(gamma), config, gamma_settings("train", gamma)) for gamma in gammas(plan)]


def exact_method(gamma: Gamma) -> Method:
    """Exact ALS of the same objective."""
    return Method(f"{EXACT} {label(gamma)}", "exact-als", gamma_settings("baseline", gamma))


def tasks(plan: Plan) -> list[Task]:
    """Training runs of every data set, and exact ALS where it is asked for."""
    solved = [exact_method(gamma) for gamma in gammas(plan)]
    exact = [dataset for dataset in plan.datasets if dataset in plan.options.get("exact", ())]
    return rankings.tasks(plan, methods(plan)) + [
        task for dataset in exact for task in baseline_tasks(plan, dataset, solved)
    ]


def section(plan: Plan) -> Section:
    """A table for each data set, one figure, and which side's weights matter."""
    tables, words, measured, points = [], [], {}, []
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods(plan))
        solved = _exact(plan, dataset)
        floor = float(frame["popularity"].iloc[0])
        tables.append(Table(dataset, _caption(plan, dataset), _table(plan, frame, solved)))
        words.append(verdict(dataset, _by_gamma(plan, frame), floor))
        for gamma in gammas(plan):
            for name, key in (("validation", "validation MAP"), ("train", "training MAP")):
                measured[f"{dataset}/{label(gamma)}/{key}"] = rankings.column(frame, label(gamma), name)
                if not solved.empty:
                    found = rankings.column(solved, exact_method(gamma).label, name)
                    measured[f"{dataset}/{exact_method(gamma).label}/{key}"] = found
        points.append(_points(plan, dataset, frame, TRAINED))
        if not solved.empty:
            points.append(_points(plan, dataset, solved, EXACT))
    figure = points_figure(pd.concat(points, ignore_index=True), "validation MAP@10 (0 to 1)")
    caption = f"Validation MAP@10 by γ of the left and the right side; {len(plan.seeds)} seeds."
    return Section(
        plan.item,
        "Gravity over pairs or over items",
        "",
        " ".join(words),
        tuple(tables),
        (write_figure(plan, figure, "weighting", caption),),
        measured,
        tuple(task.output for task in tasks(plan)),
    )


def _exact(plan: Plan, dataset: str) -> pd.DataFrame:
    if dataset not in plan.options.get("exact", ()):
        return pd.DataFrame()
    return measure_baseline(plan, dataset, [exact_method(gamma) for gamma in gammas(plan)])


def _by_gamma(plan: Plan, frame: pd.DataFrame) -> dict[Gamma, Seeds]:
    return {gamma: rankings.column(frame, label(gamma), "validation") for gamma in gammas(plan)}


def _points(plan: Plan, dataset: str, frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    names = {m.label: label(g) for g in gammas(plan) for m in (Method(label(g), ""), exact_method(g))}
    return pd.DataFrame(
        {
            "panel": dataset,
            "series": kind,
            "label": frame["label"].map(names),
            "value": frame["validation"],
        }
    )


def verdict(dataset: str, found: dict[Gamma, Seeds], floor: float) -> str:
    """Which weighting ranks best, which pairs of weightings differ, and which lie below popularity.

    Args:
        dataset: its name.
        found: validation MAP@10 by weighting, in the order of seeds.
        floor: popularity's.
    """
    means = {gamma: sum(values) / len(values) for gamma, values in found.items()}
    best = max(means, key=lambda gamma: means[gamma])
    tied = [g for g in found if g != best and not _apart(found[best], found[g])]
    words = f"On {dataset}, {label(best)} (left, right) ranks best, {spread(found[best])}"
    words += f", not told apart from {', '.join(label(g) for g in tied)}" if tied else ""
    below = [label(gamma) for gamma in found if means[gamma] < floor]
    words += (
        f". Below popularity ({floor:.4f}): {', '.join(below)}" if below else ". None is below popularity"
    )
    effects = [text for side in (0, 1) if (text := _effect(found, side))]
    return f"{words}.{' ' if effects else ''}{' '.join(effects)}"


def _effect(found: dict[Gamma, Seeds], side: int) -> str:
    """What going from γ = 0 to 1 does on one side, the other side's γ held."""
    changes = [
        (a, b)
        for a, b in combinations(sorted(found), 2)
        if a[1 - side] == b[1 - side] and (a[side], b[side]) == (0, 1)
    ]
    if not changes:
        return ""
    other = ("right", "left")[side]
    parts = [
        f"{rankings.percent(_relative(found[b], found[a]))} at {other} γ = {a[1 - side]:g}"
        for a, b in changes
    ]
    return f"Weighing the {('left', 'right')[side]} side by pairs changes MAP@10 by {', '.join(parts)}."


def _relative(values: Seeds, base: Seeds) -> Seeds:
    return tuple(a / b - 1 for a, b in zip(values, base, strict=True))


def _apart(a: Seeds, b: Seeds) -> bool:
    """Whether the interval of the paired differences is on one side of 0; one seed tells nothing apart."""
    low, high = interval(tuple(x - y for x, y in zip(a, b, strict=True)))
    return low > 0 or high < 0


def _table(plan: Plan, frame: pd.DataFrame, solved: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for gamma in gammas(plan):
        row = {"γ left": f"{gamma[0]:g}", "γ right": f"{gamma[1]:g}"}
        for name in NAMES:
            row[f"{NAMES[name].removesuffix(' set')} MAP@10"] = spread(
                rankings.column(frame, label(gamma), name)
            )
        if not solved.empty:
            found = rankings.column(solved, exact_method(gamma).label, "validation")
            row[f"{EXACT}, validation MAP@10"] = spread(found)
        rows.append(row)
    last = {"γ left": "popularity", "validation MAP@10": f"{frame['popularity'].iloc[0]:.4f}"}
    return pd.DataFrame([*rows, last]).fillna("")


def _caption(plan: Plan, dataset: str) -> str:
    basis = rankings.caption(replace(plan, datasets=(dataset,)), dataset, methods(plan))
    return f"{basis} Config {plan.options['config']}; its λ was chosen for γ = (0, 0) and is held."


__all__: Sequence[str] = ["exact_method", "section", "tasks", "verdict"]
