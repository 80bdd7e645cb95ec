"""Slow, literal twins of the fast paths: read each beside its definition, and compare under one seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gramrun.baselines import exact_als

Vector = Sequence[float]


def score(u: Vector, v: Vector) -> float:
    """<u, v> as the ranking protocol compares it: summed in float64, rounded to float32."""
    return float(np.float32(sum(float(a) * float(b) for a, b in zip(u, v, strict=True))))


def rank_relevant(
    left: Sequence[Vector],
    right: Sequence[Vector],
    candidates: Sequence[int],
    relevant: Sequence[set[int]],
    excluded: Sequence[set[int]],
) -> list[list[int]]:
    """Ranks of each left item's relevant items: list what competes, sort it, read the ranks off."""
    ranks = []
    for i, u in enumerate(left):
        negatives = [j for j in candidates if j not in excluded[i] and j not in relevant[i]]
        # False sorts before True: a negative stands before the relevant items that it ties with.
        competitors = [(-score(u, right[j]), False) for j in negatives]
        competitors += [(-score(u, right[j]), True) for j in relevant[i]]
        competitors.sort()
        ranks.append([rank for rank, (_, is_relevant) in enumerate(competitors, start=1) if is_relevant])
    return ranks


def gramian(rows: list[list[float]]) -> torch.Tensor:
    """Equation 4 of the paper, entry by entry: G_ab = (1/n) sum_i u_ia u_ib."""
    k = len(rows[0])
    return torch.tensor(
        [[sum(u[a] * u[b] for u in rows) / len(rows) for b in range(k)] for a in range(k)], dtype=torch.double
    )


class SAGram:
    """Algorithm 1 in batches, written out: a list of cached vectors, and Ŝ recomputed from it each time."""

    def __init__(self, member_items: list[int], theta: torch.Tensor, beta: str, project: bool) -> None:
        self.member_items = member_items
        self.cache = [theta[item].clone() for item in member_items]
        self.beta = beta
        self.project = project and beta == "1"

    def observe(self, members: list[int], theta: torch.Tensor) -> torch.Tensor:
        n = len(self.cache)
        estimate = sum(torch.outer(c, c) for c in self.cache) / n
        counted, weight = (members, 1 / len(members)) if self.beta == "1" else (set(members), 1 / n)
        for i in counted:
            u, stale = theta[self.member_items[i]], self.cache[i]
            estimate = estimate + weight * (torch.outer(u, u) - torch.outer(stale, stale))
        for i in members:
            self.cache[i] = theta[self.member_items[i]].clone()
        if self.project:
            values, vectors = torch.linalg.eigh(estimate)
            kept = [max(float(value), 0.0) for value in values]
            estimate = sum(w * torch.outer(q, q) for w, q in zip(kept, vectors.T, strict=True))
        return estimate


def all_pairs_objective(problem: exact_als.Problem, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """F of `gramrun.baselines.exact_als`, with its second term as the double sum over all left and right items."""
    observed = zip(problem.pair_left.tolist(), problem.pair_right.tolist(), problem.target, strict=True)
    total = sum((torch.dot(left[x], right[y]) - s) ** 2 for x, y, s in observed) / len(problem.target)
    for x, u in enumerate(left):
        for y, v in enumerate(right):
            wanted = 0.0
            if problem.prior is not None:
                wanted = torch.dot(problem.prior.left[x], problem.prior.right[y])
            weight = problem.left_weights[x] * problem.right_weights[y]
            total = total + problem.gravity * weight * (torch.dot(u, v) - wanted) ** 2
    return total
