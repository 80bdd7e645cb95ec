"""The exact Gramian: the definition that every estimator is held against.

    G_u = (1/n) sum_{i=1..n} u_i ⊗ u_i = sum_x w_x u(x) ⊗ u(x)        (paper, equation 4)

Summing over items with their weights costs O(items · k²) instead of O(n · k²) and is the same number.
As a method (``estimator.name: exact``) it is the oracle for corpora that are small enough to embed
whole at every step: no bias, no variance.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population


def exact_gramian(chunks: Iterable[tuple[Tensor, Tensor]], item_weights: Tensor) -> Tensor:
    """Sum the Gramian over item chunks, in float64.

    Args:
        chunks: pairs of item ids, shape (c,), and their embeddings, shape (c, k). Every item of
            positive weight occurs in exactly one chunk.
        item_weights: shape (items,), summing to 1.

    Returns:
        G, float64, shape (k, k).
    """
    total: Tensor | None = None
    for items, embeddings in chunks:
        rows = embeddings.detach().double()
        term = rows.T @ (item_weights[items].double()[:, None] * rows)
        total = term if total is None else total + term
    if total is None:
        raise ValueError("exact_gramian needs at least one chunk")
    return total


def relative_error(estimate: Tensor, exact: Tensor) -> float:
    """The normalised Frobenius distance ‖Ĝ − G‖_F / ‖G‖_F of the paper's Section 4.2, a pure number."""
    return float(torch.linalg.norm(estimate.double() - exact) / torch.linalg.norm(exact))


class ExactGramian(GramianEstimator):
    """The exact Gramian as an estimator: it observes every item of the corpus at every step."""

    observes_corpus = True
    item_weights: Tensor

    def __init__(self, embedding_dim: int, population: Population) -> None:
        super().__init__(embedding_dim)
        self.register_buffer("item_weights", population.item_weights, persistent=False)

    @torch.no_grad()
    def observe(self, members: Tensor, embeddings: Tensor) -> None:
        """Recompute G. Here `members` are item ids: each item of positive weight exactly once."""
        self.gramian.copy_(exact_gramian([(members, embeddings)], self.item_weights))
