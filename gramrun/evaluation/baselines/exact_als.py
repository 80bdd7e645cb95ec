"""Exact alternating least squares: minimises the paper's objective over free vectors.

With one-hot linear towers, every left item x has a free vector u_x and every right item y a free vector v_y.
The objective over the n observed pairs (equations 2 and 5, with the prior of Appendix C) is

    F(U, V) = (1/n) sum_i (⟨u_i, v_i⟩ − s_i)²  +  λ sum_x sum_y w_x w_y (⟨u_x, v_y⟩ − ⟨q_x, r_y⟩)²,

and its second term needs no double sum:

    sum_xy w_x w_y (⟨u_x, v_y⟩ − ⟨q_x, r_y⟩)²  =  ⟨G_u, G_v⟩ − 2 ⟨H_u, H_v⟩ + ⟨G_q, G_r⟩,
    G_u = sum_x w_x u_x ⊗ u_x,   H_u = sum_x w_x u_x ⊗ q_x,   and likewise on the right and of q and r.

Without a prior (q = 0) this is the gravity term ⟨G_u, G_v⟩. F is quadratic in U at fixed V. Setting half its
gradient in u_x to 0 gives one k × k system for each left item,

    [ (1/n) sum_{y in N(x)} v_y⊗v_y  +  λ w_x G_v ] u_x  =  (1/n) sum_{y in N(x)} s_xy v_y  +  λ w_x H_v q_x,

and likewise for right items. A sweep solves all left systems, then all right systems; F never increases, up
to rounding. The sweeps converge to a stationary point of F, which is convex in U and in V but not jointly.

A singular system (fewer neighbours than k without gravity, embeddings that lost rank) is consistent: the
right-hand side lies in the range of the matrix. The pseudo-inverse gives its solution of least norm; no
ridge is added. An item without pairs and without weight gets 0.

This module shares no code with training, so that it can serve as an oracle for it.

Reference: Hu, Koren and Volinsky (2008), who sum over all pairs by the same Gramian.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gramrun.base.errors import RunError

# Rows gathered at once: 2 MB at k = 35. Does not change a result; 2**17 is 2.5 times slower (MovieLens 1M).
_CHUNK = 2**13
_SINGULAR = 1e-12  # squared ratio of Cholesky pivots below which the pseudo-inverse takes over


@dataclass(frozen=True)
class Prior:
    """A low-rank prior score ⟨q_x, r_y⟩ (Appendix C).

    Attributes:
        left: q, float64, shape (left items, rank).
        right: r, float64, shape (right items, rank).
    """

    left: Tensor
    right: Tensor


@dataclass(frozen=True)
class Problem:
    """The data of F.

    Attributes:
        pair_left, pair_right: int64, shape (n,). The items of each observed pair, in any order.
        target: s, float64, shape (n,).
        left_weights: w_x, float64, shape (left items,), non-negative (`frequency_weights`).
        right_weights: w_y, float64, shape (right items,), non-negative.
        gravity: λ, non-negative.
        prior: the scores that gravity pulls to; None means 0.
    """

    pair_left: Tensor
    pair_right: Tensor
    target: Tensor
    left_weights: Tensor
    right_weights: Tensor
    gravity: float
    prior: Prior | None = None

    def transposed(self) -> Problem:
        """The same problem with left and right exchanged."""
        prior = self.prior and Prior(self.prior.right, self.prior.left)
        return Problem(
            pair_left=self.pair_right,
            pair_right=self.pair_left,
            target=self.target,
            left_weights=self.right_weights,
            right_weights=self.left_weights,
            gravity=self.gravity,
            prior=prior,
        )


@dataclass(frozen=True)
class Pairs:
    """The pairs in ascending order of their left items.

    Attributes:
        neighbours: int32, shape (n,). Right items.
        target: s, float64, shape (n,).
        counts, starts: int64, shape (left items,). The pairs of each left item, and the first's place.
    """

    neighbours: Tensor
    target: Tensor
    counts: Tensor
    starts: Tensor


@dataclass(frozen=True)
class Sweep:
    """The state after a sweep.

    Attributes:
        number: sweeps done so far, from 1.
        before: F before the sweep, infinite in the first.
        objective: F after the sweep.
        left, right: u and v, float64, shapes (left items, k) and (right items, k).
    """

    number: int
    before: float
    objective: float
    left: Tensor
    right: Tensor


def frequency_weights(frequency: Tensor, gamma: float) -> Tensor:
    """w_x ∝ f_x^γ over the items that have training pairs: float64, shape (items,), summing to 1.

    Args:
        frequency: f, shape (items,). Training pairs of each item.
        gamma: γ in [0, 1]: 1 for the paper's mean over pairs, 0 for the mean over distinct items.
    """
    weights = torch.where(frequency > 0, frequency.double().pow(gamma), 0.0)
    return weights / weights.sum()


def objective(problem: Problem, left_embeddings: Tensor, right_embeddings: Tensor) -> float:
    """F(U, V), exact up to rounding.

    Args:
        problem: pairs, weights, λ and prior.
        left_embeddings: u, float64, shape (left items, k).
        right_embeddings: v, float64, shape (right items, k).
    """
    u, v, prior = left_embeddings, right_embeddings, problem.prior
    loss = u.new_zeros(())
    for pairs in torch.arange(len(problem.target)).split(_CHUNK):
        scores = (u[problem.pair_left[pairs]] * v[problem.pair_right[pairs]]).sum(1)
        loss += (scores - problem.target[pairs]).square().sum()
    left, right = problem.left_weights, problem.right_weights
    gravity = (_moment(left, u, u) * _moment(right, v, v)).sum()
    if prior is not None:
        gravity -= 2 * (_moment(left, u, prior.left) * _moment(right, v, prior.right)).sum()
        gravity += (_moment(left, prior.left, prior.left) * _moment(right, prior.right, prior.right)).sum()
    return float(loss / len(problem.target) + problem.gravity * gravity)


def by_left(problem: Problem) -> Pairs:
    """The pairs as `best_left` and `improved_left` take them; of the transposed problem, by right items."""
    order = torch.argsort(problem.pair_left, stable=True)
    counts = torch.bincount(problem.pair_left, minlength=len(problem.left_weights))
    return Pairs(problem.pair_right[order].int(), problem.target[order], counts, counts.cumsum(0) - counts)


def best_left(problem: Problem, pairs: Pairs, v: Tensor) -> Tensor:
    """The U that minimises F at fixed V: float64, shape (left items, k); V that of the transposed problem.

    Args:
        problem: pairs, weights, λ and prior.
        pairs: `by_left` of the problem.
        v: float64, shape (right items, k).

    Raises:
        RunError: when λ G_v is not finite.
    """
    gramian = _scaled_gramian(problem, v)
    u = v.new_zeros(len(pairs.counts), v.shape[1])
    for items, rows, sides in _systems(problem, pairs, v, least=v.shape[1]):
        matrices = rows.mT @ rows + _pull(problem, items)[:, :, None] * gramian
        u[items] = _solve(matrices, sides)
    return u


def improved_left(problem: Problem, pairs: Pairs, v: Tensor, u: Tensor, steps: int) -> Tensor:
    """Some steps from U towards `best_left` by the conjugate gradient method: float64, shape (left items, k).

    With L Lᵀ = λ G_v (Cholesky), ũ_x = Lᵀ u_x and ṽ_y = L⁻¹ v_y, the system of x becomes

        [ (1/n) sum_{y in N(x)} ṽ_y⊗ṽ_y  +  w_x I ] ũ_x  =  (1/n) sum_{y in N(x)} s_xy ṽ_y  +  λ w_x H_ṽ q_x.

    At γ = 1 the matrices of all left items add up to (1 + 1/λ) I, so that they are well conditioned and need
    few steps. A step takes O(k |N(x)|), where Cholesky takes O(k² |N(x)| + k³). F never increases, up to
    rounding: products are float32.

    Args:
        problem: pairs, weights, prior and λ > 0.
        pairs: `by_left` of the problem.
        v: float64, shape (right items, k), of full rank.
        u: the U to start from, float64, shape (left items, k).
        steps: of the method, from 1.

    Raises:
        RunError: when λ G_v is not finite or not of full rank.
    """
    factor, failed = torch.linalg.cholesky_ex(_scaled_gramian(problem, v))
    if failed:
        raise RunError("λ G_v has no full rank; solve by Cholesky (baseline.conjugate_gradient_steps: 0)")
    white = torch.linalg.solve_triangular(factor, v.T, upper=False).T.float().contiguous()
    start = (u @ factor).float()
    solutions = torch.zeros_like(start)
    for items, rows, sides in _systems(problem, pairs, white, least=1):
        weights = _pull(problem, items).float()
        solutions[items] = _conjugate_gradients(rows, weights, sides, start[items], steps)
    improved: Tensor = torch.linalg.solve_triangular(factor, solutions.double(), upper=False, left=False)
    return improved


def fit(
    problem: Problem,
    *,
    embedding_dim: int,
    sweeps: int,
    tolerance: float = 1e-8,
    seed: int = 0,
    steps: int = 0,
    after: Sweep | None = None,
) -> Iterator[Sweep]:
    """Minimise F from a random V, one record a sweep.

    V starts as N(0, 1), and U as 0. The scale of V does not matter: the first left step compensates it.

    Args:
        problem: pairs, weights, λ and prior.
        embedding_dim: k.
        sweeps: the maximal number of sweeps.
        tolerance: stop when a sweep lowers F by at most this fraction.
        seed: of the random start.
        steps: of `improved_left` on each side in a sweep; 0 takes `best_left`.
        after: go on after this sweep of the same fit; the rest has the same bits on as many threads.

    Raises:
        RunError: when the numbers overflow float64, because λ is too large, or as `improved_left` does.
    """
    sweep = after or _start(problem, embedding_dim, seed)
    mirrored = problem.transposed()
    lefts, rights = by_left(problem), by_left(mirrored)
    while sweep.number < sweeps and not _converged(sweep, tolerance):
        left, right = sweep.left, sweep.right
        if steps:
            left = improved_left(problem, lefts, right, left, steps)
            right = improved_left(mirrored, rights, left, right, steps)
        else:
            left = best_left(problem, lefts, right)
            right = best_left(mirrored, rights, left)
        value = objective(problem, left, right)
        if not math.isfinite(value):
            raise RunError(f"sweep {sweep.number + 1}: the objective is {value}; lower the gravity's weight")
        sweep = Sweep(sweep.number + 1, sweep.objective, value, left, right)
        yield sweep


def _start(problem: Problem, embedding_dim: int, seed: int) -> Sweep:
    random = torch.Generator().manual_seed(seed)
    right = torch.randn(len(problem.right_weights), embedding_dim, generator=random, dtype=torch.double)
    left = torch.zeros(len(problem.left_weights), embedding_dim, dtype=torch.double)
    return Sweep(0, math.inf, math.inf, left, right)


def _converged(sweep: Sweep, tolerance: float) -> bool:
    return sweep.number > 1 and sweep.before - sweep.objective <= tolerance * sweep.before


def _scaled_gramian(problem: Problem, v: Tensor) -> Tensor:
    """λ G_v."""
    gramian = problem.gravity * _moment(problem.right_weights, v, v)
    if not bool(torch.isfinite(gramian).all()):
        raise RunError("λ G_v leaves float64's range; lower the gravity's weight")
    return gramian


def _pull(problem: Problem, items: Tensor) -> Tensor:
    """n w_x, shape (c, 1): systems are multiplied by n, which keeps float32 in its range."""
    return len(problem.target) * problem.left_weights[items, None]


def _systems(
    problem: Problem, pairs: Pairs, v: Tensor, least: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The left items' systems in chunks: items (c,), neighbours' v (c, length, k), n times right-hand sides.

    Items come by descending number of pairs: a chunk is one batched product, padded with zero rows to
    nearly equal lengths.
    """
    prior = problem.prior
    if prior is not None:
        pull = problem.gravity * _moment(problem.right_weights.to(v.dtype), v, prior.right.to(v.dtype))
    for items in _chunks(pairs.counts, problem.left_weights, least):
        counts = pairs.counts[items, None]
        places = torch.arange(int(counts[0]))  # the first item of a chunk has most pairs
        chosen = (pairs.starts[items, None] + places).clamp_max(len(problem.target) - 1)
        rows = v[pairs.neighbours[chosen]] * (places < counts).unsqueeze(2)
        sides = (rows.mT @ pairs.target[chosen].to(v.dtype).unsqueeze(2)).squeeze(2)
        if prior is not None:
            sides += (_pull(problem, items) * prior.left[items]).to(v.dtype) @ pull.T
        yield items, rows, sides


