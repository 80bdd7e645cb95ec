r"""Rank the relevant items of each left item among its negatives.

All left items share the same *candidates*. A left item's negatives :math:`N` are the candidates that are
neither relevant nor excluded for it (its training positives). With scores :math:`s`, such as
:math:`s(j) = \langle u, v_j \rangle`, the rank of a relevant item is

.. math:: r(j) = |\{c \in N : s(c) \ge s(j)\}| + \text{position of } j \text{ among the relevant items}

A negative that ties with a relevant item ranks before it. Ties therefore count against the model, and a
constant predictor scores no better than chance.

Scores are float64 sums rounded to float32; `gramrun.evaluation.top_k` counts inner products exactly without
computing all of them. A method whose scores are no inner products of short vectors has its own `Scorer`. The
paper (Section 4.3) ranks against 50,000 random candidates and specifies neither ties nor the treatment of
training positives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gramrun.base.errors import RunError
from gramrun.evaluation.top_k import Cells, Negatives, count_scores, full_float32_products, norms

Ints = NDArray[np.int64]

# Chunk sizes; they bound memory and do not change a result.
_PAIRS_READ = 2**20  # of a column
_PAIRS_AT_ONCE = 16_384  # (row, item) pairs scored in float64


@dataclass(frozen=True)
class ItemSets:
    """A set of right items for each left row: a ragged view into a column of right items. Copies nothing.

    Row ``i`` is ``column[starts[i]:ends[i]]``, in strictly ascending order.

    Attributes:
        starts, ends: int64 (left rows,).
        column: integers (pairs,), right item ids; it may be a memory map.
        numbers: int64 (right items,), or None. Replaces each id by ``numbers[id]`` and drops the items where
            that is -1. The numbers of kept items ascend with their ids.
    """

    starts: Ints
    ends: Ints
    column: NDArray[np.integer[Any]]
    numbers: Ints | None = None

    @classmethod
    def from_pairs(cls, rows: Ints, items: Ints, row_count: int) -> ItemSets:
        """Group pairs by left row. Pairs may come in any order and repeatedly.

        Args:
            rows: int64 (pairs,), in [0, row_count).
            items: int64 (pairs,), right item ids.
            row_count: number of left rows.
        """
        pairs = np.unique(np.stack([rows, items], axis=1), axis=0)
        bounds = np.searchsorted(pairs[:, 0], np.arange(row_count + 1))
        return cls(bounds[:-1], bounds[1:], pairs[:, 1])

    @classmethod
    def of_left_items(
        cls, left: NDArray[np.integer[Any]], right: NDArray[np.integer[Any]], left_items: Ints
    ) -> ItemSets:
        """The right items of each of `left_items` in pairs sorted by (left, right); an item may have none."""
        sought = left_items.astype(left.dtype)  # another type would copy all pairs
        starts = np.searchsorted(left, sought, side="left")
        return cls(starts, np.searchsorted(left, sought, side="right"), right)

    def __len__(self) -> int:
        """Number of left rows."""
        return len(self.starts)

    @property
    def offsets(self) -> Ints:
        """CSR offsets of the rows, int64 (left rows + 1,), if no item is dropped."""
        return np.concatenate([[0], np.cumsum(self.ends - self.starts)]).astype(np.int64)

    def rows(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Rows ``start`` to ``stop`` as (row relative to ``start``, item) pairs in row order."""
        starts, ends = self.starts[start:stop], self.ends[start:stop]
        lengths = ends - starts
        rows = np.repeat(np.arange(len(starts)), lengths)
        if np.array_equal(starts[1:], ends[:-1]):  # contiguous, as when all left items are ranked
            items = self.column[starts[0] : ends[-1]] if len(starts) else self.column[:0]
        else:
            shift = starts - (np.cumsum(lengths) - lengths)
            items = self.column[np.arange(len(rows)) + np.repeat(shift, lengths)]
        if self.numbers is None:
            return rows, items.astype(np.int64)
        numbers = self.numbers[items]
        is_kept = numbers >= 0
        return rows[is_kept], numbers[is_kept]


