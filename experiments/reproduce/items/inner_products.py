"""Figures 5 and 6: what gravity does (Appendix B): distributions of inner products, and MAP@10 against λ.

The model is that of ``paper-sampling``, trained with each λ of the plan. The paper's is trained with SOGram,
α = 0.01, which at the rates that train these towers lags too far behind to rank. Options:
``gravity``, the λs; ``shown``, the two whose distributions are drawn, the smaller first; ``pairs``, how many
of each kind are measured; ``settings``, of all runs; ``part``, what one of several plans is called.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.report import keys
from experiments.report.keys import SAMPLING, Gravity
from experiments.report.sections import Figure, Section, Seeds, Table, spread, write_figure
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from gramrun.runs import figures, plotting


def tasks(plan: Plan) -> list[Task]:
    """A training run for each data set, λ and seed."""
    return [
        task
        for dataset in plan.datasets
        for weight in plan.options["gravity"]
        for task in _tasks(plan, dataset, weight)
    ]


def _tasks(plan: Plan, dataset: str, weight: float) -> list[Task]:
    settings = [
        *plan.options.get("settings", ()),
        f"train.gravity={weight:g}",
        f"evaluation.inner_products={plan.options['pairs']}",
        "evaluation.splits=[validation]",
    ]
    return plan.tasks("train", dataset, "paper-sampling", *settings)


def section(plan: Plan) -> Section:
    """Both figures of each data set, and tables of the values at the end of training."""
    drawn, distributions, by_gravity = [], [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        name = plan.named(dataset)
        paths = {g: [task.output for task in _tasks(plan, dataset, g)] for g in plan.options["gravity"]}
        products = pd.concat(
            [
                figures.inner_products_frame(some).assign(method=f"λ = {g:g}", gravity=g)
                for g, some in paths.items()
            ],
            ignore_index=True,
        )
        curves = figures.gravity_frame([path for some in paths.values() for path in some])
        drawn += _draw(plan, name, products, curves)
        measured |= at_the_end(name, products) | final_map(name, curves)
        distributions += _distribution_rows(name, products)
        by_gravity += _gravity_rows(name, plan.options["gravity"], measured)
    return Section(
        plan.item,
        "Inner products, and MAP@10 against λ",
        "Appendix B, both figures",
        "The paper has observed pairs near 1 and random ones near 0 with λ = 10, random pairs "
        "spread out with "
        "λ = 0.01, two orders of magnitude between the MAPs of these, and a lower MAP for too large a λ.",
        (
            Table(
                plan.named("inner_products"),
                f"⟨u, v⟩ at the end of training, {plan.seeds_shown}.",
                pd.DataFrame(distributions),
            ),
            Table(
                plan.named("map_by_gravity"),
                f"Final validation MAP@10 by λ, {plan.seeds_shown}.",
                pd.DataFrame(by_gravity),
            ),
        ),
        tuple(drawn),
        measured,
        tuple(task.output for task in tasks(plan)),
    )


def _draw(plan: Plan, dataset: str, products: pd.DataFrame, curves: pd.DataFrame) -> list[Figure]:
    shown = products[products["gravity"].isin(plan.options["shown"])]
    return [
        write_figure(
            plan.folder,
            plotting.inner_products_figure(shown),
            f"inner-products-{dataset}",
            f"{dataset}: inner products of {plan.options['pairs']:,} observed (training) and as many random "
            f"pairs while a model is trained with {SAMPLING}; quantiles, means over {plan.seed_count}.",
        ),
        write_figure(
            plan.folder,
            plotting.gravity_figure(curves),
            f"gravity-{dataset}",
            f"{dataset}: validation MAP@10 of the same model for each λ, {plan.seed_count}; "
            "the right panel's axes are logarithmic.",
        ),
    ]


def _last(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last step of each run."""
    last = frame.groupby(["gravity", "seed"])["step"].transform("max")
    return frame[frame["step"] == last].sort_values("seed")


def at_the_end(dataset: str, products: pd.DataFrame) -> dict[str, Seeds]:
    """Observed and random pairs by λ: means, the deviation of random ones, and the separation.

    The separation is the difference of the means in units of the root mean square of their deviations.

    Args:
        dataset: its name.
        products: rows of ``inner_products.csv`` with ``gravity`` and ``seed``.
    """
    found: dict[str, Seeds] = {}
    for weight, rows in _last(products).groupby("gravity"):
        observed, random = (rows[rows["pairs"] == pairs].set_index("seed") for pairs in ("train", "random"))
        pooled = np.sqrt((observed["sd"] ** 2 + random["sd"] ** 2) / 2)
        values = {
            Gravity.OBSERVED_MEAN: observed["mean"],
            Gravity.RANDOM_MEAN: random["mean"],
            Gravity.RANDOM_SD: random["sd"],
            Gravity.SEPARATION: (observed["mean"] - random["mean"]) / pooled,
        }
        found |= {keys.gravity(dataset, SAMPLING, q, f"{weight:g}"): tuple(x) for q, x in values.items()}
    return found


def final_map(dataset: str, curves: pd.DataFrame) -> dict[str, Seeds]:
    """Validation MAP@10 at the last step, by λ."""
    return {
        keys.gravity(dataset, SAMPLING, Gravity.VALIDATION, f"{weight:g}"): tuple(rows["map@10"])
        for weight, rows in _last(curves).groupby("gravity")
    }


def _distribution_rows(dataset: str, products: pd.DataFrame) -> list[dict[str, str]]:
    names = {"train": "observed", "validation": "observed, validation", "random": "random"}
    return [
        {
            "corpus": dataset,
            "λ": f"{weight:g}",
            "pairs": names[pairs],
            "mean": spread(tuple(rows["mean"]), 3),
            "standard deviation": spread(tuple(rows["sd"]), 3),
            "median": spread(tuple(rows["q0.5"]), 3),
            "5 % to 95 %": f"{rows['q0.05'].mean():.3f} to {rows['q0.95'].mean():.3f}",
        }
        for (weight, pairs), rows in _last(products).groupby(["gravity", "pairs"])
    ]


def _gravity_rows(dataset: str, weights: Sequence[float], measured: dict[str, Seeds]) -> list[dict[str, str]]:
    def cell(quantity: Gravity, weight: float, digits: int) -> str:
        return spread(measured[keys.gravity(dataset, SAMPLING, quantity, f"{weight:g}")], digits)

    rows = [
        {
            "corpus": dataset,
            "λ": f"{weight:g}",
            "validation MAP@10": cell(Gravity.VALIDATION, weight, 4),
            "observed minus random, in standard deviations": cell(Gravity.SEPARATION, weight, 2),
        }
        for weight in weights
    ]
    return rows
