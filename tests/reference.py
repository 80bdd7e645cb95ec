"""Slow, literal twins of the fast paths: read each beside its definition, and compare under one seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from gramrun.evaluation.baselines import exact_als


def rank_in_float64(
    left: torch.Tensor,
    right: torch.Tensor,
    candidates: np.ndarray,
    relevant: Sequence[np.ndarray],
    excluded: Sequence[np.ndarray],
) -> list[list[int]]:
    """The same ranks from all scores at once, each a float64 sum rounded to float32."""
    scores = (left.double() @ right.double().T).float().numpy()
    ranks = []
    for row, wanted, banned in zip(scores, relevant, excluded, strict=True):
        negatives = np.setdiff1d(candidates, np.union1d(wanted, banned))
        counts = sorted(int((row[negatives] >= row[j]).sum()) for j in wanted)
        ranks.append([count + position for position, count in enumerate(counts, start=1)])
    return ranks


def rank_one(u: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """u ⊗ [u, c], entry by entry."""
    right = [*u, *c]
    return torch.tensor([[float(a) * float(b) for b in right] for a in u], dtype=torch.double)


def project(moments: torch.Tensor) -> torch.Tensor:
    """The Gramian part without its negative eigenvalues, the cross part as it is."""
    k = len(moments)
    values, vectors = torch.linalg.eigh(moments[:, :k])
    kept = sum(max(float(v), 0.0) * torch.outer(q, q) for v, q in zip(values, vectors.T, strict=True))
    return torch.cat([kept, moments[:, k:]], 1)


class SAGram:
    """Algorithm 1 in batches, written out: a list of cached vectors, and Ŝ summed anew from it each time.

    Args:
        weights: p_j of each entry.
        start: û_j and ĉ_j of each entry.
        beta: ``"1/n"`` or ``"1"``.
        project: whether SAGA's estimate is projected.
    """

    def __init__(
        self,
        weights: Sequence[float],
        start: Sequence[tuple[torch.Tensor, torch.Tensor]],
        beta: str,
        project: bool,
    ) -> None:
        self.weights = weights
        self.cache = list(start)
        self.beta = beta
        self.project = project and beta == "1"

    def observe(
        self,
        members: list[int],
        fresh: list[tuple[torch.Tensor, torch.Tensor]],
        importance: list[float],
    ) -> torch.Tensor:
        """Ĝ and Ĥ after a batch, whose b-th member has the embedding and companions ``fresh[b]``."""
        estimate = sum(w * rank_one(*cached) for w, cached in zip(self.weights, self.cache, strict=True))
        seen = set()
        for member, now, r in zip(members, fresh, importance, strict=True):
            change = rank_one(*now) - rank_one(*self.cache[member])
            if self.beta == "1":
                estimate = estimate + r / len(members) * change
            elif member not in seen:
                estimate = estimate + self.weights[member] * change
            seen.add(member)
        for member, now in zip(members, fresh, strict=True):
            self.cache[member] = now
        return project(estimate) if self.project else estimate


def control_variate(
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]], unbiased: Sequence[torch.Tensor], alpha: float
) -> list[torch.Tensor]:
    """Ĝ(t) = (1 − α) [Ĝ(t−1) + M_t(now) − M_t(before)] + α F_t from Ĝ(1) = F_1.

    Args:
        batches: M(B_t, θ(t)) and M(B_t, θ(t−1)) of each step; the second is not used at t = 1.
        unbiased: F_t of each step.
        alpha: α.
    """
    estimates = [unbiased[0]]
    for (now, before), f in zip(batches[1:], unbiased[1:], strict=True):
        estimates.append((1 - alpha) * (estimates[-1] + now - before) + alpha * f)
    return estimates


def batch_moments(
    rows: torch.Tensor, companions: torch.Tensor, importance: Sequence[float] | None = None
) -> torch.Tensor:
    """(1/|B|) sum_b r_b u_b ⊗ [u_b, c_b]."""
    r = importance or [1.0] * len(rows)
    return sum(w * rank_one(u, c) for w, u, c in zip(r, rows, companions, strict=True)) / len(rows)


def all_pairs_objective(problem: exact_als.Problem, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """F of `gramrun.evaluation.baselines.exact_als`, with its second term as the double sum over all left and right items."""
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
