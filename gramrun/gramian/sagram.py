"""SAGram, the Stochastic Average Gramian (paper, Algorithm 1 and equation 9).

Each entry j of the cache has an embedding û_j and a weight p_j; the weights sum to 1. The Gramian of the
cache, Ŝ = sum_j p_j û_j ⊗ û_j, is kept up to date. With a batch B of entries drawn j ~ p,

    β = 1/n (SAG):   Ĝ = Ŝ + sum_{distinct j in B} p_j [u_j ⊗ u_j − û_j ⊗ û_j]
    β = 1   (SAGA):  Ĝ = Ŝ + (1/|B|) sum_{j in B} r_j [u_j ⊗ u_j − û_j ⊗ û_j],    r_j the importance of j

and then û_j = u_j for every j in B. An entry is a training pair, as in the paper (p = 1/n), or an item
(p = w).

SAGA is unbiased if B is independent of the caches, but can leave the PSD cone; SAG stays in the cone and has
the bias of its stale caches. Proofs, rounding, and why a batch of a shuffled epoch is not independent:
docs/mathematics.md#sagram.

Caches may be split among processes: each refreshes its own entries of a batch, and all add up the changes of
Ŝ, which every process has whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gramrun.base.processes import SINGLE_PROCESS
from gramrun.gramian.batch import GramianBatch, join_moments
from gramrun.gramian.cache import CacheOptions, cache_tensor
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population

Beta = Literal["1/n", "1"]

_REBUILD_CHUNK = 65536  # entries summed at once in a rebuild; bounds memory, not a result


def project_to_psd(matrix: Tensor) -> Tensor:
    """The nearest positive semidefinite matrix in Frobenius norm: negative eigenvalues become 0.

    Computed on the CPU: a GPU takes tens of milliseconds for the eigenvalues of so small a matrix.

    Args:
        matrix: symmetric, shape (k, k). Returned unchanged where it is not finite.
    """
    own = matrix.cpu()
    _, failed = torch.linalg.cholesky_ex(own)  # costs a fraction of an eigendecomposition
    if not failed or not torch.isfinite(own).all():
        return matrix
    eigenvalues, eigenvectors = torch.linalg.eigh(own)
    projected: Tensor = (eigenvectors * eigenvalues.clamp_min(0)) @ eigenvectors.T
    return projected.to(matrix.device)


def project_moments(moments: Tensor) -> Tensor:
    """Moments of shape (k, k + r) with the Gramian projected and the cross part unchanged."""
    k = len(moments)
    gramian = (moments[:, :k] + moments[:, :k].T) / 2  # rounding may have left it slightly asymmetric
    return join_moments(project_to_psd(gramian), moments[:, k:])


class SAGram(GramianEstimator):
    """Cached embeddings and their Gramian.

    Args:
        embedding_dim: k.
        population: the items or pairs that are cached.
        beta: ``"1/n"`` for SAG, ``"1"`` for SAGA.
        cache: entries and storage, by default per item in memory. Entries per pair need batches drawn as
            pairs, so γ = 1.
        project: whether to project a SAGA estimate onto the PSD cone.
        companion_dim: r. Companions are cached as well, r float32 numbers per entry.

    Attributes:
        entries: how many entries there are, of which split caches hold a part.

    Raises:
        ValueError: for caches per pair with γ < 1.
    """

    needs_rows = True
    needs_start = True
    cache: Tensor
    companion_cache: Tensor
    cache_moments: Tensor

    def __init__(
        self,
        embedding_dim: int,
        population: Population,
        beta: Beta = "1",
        *,
        cache: CacheOptions | None = None,
        project: bool = True,
        companion_dim: int = 0,
    ) -> None:
        super().__init__(embedding_dim, companion_dim)
        cache = cache or CacheOptions()
        if cache.entry == "pair" and population.cumulative is not None:
            raise ValueError("caches per pair need gamma = 1; under another gamma items are drawn, not pairs")
        self.population = population
        self.beta = beta
        self.project = project and beta == "1"
        self.entry = cache.entry
        self.rebuild_every = cache.rebuild_every
        self.entries = len(population.pair_items if self.entry == "pair" else population.item_weights)
        self.processes = cache.split or SINGLE_PROCESS
        self._first = self.processes.block(self.entries).start
        here = self.processes.block(self.entries).stop - self._first
        whole = cache.split is None  # what is split is saved by all processes, each its part
        embeddings = cache_tensor(here, embedding_dim, cache.dtype, cache.folder)
        self.register_buffer("cache", embeddings, persistent=whole)
        companions = cache_tensor(here, companion_dim, torch.float32, cache.folder)
        self.register_buffer("companion_cache", companions, persistent=whole)
        self.register_buffer("cache_moments", torch.zeros_like(self.moments, dtype=torch.double))
        # The weight of one entry where all entries have the same, else None.
        positive = population.item_weights[population.item_weights > 0]
        uniform = self.entry == "pair" or bool((positive == positive[0]).all())
        count = self.entries if self.entry == "pair" else len(positive)
        self.entry_weight = 1 / count if uniform else None
        self.exact_caches = cache.dtype == torch.float32

    @torch.no_grad()
    def start(self, chunks: Iterable[GramianBatch]) -> None:
        """Fill every cache under the initial parameters (Algorithm 1, lines 4 and 5)."""
        if self.entry == "item":
            for chunk in chunks:
                own = self._own(chunk.items, chunk)
                self._store(own.items, self._rows(own))
        else:
            by_item = self._rows_by_item(chunks)
            pair_items = self.population.pair_items.to(self.cache.device)
            for pairs in self._own_entries():
                self._store(pairs, by_item.at(pair_items[pairs].long()))
        self.rebuild()
        self.moments.copy_(self.cache_moments)

    @torch.no_grad()
    def rebuild(self) -> None:
        """Sum Ŝ from its caches in float64: O(entries · k²)."""
        self.cache_moments.zero_()
        for entries in self._own_entries():
            cached = self._cached(entries, torch.double)
            rows, companions = cached.embeddings, cached.companions.double()
            weighted = rows * self._weights(entries)[:, None]
            self.cache_moments += torch.cat([weighted.T @ rows, weighted.T @ companions], 1)
        self.cache_moments.copy_(self.processes.sum(self.cache_moments))

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Form Ĝ from the caches as they are, then refresh the distinct members of the batch.

        Raises:
            ValueError: where caches are per pair and the batch was drawn as items.
        """
        members = batch.items if self.entry == "item" else batch.pairs
        if members is None:
            raise ValueError("caches per pair need a batch that was drawn as pairs")
        size = len(members)
        batch = self._own(members, batch)
        members = batch.items if self.entry == "item" else batch.pairs
        assert members is not None
        fresh, stale = self._rows(batch), self._cached(members, batch.embeddings.dtype)
        first, repeats = _occurrences(members)
        change = None
        if self.beta == "1":
            change = _change(fresh, stale, batch.importance)
            estimate = self.cache_moments + self.processes.sum(change) / size
            self.moments.copy_(project_moments(estimate) if self.project else estimate)
        self._store(members[first], fresh.at(first))
        if change is not None and self.entry_weight and batch.importance is None and self.exact_caches:
            # All entries have the same weight: reuse the product, less the repeated members.
            refreshed = (change - _change(fresh.at(repeats), stale.at(repeats))) * self.entry_weight
        else:
            weights = self._weights(members)
            weights[repeats] = 0
            stored = fresh if self.exact_caches else self._rounded(fresh)
            refreshed = _change(stored, stale, weights)
        self.cache_moments += self.processes.sum(refreshed)
        self.observed += 1
        if self.rebuild_every and self.observed % self.rebuild_every == 0:
            self.rebuild()
        if self.beta == "1/n":
            self.moments.copy_(self.cache_moments)

    def _own(self, members: Tensor, batch: GramianBatch) -> GramianBatch:
        """The rows of a batch whose entries, `members`, are here."""
        if self.processes.count == 1:
            return batch
        here = (members >= self._first) & (members < self._first + len(self.cache))
        positions = here.nonzero().squeeze(1)
        return batch.each(lambda column: column[positions])

    def _own_entries(self) -> tuple[Tensor, ...]:
        """The entries that are here, in chunks."""
        entries = torch.arange(self._first, self._first + len(self.cache), device=self.cache.device)
        chunks: tuple[Tensor, ...] = entries.split(_REBUILD_CHUNK)
        return chunks

    def _rows(self, batch: GramianBatch) -> _Rows:
        """The rows of a batch; companions of width 0 where it has none."""
        companions = batch.companions
        if companions is None:
            companions = batch.embeddings.new_empty(len(batch.embeddings), 0)
        return _Rows(batch.embeddings.detach(), companions)

    def _rows_by_item(self, chunks: Iterable[GramianBatch]) -> _Rows:
        """The rows of all items, in their order."""
        count = len(self.population.item_weights)
        all_rows = _Rows(
            self.moments.new_zeros(count, self.cache.shape[1]),
            self.moments.new_zeros(count, self.companion_cache.shape[1]),
        )
        for chunk in chunks:
            rows = self._rows(chunk)
            all_rows.embeddings[chunk.items] = rows.embeddings
            all_rows.companions[chunk.items] = rows.companions
        return all_rows

    def _weights(self, entries: Tensor) -> Tensor:
        """p_j of the entries, float64."""
        if self.entry == "pair":
            return torch.full((len(entries),), 1 / self.entries, dtype=torch.double, device=entries.device)
        return self.population.item_weights.to(entries.device)[entries].double()

    def _cached(self, entries: Tensor, dtype: torch.dtype) -> _Rows:
        cached = _Rows(self.cache, self.companion_cache).at(entries - self._first)
        return _Rows(cached.embeddings.to(dtype), cached.companions)

    def _rounded(self, rows: _Rows) -> _Rows:
        """The rows as the caches round them."""
        return _Rows(rows.embeddings.to(self.cache.dtype).to(rows.embeddings.dtype), rows.companions)

    def _store(self, entries: Tensor, rows: _Rows) -> None:
        places = entries - self._first
        self.cache[places] = rows.embeddings.to(self.cache.dtype)
        if rows.companions.shape[1]:
            self.companion_cache[places] = rows.companions.to(self.companion_cache.dtype)


