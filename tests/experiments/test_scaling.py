"""When noise costs MAP: the planted corpora, and conclusions from losses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.report import keys
from experiments.reproduce import planted_clusters, scaling_losses
from experiments.reproduce.items import scaling
from experiments.reproduce.plans import Plan, load_profile
from experiments.reproduce.planted_clusters import Planted, draw_links, make_corpus, plant
from gramrun.config import EvaluationSection, RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.evaluation.protocol import evaluate_popularity

CONFIGS = Path(__file__).parents[2] / "configs" / "planted-clusters"
TINY = Planted(items=12, topics=3, draws=4, seed=1)
SMALL = Planted(items=50, topics=3, draws=8)


def probabilities(planted):
    """P(y | x) by the formula, pair by pair."""
    truth = plant(planted)
    matrix = np.zeros((planted.items, planted.items))
    for x in range(planted.items):
        for y in range(planted.items):
            matrix[x, y] = truth.weights[x, truth.topic[y]] * truth.share[y]
    return truth, matrix


def test_the_planted_probabilities_are_a_distribution_of_low_rank():
    truth, matrix = probabilities(TINY)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(truth.weights @ truth.right_factors().T, matrix, rtol=1e-6)
    assert np.linalg.matrix_rank(matrix, tol=1e-6) == TINY.topics


def test_links_are_drawn_from_the_planted_probabilities():
    truth, matrix = probabilities(TINY)
    repeats = 4000
    # Each left item over and over, with one draw, so that none is dropped as a repetition.
    many = replace(truth, weights=np.tile(truth.weights, (repeats, 1)))
    left, right = draw_links(many, 1, seed=0)
    counts = np.zeros_like(matrix)
    np.add.at(counts, (left % TINY.items, right), 1)
    noise = np.sqrt(matrix * (1 - matrix) / repeats)
    assert (counts[matrix == 0] == 0).all()
    assert np.abs(counts / repeats - matrix)[matrix > 0].max() < 5 * noise.max()
    # Together 132 standard normal squares, nearly: far more would be another distribution.
    deviations = ((counts / repeats - matrix)[noise > 0] / noise[noise > 0]) ** 2
    assert 0.6 < deviations.mean() < 1.5


def test_links_are_sorted_and_distinct_and_follow_from_the_seed():
    corpus = make_corpus(TINY, plant(TINY))  # `Corpus` itself asserts order
    again = make_corpus(TINY, plant(TINY))
    np.testing.assert_array_equal(corpus.pair_right, again.pair_right)
    assert np.bincount(corpus.pair_left, minlength=12).max() <= TINY.draws
    assert len(corpus.pair_left) + corpus.counts["repeated_draws_dropped"] == TINY.items * TINY.draws
    other = make_corpus(Planted(12, 3, 4, seed=2), plant(Planted(12, 3, 4, seed=2)))
    assert len(other.pair_left) != len(corpus.pair_left) or (other.pair_right != corpus.pair_right).any()


@pytest.mark.parametrize("rows", [1, 5, 12])
def test_the_rows_that_are_drawn_at_once_change_no_link(rows, monkeypatch):
    """One stream of random numbers goes through all rows, however they are divided."""
    truth = plant(TINY)
    at_once = draw_links(truth, 4, seed=0)
    monkeypatch.setattr(planted_clusters, "_ROWS_AT_ONCE", rows)
    for divided, whole in zip(draw_links(truth, 4, seed=0), at_once, strict=True):
        np.testing.assert_array_equal(divided, whole)


def test_the_planted_ranking_beats_popularity_and_a_shuffled_truth(tmp_path):
    planted = Planted(items=400, topics=8)
    planted_clusters.prepare(planted, tmp_path / "corpus")
    corpus = open_corpus(tmp_path / "corpus")
    settings = EvaluationSection()
    best = planted_clusters.optimum(planted, corpus, settings)
    assert best > 2 * evaluate_popularity(corpus, "validation", settings)["map@10"]
    assert best > 2 * planted_clusters.optimum(Planted(items=400, topics=8, seed=5), corpus, settings)


def test_a_tuning_corpus_has_no_validation_pair_of_the_ordinary_one(tmp_path):
    for name, tuning in (("ordinary", False), ("tuning", True)):
        planted_clusters.prepare(SMALL, tmp_path / name, tuning=tuning)
    ordinary, tuning = open_corpus(tmp_path / "ordinary"), open_corpus(tmp_path / "tuning")

    def pairs(split):
        return set(zip(split.left.tolist(), split.right.tolist(), strict=True))

    assert not pairs(ordinary.validation) & (pairs(tuning.train) | pairs(tuning.validation))
    assert pairs(tuning.train) | pairs(tuning.validation) == pairs(ordinary.train)


def made(maps, items=1000, dim=16, rank=10.0, epochs=10):
    """A frame of runs: {(estimator, B): MAP@10 by seed}."""
    return pd.DataFrame(
        {"items": items, "epochs": epochs, "dim": dim, "estimator": name, "batch": batch, "seed": seed}
        | {"map@10": value, "error": 1 / (1 + batch), "rank": rank, "optimum": 0.5}
        | {"steps": items * epochs // 100}
        for (name, batch), values in maps.items()
        for seed, value in enumerate(values)
    )


def test_losses_are_paired_by_seed():
    frame = scaling_losses.with_losses(made({("reference", 0): (0.5, 0.4), ("sampling", 4): (0.4, 0.4)}))
    assert scaling_losses.by_point(frame, "loss") == {
        (1000, 10, 16, "sampling", 4): pytest.approx((0.2, 0.0))
    }


def test_the_interval_of_a_loss_is_its_own_points():
    """Kept are .9 and .8: log ratios with a deviation of their own, one degree of freedom, t = 12.706."""
    maps = {("reference", 0): (1.0, 1.0), ("a", 4): (0.9, 0.8), ("b", 4): (0.8, 0.2)}
    table = scaling_losses.losses_table(scaling_losses.with_losses(made(maps))).set_index("estimator")
    logs = np.log([0.9, 0.8])
    half = 12.7062 * logs.std(ddof=1) / np.sqrt(2)
    ends = [f"{1 - np.exp(logs.mean() + x):.2%}" for x in (0, half, -half)]
    assert table.loc["a", "loss"] == ends[0]
    assert table.loc["a", "interval"] == f"[{ends[1]}, {ends[2]}]"


@pytest.mark.parametrize("profile", ["standard"])
def test_every_run_of_a_profile_is_another_one_and_has_a_valid_config(profile):
    plan = next(plan for plan in load_profile(profile, Path("results")) if plan.item == "scaling")
    asked = [task for grid in scaling.search(plan).values() for task in grid.values()]
    for grid in plan.options["grids"]:
        asked += [
            point.task for point in scaling.points(plan, grid, [f"model.embedding_dim={grid['dim']}"], 0)
        ]
    assert len({task.output for task in asked}) == len(asked)
    configs = {load_config(RunConfig, CONFIGS / task.config.name, task.overrides) for task in asked}
    assert len(configs) == len(asked)


def test_earlier_runs_are_reported_without_training(tmp_path, monkeypatch):
    """Sampling loses 10 % of the reference at B = 4, SOGram nothing: its lift is 1 / 0.9."""
    monkeypatch.chdir(tmp_path)
    columns = [
        "items",
        "epochs",
        "dim",
        "estimator",
        "batch",
        "seed",
        "map@10",
        "optimum",
        "error",
        "rank",
        "steps",
    ]
    rows = [
        (10_000, 10, 16, estimator, batch, seed, score * (1 + seed / 100), 0.2, 0.1, 15.0, 100)
        for seed in range(3)
        for estimator, batch, score in (
            ("reference", 0, 0.1),
            ("sampling", 4, 0.09),
            ("SOGram α=0.1", 4, 0.1),
        )
    ]
    pd.DataFrame(rows, columns=columns).assign(candidates=1.0).to_csv("runs.csv", index=False)
    options = {"runs": "runs.csv", "chosen": {16: [30, 0.1]}, "topics": 64}
    plan = Plan("scaling", (), (0, 1, 2), options, Path("results"))
    plan.folder.mkdir(parents=True)
    assert (scaling.tasks(plan), scaling.can_tell(plan)) == ([], True)
    found = scaling.section(plan).measured
    assert found[keys.planted(10_000, 10, 16, "sampling", "B=4", "kept")] == pytest.approx([0.9] * 3)
    assert found[keys.planted(10_000, 10, 16, "B=4", "lift")] == pytest.approx([1 / 0.9] * 3)
