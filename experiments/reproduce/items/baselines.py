"""Ours: baselines on the same split with the same evaluation.

Popularity, implicit ALS (tuned, and at its package's defaults), EASE and exact ALS: of the recommended
objective, and of the paper's. Beside them the best two-tower method of `estimator_comparison` whose runs are
finished. The option ``exact`` lists the data sets on which exact ALS is run: a minute a run on the larger
ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from experiments.report.sections import Section, Table, spread
from experiments.report.verdicts import between_corpora
from experiments.reproduce import rankings
from experiments.reproduce.items import estimator_comparison
from experiments.reproduce.jobs import Task, state_of
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

QUICK = (
    Method("popularity", "popularity", command="baseline"),
    Method("implicit ALS, tuned", "implicit-als", command="baseline"),
    Method(
        "implicit ALS, the package's defaults",
        "implicit-als",
        ("baseline.confidence=1", "baseline.regularization=0.01"),
        "baseline",
    ),
    Method("EASE", "ease", command="baseline"),
)


def exact_method(left: int, right: int) -> Method:
    """Exact ALS; γ of a side is 1, a mean over pairs, or 0, over distinct items, as in its configs."""
    settings = (f"baseline.gamma_{side}=1" for side, gamma in (("left", left), ("right", right)) if gamma)
    return Method(f"exact ALS γ=({left}, {right})", "exact-als", tuple(settings), "baseline")


_PAPER = exact_method(1, 1)
SOLVED = (
    *(exact_method(*gammas) for gammas in ((0, 0), (1, 0), (0, 1), (1, 1))),
    replace(
        _PAPER,
        label="exact ALS γ=(1, 1), λ = 1 (the paper's)",
        settings=(*_PAPER.settings, "baseline.gravity=1"),
    ),
)


def methods(plan: Plan, dataset: str) -> tuple[Method, ...]:
    """The baselines of one data set."""
    return QUICK + (SOLVED if dataset in plan.options.get("exact", ()) else ())


def tasks(plan: Plan) -> list[Task]:
    """Every baseline that a data set has a config, and this machine a package, for."""
    return [
        task
        for dataset in plan.datasets
        for task in rankings.tasks(replace(plan, datasets=(dataset,)), methods(plan, dataset))
    ]


def section(plan: Plan) -> Section:
    """A table for each data set."""
    tables = []
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods(plan, dataset))
        whole = pd.concat([frame, best_two_tower(plan, dataset)], ignore_index=True)
        tables.append(Table(dataset, _caption(plan, dataset), table(whole)))
    missing = rankings.missing_packages(QUICK)
    return Section(
        plan.item,
        "Baselines",
        "",
        f"Not installed, and so not measured: {', '.join(missing)} (pip install 'gramrun[baselines]')."
        if missing
        else "Baselines and the best two towers, by one evaluation.",
        tuple(tables),
        runs=tuple(task.output for task in tasks(plan)),
    )


def best_two_tower(plan: Plan, dataset: str) -> pd.DataFrame:
    """The rows of the best method of `estimator_comparison` with every seed finished; or none."""
    alone = Plan(plan.item, (dataset,), plan.seeds, {}, plan.results)
    done = [
        method
        for method in rankings.present(dataset, estimator_comparison.METHODS)
        if all(state_of(task) == "done" for task in rankings.tasks(alone, [method]))
    ]
    if not done:
        return pd.DataFrame({"label": []})
    frame = rankings.measure(alone, dataset, done).drop(columns="curve")
    best = frame.groupby("label")["validation"].mean().idxmax()
    return frame[frame["label"] == best].assign(label=f"two towers: {best}")


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each method, with its unpaired difference to the best."""
    means = frame.groupby("label", sort=False)["validation"].mean()
    best = np.array(rankings.column(frame, str(means.idxmax()), "validation"))
    rows = []
    for label in frame["label"].unique():
        own = frame[frame["label"] == label]
        values = rankings.column(frame, label, "validation")
        gap, low, high = (x - 1 for x in between_corpora(np.array(values), best))
        ends = "" if np.isnan(low) else f" [{low:+.1%}, {high:+.1%}]"
        first = own["interval"].iloc[0]
        rows.append(
            {
                "method": label,
                "validation MAP@10": spread(values),
                "over the best [95 %, Welch]": "" if label == means.idxmax() else f"{gap:+.1%}{ends}",
                "by resampling left items": f"[{first[0]:.4f}, {first[1]:.4f}]",
                "training MAP@10": spread(rankings.column(frame, label, "train")),
                "seconds": f"{own['seconds'].mean():.0f}",
            }
        )
    return pd.DataFrame(rows)


def _caption(plan: Plan, dataset: str) -> str:
    return (
        f"{dataset}: MAP@10 as in the tables of methods; ± over {len(plan.seeds)} seeds (popularity and "
        "EASE draw nothing); the 95 % bootstrap interval over left items is the first seed's. Seconds, one "
        "thread: of baselines with their evaluation, of two towers without."
    )
