"""Ours: what users would pick instead, on the same split and by the same evaluation.

Popularity, implicit ALS (tuned, and at its package's defaults) and exact ALS: of the recommended objective,
and of the paper's. Beside them the best two-tower method of `estimator_comparison` whose runs are finished.
The option ``exact`` lists the data sets on which exact ALS is run: a minute a run on the larger ones.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from experiments.report.points_figure import points_figure
from experiments.report.section_files import write_figure
from experiments.report.sections import Section, Seeds, Table, spread
from experiments.reproduce import rankings
from experiments.reproduce.baseline_runs import baseline_tasks, measure_baseline, missing_packages
from experiments.reproduce.items import estimator_comparison
from experiments.reproduce.items.weighting import exact_method
from experiments.reproduce.jobs import Task, state_of
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

FLOOR = "popularity"
QUICK = (
    Method(FLOOR, "popularity"),
    Method("implicit ALS, tuned", "implicit-als"),
    Method(
        "implicit ALS, the package's defaults",
        "implicit-als",
        ("baseline.confidence=1", "baseline.regularization=0.01"),
    ),
)
_PAPER = exact_method((1, 1))
SOLVED = (
    *(exact_method(gamma) for gamma in ((0, 0), (1, 0), (0, 1), (1, 1))),
    Method(
        "exact ALS γ=(1, 1), λ = 1 (the paper's)", _PAPER.config, (*_PAPER.settings, "baseline.gravity=1")
    ),
)


def methods(plan: Plan, dataset: str) -> tuple[Method, ...]:
    """The baselines of one data set."""
    return QUICK + (SOLVED if dataset in plan.options.get("exact", ()) else ())


def tasks(plan: Plan) -> list[Task]:
    """Every baseline that a data set has a config, and this machine a package, for."""
    return [
        task for dataset in plan.datasets for task in baseline_tasks(plan, dataset, methods(plan, dataset))
    ]


def section(plan: Plan) -> Section:
    """A table for each data set, one figure, and how two towers stand beside what users have today."""
    tables, words, points = [], [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        frame = measure_baseline(plan, dataset, methods(plan, dataset))
        towers = best_two_tower(plan, dataset)
        whole = pd.concat([frame, towers], ignore_index=True)
        tables.append(Table(dataset, _caption(plan, dataset), _table(whole)))
        words.append(verdict(dataset, frame, towers))
        points.append(
            pd.DataFrame(
                {
                    "panel": dataset,
                    "series": [
                        "two towers" if x in set(towers["label"]) else "baseline" for x in whole["label"]
                    ],
                    "label": whole["label"],
                    "value": whole["validation"],
                }
            )
        )
        for label in frame["label"].unique():
            measured[f"{dataset}/{label}/validation MAP"] = rankings.column(frame, label, "validation")
            measured[f"{dataset}/{label}/training MAP"] = rankings.column(frame, label, "train")
    if missing := missing_packages(QUICK):
        words.append(
            f"Not installed, and so not measured: {', '.join(missing)} (pip install 'gramrun[baselines]')."
        )
    figure = points_figure(pd.concat(points, ignore_index=True), "validation MAP@10 (0 to 1)")
    caption = f"Validation MAP@10 of baselines and of the best two towers; {len(plan.seeds)} seeds."
    return Section(
        plan.item,
        "Baselines",
        "",
        " ".join(words),
        tuple(tables),
        (write_figure(plan, figure, "baselines", caption),),
        measured,
        tuple(task.output for task in tasks(plan)),
    )


def best_two_tower(plan: Plan, dataset: str) -> pd.DataFrame:
    """The rows of the best method of `estimator_comparison` among those with every seed finished; or none."""
    done = [
        method
        for method in rankings.present(dataset, estimator_comparison.METHODS)
        if all(state_of(task) == "done" for task in rankings.tasks(_only(plan, dataset), [method]))
    ]
    if not done:
        return pd.DataFrame({"label": []})
    frame = rankings.measure(plan, dataset, done)
    best = frame.groupby("label")["validation"].mean().idxmax()
    return frame[frame["label"] == best].assign(label=f"two towers: {best}")


def _only(plan: Plan, dataset: str) -> Plan:
    return Plan(plan.item, (dataset,), plan.seeds, {}, plan.results)


def verdict(dataset: str, frame: pd.DataFrame, towers: pd.DataFrame) -> str:
    """The best baseline, and where two towers stand beside it and beside popularity.

    Args:
        dataset: its name.
        frame: rows of baselines, with ``label`` and ``validation``.
        towers: rows of one two-tower method, or none.
    """
    means = frame.groupby("label", sort=False)["validation"].mean()
    best = str(means.idxmax())
    words = f"On {dataset} the best baseline is {best}, {spread(rankings.column(frame, best, 'validation'))}"
    if towers.empty:
        return f"{words}; no two-tower method was run beside it."
    name = str(towers["label"].iloc[0])
    own, other = (rankings.column(f, x, "validation") for f, x in ((towers, name), (frame, best)))
    low, high = difference(own, other)
    gap = float(np.mean(own) - np.mean(other))
    side = "ahead of it" if low > 0 else "behind it" if high < 0 else "not told apart from it"
    shown = f"{gap:+.4f} [{low:+.4f}, {high:+.4f}]" if low == low else f"{gap:+.4f}, one seed"
    words += f"; {name}, {spread(own)}, is {side} ({shown})"
    if best == FLOOR:
        return f"{words}."
    above = "above" if np.mean(own) > means[FLOOR] else "below"
    return f"{words} and {above} popularity ({means[FLOOR]:.4f})."


def difference(a: Seeds, b: Seeds) -> tuple[float, float]:
    """Welch's 95 % interval of mean(a) − mean(b): two methods' seeds are not paired; NaN for one seed."""
    if len(a) < 2 or len(b) < 2 or not np.ptp(a) + np.ptp(b):
        exact = float(np.mean(a) - np.mean(b)) if min(len(a), len(b)) > 1 else float("nan")
        return exact, exact
    found = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    return float(found.low), float(found.high)


def _table(frame: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for label in frame["label"].unique():
        own = frame[frame["label"] == label]
        low, high = own["interval"].iloc[0]
        rows.append(
            {
                "method": label,
                "validation MAP@10": spread(rankings.column(frame, label, "validation")),
                "by resampling left items": f"[{low:.4f}, {high:.4f}]",
                "training MAP@10": spread(rankings.column(frame, label, "train")),
                "seconds": f"{own['seconds'].mean():.0f}",
            }
        )
    return pd.DataFrame(rows)


def _caption(plan: Plan, dataset: str) -> str:
    return (
        f"{dataset}: MAP@10 as in the tables of methods; ± over {len(plan.seeds)} seeds (popularity draws "
        "nothing); the 95 % bootstrap interval over left items is the first seed's. Seconds, one thread: of "
        "baselines with their evaluation, of two towers without."
    )
