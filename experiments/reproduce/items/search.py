"""Ours: does a better Gramian rank better? Each estimator at hyper-parameters chosen by the same budget.

1. Search: search.yaml gives every method as many points (λ, η, α), on a tuning corpus whose validation pairs
   come out of the training split.
2. Final: the best point of each method on the real split, with every seed. Runs of one seed start from
   the same parameters and see the same gradient batches, so differences are paired by seed.

Options: ``points`` and ``methods`` (names), where they are fewer than the file's, and ``grid``, another file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.stats import qmc

from experiments.report.keys import SAMPLING
from experiments.report.sections import Section, Table, lift, spread
from experiments.reproduce import rankings
from experiments.reproduce.corpora import TUNING_FRACTION, tuning
from experiments.reproduce.jobs import Task, state_of
from experiments.reproduce.plans import Plan, run_task, settings
from experiments.reproduce.rankings import Method
from gramrun import runs

WITH_ALPHA = ("sogram", "control-variate")
EXACT = "exact"
SYMBOLS = {
    "train.gravity": "λ",
    "train.learning_rate": "η",
    "train.dense_learning_rate": "dense η",
    "estimator.alpha": "α",
}
DENSE = "train.dense_learning_rate"
DENSE_SHARE = 0.01  # of η, for hidden towers, where it is not drawn


@dataclass(frozen=True, eq=False)
class Candidate:
    """One point of one method.

    Attributes:
        method: its row in the tables.
        values: what was drawn, by config key.
        settings: all of it as ``--set`` settings.
    """

    method: str
    values: Mapping[str, float]
    settings: tuple[str, ...]


def load(plan: Plan) -> dict[str, Any]:
    """Read the plan's grid, by default search.yaml."""
    file = Path(__file__).with_name(plan.options.get("grid", "search.yaml"))
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def corpora(plan: Plan) -> list[str]:
    """The tuning corpora."""
    return [tuning(dataset).name for dataset in plan.datasets]


def draw(ranges: Mapping[str, Any], points: int) -> list[dict[str, float]]:
    """Log-uniform points, the same for equal ranges; a longer sequence starts with a shorter one.

    Drawn as a scrambled Halton sequence, which covers all ranges evenly even where the points are few.

    Args:
        ranges: the two ends of each config key.
        points: how many.
    """
    low, high = np.log(list(ranges.values())).T
    even = qmc.Halton(len(ranges), rng=0).random(points)
    drawn = np.exp(low + (high - low) * even)
    return [{key: float(f"{x:.3g}") for key, x in zip(ranges, row, strict=True)} for row in drawn]


def candidates(plan: Plan, dataset: str) -> list[Candidate]:
    """Every point of every method of a data set."""
    search = load(plan)
    grid = search["datasets"][dataset]
    methods = search["methods"] | grid.get("variants", {})
    found = []
    for label in plan.options.get("methods", methods):
        own = {key: value for key, value in methods[label].items() if key != "ranges"}
        has_alpha = own.get("estimator.name") in WITH_ALPHA
        ranges = methods[label].get("ranges") or grid["ranges"]
        for point in draw(ranges, plan.options.get("points", search["points"])):
            values = {key: x for key, x in point.items() if has_alpha or key != "estimator.alpha"}
            rest: dict[str, Any] = {"train.epochs": grid["epochs"], **grid.get("settings", {})}
            if "model.hidden" in own and DENSE not in values:
                rest = {DENSE: float(f"{DENSE_SHARE * values['train.learning_rate']:.3g}"), **rest}
            found.append(Candidate(label, values, settings({**own, **values, **rest})))
    return found


def search_task(plan: Plan, dataset: str, candidate: Candidate) -> Task:
    """The run of a candidate on the tuning corpus, evaluated once, at its end."""
    base = load(plan)["datasets"][dataset]["base"]
    cheap = ("evaluation.every=0", "evaluation.splits=[validation]", "train.checkpoint_every=0")
    task = run_task("train", tuning(dataset).name, base, *candidate.settings, *cheap, seed=0)
    return replace(task, config=Path("configs") / dataset / f"{base}.yaml")


def scores(plan: Plan, dataset: str) -> pd.DataFrame:
    """The finished search: a row for each candidate, with ``method``, λ, η, α and ``tuning`` (MAP@10).

    A point whose run failed scores NaN and is not chosen.
    """
    rows = []
    for candidate in candidates(plan, dataset):
        task = search_task(plan, dataset, candidate)
        done = state_of(task) == "done"
        score = runs.open_run(task.output).metrics()[-1]["map@10"] if done else np.nan
        rows.append({"method": candidate.method, **candidate.values, "tuning": score})
    return pd.DataFrame(rows)


