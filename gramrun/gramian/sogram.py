"""SOGram, the Stochastic Online Gramian (paper, Algorithm 2 and equation 11), and its mended starts.

    Ĝ(t) = (1 − α_t) Ĝ(t−1) + α_t (1/|B|) sum_{b in B} u_b ⊗ u_b,      Ĝ(0) = 0

A convex combination of PSD matrices: no projection, O(k²) memory. By Proposition 5 for a constant α, with
σ² the variance of one batch's Gramian and δ a bound on the drift ‖G(t+1) − G(t)‖_F,

    variance  E‖Ĝ − Ḡ‖²  ≤ σ² α / (2 − α)
    bias      ‖Ḡ − G‖_F  ≤ δ (1/α − 1) + (1 − α)^t ‖G‖_F

The last term is the zero start: Ĝ is too small for about 1/α steps, and gravity too weak for as long. Three
ways to be rid of it, each of which keeps the lag δ(1/α − 1) and none of which costs a forward pass:

    debiased      Ĝ(t) / c_t,  c_t = 1 − prod_{s≤t} (1 − α_s), which is 1 − (1−α)^t for a constant α. Batch s
                  then has weight α(1−α)^{t−s}/c_t, and these sum to 1: on a standing trajectory E Ĝ/c_t = G.
                  Variance: σ² sum of the squared weights = σ² α/(2−α) · (1 + (1−α)^t)/(1 − (1−α)^t),
                  which falls from σ² at t = 1 to the bound above.
    decaying α_t  (`gramrun.gramian.schedule`): equal weights 1/t up to t = 1/α, so variance σ²/t, the least
                  that weights which sum to 1 can have; then as for a constant α.
    exact start   Ĝ(0) = G(θ(0)), from one pass over the items: bias only δ(1/α − 1), variance
                  σ² α/(2−α) · (1 − (1−α)^{2t}), never above the bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gramrun.gramian.batch import GramianBatch, batch_moments, weighted_moments
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population
from gramrun.gramian.schedule import AlphaSchedule


class SOGram(GramianEstimator):
    """An exponentially weighted mean of batch Gramians.

    Args:
        embedding_dim: k.
        population: for the item weights of an exact start.
        schedule: α_t; a constant 1 is plain sampling.
        debias: whether the estimate is divided by the sum of its weights.
        exact_start: whether Ĝ(0) is the exact Gramian instead of 0; not together with `debias`.
        companion_dim: r.

    Raises:
        ValueError: for both ways at once.
    """

    averaged: Tensor
    unseen: Tensor
    observed: Tensor

    def __init__(
        self,
        embedding_dim: int,
        population: Population,
        schedule: AlphaSchedule,
        *,
        debias: bool = False,
        exact_start: bool = False,
        companion_dim: int = 0,
    ) -> None:
        super().__init__(embedding_dim, companion_dim)
        if debias and exact_start:
            raise ValueError("debias and an exact start are two ways to be rid of the zero start; choose one")
        self.population = population
        self.schedule = schedule
        self.debias = debias
        self.needs_start = exact_start
        self.register_buffer("observed", torch.zeros((), dtype=torch.long))
        # prod (1 − α_s): the weight that is still on Ĝ(0).
        self.register_buffer("unseen", torch.ones((), dtype=torch.double))
        if debias:
            self.register_buffer("averaged", torch.zeros_like(self.moments))

    @torch.no_grad()
    def start(self, chunks: Iterable[GramianBatch]) -> None:
        """Make Ĝ(0) the exact Gramian."""
        self.moments.copy_(weighted_moments(chunks, self.population.item_weights))

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Take one step of size α_t towards the batch's Gramian."""
        self.observed += 1
        alpha = self.schedule.at(int(self.observed))
        self.unseen *= 1 - alpha
        mean = self.averaged if self.debias else self.moments
        mean.mul_(1 - alpha).add_(batch_moments(batch), alpha=alpha)
        if self.debias:
            self.moments.copy_(mean / (1 - self.unseen))
