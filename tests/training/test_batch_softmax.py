"""The in-batch softmax against the full one: by enumerating every batch, and where both are equal exactly."""

import itertools
import math

import pytest
import torch

from gramrun.model.build import embed_all
from gramrun.training.batch_softmax import batch_softmax_loss, corrected_scores
from gramrun.training.trainer import Trainer

SHARE = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.double)  # q of four right items
TEMPERATURE = 0.7


def towers(left_items, seed=0):
    random = torch.Generator().manual_seed(seed)
    return (
        torch.randn(left_items, 3, generator=random, dtype=torch.double),
        torch.randn(len(SHARE), 3, generator=random, dtype=torch.double),
    )


def test_the_loss_as_it_is_written():
    u, v = towers(5)
    items = [0, 2, 0, 3, 2]
    total = 0.0
    for i, own in enumerate(items):
        score = [float(u[i] @ v[y]) / TEMPERATURE - math.log(SHARE[y]) for y in items]
        others = [math.exp(score[j]) for j, y in enumerate(items) if j != i and y != own]
        total -= math.log(math.exp(score[i]) / (math.exp(score[i]) + sum(others)))
    batch = torch.tensor(items)
    loss = batch_softmax_loss(u, v[batch], batch, SHARE[batch].log(), TEMPERATURE)
    assert float(loss) == pytest.approx(total / len(items), rel=1e-12)


def expected_denominator(log_probability, positive, batch_size=3):
    """E D of the first slot, which holds `positive`, over all draws of the other slots from q."""
    u, v = towers(1)
    expectation = 0.0
    for others in itertools.product(range(len(SHARE)), repeat=batch_size - 1):
        batch = torch.tensor([positive, *others])
        scores = corrected_scores(u.expand(batch_size, -1), v[batch], batch, log_probability[batch])
        expectation += math.prod(SHARE[list(others)].tolist()) * float(scores[0].exp().sum())
    return expectation, (u @ v.T).exp().squeeze(0)


@pytest.mark.parametrize("positive", range(len(SHARE)))
def test_the_corrected_denominator_estimates_the_partition_function(positive):
    """E D = (B − 1) (Z − e^s) + e^s / q; with no correction, or the wrong sign, negatives are off."""
    expectation, terms = expected_denominator(SHARE.log(), positive)
    own, partition = float(terms[positive]), float(terms.sum())
    assert expectation == pytest.approx(2 * (partition - own) + own / float(SHARE[positive]), rel=1e-12)
    for sign in (0, -1):
        wrong, _ = expected_denominator(sign * SHARE.log(), positive)
        negatives = wrong - own * float(SHARE[positive]) ** -sign
        assert abs(negatives / (2 * (partition - own)) - 1) > 0.2


def test_a_batch_in_proportion_gives_the_full_softmax_gradient():
    """Gradients in u of item 3's loss: of a batch that holds each item q·B times, and of the full softmax.

    Item 3 fills one slot of ten, so that no accidental hit is left out and D = B·Z exactly.
    """
    batch = torch.tensor([3, 0, 0, 0, 0, 1, 1, 1, 2, 2])
    u, v = towers(len(batch))
    u.requires_grad_()
    loss = batch_softmax_loss(u, v[batch], batch, SHARE[batch].log(), TEMPERATURE)
    (in_batch,) = torch.autograd.grad(loss * len(batch), u)
    full_loss = torch.nn.functional.cross_entropy(u[:1] @ v.T / TEMPERATURE, torch.tensor([3]))
    (full,) = torch.autograd.grad(full_loss, u)
    torch.testing.assert_close(in_batch[0], full[0], rtol=1e-12, atol=1e-14)


def test_a_batch_of_one_item_alone_has_no_negatives():
    u, v = towers(2)
    batch = torch.tensor([1, 1])
    loss = batch_softmax_loss(u.requires_grad_(), v[batch], batch, SHARE[batch].log())
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-15)
    assert u.grad.abs().max() == 0


def test_training_has_the_temperature_and_the_shares_of_the_training_pairs(make_config, corpus):
    settings = "estimator.name=none", "train.objective=batch-softmax", f"train.temperature={TEMPERATURE}"
    trainer = Trainer(make_config(*settings), corpus)
    u, v = embed_all(trainer.model, corpus)
    pairs = trainer.pair_stream.batch(0)
    left, right = (
        torch.from_numpy(column).long()[pairs] for column in (corpus.train.left, corpus.train.right)
    )
    share = torch.from_numpy(corpus.right_frequency / len(corpus.train)).float()
    expected = batch_softmax_loss(u[left], v[right], right, share[right].log(), TEMPERATURE)
    assert next(trainer.steps()).loss == pytest.approx(float(expected), rel=1e-5)