def _conjugate_gradients(rows: Tensor, weights: Tensor, sides: Tensor, start: Tensor, steps: int) -> Tensor:
    """Steps towards the solutions x of (RᵀR + w I) x = b for a batch of systems.

    Args:
        rows: R, shape (c, length, k).
        weights: w, shape (c, 1).
        sides: b, shape (c, k).
        start: x, shape (c, k).
        steps: of the method; a system that is solved before stays as it is.

    Returns:
        x, shape (c, k).
    """

    def product(x: Tensor) -> Tensor:
        return (rows.mT @ (rows @ x.unsqueeze(2))).squeeze(2) + weights * x

    x, tiny = start, torch.finfo(start.dtype).tiny  # in place of 0/0
    residual = direction = sides - product(x)
    squared = residual.square().sum(1, keepdim=True)
    for _ in range(steps):
        image = product(direction)
        length = squared / (direction * image).sum(1, keepdim=True).clamp_min(tiny)
        x = x + length * direction
        residual = residual - length * image
        last, squared = squared, residual.square().sum(1, keepdim=True)
        direction = residual + squared / last.clamp_min(tiny) * direction
    return x


def _moment(weights: Tensor, embeddings: Tensor, others: Tensor) -> Tensor:
    """The weighted sum of e_x ⊗ o_x over items x: shape (k, others' width)."""
    return embeddings.T @ (weights[:, None] * others)