@dataclass(frozen=True)
class _Rows:
    """Embeddings, shape (B, k), and companions, shape (B, r)."""

    embeddings: Tensor
    companions: Tensor

    def at(self, positions: Tensor) -> _Rows:
        return _Rows(self.embeddings.index_select(0, positions), self.companions.index_select(0, positions))


def _occurrences(members: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of the first occurrence of each distinct member, and all other positions."""
    distinct, inverse = torch.unique(members, return_inverse=True)
    position = torch.arange(len(members), device=members.device)
    first = torch.full_like(distinct, len(members)).scatter_reduce_(0, inverse, position, "amin")
    return first, (position != first[inverse]).nonzero().squeeze(1)


def _change(fresh: _Rows, stale: _Rows, weights: Tensor | None = None) -> Tensor:
    """sum_j p_j (u ⊗ [u, c] − û ⊗ [û, ĉ]), float64; p_j = 1 without weights.

    Computed from differences, which avoids cancellation:
    u ⊗ u − û ⊗ û = ½[(u − û) ⊗ (u + û) + (u + û) ⊗ (u − û)].
    """

    def weighted(rows: Tensor) -> Tensor:
        return rows if weights is None else rows * weights.to(rows.dtype)[:, None]

    difference = weighted(fresh.embeddings - stale.embeddings)
    total = fresh.embeddings + stale.embeddings
    product = difference.T @ total
    gramian = (product + product.T).double() / 2
    if not fresh.companions.shape[1]:
        return gramian
    cross = difference.T @ (fresh.companions + stale.companions)
    cross = cross + total.T @ weighted(fresh.companions - stale.companions)
    return torch.cat([gramian, cross.double() / 2], 1)
