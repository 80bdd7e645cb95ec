"""Ours: which optimizer trains the paper's towers, beside the exact minimiser of the same objective.

1. Search: training.yaml gives every optimizer as many points (η of tables, η of dense layers), on a tuning
   corpus whose validation pairs come out of the training split.
2. Final: the best point of each optimizer on the real split, with every seed.

Exact ALS fits free vectors to the same objective (γ, λ and target of the config). It is what a perfect
optimizer would give if the towers could reach every vector.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from experiments.report.sections import Section, Table, draw_runs, spread
from experiments.reproduce import rankings
from experiments.reproduce.items import search
from experiments.reproduce.items.search import corpora
from experiments.reproduce.jobs import Task, state_of
from experiments.reproduce.plans import Plan

RATES = ("train.learning_rate", "train.dense_learning_rate")

__all__ = ["can_tell", "corpora", "section", "tasks"]


def _grid(plan: Plan) -> Plan:
    return replace(plan, options={**plan.options, "grid": "training.yaml"})


def _exact(plan: Plan, dataset: str) -> list[Task]:
    return rankings.optimum_tasks(plan, dataset)


def tasks(plan: Plan) -> list[Task]:
    """The runs of the search, the final runs once it has ended, and exact ALS."""
    return search.tasks(_grid(plan)) + [task for name in plan.datasets for task in _exact(plan, name)]


def can_tell(plan: Plan) -> bool:
    """Whether every search has ended, and all final runs and exact ALS are done."""
    solved = all(state_of(task) == "done" for name in plan.datasets for task in _exact(plan, name))
    return solved and search.can_tell(_grid(plan))


def section(plan: Plan) -> Section:
    """Two tables for each data set, the chosen settings and all points; and the curves of the chosen ones."""
    grid = _grid(plan)
    tables, drawn = [], []
    for dataset in plan.datasets:
        tried, methods = search.scores(grid, dataset), search.chosen(grid, dataset)
        exact = rankings.own_optimum(dataset)
        frame = rankings.measure(plan, dataset, [*methods, exact])
        caption = (
            f"{dataset}: the paper's towers and objective, each optimizer at the best of its points; "
            f"{len(plan.seeds)} seeds on the real split, ± standard deviation. Effective rank: (tr G)²/‖G‖² "
            "of the left and right embeddings."
        )
        tables.append(Table(f"final-{dataset}", caption, final_table(tried, frame, exact.label)))
        shown = tried.fillna({"tuning": "failed"}).rename(columns={**search.SYMBOLS, "tuning": "MAP@10"})
        tables.append(Table(f"search-{dataset}", f"{dataset}: every point, one seed, tuning corpus.", shown))
        curves = rankings.paths(plan, dataset, methods)
        drawn.append(draw_runs(plan.folder, "map", curves, dataset, "MAP@10 along training, chosen points."))
    return Section(
        plan.item,
        "Towers that learn: the optimizer",
        "",
        "Exact ALS minimises the same objective over free vectors.",
        tuple(tables),
        tuple(drawn),
        runs=tuple(task.output for task in tasks(plan)),
    )


def final_table(tried: pd.DataFrame, frame: pd.DataFrame, exact: str) -> pd.DataFrame:
    """A row for each optimizer, for exact ALS and for popularity."""
    best = search.best_points(tried)
    ceiling = frame.loc[frame["label"] == exact, "validation"].mean()
    rows = []
    for label in frame["label"].unique():
        own = frame[frame["label"] == label]
        rates = best.loc[label] if label in best.index else {}
        ranks = (own["rank_left"].mean(), own["rank_right"].mean())
        rows.append(
            {
                "optimizer": label,
                **{search.SYMBOLS[key]: f"{rates[key]:g}" for key in RATES if key in rates},
                "validation MAP@10": spread(rankings.column(frame, label, "validation")),
                "of exact ALS": f"{own['validation'].mean() / ceiling:.0%}",
                "training MAP@10": spread(rankings.column(frame, label, "train")),
                "effective rank": " · ".join(f"{rank:.0f}" for rank in ranks),
                "seconds": f"{own['seconds'].mean():.0f}",
            }
        )
    rows.append({"optimizer": "popularity", "validation MAP@10": f"{frame['popularity'].max():.4f}"})
    return pd.DataFrame(rows).fillna("")
