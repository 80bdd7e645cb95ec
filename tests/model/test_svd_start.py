"""The start at a decomposition: against dense algebra, against its objective's gradient, and what is refused."""

import numpy as np
import pytest
import scipy.sparse
import torch
from helpers import made_corpus, made_side

from gramrun.base.errors import ConfigError
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.in_memory import read_pairs
from gramrun.data.split import split_corpus
from gramrun.model.build import embed_all
from gramrun.model.svd_start import decompose
from gramrun.model.towers import table_name
from gramrun.training.trainer import Trainer

GAMMAS = [(0, 0), (1, 0), (0.5, 1)]


@pytest.fixture(scope="module")
def small():
    """12 left and 9 right items with values; two items without pairs. A sketch of 9 columns is the whole."""
    random = np.random.default_rng(0)
    dense = random.random((12, 9)) * (random.random((12, 9)) < 0.4)
    dense[3] = dense[:, 5] = 0
    words = scipy.sparse.csr_array(np.eye(9))
    return split_corpus(read_pairs(scipy.sparse.csr_array(dense), None, words, with_values=True).corpus, 0, 0)


def config_of(*overrides):
    return load_config(
        RunConfig,
        None,
        [
            "data.path=in-memory", "model.embedding_dim=3", "train.start=svd", "train.gravity=4", "train.steps=3",
            "train.batch_size=8", "estimator.name=sampling", "estimator.gramian_batch_size=8", *overrides,
        ],
    )  # fmt: skip


def gammas(gamma):
    return [f"train.gamma_left={gamma[0]}", f"train.gamma_right={gamma[1]}"]


def weights(corpus, gamma):
    """w of both sides, by hand."""
    for f, g in zip((corpus.left_frequency, corpus.right_frequency), gamma, strict=True):
        powers = np.where(f > 0, f.astype(float) ** g, 0)
        yield powers / powers.sum()


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("target", ["one", "value"])
def test_it_is_the_dense_decomposition(small, gamma, target):
    u, v = decompose(config_of(f"train.target={target}", *gammas(gamma)), small)
    wl, wr = weights(small, gamma)
    pairs, x = small.train, np.zeros((12, 9))
    s = pairs.target if target == "value" else 1
    x[pairs.left, pairs.right] = s / (len(pairs) * np.sqrt(wl[pairs.left] * wr[pairs.right]))
    a, sigma, b = np.linalg.svd(x)
    best = (a[:, :3] * (sigma[:3] - sigma[3]) / 5) @ b[:3]
    np.testing.assert_allclose(np.sqrt(wl)[:, None] * (u @ v.T) * np.sqrt(wr), best, atol=1e-5)
    assert not u[3].any()
    assert not v[5].any()


@pytest.mark.parametrize("gamma", GAMMAS)
def test_it_is_stationary_for_its_objective(small, gamma):
    """J of the module, written as the double sum, with τ from the dense decomposition: ∇J = 0, by autograd."""
    u, v = (
        torch.from_numpy(x).double().requires_grad_() for x in decompose(config_of(*gammas(gamma)), small)
    )
    wl, wr = weights(small, gamma)
    left, right, n = small.train.left.astype(int), small.train.right.astype(int), len(small.train)
    x = np.zeros((12, 9))
    x[left, right] = 1 / (n * np.sqrt(wl[left] * wr[right]))
    tau = float(np.linalg.svd(x)[1][3])
    wl, wr = torch.from_numpy(wl), torch.from_numpy(wr)

    def objective(u, v):
        everywhere = sum(wl[i] * wr[j] * (u[i] @ v[j]) ** 2 for i in range(len(u)) for j in range(len(v)))
        penalty = (wl * u.square().sum(1)).sum() + (wr * v.square().sum(1)).sum()
        return -2 / n * (u[left] * v[right]).sum() + (1 + 4) * everywhere + tau * penalty

    lowest = objective(u, v)
    lowest.backward()
    assert max(float(u.grad.abs().max()), float(v.grad.abs().max())) < 1e-5
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        noise = [0.1 * torch.randn(x.shape, generator=random, dtype=torch.double) for x in (u, v)]
        assert objective(u + noise[0], v + noise[1]) > lowest


def test_training_begins_there(small):
    trainer = Trainer(config_of(), small)
    assert trainer.train_seconds > 0  # it is a part of training
    for got, expected in zip(embed_all(trainer.model, small), decompose(config_of(), small), strict=True):
        np.testing.assert_array_equal(got.numpy(), expected)
    assert [record.step for record in trainer.steps()] == [1, 2, 3]


def test_directions_beyond_the_rank_keep_their_random_start(small):
    """X̂ has rank 8, as an item has no pair; from 0 a direction would never be trained."""
    models = [
        Trainer(config_of("model.embedding_dim=11", f"train.start={start}"), small).model.named_tables()
        for start in ("random", "svd")
    ]
    decomposed = decompose(config_of("model.embedding_dim=11"), small)
    for side, rows in zip((small.left, small.right), decomposed, strict=True):
        random, start = (model[table_name(side.item)].detach().numpy() for model in models)
        found = rows.any(axis=0)
        assert found[:7].all()
        assert not found[9:].any()
        np.testing.assert_array_equal(start[:, found], rows[:, found])
        np.testing.assert_array_equal(start[:, ~found], random[:, ~found])


def test_hidden_towers_are_refused(small):
    with pytest.raises(ConfigError, match="train.start: svd is for linear towers"):
        Trainer(config_of("model.hidden=[4]"), small)


def test_shared_ids_are_refused():
    """Pages that link to pages have one row for both sides: two different vectors do not fit in."""
    side = made_side("page", 4)
    pairs = made_corpus(side, side, (np.arange(4), np.array([1, 2, 3, 0])))
    with pytest.raises(ConfigError, match="both sides of .* are a page with one row"):
        Trainer(config_of("train.batch_size=4", "estimator.gramian_batch_size=4"), split_corpus(pairs, 0, 0))
