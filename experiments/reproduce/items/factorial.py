"""Ours: what decides whether a better Gramian ranks better. Optimizer × estimator × Gramian batch B.

All runs have the paper's towers and objective. Those of one optimizer have its best rates (`training`), and
those of one seed the same start and gradient batches. The exact Gramian's lift over sampling is what an
estimate without error gains there. Sampling draws B for each side, once for both sides (shared), or takes the
gradient batch itself, whose gradient then goes through both Gramians (equation 15).

Options: ``optimizers`` (``--set`` settings by name), ``batches`` (B), ``estimators`` (names in `ESTIMATORS`),
``part`` (what the tables of one of several plans of a corpus are called), ``estimator_settings`` (more
``--set`` settings by estimator), ``estimator_seeds`` (the seeds of an estimator, if not all).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pandas as pd

from experiments.report.keys import EXACT, SAMPLING
from experiments.report.sections import (
    REACHED,
    Section,
    Seeds,
    Table,
    lift,
    share_form,
    spread,
    with_interval,
)
from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method

DEFAULT_BATCH = 1024  # of the configs
ERROR = "error of Ĝ"
ERRORS = (
    "; error of Ĝ: left · right, of the estimate that trains, over the same steps or the last third of all, "
    "of the seeds that logged it"
)
SAME_BATCH = "sampling, B = B′"
ESTIMATORS = {
    SAMPLING: ("paper-sampling",),
    "sampling, shared B": ("paper-sampling", "estimator.batch=shared"),
    SAME_BATCH: ("paper-sampling", "estimator.batch=gradient"),
    "SOGram α=0.5": ("paper-sogram", "estimator.alpha=0.5"),
    "SOGram α=0.1": ("paper-sogram", "estimator.alpha=0.1"),
    "SOGram α=0.01": ("paper-sogram", "estimator.alpha=0.01"),
    "SOGram α=0.005": ("paper-sogram", "estimator.alpha=0.005"),
    "SOGram α=0.001": ("paper-sogram", "estimator.alpha=0.001"),
    "SOGram α=0.1 of SAGA estimates": ("paper-sogram", "estimator.cache=item", "estimator.alpha=0.1"),
    "SAGram per item": ("paper-sagram", "estimator.cache=item"),
    EXACT: ("paper-exact",),
}


def label(optimizer: str, batch: int, estimator: str) -> str:
    """The name of one cell."""
    return f"{optimizer}, B={batch}, {estimator}"


def estimators(plan: Plan) -> list[str]:
    """The estimators of a plan, but for those that have none of its seeds."""
    return [name for name in plan.options.get("estimators", ESTIMATORS) if plan.seeds_of(name)]


def measured(batch: int, estimator: str) -> bool:
    """Whether there is such a cell: B' has one size, that of the configs."""
    return estimator != SAME_BATCH or batch == DEFAULT_BATCH


def methods(plan: Plan) -> list[Method]:
    """Every cell of the experiment."""
    found = []
    for (optimizer, own), batch, name in product(
        plan.options["optimizers"].items(), plan.options["batches"], estimators(plan)
    ):
        if not measured(batch, name):
            continue
        config, *settings = ESTIMATORS[name]
        settings += plan.settings_of(name)
        # Without a setting that changes nothing, so that `map_curves` has the same runs.
        size = [] if name == EXACT or batch == DEFAULT_BATCH else [f"estimator.gramian_batch_size={batch}"]
        seeds = plan.seeds_of(name)
        found.append(Method(label(optimizer, batch, name), config, (*own, *settings, *size), seeds=seeds))
    return found


def tasks(plan: Plan) -> list[Task]:
    """A run for each cell and seed, and exact ALS of the objective."""
    trained = rankings.tasks(plan, methods(plan))
    return trained + [task for name in plan.datasets for task in rankings.optimum_tasks(plan, name)]


