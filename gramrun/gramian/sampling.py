"""Batch negative sampling in Gramian form, the paper's baseline (Section 3.3, equation 15).

    Ĝ = (1/|B|) sum_{b in B} u_b ⊗ u_b

Used in the surrogate, this is the gravity over all cross pairs of B and the gradient batch B',
(1/|B||B'|) sum_{i in B', j in B} ⟨u_i, v_j⟩² and its mirror image, at a cost of O(k² |B|) instead of
O(k |B|²). As for every estimator here, Ĝ is a constant in the gradient: B carries none.

Unbiased: E Ĝ = G. Variance: E‖Ĝ − G‖² = σ²/|B| with σ² = E‖u⊗u − G‖².
"""

from __future__ import annotations

import torch

from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.estimator import GramianEstimator


class Sampling(GramianEstimator):
    """The mean rank-one term of the latest batch, forgetting all before it."""

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Replace the estimate by the batch's own."""
        self.moments.copy_(batch_moments(batch))
