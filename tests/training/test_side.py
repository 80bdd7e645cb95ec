"""One side's batches, drawn and reused, against their definitions on a small corpus."""

import numpy as np
import pytest
import torch

from gramrun.data.permutation import permuted, round_keys
from gramrun.gramian.batch import batch_moments
from gramrun.training.trainer import Trainer


def literal_weights(column, items, gamma):
    counts = np.bincount(column, minlength=items).astype(float)
    powers = np.where(counts > 0, counts**gamma, 0.0)
    return powers / powers.sum()


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_the_previous_batch_is_the_last_gradient_batch_under_its_own_parameters(make_config, corpus, gamma):
    """Ĝ(t) = (1/|B'|) sum_{i in B'(t−1)} (w/p) u_i ⊗ u_i under θ(t−1), and a drawn batch at the first step."""
    config = make_config(
        "train.steps=4",
        f"train.gamma_left={gamma}",
        f"train.gamma_right={gamma}",
        "estimator.name=sampling",
        "estimator.batch=previous",
        "estimator.gramian_batch_size=64",
    )
    trainer = Trainer(config, corpus)
    seed, n = config.train.seed, len(corpus.train)
    sides = trainer.left, trainer.right
    columns = corpus.train.left, corpus.train.right
    order = permuted(np.arange(n), n, round_keys((seed, 2, 0), n))

    def embedded():
        return [side.embed_items(torch.arange(side.items)) for side in sides]

    theta = [embedded()]  # after 0, 1, 2, ... updates
    first = [batch_moments(side.draw(seed, side.stream, 0, 64)) for side in sides]
    for record in trainer.steps():
        got = [trainer.left_estimator.gramian, trainer.right_estimator.gramian]
        if record.step == 1:
            assert all(torch.equal(a, b) for a, b in zip(got, first, strict=True))
        else:
            pairs = order[64 * (record.step - 2) : 64 * (record.step - 1)]
            for gramian, side, column, rows in zip(got, sides, columns, theta[record.step - 2], strict=True):
                counts = np.bincount(column, minlength=side.items).clip(1)
                ratio = literal_weights(column, side.items, gamma) * n / counts
                terms = [ratio[x] * torch.outer(rows[x], rows[x]).double() for x in column[pairs]]
                torch.testing.assert_close(gramian.double(), sum(terms) / 64, atol=1e-7, rtol=1e-4)
        theta.append(embedded())
