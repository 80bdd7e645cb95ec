"""Batch sampling in Gramian form, the paper's baseline (Section 3.3, equation 15).

    Ĝ = (1/|B|) sum_{b in B} u_b ⊗ u_b

In the surrogate this is the gravity over all cross pairs of B and the gradient batch B', in O(k² |B|) instead
of O(k |B|²). Unbiased, with variance σ²/|B|: docs/mathematics.md#sampling.
"""

from __future__ import annotations

import torch

from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.estimator import GramianEstimator


class Sampling(GramianEstimator):
    """The mean rank-one term of the latest batch."""

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Replace the estimate by the moments of the batch."""
        self.moments.copy_(batch_moments(batch))
