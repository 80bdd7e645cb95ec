"""SOGram, the Stochastic Online Gramian (paper, Algorithm 2 and equation 11).

    Ĝ(t) = (1 − α_t) Ĝ(t−1) + α_t F_t,      Ĝ(0) = 0,      F_t = (1/|B|) sum_{b in B} u_b ⊗ u_b

A small α averages more batches and lags more (Proposition 5). Three options remove the zero start:

    debias        Ĝ(t) / c_t with c_t = 1 − prod_{s≤t} (1 − α_s)
    decaying α_t  `gramrun.gramian.schedule`
    exact start   Ĝ(0) = G(θ(0)), from one pass over the items

F_t can also be the SAGA estimate of SAGram, which has less variance but can leave the PSD cone.
Variance and bias of every form: docs/mathematics.md#sogram.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population
from gramrun.gramian.sagram import project_moments
from gramrun.gramian.sampling import Sampling
from gramrun.gramian.schedule import AlphaSchedule


class SOGram(GramianEstimator):
    """An exponentially weighted mean of unbiased estimates.

    Args:
        embedding_dim: k.
        population: for the item weights of an exact start.
        schedule: α_t.
        unbiased: the estimator that gives F_t: `Sampling`, or `SAGram` with β = 1 and no projection.
        debias: whether to divide the estimate by the sum of its weights.
        exact_start: whether Ĝ(0) is the exact Gramian instead of 0; not together with `debias`.
        project: whether to project an average of SAGA estimates onto the PSD cone.
        companion_dim: r.

    Raises:
        ValueError: for `debias` together with `exact_start`.
    """

    averaged: Tensor
    unseen: Tensor

    def __init__(
        self,
        embedding_dim: int,
        population: Population,
        schedule: AlphaSchedule,
        unbiased: GramianEstimator,
        *,
        debias: bool = False,
        exact_start: bool = False,
        project: bool = True,
        companion_dim: int = 0,
    ) -> None:
        super().__init__(embedding_dim, companion_dim)
        if debias and exact_start:
            raise ValueError("debias and an exact start exclude each other; choose one")
        self.population = population
        self.schedule = schedule
        self.debias = debias
        self.unbiased = unbiased
        self.exact_start = exact_start
        self.needs_rows = unbiased.needs_rows
        self.needs_start = exact_start or unbiased.needs_start
        # An average of batch means is always in the cone.
        self.project = project and not isinstance(unbiased, Sampling)
        # prod_{s≤t} (1 − α_s), the weight of Ĝ(0)
        self.register_buffer("unseen", torch.ones((), dtype=torch.double))
        self.register_buffer("averaged", torch.zeros_like(self.moments))

    @torch.no_grad()
    def start(self, chunks: Iterable[GramianBatch]) -> None:
        """Fill the caches of F_t, and set Ĝ(0) for an exact start."""
        if self.unbiased.needs_start:
            self.unbiased.start(chunks)
        if self.exact_start:
            exact = self.unbiased.moments  # exact after its start
            if not self.unbiased.needs_start:
                exact = weighted_moments(chunks, self.population.item_weights)
            self.averaged.copy_(exact)
            self.moments.copy_(exact)

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Take one step of size α_t towards F_t."""
        self.unbiased.observe(batch)
        self.observed += 1
        alpha = self.schedule.at(self.observed)
        self.unseen *= 1 - alpha
        self.averaged.mul_(1 - alpha).add_(self.unbiased.moments, alpha=alpha)
        estimate = self.averaged / (1 - self.unseen) if self.debias else self.averaged
        self.moments.copy_(project_moments(estimate) if self.project else estimate)
