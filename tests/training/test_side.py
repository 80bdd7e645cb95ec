"""One side's batches, drawn and reused, against their definitions on a small corpus."""

import numpy as np
import pytest
import torch

from gramrun.data.permutation import permuted, round_keys
from gramrun.gramian.batch import batch_moments
from gramrun.model.towers import embed_in_chunks
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
        return [embed_in_chunks(side.embed, torch.arange(side.items)) for side in sides]

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


def test_a_shared_batch_has_the_two_sides_of_the_same_pairs(make_config, corpus):
    """Algorithms 1 and 2, line 7: one i for both Gramians. The left side's draws stay those of ``drawn``."""
    settings = ("train.gamma_left=1", "train.gamma_right=1", "estimator.name=sampling", "train.steps=3")
    shared, drawn = (
        Trainer(make_config(*settings, f"estimator.batch={batch}"), corpus) for batch in ("shared", "drawn")
    )
    trainers = shared, drawn
    for step in range(2):
        pairs = torch.from_numpy(np.random.default_rng((0, 0, step)).integers(len(corpus.train), size=32))
        expected = []
        for trainer in trainers:
            columns = zip((trainer.left, trainer.right), (corpus.train.left, corpus.train.right), strict=True)
            rows = [
                embed_in_chunks(side.embed, torch.from_numpy(column)[pairs].long())
                for side, column in columns
            ]
            expected.append([row.T @ row / 32 for row in rows])
            next(trainer.steps())
        torch.testing.assert_close(shared.left_estimator.gramian, expected[0][0])
        torch.testing.assert_close(shared.right_estimator.gramian, expected[0][1])
        torch.testing.assert_close(drawn.left_estimator.gramian, expected[1][0])
        assert not torch.allclose(drawn.right_estimator.gramian, expected[1][1])


@pytest.mark.parametrize("engine", ["plain", "compiled", "static"])
@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_the_gradient_batch_takes_equation_14_to_both_sides(make_config, corpus, engine, gamma):
    """Two steps of SGD equal autograd's on f + λ (1/B²) sum_ij r_i s_j ⟨u_i, v_j⟩² over B'."""
    config = make_config(
        f"train.gamma_left={gamma}", f"train.gamma_right={gamma}", "train.optimizer=sgd", "model.hidden=[]",
        "train.learning_rate=0.5", "estimator.name=sampling", "estimator.batch=gradient",
        "estimator.gramian_batch_size=64", f"train.engine={engine}",
    )  # fmt: skip
    trainer, twin = Trainer(config, corpus), Trainer(config, corpus)
    model, n = twin.model, len(corpus.train)
    order = permuted(np.arange(n), n, round_keys((config.train.seed, 2, 0), n))
    weights = []
    for column, items in ((corpus.train.left, corpus.left.items), (corpus.train.right, corpus.right.items)):
        counts = np.bincount(column, minlength=items).clip(1)
        weights.append(torch.from_numpy(literal_weights(column, items, gamma) * n / counts).float())
    for step in range(2):
        pairs = order[64 * step : 64 * (step + 1)]
        x, y = (torch.from_numpy(column[pairs]).long() for column in (corpus.train.left, corpus.train.right))
        u, v = model.left(x, model.tables), model.right(y, model.tables)
        r, s = weights[0][x], weights[1][y]
        squares = r[:, None] * s * (u @ v.T).square()
        loss = ((u * v).sum(1) - 1).square().mean() + config.train.gravity * squares.mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= 0.5 * gradient
        next(trainer.steps())
        for got, expected in zip(trainer.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-4)