def _chunks(counts: Tensor, weights: Tensor, least: int) -> Iterator[Tensor]:
    """The items with pairs or weight, most pairs first, in chunks of _CHUNK rows, `least` or more an item."""
    order = torch.argsort(counts, descending=True, stable=True)
    order = order[(counts[order] > 0) | (weights[order] > 0)]
    while len(order):
        size = max(1, _CHUNK // max(int(counts[order[0]]), least))
        yield order[:size]
        order = order[size:]


def _solve(matrices: Tensor, sides: Tensor) -> Tensor:
    """The solution of least norm of each consistent symmetric PSD system.

    Args:
        matrices: float64, shape (c, k, k).
        sides: float64, shape (c, k).

    Returns:
        Shape (c, k).
    """
    factors, failed = torch.linalg.cholesky_ex(matrices)
    pivots = factors.diagonal(dim1=1, dim2=2).square()
    # `>` is false for NaN, which a failed factor may hold: it counts as singular.
    regular = (failed == 0) & (pivots.amin(1) > _SINGULAR * pivots.amax(1))
    solutions = torch.empty_like(sides)
    solutions[regular] = torch.cholesky_solve(sides[regular].unsqueeze(2), factors[regular]).squeeze(2)
    if not bool(regular.all()):
        inverse = torch.linalg.pinv(matrices[~regular], hermitian=True)
        solutions[~regular] = (inverse @ sides[~regular].unsqueeze(2)).squeeze(2)
    return solutions
