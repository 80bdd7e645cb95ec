"""SOGram with a control variate: the same items embedded under θ(t−1) and θ(t), as in STORM.

SOGram lags because Ĝ(t−1) estimates G(t−1), not G(t). Batch B_t sees how far the Gramian moved: with
M(B, θ) the mean rank-one term of batch B under θ,

    Ĝ(t) = (1 − α_t) [Ĝ(t−1) + M(B_t, θ(t)) − M(B_t, θ(t−1))] + α_t F_t,         Ĝ(1) = F_1

where F_t is any unbiased estimate from B_t and what came before: M(B_t, θ(t)) itself (STORM: Cutkosky
and Orabona, NeurIPS 2019), or the SAGA form of SAGram, which has less variance where its caches are
fresh.

Bias. B_t is drawn independently of θ(t−1), θ(t) and the past, so E[Ĝ(t)] − G(t) = (1 − α_t)(E[Ĝ(t−1)] −
G(t−1)): with Ĝ(1) unbiased the bias is 0 at every step, for every α, however fast the Gramian moves.
That is the mean over all draws. Given the past it is (1 − α_t) e(t−1), and in training θ(t) depends on
the past: unlike sampling and SAGA, it is not unbiased *given* θ(t), as Proposition 1 would have it, but
wrong in one direction for about 1/α steps. A model that trains on it follows that error: where gravity is
strong, α = 0.01 trains worse than plain sampling, although its error against any given trajectory is a
fraction of sampling's (`experiments/reproduce/known_optimum.py`, λ = 10). α = 0.1 does not.

Variance. The error e(t) = Ĝ(t) − G(t) obeys e(t) = (1 − α)[e(t−1) + D_t] + α E_t, with D_t the sampling
error of the drift and E_t that of F_t, both of mean 0 given the past. With E‖D_t‖² = d²/|B| and E‖E_t‖² =
s²,

    E‖e(t)‖² ≤ (1 − α)² E‖e(t−1)‖² + 2 (1 − α)² d²/|B| + 2 α² s²
    at rest:   ≤ 2 [(1 − α)² d²/|B| + α² s²] / (α (2 − α)).

SOGram pays δ/α for the lag in its bias; here only the *noise* of the drift is paid, d/√(α|B|). Where an
item is seldom drawn, its cache is old and s² is that of sampling, or twice that where û says nothing of
u any more (of the same size). A small α keeps s² down, but the noise of the drift then piles up for
longer: where batches are small and dense layers move all embeddings at once, d²/(α|B|) is the larger, and
averaging SAGA estimates without a control variate does better (`gramrun.gramian.sogram`; measured in
results/reference/estimator_error).

Cost: a second forward pass of each batch (B_{t+1} is embedded under θ(t) before the gradient step, so
that no copy of the parameters is kept). Ĝ can leave the PSD cone, like SAGA, and can be projected back
onto it.
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
    """An online mean that is moved along with the parameters.

    Args:
        embedding_dim: k.
        schedule: α_t from t = 2 on; α_1 is always 1, which leaves no start to be forgotten.
        unbiased: the estimator that gives F_t: `Sampling`, or `SAGram` with β = 1 and no projection.
        project: whether an estimate that left the PSD cone is projected back onto it.
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
        """Start the estimator that gives F_t, and take its first estimate."""
        self.unbiased.start(chunks)
        self.moments.copy_(self.unbiased.moments)

    @torch.no_grad()
    def look_ahead(self, batch: GramianBatch) -> None:
        """Keep M(B_{t+1}, θ(t)): k² numbers, however large the batch."""
        self.ahead.copy_(batch_moments(batch))

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Move the estimate by what the batch saw of the drift, then α_t of the way to F_t."""
        self.unbiased.observe(batch)
        self.observed += 1
        alpha = 1.0 if self.observed == 1 else self.schedule.at(self.observed)
        drift = batch_moments(batch) - self.ahead
        self.tracked.add_(drift).mul_(1 - alpha).add_(self.unbiased.moments, alpha=alpha)
        self.moments.copy_(project_moments(self.tracked) if self.project else self.tracked)
