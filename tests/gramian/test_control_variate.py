"""The control variate on moving trajectories: unbiased at every step, and the recursion and bound of its error.

At step t every state sees every batch under θ(t−1) (looking ahead, a step earlier) and then under θ(t).
"""

import itertools

import contracts
import enumeration as corpus
import pytest
import reference
import torch
from enumeration import GAMMAS, WEIGHT_ERROR, advance, definition, embeddings, mean

from gramrun.gramian import CacheOptions
from gramrun.gramian.population import make_population
from gramrun.gramian.schedule import AlphaSchedule

ALPHA = 0.3
COMPANIONS = embeddings(90, dim=2)
SOURCES = {"sampling": None, "caches": CacheOptions("item")}
TRAJECTORY = [embeddings(6) + 0.4 * t * embeddings(7) for t in range(4)]


def make(gamma, source, companion_dim=0, form="constant"):
    schedule = AlphaSchedule(ALPHA, form)
    return corpus.make(
        "control-variate",
        gamma,
        schedule=schedule,
        cache=SOURCES[source],
        project=False,
        companion_dim=companion_dim,
    )


def moving(before, now, companions=None):
    def act(estimator, draw):
        if estimator.looks_ahead:
            estimator.look_ahead(draw.batch(before, companions))
        estimator.observe(draw.batch(now, companions))

    return act


def follow(estimator, gamma, trajectory, companions=None, stale=None):
    """All states after each step of the trajectory, every sequence of single draws enumerated."""
    states = [(1.0, corpus.started(estimator, trajectory[0] if stale is None else stale, companions))]
    for before, now in zip([trajectory[0], *trajectory], trajectory, strict=False):
        states = advance(states, corpus.draws(gamma, 1), moving(before, now, companions))
        yield now, states


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("form", ["constant", "decaying"])
@pytest.mark.parametrize("source", SOURCES)
def test_unbiased_at_every_step_of_a_moving_trajectory(source, form, gamma):
    """E Ĝ(t) = G(θ(t)) and E Ĥ(t) = H(θ(t)), from stale caches, however far θ moves."""
    estimator = make(gamma, source, companion_dim=2, form=form)
    for theta, states in follow(estimator, gamma, TRAJECTORY[:3], COMPANIONS, stale=embeddings(1)):
        expected = definition(theta, gamma, COMPANIONS)
        torch.testing.assert_close(mean(states), expected, atol=5 * WEIGHT_ERROR, rtol=0)


def errors(estimator, gamma, trajectory):
    return [
        corpus.mean_square_error(states, definition(theta, gamma))
        for theta, states in follow(estimator, gamma, trajectory)
    ]


def centred(theta, gamma):
    """u⊗u − G of each item."""
    return [torch.outer(u, u) - definition(theta, gamma) for u in theta]


def mean_square(matrices, gamma):
    return sum(w * float(m.square().sum()) for w, m in zip(corpus.weights(gamma), matrices, strict=True))


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_error_obeys_its_recursion(gamma):
    """E‖e(t)‖² = (1−α)² E‖e(t−1)‖² + E‖(1−α) D_t + α E_t‖² exactly, where F_t is the batch's own."""
    expected = [mean_square(centred(TRAJECTORY[0], gamma), gamma)]
    for before, now in itertools.pairwise(TRAJECTORY):
        a, b = centred(before, gamma), centred(now, gamma)
        noise = [(1 - ALPHA) * (y - x) + ALPHA * y for x, y in zip(a, b, strict=True)]
        expected.append((1 - ALPHA) ** 2 * expected[-1] + mean_square(noise, gamma))
    assert errors(make(gamma, "sampling"), gamma, TRAJECTORY) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("gamma", [1.0, 0.0])
@pytest.mark.parametrize("source", SOURCES)
def test_the_error_keeps_within_its_bound(source, gamma):
    """E‖e(t)‖² ≤ (1−α)² E‖e(t−1)‖² + 2(1−α)² d²/|B| + 2α² s², d and s enumerated, |B| = 1."""
    last, before = None, None
    for theta, states in follow(make(gamma, source), gamma, TRAJECTORY):
        exact = definition(theta, gamma)
        error = corpus.mean_square_error(states, exact)
        if last is not None:
            moved = [y - x for x, y in zip(centred(before, gamma), centred(theta, gamma), strict=True)]
            s2 = sum(p * float((e.unbiased.moments - exact).square().sum()) for p, e in states)
            kept = (1 - ALPHA) ** 2 * (last + 2 * mean_square(moved, gamma))
            assert error <= kept + 2 * ALPHA**2 * s2
            assert error >= (1 - ALPHA) ** 2 * last
        last, before = error, theta