def section(plan: Plan) -> Section:
    """For each data set a row for each optimizer, B and estimator."""
    tables = []
    seeds = plan.seed_count
    if len(plan.seeds) > 1:
        seeds = f"paired by seed, with 95 % t-intervals of its logarithm over {seeds}"
    for dataset in plan.datasets:
        frame = rankings.measure(plan, dataset, methods(plan))
        logged = frame["error_left"].notna().any()
        optimum = rankings.optimum(plan, dataset)
        rows = [
            row
            for optimizer, batch in product(plan.options["optimizers"], plan.options["batches"])
            for row in _rows(plan, dataset, frame, optimizer, batch, optimum)
        ]
        caption = (
            f"{plan.named(dataset)}: validation MAP@10 and its lift over sampling, {seeds}; by left items: "
            f"a paired bootstrap over them; at a constant η: the mean over the last {rankings.SETTLED:.0%} "
            f"of the steps before η falls{ERRORS if logged else ''}. "
            f"Popularity {frame['popularity'].iloc[0]:.4f}; {_gate(optimum)}"
        )
        table = pd.DataFrame(rows)
        tables.append(Table(plan.named(dataset), caption, table if logged else table.drop(columns=ERROR)))
    return Section(
        plan.item,
        "When does a better Gramian rank better?",
        "",
        "The exact Gramian shows what an estimate without error gains, within its interval.",
        tuple(tables),
        runs=tuple(task.output for task in tasks(plan)),
    )


def _gate(optimum: Seeds) -> str:
    if not optimum:
        return f"{rankings.EXACT_ALS} was not solved, so that it is not known whether towers are trained."
    return (
        f"{rankings.EXACT_ALS} {spread(optimum)}; towers count as trained where those of the exact Gramian, "
        f"else of SAGram per item, else of sampling reach {100 * REACHED:.0f} % of it and popularity, by the "
        "mean of seeds."
    )


def _rows(
    plan: Plan, dataset: str, frame: pd.DataFrame, optimizer: str, batch: int, optimum: Seeds
) -> Iterator[dict[str, str]]:
    """The estimators under one optimizer and B."""
    names = {name: label(optimizer, batch, name) for name in estimators(plan) if measured(batch, name)}
    base = names[SAMPLING]
    required = rankings.required_map(frame["popularity"].iloc[0], optimum)
    judged = rankings.column(frame, names[rankings.judged(names)], "validation")
    short = bool(np.mean(judged) < required)
    for name, own in names.items():
        maps = rankings.column(frame, own, "validation")
        compared = own != base
        ranks = (f"{np.mean(rankings.column(frame, own, side)):.0f}" for side in ("rank_left", "rank_right"))
        yield {
            "optimizer": optimizer,
            "B": str(batch),
            "estimator": name,
            "MAP@10": spread(maps),
            "lift [95 %]": lift(rankings.ratios(frame, own, base)) if compared else "",
            "by left items": rankings.resampled_lift(plan, dataset, methods(plan), own, base)
            if compared
            else "",
            "at a constant η": rankings.lift_at_constant_rate(frame, own, base) if compared else "",
            ERROR: _pair(rankings.column(frame, own, f"error_{side}") for side in ("left", "right")),
            "effective rank": " · ".join(ranks),
            "rise in the last tenth": rankings.rise_text(frame, own),
            "of exact ALS": _share(maps, optimum),
            "trained": _trained(maps, float(frame["popularity"].iloc[0]), short, bool(optimum)),
        }


def _share(maps: Seeds, optimum: Seeds) -> str:
    if not optimum:
        return ""
    shares = tuple(x / float(np.mean(optimum)) for x in maps)
    return with_interval(shares, share_form(float(np.mean(shares)), REACHED))


def _trained(maps: Seeds, popularity: float, short: bool, known: bool) -> str:
    """Whether towers are trained: the cell's by popularity, its nearest Gramian's by exact ALS."""
    if np.mean(maps) < popularity:
        return "below popularity"
    return "NOT TRAINED" if short else "yes" if known else "not known"


def _pair(sides: Iterator[Seeds]) -> str:
    """The mean over the seeds whose runs logged it, left · right; empty where none did."""
    known = [[error for error in side if not np.isnan(error)] for side in sides]
    return " · ".join(f"{np.mean(side):.3f}" for side in known) if all(known) else ""
