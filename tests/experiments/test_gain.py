"""The measured answer of gravity to an error of the Gramians, against its literal formula."""

import copy

import numpy as np
import pytest
import torch
from helpers import CONFIG, made_corpus, made_side

from experiments.studies.gain import Gain, inner
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.split import split_corpus
from gramrun.model.towers import embed_in_chunks
from gramrun.training.trainer import Trainer

ITEMS, K, RATE, GRAVITY = 12, 3, 1.0, 3.0


def trainer_of_all_pairs(*changes):
    """Free vectors under SGD, whose batch is all pairs."""
    pairs = np.nonzero(np.random.default_rng(0).random((ITEMS, ITEMS)) < 0.6)
    corpus = split_corpus(made_corpus(made_side("left", ITEMS), made_side("right", ITEMS), pairs), 0.1)
    settings = (
        f"model.embedding_dim={K}", "estimator.gramian_batch_size=64", "model.table_scale=0.7", "estimator.name=sampling", "train.steps=9", "train.epochs=null",
        f"train.batch_size={len(corpus.train)}", "train.optimizer=sgd", f"train.learning_rate={RATE}",
        f"train.gravity={GRAVITY}", "train.gamma_left=1", "train.gamma_right=1", "train.l2=0",
    )  # fmt: skip
    return Trainer(load_config(RunConfig, CONFIG, (*settings, *changes)), corpus)


def rows(side):
    return embed_in_chunks(side.embed, torch.arange(ITEMS)).double()


def test_one_step_of_gradient_descent_answers_as_its_formula_says():
    """u′ = u − η (… + 2λ w E_v u), so that ε changes Σ w u′ ⊗ u′ by −η Σ w (u′ ⊗ b + b ⊗ u′), b = 2λ w E_v u."""
    trainer = trainer_of_all_pairs()
    gain = Gain(trainer, steps=1)
    generator = torch.Generator().manual_seed(1)
    error = tuple(x + x.T for x in torch.randn((2, K, K), generator=generator, dtype=torch.double))
    found = gain(error)
    sides = (trainer.left, trainer.right)
    before = [rows(side) for side in sides]
    weights = [side.population.item_weights.double() for side in sides]
    next(trainer.steps())
    for side, start, w, other, answer in zip(sides, before, weights, reversed(error), found, strict=True):
        pulled = 2 * GRAVITY * w[:, None] * (start @ other)
        change = -RATE * (w[:, None] * rows(side)).T @ pulled
        torch.testing.assert_close(answer, -(change + change.T), rtol=2e-3, atol=1e-6)


def test_the_strongest_mode_is_that_of_the_matrix_of_all_answers():
    gain = Gain(trainer_of_all_pairs(), steps=2)
    basis = []
    for side in range(2):
        for i in range(K):
            for j in range(i + 1):
                unit = torch.zeros((2, K, K), dtype=torch.double)
                unit[side, i, j] = unit[side, j, i] = 1 if i == j else 0.5**0.5
                basis.append(tuple(unit))
    matrix = [[inner(answer, other) for other in basis] for answer in map(gain, basis)]
    values = np.linalg.eigvals(np.array(matrix))
    np.testing.assert_allclose(gain.strongest(iterations=40), np.abs(values).max(), rtol=1e-2)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "sparse-adam"])
def test_the_trainer_is_as_it_was(optimizer):
    trainer = trainer_of_all_pairs(f"train.optimizer={optimizer}", "train.learning_rate=0.01")
    for _ in range(3):
        next(trainer.steps())
    before = copy.deepcopy(trainer.state_dict())
    Gain(trainer, steps=2).strongest(iterations=1)
    after = trainer.state_dict()
    assert after.pop("train_seconds") == before.pop("train_seconds") and after["step"] == 3
    torch.testing.assert_close(after, before, rtol=0, atol=0)
