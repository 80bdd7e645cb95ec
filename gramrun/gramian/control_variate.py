"""SOGram with a control variate, as in STORM (Cutkosky and Orabona, NeurIPS 2019); not in the paper.

    Ĝ(t) = (1 − α_t) [Ĝ(t−1) + M(B_t, θ(t)) − M(B_t, θ(t−1))] + α_t F_t,         Ĝ(1) = F_1

M(B, θ) is the mean rank-one term of batch B under θ, and F_t an unbiased estimate: M(B_t, θ(t)), or the SAGA
form of SAGram. The difference follows the drift of the Gramian, so the estimate does not lag. It is unbiased
over all draws, but not given θ(t), which in training depends on past draws: with strong gravity and α = 0.01
it trains worse than sampling (docs/findings.md). The next batch is embedded one step early, a second forward
pass per batch. Bias and variance: docs/mathematics.md#the-control-variate.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.sagram import project_moments
from gramrun.gramian.schedule import AlphaSchedule


class ControlVariate(GramianEstimator):
    """A moving average that follows the drift of the Gramian.

    Args:
        embedding_dim: k.
        schedule: α_t from t = 2 on; α_1 is always 1, so there is no zero start.
        unbiased: the estimator that gives F_t: `Sampling`, or `SAGram` with β = 1 and no projection.
        project: whether to project the estimate onto the PSD cone.
        companion_dim: r.
    """

    looks_ahead = True
    tracked: Tensor
    ahead: Tensor

    def __init__(
        self,
        embedding_dim: int,
        schedule: AlphaSchedule,
        unbiased: GramianEstimator,
        *,
        project: bool = True,
        companion_dim: int = 0,
    ) -> None:
        super().__init__(embedding_dim, companion_dim)
        self.schedule = schedule
        self.unbiased = unbiased
        self.needs_rows = unbiased.needs_rows
        self.needs_start = unbiased.needs_start
        self.project = project
        self.register_buffer("tracked", torch.zeros_like(self.moments))
        self.register_buffer("ahead", torch.zeros_like(self.moments))

    def start(self, chunks: Iterable[GramianBatch]) -> None:
        """Start the estimator that gives F_t."""
        self.unbiased.start(chunks)
        self.moments.copy_(self.unbiased.moments)

    @torch.no_grad()
    def look_ahead(self, batch: GramianBatch) -> None:
        """Store M(B_{t+1}, θ(t))."""
        self.ahead.copy_(batch_moments(batch))

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Add the drift that the batch shows, then move a step of size α_t towards F_t."""
        self.unbiased.observe(batch)
        self.observed += 1
        alpha = 1.0 if self.observed == 1 else self.schedule.at(self.observed)
        drift = batch_moments(batch) - self.ahead
        self.tracked.add_(drift).mul_(1 - alpha).add_(self.unbiased.moments, alpha=alpha)
        self.moments.copy_(project_moments(self.tracked) if self.project else self.tracked)