def chosen(plan: Plan, dataset: str) -> list[Method]:
    """Each method at its best point; a method whose points all failed is left out."""
    every, found = candidates(plan, dataset), scores(plan, dataset).dropna(subset="tuning")
    best = found.groupby("method", sort=False)["tuning"].idxmax()
    base = load(plan)["datasets"][dataset]["base"]
    return [Method(str(label), base, every[index].settings) for label, index in best.items()]


def tasks(plan: Plan) -> list[Task]:
    """The runs of the search, and the final runs of every data set whose search has ended."""
    found = []
    for dataset in plan.datasets:
        found += _searches(plan, dataset)
        if _has_ended(plan, dataset):
            found += _finals(plan, dataset)
    return found


def can_tell(plan: Plan) -> bool:
    """Whether every search has ended, and all final runs are done."""
    return all(
        _has_ended(plan, dataset) and all(state_of(task) == "done" for task in _finals(plan, dataset))
        for dataset in plan.datasets
    )


def _searches(plan: Plan, dataset: str) -> list[Task]:
    return [search_task(plan, dataset, candidate) for candidate in candidates(plan, dataset)]


def _has_ended(plan: Plan, dataset: str) -> bool:
    """Whether every point was run and at least one finished."""
    states = {state_of(task) for task in _searches(plan, dataset)}
    return "done" in states and states <= {"done", "failed"}


def _finals(plan: Plan, dataset: str) -> list[Task]:
    return rankings.tasks(replace(plan, datasets=(dataset,)), chosen(plan, dataset))


def section(plan: Plan) -> Section:
    """Two tables for each data set: the points of the search, and the chosen settings."""
    tables, words = [], []
    for dataset in plan.datasets:
        tried = scores(plan, dataset)
        frame = rankings.measure(plan, dataset, chosen(plan, dataset))
        tables.append(Table(f"final-{dataset}", caption(plan, dataset, tried), final_table(tried, frame)))
        shown = tried.fillna({"tuning": "failed"}).rename(columns={**SYMBOLS, "tuning": "MAP@10"}).fillna("")
        tables.append(
            Table(f"search-{dataset}", f"{dataset}: every point, on the tuning corpus, one seed.", shown)
        )
        if ends := at_the_ends(tried):
            words.append(f"Chosen at the end of what was drawn: {'; '.join(ends)}.")
    return Section(
        plan.item,
        "Each estimator at hyper-parameters of its own",
        "",
        " ".join(words),
        tuple(tables),
        runs=tuple(task.output for task in tasks(plan)),
    )


def best_points(tried: pd.DataFrame) -> pd.DataFrame:
    """The best point of each method, indexed by method."""
    tried = tried.dropna(subset="tuning")
    return tried.loc[tried.groupby("method", sort=False)["tuning"].idxmax()].set_index("method")


def at_the_ends(tried: pd.DataFrame) -> list[str]:
    """Methods with a chosen value that is the smallest or largest drawn; the best may lie outside."""
    best = best_points(tried)
    return [
        f"{SYMBOLS[key]} of {method} ({x:g})"
        for key in SYMBOLS
        if key in best
        for method, x in best[key].items()
        if x in (tried[key].min(), tried[key].max())
    ]


def final_table(tried: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """The chosen setting of each method, how it ranks, and its lifts, paired by seed."""
    best = best_points(tried)
    rows = []
    for label in frame["label"].unique():
        own = frame[frame["label"] == label]
        rows.append(
            {
                "method": label,
                **{
                    s: f"{best.loc[label, k]:g}"
                    for k, s in SYMBOLS.items()
                    if k in best and best.loc[label, k] > 0
                },
                "on the tuning corpus": f"{best.loc[label, 'tuning']:.4f}",
                "validation MAP@10": spread(rankings.column(frame, label, "validation")),
                **{f"lift over {other} [95 %]": _lift(frame, label, other) for other in (SAMPLING, EXACT)},
                "training MAP@10": spread(rankings.column(frame, label, "train")),
                "training time, s": f"{own['seconds'].mean():.0f}",
            }
        )
    rows.append({"method": "popularity", "validation MAP@10": f"{frame['popularity'].iloc[0]:.4f}"})
    return pd.DataFrame(rows).fillna("")


def _lift(frame: pd.DataFrame, label: str, other: str) -> str:
    labels = set(frame["label"]) - {label}
    return lift(rankings.ratios(frame, label, other)) if other in labels else ""


def caption(plan: Plan, dataset: str, tried: pd.DataFrame) -> str:
    """The caption of `final_table`."""
    points = int(tried.groupby("method").size().max())
    drawn = ", ".join(symbol for key, symbol in SYMBOLS.items() if key in tried)
    return (
        f"{dataset}: the best of {points} points ({drawn}) a method, chosen on "
        f"{100 * TUNING_FRACTION:g} % of the training pairs; {len(plan.seeds)} seeds on the real split, "
        "± standard deviation. "
        "Lifts are paired by seed, with 95 % t-intervals of their logarithm."
    )
