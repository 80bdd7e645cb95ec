"""What SOGram's lag does to gradient descent near a minimum: docs/mathematics.md#what-an-error-of-the-gramian-does-to-training."""

import numpy as np
import pytest
import torch

from gramrun.gramian.batch import GramianBatch
from gramrun.gramian.population import make_population
from gramrun.gramian.sampling import Sampling
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.gramian.sogram import SOGram
from gramrun.gramian.surrogate import GravitySide, gravity_surrogate

ALPHAS = (0.001, 0.01, 0.1, 0.3, 0.9)


def recursion(c, kappa, alpha):
    """The step of (x(t), y(t−1)) as a matrix."""
    return np.array([[1 - c - kappa * alpha, -kappa * (1 - alpha)], [alpha, 1 - alpha]])


def radius(c, kappa, alpha):
    return np.abs(np.linalg.eigvals(recursion(c, kappa, alpha))).max()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lag_helps_below_half_of_alpha_and_harms_above(alpha):
    border = 1 - np.sqrt(1 - alpha)
    for kappa in np.geomspace(1e-6, 0.99, 400):
        assert (radius(0, kappa, alpha) < 1 - kappa) == (kappa < border)
        assert radius(0, kappa, alpha) >= np.sqrt(1 - alpha) * (1 - 1e-9)
    for kappa in alpha * np.geomspace(1e-4, 1e-2, 20):  # the first order of the gain of a slow mode
        gain = np.log(radius(0, kappa, alpha)) / np.log1p(-kappa)
        assert gain - 1 == pytest.approx(kappa * (1 / alpha - 1), rel=0.05, abs=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_lag_at_most_doubles_the_rate(alpha):
    kappas = np.geomspace(1e-6, 0.99, 4000)
    rates = np.array([-np.log(radius(0, kappa, alpha)) for kappa in kappas])
    gains = rates / -np.log1p(-kappas)
    assert gains.max() < 2
    best = (1 - np.sqrt(1 - alpha)) ** 2 / alpha
    assert kappas[gains.argmax()] == pytest.approx(best, rel=0.01)
    if alpha <= 0.01:
        assert gains.max() > 1.9 and best == pytest.approx(alpha / 4, rel=0.01)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("momentum", [0.5, 0.9, 0.99])
def test_lag_and_momentum_together_are_unstable_above_a_bound(alpha, momentum):
    """The step of (x(t), m(t), y(t−1)) as a matrix; without momentum the second bound alone is left."""

    def radius_with_momentum(kappa):
        y = np.array([alpha, 0, 1 - alpha])
        m = np.array([0, momentum, 0]) + (1 - momentum) * kappa * y
        return np.abs(np.linalg.eigvals(np.array([np.array([1, 0, 0]) - m, m, y]))).max()

    oscillates = 1 / (momentum * (1 - alpha)) - 1
    overshoots = 2 * (1 + momentum) * (2 - alpha) / (alpha * (1 - momentum))
    border = min(oscillates, overshoots)
    assert radius_with_momentum(border * 0.999) < 1 < radius_with_momentum(border * 1.001)
    assert radius(0, 2 * (2 - alpha) / alpha * 0.999, alpha) < 1


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.9])
@pytest.mark.parametrize("rate", [0.0005, 0.005, 0.03])
def test_the_recursion_is_that_of_gradient_descent_on_one_pair(alpha, rate):
    """Two towers of one number each and one pair, with SOGram's estimates and the surrogate's gradient."""
    gravity = 10.0
    minimum = (1 + gravity) ** -0.5
    items = torch.tensor([0])
    c, kappa = 4 * rate * minimum**2, 4 * rate * gravity * minimum**2
    estimators = [
        SOGram(
            1, make_population(items, 1, 1.0), AlphaSchedule(alpha), Sampling(1), exact_start=True
        ).double()
        for _ in range(2)
    ]

    def row(value):
        return torch.tensor([[value]], dtype=torch.double, requires_grad=True)

    for estimator in estimators:
        estimator.start([GramianBatch(items, row(minimum).detach())])
    small = 1e-6
    u, v = row(minimum + small), row(minimum + small)
    state = np.array([small, 0.0])
    for _ in range(300):
        for estimator, rows in zip(estimators, (u, v), strict=True):
            estimator.observe(GramianBatch(items, rows.detach()))
        left, right = (estimator.gramian for estimator in estimators)
        loss = ((u * v).sum() - 1).square()
        loss = loss + gravity * gravity_surrogate(GravitySide(u), GravitySide(v), left, right)
        u, v = (
            row((x - rate * g).item()) for x, g in zip((u, v), torch.autograd.grad(loss, (u, v)), strict=True)
        )
        state = recursion(c, kappa, alpha) @ state
        assert u.item() - minimum == pytest.approx(state[0], abs=1e-4 * small)
