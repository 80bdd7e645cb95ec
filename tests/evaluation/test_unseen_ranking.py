"""Ranking items never seen: the candidates, what is excluded, and the baselines that can rank them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import CONFIG, made_corpus, made_side, settings
from test_evaluation import known, one_hot_scores

from gramrun.base.errors import ConfigError, InputError
from gramrun.config import BaselineSection, EvaluationSection
from gramrun.data import shards
from gramrun.data.corpus import bags
from gramrun.data.split import split_corpus
from gramrun.evaluation.baselines.by_features import feature_popularity, tfidf
from gramrun.evaluation.baselines.run import fit_baseline
from gramrun.evaluation.protocol import evaluate_embeddings, ranking_task

USERS, MOVIES = 40, 30
GENRES = [[i % 3, 3 + i % 4] if i % 5 else [] for i in range(MOVIES)]
YEARS = [[i % 6] for i in range(MOVIES)]


def movies():
    pairs = np.unique(np.random.default_rng(1).integers(USERS * MOVIES, size=500))
    features = bags("genres", "genre", GENRES), bags("year", "year", YEARS)
    sides = made_side("user", USERS), made_side("movie", MOVIES, *features)
    return made_corpus(*sides, np.divmod(pairs, MOVIES), {"genre": 7, "year": 6})


@pytest.fixture(scope="module")
def unseen():
    return split_corpus(movies(), 0.3, by="right-items")


def test_new_items_are_ranked_among_all_or_among_the_new_ones(unseen):
    """By hand, with seeded noise: every item that is no training positive is a candidate, or every unseen one."""
    scores = np.random.default_rng(0).normal(size=(USERS, MOVIES))
    relevant, seen = known(unseen, "validation"), known(unseen, "train")
    new = unseen.right_frequency == 0
    for among, pool in (("all", ~seen), ("unseen", ~seen & new)):
        precisions = []
        for x in np.flatnonzero(relevant.any(1)):
            order = sorted(np.flatnonzero(pool[x]), key=lambda y: -scores[x, y])[:10]
            hits, total = 0, 0.0
            for rank, y in enumerate(order, 1):
                if relevant[x, y]:
                    hits += 1
                    total += hits / rank
            precisions.append(total / min(10, relevant[x].sum()))
        got = evaluate_embeddings(*one_hot_scores(scores), unseen, "validation", EvaluationSection(), among)
        assert got["map@10"] == pytest.approx(np.mean(precisions))
        assert (got["among"], got["full"], got["candidates"]) == (
            among,
            True,
            pool.any(0).sum() if among == "unseen" else MOVIES,
        )


def test_drawn_unseen_candidates_are_unseen(unseen):
    task = ranking_task(unseen, "validation", EvaluationSection(candidates=4), "unseen")
    assert len(task.candidates) == 4 and not task.full
    assert not unseen.right_frequency[task.candidates].any()
    assert (np.diff(task.candidates) > 0).all()


@pytest.mark.parametrize(
    ("by", "split"), [("pairs", "validation"), ("left-items", "validation"), ("right-items", "train")]
)
def test_unseen_is_refused_where_positives_are_seen(by, split):
    with pytest.raises(InputError, match="split.by=right-items"):
        ranking_task(split_corpus(movies(), 0.3, by=by), split, EvaluationSection(), "unseen")


def test_feature_popularity_by_hand(unseen):
    left, right = feature_popularity(unseen)
    frequency = unseen.right_frequency
    values = [[("g", g) for g in GENRES[i]] + [("y", y) for y in YEARS[i]] for i in range(MOVIES)]
    for i in range(MOVIES):
        of_values = []
        for value in values[i]:
            holders = [frequency[j] for j in range(MOVIES) if value in values[j] and frequency[j]]
            of_values.append(np.mean(holders) if holders else 0.0)
        assert float(right[i, 0]) == pytest.approx(np.mean(of_values))
    assert torch.equal(left, torch.ones(USERS, 1))


def test_tfidf_by_hand(unseen):
    left, right = tfidf(unseen)
    counts = np.zeros((MOVIES, 13))
    for i in range(MOVIES):
        for g in GENRES[i]:
            counts[i, g] += 1
        counts[i, 7 + YEARS[i][0]] += 1
    seen = unseen.right_frequency > 0
    idf = np.log((1 + seen.sum()) / (1 + (counts[seen] > 0).sum(0))) + 1
    weights = counts * idf
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    np.testing.assert_allclose(right.numpy(), weights, rtol=1e-5)
    profiles = known(unseen, "train") @ weights
    profiles /= np.maximum(np.linalg.norm(profiles, axis=1, keepdims=True), 1e-30)
    np.testing.assert_allclose(left.numpy(), profiles, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["feature-popularity", "tfidf"])
def test_baselines_by_features_need_features(name):
    """On the right side, besides the id."""
    split = split_corpus(replace(movies(), right=made_side("movie", MOVIES)), 0.3)
    with pytest.raises(ConfigError, match="a movie of made has none besides its id"):
        fit_baseline(BaselineSection(name=name), split)


def test_the_command_line_ranks_new_items(gramrun, tmp_path):
    """A model and a baseline, among all and among the new ones; other corpora refuse in one line."""
    for by in ("right-items", "pairs"):
        shards.write_corpus(
            movies(), tmp_path / by, validation_fraction=0.3, split_seed=0, split_by=by, origin={}
        )
    train = settings(
        "data.path=right-items", "train.steps=5", "train.batch_size=32", "estimator.gramian_batch_size=16", "train.id_dropout_right=0.5"
    )  # fmt: skip
    assert gramrun("train", "--config", CONFIG, "--output", "model", *train)[0] == 0
    base = settings("data.path=right-items", "baseline.name=tfidf")
    popular = CONFIG.parents[1] / "movielens-1m" / "popularity.yaml"
    assert gramrun("baseline", "--config", popular, "--output", "base", *base)[0] == 0
    for run in ("model", "base"):
        results = {}
        for among in ("all", "unseen"):
            code, out, err = gramrun("evaluate", run, "--among", among, "--json")
            assert (code, err) == (0, "")
            results[among] = json.loads(out)
            assert results[among]["among"] == among
        assert results["unseen"]["candidates"] < results["all"]["candidates"] == MOVIES
        assert results["unseen"]["map@10"] >= results["all"]["map@10"]
        # Popularity ranks the new items, which no pair has, last of all, and among themselves as ties.
        popularity = {among: result["popularity"]["map@10"] for among, result in results.items()}
        assert popularity["all"] == 0 < popularity["unseen"]
        assert "unseen right items" in gramrun("evaluate", run, "--among", "unseen")[1]
    assert gramrun("baseline", "--config", popular, "--output", "other", *settings("data.path=pairs"))[0] == 0
    code, _, err = gramrun("evaluate", "other", "--among", "unseen")
    assert code == 2 and err.count("\n") == 1 and "split.by=right-items" in err
