"""Exact ALS against the objective written out, its gradient, and optima that are known in closed form."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import all_pairs_objective

from gramrun.base.errors import RunError
from gramrun.evaluation.baselines import exact_als
from gramrun.evaluation.baselines.exact_als import Prior, Problem

LEFT, RIGHT, K = 7, 5, 3
CASES = {
    "over items": (0.0, 2.0, False),
    "over pairs": (1.0, 2.0, False),
    "between": (0.5, 0.7, False),
    "prior": (0.5, 3.0, True),
    "no gravity": (0.0, 0.0, False),
}


def random_problem(gamma, gravity, with_prior, seed=0, pairs=14):
    """A tiny corpus; left item 6 and right item 4 have no pairs, and one pair occurs twice."""
    random = torch.Generator().manual_seed(seed)
    left = torch.randint(0, LEFT - 1, (pairs,), generator=random)
    right = torch.randint(0, RIGHT - 1, (pairs,), generator=random)
    left[-1], right[-1] = left[0], right[0]
    prior = Prior(
        torch.randn(LEFT, 2, generator=random, dtype=torch.double),
        torch.randn(RIGHT, 2, generator=random, dtype=torch.double),
    )
    return Problem(
        left,
        right,
        torch.randn(pairs, generator=random, dtype=torch.double),
        exact_als.frequency_weights(torch.bincount(left, minlength=LEFT), gamma),
        exact_als.frequency_weights(torch.bincount(right, minlength=RIGHT), gamma),
        gravity,
        prior if with_prior else None,
    )


def random_embeddings(width=K, seed=1):
    random = torch.Generator().manual_seed(seed)
    return (
        torch.randn(LEFT, width, generator=random, dtype=torch.double),
        torch.randn(RIGHT, width, generator=random, dtype=torch.double),
    )


def complete_problem(gravity, prior=None):
    """Every pair observed once and every item weighing alike, so that F is a plain matrix approximation."""
    scores = torch.randn(LEFT, RIGHT, generator=torch.Generator().manual_seed(3), dtype=torch.double)
    left, right = torch.meshgrid(torch.arange(LEFT), torch.arange(RIGHT), indexing="ij")
    weights = [torch.full((m,), 1 / m, dtype=torch.double) for m in (LEFT, RIGHT)]
    return scores, Problem(left.flatten(), right.flatten(), scores.flatten(), *weights, gravity, prior)


def best_left(problem, v):
    return exact_als.best_left(problem, exact_als.by_left(problem), v)


def test_frequency_weights_by_hand():
    frequency = torch.tensor([4, 0, 1, 9], dtype=torch.int32)
    assert exact_als.frequency_weights(frequency, 1.0).tolist() == [4 / 14, 0, 1 / 14, 9 / 14]
    assert exact_als.frequency_weights(frequency, 0.0).tolist() == [1 / 3, 0, 1 / 3, 1 / 3]
    assert exact_als.frequency_weights(frequency, 0.5).tolist() == [2 / 6, 0, 1 / 6, 3 / 6]


@pytest.mark.parametrize("case", CASES)
def test_objective_is_the_double_sum_over_all_pairs(case):
    problem = random_problem(*CASES[case])
    left, right = random_embeddings()
    assert exact_als.objective(problem, left, right) == pytest.approx(
        float(all_pairs_objective(problem, left, right)), rel=1e-12
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk", [1, 2**13])
def test_each_half_sweep_has_zero_gradient(case, chunk, monkeypatch):
    """By autograd through the double sum; a chunk of 1 takes every item by itself."""
    monkeypatch.setattr(exact_als, "_CHUNK", chunk)
    problem = random_problem(*CASES[case])
    left, right = random_embeddings()
    for side in ("left", "right"):
        u = best_left(problem, right) if side == "left" else left
        v = best_left(problem.transposed(), left) if side == "right" else right
        free = (u if side == "left" else v).requires_grad_()
        (gradient,) = torch.autograd.grad(all_pairs_objective(problem, u, v), free)
        assert gradient.abs().max() < 1e-12
        assert free.detach().abs().max() > 0.01, "zero would be no solution"


@pytest.mark.parametrize("case", [case for case in CASES if case != "no gravity"])
@pytest.mark.parametrize("chunk", [1, 2**13])
def test_conjugate_gradients_reach_each_half_sweep_in_k_steps(case, chunk, monkeypatch):
    monkeypatch.setattr(exact_als, "_CHUNK", chunk)
    problem = random_problem(*CASES[case])
    left, right = random_embeddings()
    best = best_left(problem, right)
    pairs = exact_als.by_left(problem)
    far, near = (exact_als.improved_left(problem, pairs, right, left, steps) for steps in (1, K + 1))
    torch.testing.assert_close(near, best, atol=1e-5, rtol=1e-5)
    assert (far - best).abs().max() > 0.01, "one step does not suffice, so the others matter"
    worse, better, least = (exact_als.objective(problem, u, right) for u in (left, far, best))
    assert least < better < worse


def test_conjugate_gradients_need_gravity_of_full_rank():
    problem = random_problem(*CASES["no gravity"])
    with pytest.raises(RunError, match="no full rank; solve by Cholesky"):
        exact_als.improved_left(problem, exact_als.by_left(problem), *reversed(random_embeddings()), steps=3)


@pytest.mark.parametrize("case", CASES)
def test_the_objective_never_increases(case):
    problem = random_problem(*CASES[case])
    ends = []
    for steps in (0, 1, 2) if problem.gravity else (0,):
        rounding = 1e-6 if steps else 1e-12
        sweeps = exact_als.fit(problem, embedding_dim=2, sweeps=300, tolerance=0, steps=steps)
        values = [sweep.objective for sweep in sweeps]
        assert values[0] - values[-1] > 1e-4
        assert all(after <= before * (1 + rounding) + 1e-15 for before, after in itertools.pairwise(values))
        ends.append(values[-1])
    assert ends == pytest.approx([ends[0]] * len(ends), rel=1e-3)


def test_singular_systems_get_the_solution_of_least_norm():
    """Without gravity, a left item with fewer pairs than k has many solutions; numpy's lstsq is the twin."""
    problem = random_problem(0.0, 0.0, False)
    _, right = random_embeddings(width=6)
    u = best_left(problem, right)
    for item in range(LEFT - 1):
        rows = problem.pair_left == item
        expected = np.linalg.lstsq(
            right[problem.pair_right[rows]].numpy(), problem.target[rows].numpy(), rcond=None
        )[0]
        np.testing.assert_allclose(u[item].numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("width", [1, 2, 3, RIGHT, RIGHT + 2])
def test_complete_observations_reach_the_truncated_svd(width):
    """F = (1+λ)/n ‖UVᵀ − S/(1+λ)‖² + λ/(1+λ) ‖S‖²/n, whose best rank k Eckart and Young give."""
    gravity = 0.8
    scores, problem = complete_problem(gravity)
    values = torch.linalg.svdvals(scores / (1 + gravity))
    n = scores.numel()
    optimum = (1 + gravity) / n * values[width:].square().sum()
    optimum += gravity / (1 + gravity) * scores.square().sum() / n
    *_, last = exact_als.fit(problem, embedding_dim=width, sweeps=500, tolerance=1e-14)
    assert last.objective == pytest.approx(float(optimum), rel=1e-9)


def test_complete_observations_with_a_prior_end_between_the_two():
    left, right = random_embeddings(width=2, seed=5)
    scores, problem = complete_problem(0.8, Prior(left, right))
    *_, last = exact_als.fit(problem, embedding_dim=RIGHT, sweeps=5)
    torch.testing.assert_close(last.left @ last.right.T, (scores + 0.8 * left @ right.T) / 1.8)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_enough_dimensions_solve_every_entry_by_itself(gamma):
    """With k = the number of right items, F splits: a pair's best score is s (1/n) / (1/n + λ w_x w_y)."""
    gravity = 1.7
    observed = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 1]]).bool()
    left, right = observed.nonzero(as_tuple=True)
    target = torch.arange(1.0, len(left) + 1, dtype=torch.double)
    weights = [exact_als.frequency_weights(observed.sum(axis), gamma) for axis in (1, 0)]
    problem = Problem(left, right, target, *weights, gravity)
    *_, last = exact_als.fit(problem, embedding_dim=4, sweeps=10)
    share = 1 / len(target)
    pull = gravity * torch.outer(*weights)[left, right]
    expected = torch.zeros(5, 4, dtype=torch.double)
    expected[left, right] = target * share / (share + pull)
    torch.testing.assert_close(last.left @ last.right.T, expected)
    optimum = (target.square() * share * pull / (share + pull)).sum()
    assert last.objective == pytest.approx(float(optimum), rel=1e-10)


def test_fit_ends_at_its_tolerance_and_follows_its_seed():
    problem = random_problem(0.0, 2.0, False)
    loose = list(exact_als.fit(problem, embedding_dim=2, sweeps=200, tolerance=1e-3))
    assert [sweep.number for sweep in loose] == list(range(1, len(loose) + 1))
    drops = [1 - b.objective / a.objective for a, b in itertools.pairwise(loose)]
    assert drops[-1] <= 1e-3 < min(drops[:-1])
    again, other = (next(exact_als.fit(problem, embedding_dim=2, sweeps=1, seed=s)) for s in (0, 1))
    assert torch.equal(again.left, loose[0].left)
    assert not torch.equal(other.left, loose[0].left)


def test_numbers_beyond_float64_are_one_line():
    problem = replace(random_problem(0.0, 1.0, False), gravity=1e308)
    with pytest.raises(RunError, match="lower the gravity's weight"):
        best_left(problem, 1e3 * random_embeddings()[1])
