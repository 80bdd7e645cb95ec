"""The prior of a config is made of the training pairs of its corpus, and of nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gramrun.base.errors import ConfigError, InputError
from gramrun.config import PriorSection
from gramrun.gramian.low_rank_prior import LowRankPrior, save_prior
from gramrun.training.objective import make_prior


def product(prior):
    return (prior.left.double() @ prior.right.double().T).numpy()


def observed(corpus, values=1.0):
    matrix = np.zeros((corpus.left.items, corpus.right.items))
    matrix[corpus.train.left, corpus.train.right] = values
    return matrix


def make(corpus, target="one", **section):
    return make_prior(PriorSection(**section), corpus, target=target, seed=0)


def test_none_is_none(corpus):
    assert make(corpus) is None


def test_popularity_has_the_margins_of_the_training_pairs(corpus):
    p, matrix = product(make(corpus, name="popularity")), observed(corpus)
    np.testing.assert_allclose(p, np.outer(matrix.sum(1), matrix.sum(0)) / matrix.sum(), rtol=1e-6)


@pytest.mark.parametrize("target", ["one", "value"])
def test_svd_approximates_the_training_matrix(corpus, target):
    ratings = np.random.default_rng(0).integers(1, 6, len(corpus.train)).astype(np.float32)
    rated = replace(corpus, train=replace(corpus.train, target=ratings))
    matrix = observed(rated, ratings if target == "value" else 1.0)
    p = product(make(rated, target, name="svd", rank=3))
    omitted = np.linalg.svd(matrix, compute_uv=False)[3:]
    assert np.linalg.norm(matrix - p) == pytest.approx(np.linalg.norm(omitted), rel=1e-6)


def test_the_largest_rank_is_named(corpus):
    assert make(corpus, name="svd", rank=79).rank == 79
    with pytest.raises(
        ConfigError, match="train.prior.rank is 80, but .* has 120 × 80 items.*set it to 79"
    ) as caught:
        make(corpus, name="svd", rank=80)
    assert "\n" not in str(caught.value)


def test_files_must_fit_the_corpus(corpus, tmp_path):
    prior = LowRankPrior(torch.randn(120, 2), torch.randn(80, 2))
    save_prior(prior, tmp_path / "p.npz")
    made = make(corpus, name="file", path=tmp_path / "p.npz")
    assert torch.equal(made.left, prior.left)
    assert torch.equal(made.right, prior.right)
    save_prior(LowRankPrior(prior.right, prior.left), tmp_path / "turned.npz")
    with pytest.raises(InputError, match="left has shape .80, .*but the corpus has 120 left items"):
        make(corpus, name="file", path=tmp_path / "turned.npz")