@pytest.mark.parametrize("gamma", GAMMAS)
def test_it_beats_sogram_where_the_items_drift_together(gamma):
    """Exact mean square errors on one trajectory of growing embeddings: the lag costs more than the drift's noise.

    Against each of SOGram's forms at the same α, from the second step on; at the first, F_1 is a single draw.
    """
    trajectory = [(1 + 0.5 * t) * (1 + 0.1 * embeddings(8)) for t in range(4)]
    own = errors(make(gamma, "sampling"), gamma, trajectory)
    for options in ({}, {"debias": True}, {"exact_start": True}):
        sogram = corpus.make("sogram", gamma, schedule=AlphaSchedule(ALPHA), **options)
        others = errors(sogram, gamma, trajectory)
        assert all(a < b / 3 for a, b in zip(own[2:], others[2:], strict=True))


@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize("source", SOURCES)
def test_control_variate_equals_its_literal_twin(source, project):
    """The estimate is projected; the state carried to the next step is not."""
    population = make_population(torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4, 4, 5, 6]), 7, 1.0)
    trajectory = contracts.Trajectory(population, 2, steps=10, batch=4, seed=31)
    thetas = [theta.double() for theta in trajectory.theta]
    companions = trajectory.companions.double()
    start = [(thetas[0][x], companions[x]) for x in range(7)]
    caches = reference.SAGram(population.item_weights.double().tolist(), start, "1", project=False)
    options = {"schedule": AlphaSchedule(ALPHA), "project": project, "cache": SOURCES[source]}
    fast = contracts.Listed("control-variate", options).make(population, 2).double()
    trajectory.theta, trajectory.companions = thetas, companions
    trajectory.start(fast)
    got, moments, unbiased = [], [], []
    for t in trajectory.steps:
        got.append(trajectory.observe(fast, t))
        items = trajectory.drawn(t, t).items
        now, before = (
            reference.batch_moments(thetas[s][items], companions[items]) for s in (t, max(t - 1, 0))
        )
        moments.append((now, before))
        fresh = [(thetas[t][x], companions[x]) for x in items.tolist()]
        unbiased.append(now if source == "sampling" else caches.observe(items.tolist(), fresh, [1.0] * 4))
    expected = reference.control_variate(moments, unbiased, ALPHA)
    if project:
        assert min(float(torch.linalg.eigvalsh(e[:, :5])[0]) for e in expected) < -1e-3
        expected = [reference.project(e) for e in expected]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_a_trajectory_that_follows_the_estimate():
    """In training θ(t) depends on Ĝ(t−1). The error still has mean 0 over all runs, but not given θ(t).

    Given the past, E[Ĝ(t)] − G(θ(t)) = (1 − α) e(t−1): an error lasts about 1/α steps. Sampling
    and SAGA, whose batches are fresh, are unbiased given θ(t) too.
    """
    first, second = TRAJECTORY[:2]
    states = [(1.0, make(1.0, "sampling"))]
    states = advance(states, corpus.draws(1.0, 1), moving(first, first))
    total = torch.zeros(corpus.DIM, corpus.DIM, dtype=torch.double)
    largest = 0.0
    for probability, estimator in states:
        error = estimator.gramian - definition(first, 1.0)
        theta = second * (1 - 0.1 * estimator.gramian.trace())  # a parameter step that looks at Ĝ
        after = advance([(1.0, estimator)], corpus.draws(1.0, 1), moving(first, theta))
        conditional = mean(after) - definition(theta, 1.0)
        torch.testing.assert_close(conditional, (1 - ALPHA) * error, atol=1e-6, rtol=0)
        total += probability * conditional
        largest = max(largest, float(conditional.abs().max()))
    torch.testing.assert_close(total, torch.zeros_like(total), atol=1e-6, rtol=0)
    assert largest > 0.5
