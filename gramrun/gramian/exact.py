"""The exact Gramian, the definition with which every estimator is compared (paper, equation 4).

    G_u = (1/n) sum_{i=1..n} u_i ⊗ u_i = sum_x w_x u(x) ⊗ u(x)

The sum over items gives the same matrix as the sum over pairs, in O(items · k²) instead of O(n · k²). As a
method (``estimator.name: exact``) it has no bias and no variance, and embeds all items at every step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population


def relative_error(estimate: Tensor, exact: Tensor) -> float:
    """‖Ĝ − G‖_F / ‖G‖_F, the normalised error of the paper's Section 4.2.

    Args:
        estimate: Ĝ, shape (k, k), of any float dtype.
        exact: G, float64, shape (k, k).

    Example:
        >>> relative_error(torch.diag(torch.tensor([3.0, 5.0])), torch.diag(torch.tensor([3.0, 4.0])))
        0.2
    """
    return float(torch.linalg.norm(estimate.double() - exact) / torch.linalg.norm(exact))


def effective_rank(gramian: Tensor) -> float:
    """The number of directions that embeddings use: (tr G)² / ‖G‖²_F, from 1 to k.

    Args:
        gramian: G, or any multiple of it, shape (k, k), of any float dtype.

    Example:
        >>> effective_rank(torch.diag(torch.tensor([2.0, 2.0, 0.0])))
        2.0
    """
    return float(gramian.trace() ** 2 / gramian.square().sum())


class ExactGramian(GramianEstimator):
    """Recomputes the exact Gramian from every item of positive weight at every step."""

    observes = "corpus"
    needs_rows = True
    item_weights: Tensor

    def __init__(self, embedding_dim: int, population: Population, companion_dim: int = 0) -> None:
        super().__init__(embedding_dim, companion_dim)
        self.register_buffer("item_weights", population.item_weights, persistent=False)

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Recompute G from a batch that holds each item of positive weight exactly once."""
        self.moments.copy_(weighted_moments([batch], self.item_weights))
