"""Claims ask for numbers by name: what the items write of each profile's plan must have every name."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.report.claims import CLAIMS
from experiments.reproduce import rankings
from experiments.reproduce.items import (
    corpus_sizes,
    error_at_scale,
    gramian_error,
    gravity_cost,
    inner_products,
    map_curves,
    scaling,
)
from experiments.reproduce.plans import load_profile, measuring_command, profiles
from gramrun.config import RunConfig
from gramrun.config.loading import load_config

SEEDS = (0, 1)
TRAJECTORY = ("trajectory steps", "trajectory passes B=128", "trajectory passes B=1024")
MANIFESTS = {  # the sizes that `gramrun prepare` counts, and what its sides are of
    "movielens": (("left_items", "right_items", "pairs"), ("user", "movie")),
    "wikipedia": (("left_items", "right_items", "pairs", "pages", "links", "ngrams", "categories"), ("page",) * 2),
}  # fmt: skip


def of_rankings(plan, dataset):
    curve = np.array([[1.0, 10, 0.1], [2.0, 20, 0.2]])
    row = {
        "validation": 0.1,
        "train": 0.2,
        "popularity": 0.05,
        "steps": 20,
        "seconds": 2.0,
        "machine": "one",
        "curve": curve,
    }
    methods = rankings.present(dataset, map_curves.methods_of(plan))
    frame = pd.DataFrame([{"label": m.label, "seed": seed, **row} for m in methods for seed in SEEDS])
    return rankings.measured(plan.named(dataset), frame)


def of_gramian_errors(plan, dataset):
    config = load_config(RunConfig, Path("configs") / dataset / "gram-error.yaml")
    rows = [
        {"label": e.label, "side": side, "batch_size": e.gramian_batch_size, "seed": s, "step": t, "error": 1.0}
        for e in config.gram_error.estimators
        for side, s, t in itertools.product(("left", "right"), SEEDS, range(1, 11))
    ]  # fmt: skip
    return {
        *gramian_error.measurements(plan.named(dataset), pd.DataFrame(rows), pairs=1000),
        *(f"{plan.named(dataset)}/{x}" for x in TRAJECTORY),
    }


def of_error_at_scale(plan, dataset):
    options = itertools.product(
        plan.options["alphas"], plan.options["learning_rates"], SEEDS, ("left", "right"), range(1, 11)
    )
    names = ("alpha", "learning_rate", "seed", "side", "step")
    frame = pd.DataFrame(options, columns=names).assign(relative_drift=0.1)
    frame["error"] = 1 / frame["step"]
    return {*error_at_scale.decay(dataset, frame), f"{dataset}/scale trajectory steps"}


def of_inner_products(plan, dataset):
    rows = [
        {"gravity": g, "seed": s, "step": 1, "pairs": pairs, "mean": 1.0, "sd": 1.0, "map@10": 0.1}
        for g, s, pairs in itertools.product(plan.options["gravity"], SEEDS, ("train", "random"))
    ]
    frame = pd.DataFrame(rows)
    name = plan.named(dataset)
    return {*inner_products.at_the_end(name, frame), *inner_products.final_map(name, frame)}


def of_corpus_sizes(plan, dataset):
    sizes, items = MANIFESTS["movielens" if dataset.startswith("movielens") else "wikipedia"]
    sides = {side: {"item": item} for side, item in zip(("left", "right"), items, strict=True)}
    found = corpus_sizes.counts({"corpus": dict.fromkeys(sizes, 1), "sides": sides})
    return {f"{dataset}/{column}" for column in found}


def of_scaling(plan):
    if "runs" in plan.options:  # earlier ones
        return set()
    rows = [
        {"items": grid["items"], "epochs": grid.get("epochs", plan.options["epochs"]), "dim": grid["dim"]}
        | {"estimator": e, "batch": b, "seed": s, "map@10": 0.1}
        for grid in plan.options["grids"]
        for e, b, s in itertools.product(plan.options["estimators"], grid["batches"], SEEDS)
    ]
    return set(scaling._measured(pd.DataFrame(rows).assign(kept=0.9)))


def of_gravity_cost(plan):
    rows = itertools.product(plan.options["dims"], plan.options["batches"])
    frame = pd.DataFrame(rows, columns=["k", "B"]).assign(**dict.fromkeys(gravity_cost.FORMS, 1.0))
    return set(gravity_cost.measurements(frame))


WITHOUT_CORPORA = {"scaling": of_scaling, "gravity_cost": of_gravity_cost}
WRITE = {
    "gramian_error": of_gramian_errors,
    "trade_off": of_gramian_errors,
    "map_curves": of_rankings,
    "final_map": of_rankings,
    "movielens": of_rankings,
    "error_at_scale": of_error_at_scale,
    "inner_products": of_inner_products,
    "corpus_sizes": of_corpus_sizes,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The names that each item writes, over all profiles."""
    names = {}
    for profile in profiles():
        for plan in load_profile(profile, tmp_path_factory.getbasetemp()):
            own = names.setdefault(plan.item, set())
            if plan.item in WITHOUT_CORPORA:
                own |= WITHOUT_CORPORA[plan.item](plan)
            for dataset in plan.datasets if plan.item in WRITE else ():
                own |= set(WRITE[plan.item](plan, dataset))
    return names


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_every_name_that_a_claim_asks_for_is_written_by_its_item(claim, written):
    for case in claim.cases():
        asked = [name for side in claim.names(case) for name in side]
        asked += [need.name.format(**case) for need in claim.needs]
        for name in asked:
            prefix, star, suffix = name.partition("*")
            matching = [w for w in written[claim.item] if w.startswith(prefix) and w.endswith(suffix)]
            assert len(matching) >= 3 if star else name in written[claim.item], (claim.item, name)
        assert measuring_command(claim, case, False, "standard").startswith("python"), case


def test_the_command_is_the_narrowest_that_measures_a_claim():
    claims = {claim.id: claim for claim in CLAIMS}

    def call(name, measured, **case):
        return measuring_command(claims[name], case, measured, "standard").removeprefix(
            "python -m experiments.reproduce --profile "
        )

    nearer = {"dataset": "enwik8", "B": "128", "α": "0.01", "side": "left"}
    assert (
        call("sogram-nearer-than-sampling", True, **nearer)
        == "standard --items gramian_error --datasets enwik8"
    )
    assert (
        call("sogram-nearer-than-sampling", False, **nearer)
        == "quick --items gramian_error --datasets enwik8"
    )
    both = call(
        "lift-grows-enwik8", True, dataset="enwik8-titles", other="enwik8-adagrad-smaller-start", α="0.01"
    )
    assert both == "published --items final_map --datasets enwik8-titles enwik8"
    planted = {"dataset": "planted-clusters", "k": "16", "B": "4"}
    assert call("lift-grows-planted", False, **planted) == "standard --items scaling"