def distinct_rows(column: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """The distinct values of an ascending column, and the index where each begins.

    Args:
        column: integers (pairs,), 0 or more. A memory map is read in parts.

    Returns:
        Both int64 (distinct values,).
    """
    starts = [np.empty(0, dtype=np.int64)]
    for begin in range(0, len(column), _PAIRS_READ):
        before = column[begin - 1] if begin else -1
        changes = np.diff(column[begin : begin + _PAIRS_READ], prepend=before)
        starts.append(begin + np.flatnonzero(changes))
    joined = np.concatenate(starts)
    return column[joined].astype(np.int64), joined


def sample_candidates(items: int, count: int, seed: int) -> Ints:
    """Draw ``min(count, items)`` of the right items uniformly without replacement.

    Returns:
        int64 (min(count, items),), ascending right item ids; a function of the arguments alone.
    """
    if count >= items:
        return np.arange(items, dtype=np.int64)
    drawn = np.random.default_rng(seed).choice(items, size=count, replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def candidate_hash(candidates: Ints) -> str:
    """SHA-256 (hex) of the candidate ids as little-endian int64. Results with equal hashes are comparable."""
    return hashlib.sha256(candidates.astype("<i8").tobytes()).hexdigest()


class Chunk(Protocol):
    """The scores of some left rows."""

    def pairs(self, rows: Tensor, items: Tensor) -> Tensor:
        """s of (row of the chunk, right item) pairs: float32 (pairs,)."""

    def count(self, masked: Cells, scores: Tensor) -> Tensor:
        """The negatives with s(c) >= s(j), as `Negatives.count` returns them."""


class Scorer(Protocol):
    """Scores left rows with all right items."""

    @property
    def device(self) -> torch.device:
        """Where the scores are computed."""

    def __len__(self) -> int:
        """Number of left rows."""

    def chunks(self, candidates: Tensor, depth: int, rows: int) -> Iterator[Chunk]:
        """All left rows in order, in chunks of `rows`; counts are of `candidates`, up to `depth`."""


@dataclass(frozen=True)
class InnerProducts:
    """s(j) = ⟨u, v_j⟩.

    Attributes:
        left: floating (left rows, k), embeddings u.
        right: floating (right items, k), embeddings v, on the same device.
    """

    left: Tensor
    right: Tensor

    @property
    def device(self) -> torch.device:
        """The device of the embeddings."""
        return self.left.device

    def __len__(self) -> int:
        """Number of left rows."""
        return len(self.left)

    def chunks(self, candidates: Tensor, depth: int, rows: int) -> Iterator[Chunk]:
        """See `Scorer`.

        Raises:
            RunError: if the embeddings hold NaN or are so large that scores overflow.
        """
        _check_scores_are_finite(self.left, self.right)
        negatives = Negatives(self.right[candidates], depth, min(rows, len(self.left)))
        for start in range(0, len(self.left), rows):
            yield _InnerProductChunk(self.left[start : start + rows], self.right, negatives)


@dataclass(frozen=True)
class _InnerProductChunk:
    u: Tensor
    right: Tensor
    negatives: Negatives

    def pairs(self, rows: Tensor, items: Tensor) -> Tensor:
        return _pair_scores(self.u, self.right, rows, items)

    def count(self, masked: Cells, scores: Tensor) -> Tensor:
        return self.negatives.count(self.u, masked, scores)


@dataclass(frozen=True)
class ScoredChunk:
    """A chunk whose scores are all computed.

    Attributes:
        scores: s, float32 (rows, right items).
        candidates: int64 (candidates,), right item ids.
        depth: counts are exact up to this number.
    """

    scores: Tensor
    candidates: Tensor
    depth: int

    def pairs(self, rows: Tensor, items: Tensor) -> Tensor:
        """See `Chunk`."""
        return self.scores[rows, items]

    def count(self, masked: Cells, scores: Tensor) -> Tensor:
        """See `Chunk`."""
        return count_scores(self.scores[:, self.candidates], masked, scores, self.depth)


@torch.no_grad()
def rank_scored(
    scorer: Scorer,
    candidates: Ints,
    relevant: ItemSets,
    excluded: ItemSets | None = None,
    depth: int = 100,
    chunk_rows: int = 256,
    progress: Callable[[int], object] | None = None,
) -> tuple[Ints, Ints]:
    """Rank each left row's relevant items among the candidates (the equation of this module).

    Ranks up to ``depth`` are exact; a relevant item below it gets some rank greater than ``depth``.
    An item that is both relevant and excluded is relevant.

    Args:
        scorer: the scores of the left rows.
        candidates: int64 (candidates,), strictly ascending right item ids.
        relevant: the relevant right items of each left row; they need not be candidates.
        excluded: the right items to leave out, for each left row.
        depth: the greatest cut-off of the metrics to compute, >= 1.
        chunk_rows: left rows ranked at once; changes memory and time, not the result.
        progress: called with the number of rows done after each chunk, like ``tqdm.update``.

    Returns:
        ``ranks``, int64 (relevant pairs,), ascending within each left row, and ``relevant.offsets``:
        the input of `gramrun.evaluation.metrics`.

    Raises:
        RunError: if the scores cannot be computed.
        ValueError: if the shapes do not fit, or ``candidates`` is not strictly ascending.
    """
    unranked = [relevant] if excluded is None else [relevant, excluded]
    for sets in unranked:
        if len(sets) != len(scorer):
            raise ValueError(f"{len(scorer)} left rows, but item sets of {len(sets)} rows")
    if np.any(np.diff(candidates) <= 0):
        raise ValueError("candidates must be strictly ascending")

    device = scorer.device
    # `torch.tensor` copies: tensors cannot share read-only memory maps.
    ids = torch.tensor(candidates, device=device)
    offsets = relevant.offsets
    ranks = np.empty(offsets[-1], dtype=np.int64)
    with full_float32_products():
        for start, chunk in zip(
            range(0, len(scorer), chunk_rows), scorer.chunks(ids, depth, chunk_rows), strict=True
        ):
            stop = min(start + chunk_rows, len(scorer))
            pairs = zip(*(sets.rows(start, stop) for sets in unranked), strict=True)
            row, item = (torch.tensor(np.concatenate(arrays), device=device) for arrays in pairs)
            masked = _candidate_cells(row, item, ids)
            lengths = torch.tensor(np.diff(offsets[start : stop + 1]), device=device)
            row, item = row[: lengths.sum()], item[: lengths.sum()]  # the relevant pairs come first
            chunk_ranks = _rank_chunk(chunk, masked, chunk.pairs(row, item), lengths)
            ranks[offsets[start] : offsets[stop]] = chunk_ranks.cpu().numpy()
            if progress is not None:
                progress(stop - start)
    return ranks, offsets


def _rank_chunk(chunk: Chunk, masked: Cells, scores: Tensor, lengths: Tensor) -> Tensor:
    """Ranks of the relevant scores: flat, ``lengths[i]`` of them for row i of the chunk."""
    column = torch.arange(int(lengths.max()), device=scores.device)
    is_filled = column < lengths[:, None]
    padded = scores.new_full(is_filled.shape, -torch.inf)
    padded[is_filled] = scores
    not_below = chunk.count(masked, padded.sort(dim=1, descending=True).values)
    # A count that reaches the depth may be too small, but the rank is then beyond the depth anyway.
    return (not_below + column + 1)[is_filled]


def _check_scores_are_finite(left: Tensor, right: Tensor) -> None:
    """Check that |u| |v|, a bound of every score, is finite in float32."""
    if len(left) == 0 or len(right) == 0:
        return
    # `not <` is also true for NaN.
    if not norms(left).max() * norms(right).max() < torch.finfo(torch.float32).max:
        raise RunError(
            "cannot rank: the embeddings hold NaN or overflow, so training has diverged; "
            "try a smaller train.learning_rate"
        )


def _pair_scores(u: Tensor, right: Tensor, rows: Tensor, items: Tensor) -> Tensor:
    """Scores of (row of ``u``, right item) pairs, float32 (pairs,)."""
    scores = [u.new_empty(0, dtype=torch.float32)]
    for row, item in zip(rows.split(_PAIRS_AT_ONCE), items.split(_PAIRS_AT_ONCE), strict=True):
        scores.append((u[row].double() * right[item]).sum(dim=1).float())
    return torch.cat(scores)


def _candidate_cells(rows: Tensor, items: Tensor, ids: Tensor) -> Cells:
    """The (row, candidate position) cells of the (row, item) pairs whose item is a candidate."""
    if len(ids) == 0:
        return rows[:0], items[:0]
    positions = torch.searchsorted(ids, items).clamp(max=len(ids) - 1)
    is_candidate = ids[positions] == items
    return rows[is_candidate], positions[is_candidate]
