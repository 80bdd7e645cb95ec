"""SAGram, the Stochastic Average Gramian (paper, Algorithm 1 and equation 9).

Every member j of the population (under ``frequency`` weighting: every training pair) keeps a cached
embedding û_j, and Ŝ = (1/n) sum_j û_j ⊗ û_j is maintained online. For one drawn member i,

    Ĝ = Ŝ + β [u_i ⊗ u_i − û_i ⊗ û_i]

and for a batch B, in the paper's "sum of rank-1 terms over the batch":

    β = 1/n (SAG):   Ĝ = Ŝ + (1/n)   sum_{distinct i in B} [u_i ⊗ u_i − û_i ⊗ û_i]
    β = 1   (SAGA):  Ĝ = Ŝ + (1/|B|) sum_{i in B}          [u_i ⊗ u_i − û_i ⊗ û_i]

Then Ŝ and the caches take in each distinct member of B. (Algorithm 1 refreshes the member that carried
the gradient; in batches the members of B are the ones already embedded under the current parameters,
so refreshing them is free and keeps the gradient batch B' independent of Ĝ.)

SAG stays in the PSD cone (Proposition 2) and is biased; SAGA is unbiased (Proposition 3) and may leave
the cone, from where it can be projected back by an eigendecomposition, which costs its unbiasedness.

Memory: size · k floats for the caches, O(k²) beside them. Ŝ is kept in float64, because it is a sum of
many small differences and float32 would drift.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population

Beta = Literal["1/n", "1"]


def project_to_psd(matrix: Tensor) -> Tensor:
    """The nearest positive semidefinite matrix in Frobenius norm: negative eigenvalues become 0.

    Args:
        matrix: symmetric, shape (k, k).
    """
    _, failed = torch.linalg.cholesky_ex(matrix)
    if not failed:  # positive definite already; a Cholesky factor costs a fraction of an eigh
        return matrix
    eigenvalues, eigenvectors = torch.linalg.eigh(matrix)
    projected: Tensor = (eigenvectors * eigenvalues.clamp_min(0)) @ eigenvectors.T
    return projected


class SAGram(GramianEstimator):
    """Cached embeddings and their Gramian.

    Args:
        embedding_dim: k.
        population: the members that are cached.
        beta: ``"1/n"`` for the SAG form, ``"1"`` for the SAGA form.
        project: whether a SAGA estimate that left the PSD cone is projected back onto it.
    """

    needs_start = True
    cache: Tensor
    cache_gramian: Tensor

    def __init__(self, embedding_dim: int, population: Population, beta: Beta, project: bool = True) -> None:
        super().__init__(embedding_dim)
        self.population = population
        self.beta = beta
        self.project = project and beta == "1"
        self.register_buffer("cache", torch.zeros(population.size, embedding_dim))
        self.register_buffer("cache_gramian", torch.zeros(embedding_dim, embedding_dim, dtype=torch.double))

    @torch.no_grad()
    def start(self, item_embeddings: Tensor) -> None:
        """Fill every cache under the initial parameters (Algorithm 1, lines 4 and 5)."""
        member_items = self.population.member_items.to(item_embeddings.device)
        torch.index_select(item_embeddings.detach(), 0, member_items, out=self.cache)
        rows = item_embeddings.double()
        weights = self.population.item_weights.to(rows.device).double()
        self.cache_gramian.copy_(rows.T @ (weights[:, None] * rows))
        self.gramian.copy_(self.cache_gramian)

    @torch.no_grad()
    def observe(self, members: Tensor, embeddings: Tensor) -> None:
        """Form Ĝ from the caches as they are, then refresh the distinct members of the batch."""
        stale = self.cache[members]
        distinct, inverse = torch.unique(members, return_inverse=True)
        position = torch.arange(len(members), device=members.device)
        first = torch.full_like(distinct, len(members)).scatter_reduce_(0, inverse, position, "amin")
        fresh = embeddings[first]
        change = _gramian_difference(fresh, stale[first]) / self.population.size
        if self.beta == "1":
            estimate = self.cache_gramian + _gramian_difference(embeddings, stale) / len(members)
            self.gramian.copy_(project_to_psd(estimate) if self.project else estimate)
            self.cache_gramian += change
        else:
            self.cache_gramian += change
            self.gramian.copy_(self.cache_gramian)
        self.cache[distinct] = fresh


def _gramian_difference(fresh: Tensor, stale: Tensor) -> Tensor:
    """Sum of u⊗u − û⊗û over the rows, in float64 because the two terms nearly cancel late in training."""
    fresh, stale = fresh.double(), stale.double()
    return fresh.T @ fresh - stale.T @ stale
