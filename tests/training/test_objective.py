"""What a step minimises: a prior of zeros changes no bit of training, and one step is its literal gradient."""

import pytest
import torch
from helpers import FORMS

from gramrun.gramian.low_rank_prior import LowRankPrior
from gramrun.training import trainer as training
from gramrun.training.objective import Gravity, TaylorSoftmax
from gramrun.training.trainer import Trainer

STEPS = 12
METHODS = [
    "sampling",
    "sogram",
    "sogram, free batch",
    "sogram, debiased",
    "sogram, exact start",
    "SAG, pairs",
    "SAGA, items",
    "SAGA, pairs",
    "control variate",
    "control variate, caches",
    "exact",
    "no gravity",
]
HIDDEN = ["model.hidden=[6]", "train.dense_learning_rate=0.01"]


def make_trainer(monkeypatch, config, corpus, objective):
    monkeypatch.setattr(training, "make_objective", lambda *_: objective)
    return Trainer(config, corpus)


def everything(trainer):
    """Losses, estimates and parameters of a whole run."""
    losses, gramians = [], []
    for record in trainer.steps():
        losses.append(record.loss)
        gramians += [trainer.left_estimator.gramian.clone(), trainer.right_estimator.gramian.clone()]
    return losses, gramians, [p.detach() for p in trainer.model.parameters()]


@pytest.mark.parametrize("method", METHODS)
def test_a_prior_of_zeros_is_no_prior_bit_for_bit(make_config, corpus, monkeypatch, method):
    settings = (f"train.steps={STEPS}", "train.gamma_left=0.5", "train.gamma_right=0", *HIDDEN)
    config = make_config(*settings, *FORMS[method])
    plain = everything(make_trainer(monkeypatch, config, corpus, Gravity(None)))
    zeros = LowRankPrior(torch.zeros(corpus.left.items, 3), torch.zeros(corpus.right.items, 3))
    trainer = make_trainer(monkeypatch, config, corpus, Gravity(zeros))
    losses, gramians, parameters = everything(trainer)
    assert trainer.left_estimator.cross.shape[1] == 3
    assert losses == plain[0]
    assert all(torch.equal(a, b) for a, b in zip(gramians, plain[1], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(parameters, plain[2], strict=True))


def test_a_prior_that_is_not_zero_changes_training(make_config, corpus, monkeypatch):
    """Otherwise the test above would show nothing."""
    config = make_config("train.steps=2", "estimator.name=sampling")
    ones = LowRankPrior(torch.ones(corpus.left.items, 1), torch.ones(corpus.right.items, 1))
    runs = [everything(make_trainer(monkeypatch, config, corpus, Gravity(p)))[2] for p in (None, ones)]
    assert not all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("gamma_right", [1.0, 0.5, 0.0])
def test_a_step_with_exact_estimates_is_the_gradient_of_the_whole_objective(
    make_config, corpus, monkeypatch, gamma_right
):
    """A gradient batch of all pairs, exact moments: θ − η ∇[f + λ g^P] and θ − η ∇[mean −log h + λ log Z].

    Both by literal sums over all items, differentiated by autograd.
    """
    pairs = len(corpus.train)
    generator = torch.Generator().manual_seed(0)
    prior = LowRankPrior(
        *(torch.randn(side.items, 2, generator=generator) / 10 for side in (corpus.left, corpus.right))
    )
    config = make_config(
        "train.steps=1",
        f"train.batch_size={pairs}",
        "train.optimizer=sgd",
        "train.learning_rate=0.5",
        "train.gravity=3",
        "train.gamma_left=1",
        f"train.gamma_right={gamma_right}",
        "estimator.name=exact",
    )
    x, y = (torch.from_numpy(ids).long() for ids in (corpus.train.left, corpus.train.right))
    w_left = torch.bincount(x, minlength=corpus.left.items).double() / pairs
    counts = torch.bincount(y, minlength=corpus.right.items).double()
    w_right = torch.where(counts > 0, counts**gamma_right, 0.0)
    w_right = w_right / w_right.sum()
    for objective in (Gravity(None), Gravity(prior), TaylorSoftmax()):
        trainer = make_trainer(monkeypatch, config, corpus, objective)
        model = trainer.model
        u = model.left_embeddings(torch.arange(corpus.left.items)).double()
        v = model.right_embeddings(torch.arange(corpus.right.items)).double()
        scores = u @ v.T
        if isinstance(objective, TaylorSoftmax):
            h = 1 + scores + scores**2 / 2
            loss = -h[x, y].log().mean() + 3 * (w_left * (h @ w_right).log()).sum()
        else:
            p = 0 if objective.prior is None else (prior.left @ prior.right.T).double()
            loss = (scores[x, y] - 1).square().mean() + 3 * (w_left @ (scores - p) ** 2 @ w_right)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        expected = [
            q.detach() - 0.5 * (g.to_dense() if g is not None else 0)
            for q, g in zip(parameters, gradients, strict=True)
        ]
        assert len(list(trainer.steps())) == 1
        for got, want in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(got.detach(), want, atol=1e-6, rtol=1e-5)
