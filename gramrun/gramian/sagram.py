"""SAGram, the Stochastic Average Gramian (paper, Algorithm 1 and equation 9), caching pairs or items.

A cache holds one embedding û_j for each of its entries j, which have weights p_j that sum to 1, and its
Gramian Ŝ = sum_j p_j û_j ⊗ û_j is maintained online. With a batch B of entries drawn j ~ p,

    β = 1/n (SAG):   Ĝ = Ŝ + sum_{distinct j in B} p_j [u_j ⊗ u_j − û_j ⊗ û_j]
    β = 1   (SAGA):  Ĝ = Ŝ + (1/|B|) sum_{j in B} r_j [u_j ⊗ u_j − û_j ⊗ û_j]

(r_j = 1 unless the batch was drawn otherwise: `GramianBatch.importance`). Then Ŝ and the caches take in
each distinct member of B, so that Ŝ becomes SAG's Ĝ. (Algorithm 1 refreshes the member that carried the
gradient; in batches the members of B are the ones already embedded under the current parameters, so
refreshing them is free and keeps the gradient batch B' independent of Ĝ.) bfloat16 caches round SAG's u
too.

    per pair   the paper's: an entry for each training pair, p = 1/n. Memory n · k numbers.
    per item   an entry for each item x, p_x = w_x. All f_x pairs of an item have the same embedding, so their
               caches differ in age only; one for all is as fresh as the freshest. Memory items · k numbers:
               on the paper's `en`, 5.4 GB for 502 GB.

SAGA is unbiased in both forms, whatever the caches hold, if B is drawn independently of them, which a
shuffled epoch's batches are not (below): E_{j~p} [u_j⊗u_j − û_j⊗û_j] = G − Ŝ (Proposition 3), with
variance (1/|B|) E‖u⊗u − û⊗û − (G − Ŝ)‖², which is small where caches are fresh. It may leave the PSD
cone, from where it can be projected back by an eigendecomposition, which costs its unbiasedness. SAG
stays in the cone (Proposition 2): Ĝ is a Gramian of vectors. Its bias is the caches' age, G − Ŝ.

Without replacement. A batch of a shuffled epoch never holds one of the s pairs that this epoch has
refreshed, so it meets the stalest caches only and SAGA takes them for all. With caches per pair and G
standing, E Ĝ = G + (s/n)(G − Ŝ(epoch's start)): at the epoch's end nearly the whole gap is counted
twice. Hence `batch: previous` is refused where SAGA has caches.

Rounding. A change is computed from differences, u⊗u − û⊗û = ½[(u−û)⊗(u+û) + (u+û)⊗(u−û)], which has no
cancellation even in float32, and summed in float64. Ŝ then drifts from its caches' Gramian like a random
walk of float32 roundings; every `rebuild_every` steps it is summed anew from the caches, at the cost of
reading them once and k² multiplications an entry, without a forward pass: a few steps' time, once an epoch by
default (measured by `experiments/benchmarks/estimator_cost.py`). bfloat16 caches round û to 8 bits: SAGA
stays unbiased,
since Ŝ is the Gramian of the rounded caches, at a little more variance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from gramrun.gramian.batch import GramianBatch, beside
from gramrun.gramian.cache import cache_tensor
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population

Beta = Literal["1/n", "1"]
CacheEntry = Literal["pair", "item"]

_REBUILD_CHUNK = 65536  # entries summed at once in a rebuild; bounds memory, not a result


def project_to_psd(matrix: Tensor) -> Tensor:
    """The nearest positive semidefinite matrix in Frobenius norm: negative eigenvalues become 0.

    Args:
        matrix: symmetric, shape (k, k).
    """
    _, failed = torch.linalg.cholesky_ex(matrix)
    if not failed:  # positive definite already; a Cholesky factor costs a fraction of an eigh
        return matrix
    if not torch.isfinite(matrix).all():
        return matrix  # a run that diverges: the training step sees it and says so
    eigenvalues, eigenvectors = torch.linalg.eigh(matrix)
    projected: Tensor = (eigenvectors * eigenvalues.clamp_min(0)) @ eigenvectors.T
    return projected


def project_moments(moments: Tensor) -> Tensor:
    """Moments, shape (k, k + r), with their Gramian projected; the cross part is no Gramian and stays."""
    k = len(moments)
    gramian = (moments[:, :k] + moments[:, :k].T) / 2  # rounding may have left it not quite symmetric
    return beside(project_to_psd(gramian), moments[:, k:])


class SAGram(GramianEstimator):
    """Cached embeddings and their Gramian.

    Args:
        embedding_dim: k.
        population: the items or pairs that are cached.
        beta: ``"1/n"`` for the SAG form, ``"1"`` for the SAGA form.
        project: whether a SAGA estimate that left the PSD cone is projected back onto it.
        entry: what has a cache entry of its own. ``pair`` needs batches drawn as pairs: γ = 1.
        dtype: of the caches, float32 or bfloat16.
        folder: where the caches are memory-mapped, or None for memory.
        rebuild_every: steps between two sums of Ŝ from its caches; 0 for never.
        companion_dim: r. Companions are cached beside the embeddings, r more numbers an entry.

    Raises:
        ValueError: for caches per pair under γ < 1.
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
        beta: Beta,
        *,
        project: bool = True,
        entry: CacheEntry = "item",
        dtype: torch.dtype = torch.float32,
        folder: Path | None = None,
        rebuild_every: int = 0,
        companion_dim: int = 0,
    ) -> None:
        super().__init__(embedding_dim, companion_dim)
        if entry == "pair" and population.cumulative is not None:
            raise ValueError("caches per pair need gamma = 1; under another gamma items are drawn, not pairs")
        self.population = population
        self.beta = beta
        self.project = project and beta == "1"
        self.entry = entry
        self.rebuild_every = rebuild_every
        entries = len(population.pair_items) if entry == "pair" else len(population.item_weights)
        self.register_buffer("cache", cache_tensor(entries, embedding_dim, dtype, folder))
        self.register_buffer("companion_cache", cache_tensor(entries, companion_dim, torch.float32, folder))
        self.register_buffer("cache_moments", torch.zeros_like(self.moments, dtype=torch.double))
        # What one entry weighs where all weigh the same, as pairs and uniform items do, else None.
        positive = population.item_weights[population.item_weights > 0]
        uniform = entry == "pair" or bool((positive == positive[0]).all())
        self.entry_weight = (1 / (entries if entry == "pair" else len(positive))) if uniform else None
        self.exact_caches = dtype == torch.float32

    @torch.no_grad()
    def start(self, chunks: Iterable[GramianBatch]) -> None:
        """Fill every cache under the initial parameters (Algorithm 1, lines 4 and 5)."""
        if self.entry == "item":
            for chunk in chunks:
                self._store(chunk.items, _Rows(chunk.embeddings.detach(), chunk.companions))
        else:
            embeddings, by_item = self._by_item(chunks)
            pair_items = self.population.pair_items.to(embeddings.device)
            for pairs in torch.arange(len(pair_items), device=embeddings.device).split(_REBUILD_CHUNK):
                items = pair_items[pairs].long()
                self._store(pairs, _Rows(embeddings, by_item).at(items))
        self.rebuild()
        self.moments.copy_(self.cache_moments)

    def _by_item(self, chunks: Iterable[GramianBatch]) -> tuple[Tensor, Tensor | None]:
        """The embeddings and companions of all items, in the order of the items."""
        count = len(self.population.item_weights)
        embeddings, by_item = self.moments.new_zeros(count, self.cache.shape[1]), None
        for chunk in chunks:
            embeddings[chunk.items] = chunk.embeddings.detach()
            if chunk.companions is not None:
                if by_item is None:
                    by_item = chunk.companions.new_zeros(count, chunk.companions.shape[1])
                by_item[chunk.items] = chunk.companions
        return embeddings, by_item

    @torch.no_grad()
    def rebuild(self) -> None:
        """Sum Ŝ from its caches in float64: exact up to float64's rounding, O(entries · k²)."""
        self.cache_moments.zero_()
        for entries in torch.arange(len(self.cache), device=self.cache.device).split(_REBUILD_CHUNK):
            rows, companions = self.cache[entries].double(), self.companion_cache[entries].double()
            weighted = rows * self._weights(entries)[:, None]
            self.cache_moments += torch.cat([weighted.T @ rows, weighted.T @ companions], 1)

    @torch.no_grad()
    def observe(self, batch: GramianBatch) -> None:
        """Form Ĝ from the caches as they are, then refresh the distinct members of the batch.

        Raises:
            ValueError: where caches are per pair and the batch was drawn as items.
        """
        members = batch.items if self.entry == "item" else batch.pairs
        if members is None:
            raise ValueError("caches per pair need a batch that was drawn as pairs")
        fresh = _Rows(batch.embeddings.detach(), batch.companions)
        stale = self._cached(members, fresh.embeddings.dtype)
        change = _Change.between(fresh, stale)
        first, repeats = _occurrences(members)
        whole = None
        if self.beta == "1":
            whole = change.sum(batch.importance)
            estimate = self.cache_moments + whole / len(members)
            self.moments.copy_(project_moments(estimate) if self.project else estimate)
        self._store(members[first], fresh.at(first))
        if whole is not None and self.entry_weight and batch.importance is None and self.exact_caches:
            # All members weigh the same: the product at hand, less what it counted more than once.
            again = _Change.between(fresh.at(repeats), stale.at(repeats))
            self.cache_moments += (whole - again.sum()) * self.entry_weight
        else:
            weights = self._weights(members)
            weights[repeats] = 0
            stored = change if self.exact_caches else _Change.between(self._as_cached(fresh), stale)
            self.cache_moments += stored.sum(weights)
        self.observed += 1
        if self.rebuild_every and self.observed % self.rebuild_every == 0:
            self.rebuild()
        if self.beta == "1/n":
            self.moments.copy_(self.cache_moments)

    def _weights(self, entries: Tensor) -> Tensor:
        """p_j of the entries, float64."""
        if self.entry == "pair":
            return torch.full((len(entries),), 1 / len(self.cache), dtype=torch.double, device=entries.device)
        return self.population.item_weights.to(entries.device)[entries].double()

    def _cached(self, entries: Tensor, dtype: torch.dtype) -> _Rows:
        cached = _Rows(self.cache, self.companion_cache if self.companion_cache.shape[1] else None).at(
            entries
        )
        return _Rows(cached.embeddings.to(dtype), cached.companions)

    def _as_cached(self, rows: _Rows) -> _Rows:
        """The rows as the caches round them."""
        return _Rows(rows.embeddings.to(self.cache.dtype).to(rows.embeddings.dtype), rows.companions)

    def _store(self, entries: Tensor, rows: _Rows) -> None:
        self.cache[entries] = rows.embeddings.to(self.cache.dtype)
        if rows.companions is not None:
            self.companion_cache[entries] = rows.companions.to(self.companion_cache.dtype)


