"""SOGram, the Stochastic Online Gramian (paper, Algorithm 2 and equation 11), and its mended starts.

    Ĝ(t) = (1 − α_t) Ĝ(t−1) + α_t (1/|B|) sum_{b in B} u_b ⊗ u_b,      Ĝ(0) = 0

A convex combination of PSD matrices: no projection, O(k²) memory. By Proposition 5 for a constant α, with
σ² the variance of one batch's Gramian and δ a bound on the drift ‖G(t+1) − G(t)‖_F,

    variance  E‖Ĝ − Ḡ‖²  ≤ σ² α / (2 − α)
    bias      ‖Ḡ − G‖_F  ≤ δ (1/α − 1) + (1 − α)^t ‖G‖_F

The last term is the zero start: Ĝ is too small for about 1/α steps, and gravity too weak for as long. Three
ways to be rid of it, each of which keeps the lag δ(1/α − 1) as its bound and costs no forward pass in a step:

    debiased      Ĝ(t) / c_t,  c_t = 1 − prod_{s≤t} (1 − α_s), which is 1 − (1−α)^t for a constant α. Batch s
                  then has weight α(1−α)^{t−s}/c_t, and these sum to 1: on a standing trajectory E Ĝ/c_t = G.
                  Variance: σ² sum of the squared weights = σ² α/(2−α) · (1 + (1−α)^t)/(1 − (1−α)^t),
                  which falls from σ² at t = 1 to the bound above.
    decaying α_t  (`gramrun.gramian.schedule`): equal weights 1/t up to t = 1/α, so variance σ²/t, the least
                  that weights which sum to 1 can have; then, with α constant, on from ασ² to the bound above.
    exact start   Ĝ(0) = G(θ(0)), from one pass over the items: bias only δ(1/α − 1), variance
                  σ² α/(2−α) · (1 − (1−α)^{2t}), never above the bound.

Averaged caches. The batch's mean may be replaced by any unbiased estimate F_t of G(t). With the SAGA form of
SAGram for F_t, σ² above becomes SAGA's variance s², which is smaller wherever caches are worth something;
the lag stays. That is for corpora whose items are seldom drawn: there SAGA alone has nearly the variance of
sampling, which the average brings down, while SOGram alone must average for longer and lags more. (Where
caches are fresh, SAGA alone is better: no lag.) F_t may leave the PSD cone and take the average with it.
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
    """An exponentially weighted mean of batch Gramians.

    Args:
        embedding_dim: k.
        population: for the item weights of an exact start.
        schedule: α_t; a constant 1 gives F_t itself.
        unbiased: the estimator that gives F_t: `Sampling`, or `SAGram` with β = 1 and no projection.
        debias: whether the estimate is divided by the sum of its weights.
        exact_start: whether Ĝ(0) is the exact Gramian instead of 0; not together with `debias`.
        project: whether an average of SAGA estimates is projected onto the PSD cone.
        companion_dim: r.

    Raises:
        ValueError: for both ways at once.
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
            raise ValueError("debias and an exact start are two ways to be rid of the zero start; choose one")
        self.population = population
        self.schedule = schedule
        self.debias = debias
        self.unbiased = unbiased
        self.exact_start = exact_start
        self.needs_rows = unbiased.needs_rows
        self.needs_start = exact_start or unbiased.needs_start
        # An average of batch means stays in the cone by itself.
        self.project = project and not isinstance(unbiased, Sampling)
        # prod (1 − α_s): the weight that is still on Ĝ(0).
        self.register_buffer("unseen", torch.ones((), dtype=torch.double))
        self.register_buffer("averaged", torch.zeros_like(self.moments))

    @torch.no_grad()
    def start(self, chunks: Iterable[GramianBatch]) -> None:
        """Fill the caches of F_t, and make Ĝ(0) the exact Gramian where that was asked for."""
        if self.unbiased.needs_start:
            self.unbiased.start(chunks)
        if self.exact_start:
            exact = self.unbiased.moments  # a filled cache has it already
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
