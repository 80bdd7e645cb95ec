"""Inner products over time: against their definition, against gravity itself, and as rows of a run.

Their resume after a kill is in tests/faults/test_kills.py.
"""

import csv

import numpy as np
import pytest
from helpers import train

from gramrun.model.build import embed_all
from gramrun.training.inner_products import COLUMNS, KINDS, draw_pairs, inner_products
from gramrun.training.trainer import Trainer


def rows_of(path):
    with (path / "inner_products.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def trainer(make_config, corpus):
    """Under the paper's gravity, over pairs."""
    return Trainer(make_config("train.gamma_left=1", "train.gamma_right=1"), corpus)


def test_pairs_are_of_their_kind_and_follow_from_the_seed_alone(corpus):
    pairs = draw_pairs(corpus, 2000, seed=1)
    again, other = draw_pairs(corpus, 2000, seed=1), draw_pairs(corpus, 2000, seed=2)
    sets = {
        split: set(zip(corpus.pairs(split).left.tolist(), corpus.pairs(split).right.tolist(), strict=True))
        for split in ("train", "validation")
    }
    for kind, (left, right) in pairs.items():
        assert left.shape == right.shape == (2000,)
        np.testing.assert_array_equal(left, again[kind][0])
        np.testing.assert_array_equal(right, again[kind][1])
        assert not np.array_equal(left, other[kind][0])
        drawn = set(zip(left.tolist(), right.tolist(), strict=True))
        if kind in sets:
            assert drawn <= sets[kind]
        else:
            assert not drawn <= sets["train"] | sets["validation"]


def test_random_pairs_estimate_gravity(trainer, corpus):
    """The mean of ⟨u_i, v_j⟩² over drawn i and j is g, within four standard errors."""
    squares = inner_products(trainer.model, draw_pairs(corpus, 200_000, seed=3))["random"] ** 2
    left, right = trainer.left.exact_gramian(), trainer.right.exact_gramian()
    gravity = float((left * right).sum())
    assert abs(squares.mean() - gravity) < 4 * squares.std() / np.sqrt(len(squares))
    assert squares.std() / np.sqrt(len(squares)) < 0.02 * gravity  # else the test could not fail


def test_each_product_is_that_of_its_pair(trainer, corpus):
    pairs = draw_pairs(corpus, 70_000, seed=0)  # more than are gathered at once
    products = inner_products(trainer.model, pairs)
    assert tuple(products) == KINDS
    left, right = embed_all(trainer.model, corpus)
    for kind, (x, y) in pairs.items():
        expected = (left[x].double() * right[y].double()).sum(1)
        np.testing.assert_allclose(products[kind], expected, rtol=1e-5, atol=1e-9)


def test_a_run_has_three_rows_an_evaluation(tmp_path, make_config, corpus):
    run, trainer = train(tmp_path / "r", make_config("evaluation.inner_products=500"), corpus)
    rows = rows_of(run.path)
    assert tuple(rows[0]) == COLUMNS
    assert [(int(row["step"]), row["pairs"]) for row in rows] == [(s, k) for s in (20, 40) for k in KINDS]
    last = inner_products(trainer.model, draw_pairs(corpus, 500, seed=0))["random"]
    assert float(rows[-1]["mean"]) == pytest.approx(last.mean())
    assert float(rows[-1]["q0.05"]) == pytest.approx(np.quantile(last, 0.05))
