"""EASE: each column solves its own constrained least squares; scores, memory and failures."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from gramrun.base import capacity
from gramrun.base.errors import ConfigError, RunError
from gramrun.config import EvaluationSection
from gramrun.data.corpus import Pairs
from gramrun.evaluation.baselines import ease
from gramrun.evaluation.protocol import evaluate_embeddings
from gramrun.evaluation.ranking import ItemSets

LEFT, RIGHT = 9, 7
STATUS = Path("/proc/self/status")


def pairs_of(x):
    left, right = np.nonzero(x)
    return Pairs(left.astype(np.int32), right.astype(np.int32), None)


def random_matrix(seed, shape=(LEFT, RIGHT), share=0.4):
    return (np.random.default_rng(seed).random(shape) < share).astype(float)


def column_by_column(x, l2):
    """Literally: column j is ridge regression of column j of X on the other columns."""
    items = x.shape[1]
    weights = np.zeros((items, items))
    for j in range(items):
        others = np.arange(items) != j
        # ‖x_j − X b‖² + λ‖b‖² as ordinary least squares: √λ I below X, zeros below x_j
        stacked = np.vstack([x[:, others], np.sqrt(l2) * np.eye(items - 1)])
        target = np.concatenate([x[:, j], np.zeros(items - 1)])
        weights[others, j] = np.linalg.lstsq(stacked, target, rcond=None)[0]
    return weights


MATRICES = {
    "random": random_matrix(0),
    "more items than left items": random_matrix(1, (3, 8)),
    "adjacency of a wiki": random_matrix(2, (8, 8), 0.3) * (1 - np.eye(8)),
    "equal columns": np.repeat(random_matrix(3, (6, 3)), 2, axis=1),
    "items and left items without pairs": random_matrix(4) * (np.arange(RIGHT) != 2) * (np.arange(LEFT) > 1)[:, None],
    "one item": np.ones((3, 1)),
    "no pairs": np.zeros((2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("numbers", [1, 12, 2**22])
@pytest.mark.parametrize("l2", [0.01, 1, 300])
@pytest.mark.parametrize("name", MATRICES)
def test_each_column_is_its_constrained_ridge_regression(monkeypatch, name, l2, numbers):
    monkeypatch.setattr(ease, "_NUMBERS", numbers)
    x = MATRICES[name]
    weights = ease.fit(pairs_of(x), *x.shape, l2)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, column_by_column(x, l2), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("numbers", [1, 2**22])
def test_scores_are_the_product(monkeypatch, numbers):
    monkeypatch.setattr(ease, "_NUMBERS", numbers)
    x = MATRICES["items and left items without pairs"]
    train, weights = pairs_of(x), np.random.default_rng(0).normal(size=(RIGHT, RIGHT)).astype(np.float32)
    chosen = np.array([0, 3, 4, 8])
    scores = ease.ItemScores(ItemSets.of_left_items(train.left, train.right, chosen), weights)
    np.testing.assert_array_equal(scores.scores(0, 4), (x[chosen] @ weights.astype(float)).astype(np.float32))
    np.testing.assert_array_equal(scores.scores(1, 3), scores.scores(0, 4)[1:3])
    assert not scores.scores(0, 1).any()  # without training items


@pytest.mark.parametrize("settings", [{}, {"candidates": 30, "left_items": 20}])
@pytest.mark.parametrize("split", ["validation", "train"])
def test_it_is_ranked_as_embeddings_with_the_same_scores_are(corpus, split, settings):
    """Left items as rows of X, right items as columns of B: by the protocol of two-tower models."""
    weights = ease.fit(corpus.train, corpus.left.items, corpus.right.items, 5.0)
    x = torch.zeros(corpus.left.items, corpus.right.items)
    x[corpus.train.left.tolist(), corpus.train.right.tolist()] = 1
    section = EvaluationSection(**settings)
    expected = evaluate_embeddings(x, torch.from_numpy(weights).T, corpus, split, section)
    found = ease.evaluate(weights, corpus, split, section)
    assert found["map@10"] > 0.05
    assert found["effective_rank"] is None
    for name in expected.keys() - {"seconds", "effective_rank"}:
        np.testing.assert_array_equal(found[name], expected[name])


def test_memory_is_foreseen(monkeypatch):
    """A hundred thousand items: refused before anything is taken."""
    monkeypatch.setattr(capacity, "available_memory", lambda: 20 * 10**9)
    with pytest.raises(ConfigError) as refused:
        ease.fit(pairs_of(np.eye(3)), 3, 100_000, 1.0)
    assert str(refused.value) == (
        "EASE's matrices of 100,000 x 100,000 right items need 120.3 GB of memory, 20.0 GB are available; "
        "set baseline.name: implicit-als, or prepare a corpus with fewer right items"
    )


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux")
def test_the_memory_foreseen_suffices():
    """The peak of a fit in a process of its own, above that of its imports and input."""
    script = """
import numpy as np
import scipy.sparse, scipy.linalg.lapack
from gramrun.data.corpus import Pairs
from gramrun.evaluation.baselines import ease
def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) * 1024
items = 2500
cells = np.unique(np.random.default_rng(0).integers(0, 500 * items, 60_000))
pairs = Pairs((cells // items).astype(np.int32), (cells % items).astype(np.int32), None)
before = peak()
ease.fit(pairs, 500, items, 10.0)
print(peak() - before, 12 * items**2 + 48 * len(pairs) + 2**28)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    taken, foreseen = map(int, found.stdout.split())
    assert 12 * 2500**2 * 0.9 < taken < foreseen


@pytest.mark.parametrize("l2", [1e-300, 1e308])
def test_numbers_beyond_float64_are_refused_or_harmless(l2):
    x = MATRICES["equal columns"]
    if l2 < 1:
        with pytest.raises(RunError, match="singular in float64; raise baseline.l2"):
            ease.fit(pairs_of(x), *x.shape, l2)
    else:
        assert not ease.fit(pairs_of(x), *x.shape, l2).any()