@dataclass(frozen=True)
class _Rows:
    """Embeddings, shape (B, k), and their companions, shape (B, r) or None."""

    embeddings: Tensor
    companions: Tensor | None

    def at(self, rows: Tensor) -> _Rows:
        companions = None if self.companions is None else self.companions.index_select(0, rows)
        return _Rows(self.embeddings.index_select(0, rows), companions)


def _occurrences(members: Tensor) -> tuple[Tensor, Tensor]:
    """The positions at which a member stands for the first time, and the others: one first per member."""
    distinct, inverse = torch.unique(members, return_inverse=True)
    position = torch.arange(len(members), device=members.device)
    first = torch.full_like(distinct, len(members)).scatter_reduce_(0, inverse, position, "amin")
    return first, (position != first[inverse]).nonzero().squeeze(1)


@dataclass(frozen=True)
class _Change:
    """Differences and sums of fresh and stale rows, whose products are the change of rank-one terms."""

    difference: _Rows
    total: _Rows

    @classmethod
    def between(cls, fresh: _Rows, stale: _Rows) -> _Change:
        u, old, c, old_c = fresh.embeddings, stale.embeddings, fresh.companions, stale.companions
        if c is None or old_c is None:
            return cls(_Rows(u - old, None), _Rows(u + old, None))
        return cls(_Rows(u - old, c - old_c), _Rows(u + old, c + old_c))

    def sum(self, weights: Tensor | None = None) -> Tensor:
        """sum_j p_j (u ⊗ [u, c] − û ⊗ [û, ĉ]), float64; p_j = 1 without weights."""

        def weighted(rows: Tensor) -> Tensor:
            return rows if weights is None else rows * weights.to(rows.dtype)[:, None]

        difference, total = weighted(self.difference.embeddings), self.total.embeddings
        product = difference.T @ total
        gramian = (product + product.T).double() / 2
        if self.difference.companions is None or self.total.companions is None:
            return gramian
        cross = difference.T @ self.total.companions + total.T @ weighted(self.difference.companions)
        return torch.cat([gramian, cross.double() / 2], 1)
