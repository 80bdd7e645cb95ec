"""What gravity does (paper, Appendix B): distributions of inner products, and MAP@10 against λ.

The model is that of ``paper-sogram`` (SOGram, α = 0.01), trained with each λ of the plan. Options:
``gravity``, the λs; ``shown``, the two whose distributions are drawn, the smaller first; ``pairs``, how many
of each kind are measured; ``epochs``, where the config's own are too many (also as a table by corpus).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.report.section_files import write_figure
from experiments.report.sections import Figure, Section, Seeds, Table, interval, spread
from experiments.reproduce.plans import Plan
from experiments.reproduce.scheduler import Task
from gramrun import runs
from gramrun.data.shards import open_corpus
from gramrun.evaluation.protocol import evaluate_popularity
from gramrun.runs import figures, plotting

LABEL = "SOGram α=0.01"
KINDS = {"observed": "train", "observed, validation": "validation", "random": "random"}
NEAR = 0.2  # of the target 1: what the verdict calls near


def tasks(plan: Plan) -> list[Task]:
    """A training run for each data set, λ and seed."""
    return [
        task
        for dataset in plan.datasets
        for gravity in plan.options["gravity"]
        for task in _tasks(plan, dataset, gravity)
    ]


def _tasks(plan: Plan, dataset: str, gravity: float) -> list[Task]:
    settings = [
        f"train.gravity={gravity:g}",
        f"evaluation.inner_products={plan.options['pairs']}",
        "evaluation.splits=[validation]",
    ]
    if epochs := plan.option("epochs", dataset):
        settings.append(f"train.epochs={epochs:g}")
    return plan.tasks("train", dataset, "paper-sogram", *settings)


def section(plan: Plan) -> Section:
    """Draw both figures of each data set, and tell what they show."""
    verdicts, drawn, distributions, by_gravity = [], [], [], []
    measured: dict[str, Seeds] = {}
    for dataset in plan.datasets:
        paths = {g: [task.output for task in _tasks(plan, dataset, g)] for g in plan.options["gravity"]}
        products = pd.concat([_products(paths[g], g) for g in paths], ignore_index=True)
        curves = figures.gravity_frame([path for some in paths.values() for path in some])
        popular = popularity(paths[plan.options["gravity"][0]][0])
        drawn += _draw(plan, dataset, products, curves, popular)
        found = {**at_the_end(products), **final_map(curves)}
        measured |= {f"{dataset}/{LABEL}/{name}": values for name, values in found.items()}
        distributions += _distribution_rows(dataset, products)
        by_gravity += _gravity_rows(dataset, plan.options["gravity"], found, popular)
        epochs = curves["epoch"].max()
        verdicts.append(f"{dataset}, after {epochs:.3g} epochs: {verdict(found, plan.options, popular)}")
    count = f"{len(plan.seeds)} seed{'s' if len(plan.seeds) > 1 else ''}, ± standard deviation"
    tables = (
        Table("inner_products", f"⟨u, v⟩ at the end of training, {count}.", pd.DataFrame(distributions)),
        Table("map_by_gravity", f"Final validation MAP@10 by λ, {count}.", pd.DataFrame(by_gravity)),
    )
    return Section(
        plan.item,
        "Inner products, and MAP@10 against λ",
        "Appendix B, both figures",
        "\n\n".join(verdicts),
        tables,
        tuple(drawn),
        measured,
        tuple(task.output for task in tasks(plan)),
    )


def _products(paths: list[Path], gravity: float) -> pd.DataFrame:
    return figures.inner_products_frame(paths).assign(method=f"λ = {gravity:g}", gravity=gravity)


def popularity(path: Path) -> float:
    """Popularity's validation MAP@10 on the candidates of a run."""
    config = runs.open_run(path).config
    corpus = open_corpus(config.data.path)
    return float(evaluate_popularity(corpus, "validation", config.evaluation)["map@10"])


def _draw(
    plan: Plan, dataset: str, products: pd.DataFrame, curves: pd.DataFrame, popular: float
) -> list[Figure]:
    shown = products[products["gravity"].isin(plan.options["shown"])]
    seeds = len(plan.seeds)
    return [
        write_figure(
            plan,
            plotting.inner_products_figure(shown),
            f"inner-products-{dataset}",
            f"{dataset}: inner products of {plan.options['pairs']:,} observed (training) and as many random "
            f"pairs while a model is trained with {LABEL}; quantiles, means over {seeds} seeds.",
        ),
        write_figure(
            plan,
            plotting.gravity_figure(curves, {"popularity": popular}),
            f"gravity-{dataset}",
            f"{dataset}: validation MAP@10 of the same model for each λ, {seeds} seeds, and popularity's; "
            "the right panel's axes are logarithmic.",
        ),
    ]


def at_the_end(products: pd.DataFrame) -> dict[str, Seeds]:
    """Mean and deviation of each kind of pairs by λ, and how far apart observed and random ones are.

    The separation is the difference of their means in units of the root mean square of their deviations.

    Args:
        products: rows of ``inner_products.csv`` with ``gravity`` and ``seed``.
    """
    last = products[products["step"] == products.groupby(["gravity", "seed"])["step"].transform("max")]
    found: dict[str, Seeds] = {}
    for gravity, rows in last.groupby("gravity"):
        by_kind = {
            kind: rows[rows["pairs"] == pairs].sort_values("seed").set_index("seed")
            for kind, pairs in KINDS.items()
        }
        for kind, of_kind in by_kind.items():
            if len(of_kind):
                for column in ("mean", "sd"):
                    found[f"{kind} inner product {column} λ={gravity:g}"] = tuple(of_kind[column])
        observed, random = by_kind["observed"], by_kind["random"]
        pooled = np.sqrt((observed["sd"] ** 2 + random["sd"] ** 2) / 2)
        found[f"separation λ={gravity:g}"] = tuple((observed["mean"] - random["mean"]) / pooled)
    return found


