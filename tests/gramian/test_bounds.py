"""Proposition 5's bounds against every sequence of draws on tiny trajectories: exact, not statistical."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramrun.gramian import bounds

ALPHA = 0.4
MEMBERS = np.random.default_rng(0).normal(size=(3, 2))  # three members, k = 2


def rank_one(rows):
    return np.einsum("ni,nj->nij", rows, rows)


def trajectory(thetas):
    """What a trajectory.csv of these embeddings holds: steps, ‖G‖, σ² and drift, by their definitions."""
    terms = [rank_one(theta) for theta in thetas]
    gramians = [term.mean(0) for term in terms]
    variance = [
        np.square(term - gramian).sum((1, 2)).mean() for term, gramian in zip(terms, gramians, strict=True)
    ]
    drift = [np.nan, *(np.linalg.norm(b - a) for a, b in itertools.pairwise(gramians))]
    norms = [np.linalg.norm(gramian) for gramian in gramians]
    return np.arange(1, len(thetas) + 1), *map(np.array, (norms, variance, drift))


def sogram_errors(thetas, batch_size):
    """sqrt(E‖Ĝ(t) − G(t)‖²) at every t, over every sequence of batches."""
    batches = [list(batch) for batch in itertools.product(range(len(MEMBERS)), repeat=batch_size)]
    squares = np.zeros(len(thetas))
    sequences = list(itertools.product(batches, repeat=len(thetas)))
    for sequence in sequences:
        estimate = np.zeros((2, 2))
        for t, (theta, batch) in enumerate(zip(thetas, sequence, strict=True)):
            estimate = (1 - ALPHA) * estimate + ALPHA * rank_one(theta[batch]).mean(0)
            squares[t] += np.square(estimate - rank_one(theta).mean(0)).sum()
    return np.sqrt(squares / len(sequences))


def wandering():
    steps = np.random.default_rng(1).normal(size=(4, *MEMBERS.shape))
    return [MEMBERS + 0.4 * step for step in steps]


@pytest.mark.parametrize(("batch_size", "length"), [(1, 4), (2, 3)])
def test_a_moving_trajectory_stays_below_both_bounds(batch_size, length):
    thetas = wandering()[:length]
    error = sogram_errors(thetas, batch_size)
    measured = trajectory(thetas)
    stepwise = bounds.stepwise(*measured, ALPHA, batch_size)
    bound = bounds.proposition_5(*measured, ALPHA, batch_size)
    assert (error <= stepwise * (1 + 1e-12)).all()
    assert (stepwise <= bound * (1 + 1e-12)).all()
    assert (stepwise[1:] < bound[1:]).all()
    assert (error > 0.3 * bound).all()  # a bound that anything satisfies would show nothing
    steps, norm, variance, drift = measured
    largest = np.fmax.accumulate(np.where(steps == 1, 0, drift))
    printed = np.sqrt(
        np.maximum.accumulate(variance) / batch_size * ALPHA / (2 - ALPHA)
        + (largest * (1 / ALPHA - 1) + (1 - ALPHA) ** steps * norm) ** 2
    )
    assert (bound <= printed).all()


@pytest.mark.parametrize("growth", [[1.0, 1.0, 1.0, 1.0], [1.0, 1.3, 1.4, 1.9]], ids=["standing", "growing"])
def test_the_stepwise_bound_is_reached_where_nothing_turns(growth):
    """G(t) = c_t G with c growing: all lags and the zero start point one way, and no inequality is lost."""
    thetas = [np.sqrt(c) * MEMBERS for c in growth]
    stepwise = bounds.stepwise(*trajectory(thetas), ALPHA, 1)
    np.testing.assert_allclose(stepwise, sogram_errors(thetas, 1), rtol=1e-12)


@given(
    st.lists(st.tuples(*[st.floats(0.01, 10)] * 3), min_size=1, max_size=30),
    st.floats(0.001, 1),
    st.integers(1, 100),
)
def test_both_bounds_are_the_sums_of_the_proof(rows, alpha, batch_size):
    """The sums over τ, written out; and the maxima can only loosen."""
    norm, variance, drift = (np.array(column) for column in zip(*rows, strict=True))
    drift[0] = np.nan
    steps = np.arange(1, len(rows) + 1)
    weights = [alpha * (1 - alpha) ** j for j in range(len(rows))]
    literal, literal_stepwise = [], []
    for t in steps:
        start = (1 - alpha) ** t * norm[t - 1]
        spread = variance[:t].max() / batch_size * sum(a**2 for a in weights[:t])
        lag = max(drift[1:t], default=0.0) * sum(j * weights[j] for j in range(t))
        literal.append(np.sqrt(spread + (lag + start) ** 2))
        spread = sum(weights[t - tau] ** 2 * variance[tau - 1] / batch_size for tau in range(1, t + 1))
        lag = sum(weights[t - tau] * drift[tau:t].sum() for tau in range(1, t + 1))
        literal_stepwise.append(np.sqrt(spread + (lag + start) ** 2))
    bound = bounds.proposition_5(steps, norm, variance, drift, alpha, batch_size)
    stepwise = bounds.stepwise(steps, norm, variance, drift, alpha, batch_size)
    np.testing.assert_allclose(bound, literal, rtol=1e-7)
    np.testing.assert_allclose(stepwise, literal_stepwise, rtol=1e-9)
    assert (stepwise <= bound * (1 + 1e-7)).all()


def test_in_the_long_run_the_bound_is_the_one_that_the_paper_prints():
    steps = np.array([1, 2000])
    bound = bounds.proposition_5(
        steps, np.ones(2), np.array([3.0, 2.0]), np.array([np.nan, 0.2]), alpha=0.05, batch_size=4
    )
    assert bound[-1] == pytest.approx(np.sqrt(3 / 4 * 0.05 / 1.95 + (0.2 * 19) ** 2))


def test_samplings_error_is_the_enumerated_one():
    batches = itertools.product(range(len(MEMBERS)), repeat=2)
    exact = rank_one(MEMBERS).mean(0)
    squares = [np.square(rank_one(MEMBERS[list(batch)]).mean(0) - exact).sum() for batch in batches]
    _, _, variance, _ = trajectory([MEMBERS])
    assert float(bounds.sampling(variance, 2)[0]) == pytest.approx(np.sqrt(np.mean(squares)))


def test_steps_between_measured_ones_are_interpolated():
    steps = np.arange(1, 42)
    norm, variance, drift = np.full(41, 2.0), 1 + 0.1 * steps, 0.5 - 0.01 * steps
    drift[0] = np.nan
    kept = np.isin(steps, [1, 2, 11, 21, 41])
    full = bounds.stepwise(steps, norm, variance, drift, 0.1, 1)
    coarse = bounds.stepwise(steps[kept], norm[kept], variance[kept], drift[kept], 0.1, 1)
    np.testing.assert_allclose(coarse, full[kept])
