"""SOGram, the Stochastic Online Gramian (paper, Algorithm 2 and equation 11).

    Ĝ(t) = (1 − α) Ĝ(t−1) + α (1/|B|) sum_{b in B} u_b ⊗ u_b,      Ĝ(0) = 0

A convex combination of PSD matrices: no projection, O(k²) memory. By Proposition 5, with σ² the
variance of one batch's Gramian and δ a bound on the drift ‖G(t+1) − G(t)‖_F,

    variance  E‖Ĝ − Ḡ‖²  ≤ σ² α / (2 − α)
    bias      ‖Ḡ − G‖_F  ≤ δ (1/α − 1) + (1 − α)^t ‖G‖_F

The last term is the zero start: Ĝ is too small for about 1/α steps, and gravity too weak for as long.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gramrun.gramian.estimator import GramianEstimator


class SOGram(GramianEstimator):
    """An exponentially weighted mean of batch Gramians.

    Args:
        embedding_dim: k.
        alpha: α in (0, 1]; 1 is plain sampling.
    """

    def __init__(self, embedding_dim: int, alpha: float) -> None:
        super().__init__(embedding_dim)
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must lie in (0, 1], not {alpha}")
        self.alpha = alpha

    @torch.no_grad()
    def observe(self, members: Tensor, embeddings: Tensor) -> None:
        """Take one step of size α towards the batch's Gramian; `members` are not used."""
        torch.addmm(
            self.gramian,
            embeddings.T,
            embeddings,
            beta=1 - self.alpha,
            alpha=self.alpha / len(embeddings),
            out=self.gramian,
        )