def final_map(curves: pd.DataFrame) -> dict[str, Seeds]:
    """Validation MAP@10 at the last step, by λ."""
    last = curves[curves["step"] == curves.groupby(["gravity", "seed"])["step"].transform("max")]
    return {
        f"validation MAP λ={gravity:g}": tuple(rows.sort_values("seed")["map@10"])
        for gravity, rows in last.groupby("gravity")
    }


def _distribution_rows(dataset: str, products: pd.DataFrame) -> list[dict[str, str]]:
    last = products[products["step"] == products.groupby(["gravity", "seed"])["step"].transform("max")]
    names = {pairs: kind for kind, pairs in KINDS.items()}
    return [
        {
            "corpus": dataset,
            "λ": f"{gravity:g}",
            "pairs": names[pairs],
            "mean": spread(tuple(rows["mean"]), 3),
            "standard deviation": spread(tuple(rows["sd"]), 3),
            "median": spread(tuple(rows["q0.5"]), 3),
            "5 % to 95 %": f"{rows['q0.05'].mean():.3f} to {rows['q0.95'].mean():.3f}",
        }
        for (gravity, pairs), rows in last.groupby(["gravity", "pairs"])
    ]


def _gravity_rows(
    dataset: str, gravities: list[float], found: Mapping[str, Seeds], popular: float
) -> list[dict[str, str]]:
    rows = [
        {
            "corpus": dataset,
            "λ": f"{gravity:g}",
            "validation MAP@10": spread(found[f"validation MAP λ={gravity:g}"]),
            "observed minus random, in standard deviations": spread(found[f"separation λ={gravity:g}"], 2),
        }
        for gravity in gravities
    ]
    return [
        *rows,
        {
            "corpus": dataset,
            "λ": "popularity",
            "validation MAP@10": f"{popular:.4f}",
            "observed minus random, in standard deviations": "",
        },
    ]


def verdict(found: Mapping[str, Seeds], options: Mapping[str, list[float]], popular: float) -> str:
    """The paper's four statements of Appendix B beside the numbers.

    Args:
        found: what `at_the_end` and `final_map` give.
        options: the plan's, of which ``gravity`` and ``shown`` are read.
        popular: popularity's MAP@10.
    """
    low, high = (f"λ={gravity:g}" for gravity in options["shown"])
    maps = {gravity: found[f"validation MAP λ={gravity:g}"] for gravity in options["gravity"]}
    return " ".join(
        [
            _of_pairs(found, low, high),
            _separated(found, low, high),
            _of_maps(maps, popular),
            _ratio(found, low, high),
        ]
    )


def _of_pairs(found: Mapping[str, Seeds], low: str, high: str) -> str:
    def mean(name: str) -> float:
        return float(np.mean(found[name]))

    near = [g for g in (low, high) if abs(mean(f"observed inner product mean {g}") - 1) < NEAR]
    which = {0: "neither is", 1: f"only that of {near[0] if near else ''} is", 2: "both are"}[len(near)]
    at = {
        g: f"{mean(f'random inner product mean {g}'):.3f} (standard deviation "
        f"{mean(f'random inner product sd {g}'):.3f}) for random pairs and "
        f"{mean(f'observed inner product mean {g}'):.3f} for observed ones"
        for g in (low, high)
    }
    return (
        f"The mean of ⟨u, v⟩ is {at[high]} with {high}, and {at[low]} with {low}. The paper has observed "
        f"pairs near 1 in both cases; here {which} within {NEAR:g} of it."
    )


def _separated(found: Mapping[str, Seeds], low: str, high: str) -> str:
    large, small = found[f"separation {high}"], found[f"separation {low}"]
    apart = (
        f"Observed and random pairs are {np.mean(large):.2f} standard deviations apart with {high} and "
        f"{np.mean(small):.2f} with {low}"
    )
    bottom, top = interval(tuple(a - b for a, b in zip(large, small, strict=True)))
    span = f"95 % interval of the difference {bottom:.2f} to {top:.2f}"
    if bottom > 0:
        return f"{apart}: {high} separates them better, as in the paper ({span})."
    if top < 0:
        return f"{apart}: {high} separates them less, against the paper ({span})."
    return f"{apart}; " + ("one seed decides nothing." if len(large) < 2 else f"undecided ({span}).")


def _of_maps(maps: Mapping[float, Seeds], popular: float) -> str:
    means = {gravity: float(np.mean(values)) for gravity, values in maps.items()}
    best = max(means, key=lambda gravity: means[gravity])
    where = "inside" if min(means) < best < max(means) else "at the edge of"
    return (
        f"MAP@10 is highest at λ={best:g}, {means[best]:.4f} (popularity {popular:.4f}), {where} the grid "
        f"from {min(means):g} to {max(means):g}; in the paper too large a λ lowers it."
    )


def _ratio(found: Mapping[str, Seeds], low: str, high: str) -> str:
    large, small = (float(np.mean(found[f"validation MAP {gravity}"])) for gravity in (high, low))
    times = f"{large / small:,.0f} times that of {low}" if small else f"{large:.4f}, that of {low} 0"
    return f"With {high} it is {times}; the paper has two orders of magnitude between them."
