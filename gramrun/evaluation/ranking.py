r"""From embeddings to the ranks of the relevant items: the ranking protocol.

A left item's relevant items compete with *candidates*: the same right items for every left item, less
those that are relevant or excluded for it (its training positives). With score
:math:`s(j) = \langle u, v_j \rangle` and negatives :math:`N`, the rank of a relevant item is

.. math:: r(j) = |\{c \in N : s(c) \ge s(j)\}| + \text{position of } j \text{ among the relevant items}

so a negative that ties with a relevant item stands before it: ties count against the model, and a
constant predictor scores no more than chance.

Scores are compared as float64 sums rounded to float32; `gramrun.evaluation.top_k` counts as if it had them
all.

The paper (section 4.3) ranks against 50,000 random candidates and says neither what happens to training
positives nor to ties; both are decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gramrun.base.errors import RunError
from gramrun.evaluation.top_k import Cells, Negatives, full_float32_products, norms

Ints = NDArray[np.int64]

_PAIRS_READ = 2**20  # pairs of a column looked at at once; bounds memory, not a result
_PAIRS_AT_ONCE = 16_384  # (row, item) pairs scored at once in float64; bounds memory, not a result


@dataclass(frozen=True)
class Relevant:
    """A set of right items for each left row, in CSR form; also the form of the excluded items.

    Row ``i`` owns ``items[offsets[i]:offsets[i + 1]]``, in strictly ascending order.

    Attributes:
        offsets: int64 (left rows + 1,).
        items: int64 (pairs,), right item ids.

    Raises:
        ValueError: if the arrays are not of that form.
    """

    offsets: Ints
    items: Ints

    def __post_init__(self) -> None:
        lengths = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.items) or np.any(lengths < 0):
            raise ValueError(f"offsets must ascend from 0 to the number of items, {len(self.items)}")
        row_starts = np.zeros(len(self.items) + 1, dtype=bool)
        row_starts[self.offsets] = True
        if np.any((np.diff(self.items) <= 0) & ~row_starts[1:-1]):
            raise ValueError("items must be strictly ascending within each row (see Relevant.from_pairs)")

    @classmethod
    def from_pairs(cls, rows: Ints, items: Ints, row_count: int) -> Relevant:
        """Group pairs by left row; pairs may come in any order and more than once.

        Args:
            rows: int64 (pairs,), in [0, row_count).
            items: int64 (pairs,), right item ids.
            row_count: number of left rows.
        """
        order = np.lexsort((items, rows))
        rows, items = rows[order], items[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = (np.diff(rows) != 0) | (np.diff(items) != 0)
        offsets = np.searchsorted(rows[first], np.arange(row_count + 1))
        return cls(offsets.astype(np.int64), items[first])

    def __len__(self) -> int:
        """How many left rows there are."""
        return len(self.offsets) - 1

    def rows(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Rows ``start`` to ``stop`` as (row relative to ``start``, item) pairs in row order."""
        offsets = self.offsets[start : stop + 1]
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return rows, self.items[offsets[0] : offsets[-1]]


@dataclass(frozen=True)
class Stretches:
    """Such sets as stretches of the column of a split: nothing as large as the split is made of them.

    Row ``i`` owns ``column[starts[i]:ends[i]]``, in strictly ascending order.

    Attributes:
        starts: int64 (left rows,).
        ends: int64 (left rows,).
        column: integers (pairs of the split,), right item ids; it may be a memory map.
        numbers: int64 (right items,), where right items go by other numbers than their ids: these, or -1 for
            an item that is left out. They ascend with the ids. None for the ids.
    """

    starts: Ints
    ends: Ints
    column: NDArray[np.integer[Any]]
    numbers: Ints | None = None

    def __len__(self) -> int:
        """How many left rows there are."""
        return len(self.starts)

    @property
    def offsets(self) -> Ints:
        """Where each row would begin if all stood together: int64 (left rows + 1,); none may be left out."""
        return np.concatenate([[0], np.cumsum(self.ends - self.starts)]).astype(np.int64)

    def rows(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """As `Relevant.rows`."""
        starts, ends = self.starts[start:stop], self.ends[start:stop]
        lengths = ends - starts
        rows = np.repeat(np.arange(len(starts)), lengths)
        if np.array_equal(starts[1:], ends[:-1]):  # they stand together, as where all left items are ranked
            items = self.column[starts[0] : ends[-1]] if len(starts) else self.column[:0]
        else:
            shift = starts - (np.cumsum(lengths) - lengths)
            items = self.column[np.arange(len(rows)) + np.repeat(shift, lengths)]
        if self.numbers is None:
            return rows, items.astype(np.int64)
        numbers = self.numbers[items]
        is_kept = numbers >= 0
        return rows[is_kept], numbers[is_kept]


Sets = Relevant | Stretches


def distinct_rows(column: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """The distinct values of an ascending column, and where each one's stretch begins.

    Args:
        column: integers (pairs,), 0 or more; it may be a memory map, of which a part at a time is read.

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
    """Draw candidates uniformly without replacement, or all items where there are no more than ``count``.

    Args:
        items: number of right items in the corpus.
        count: number of candidates asked for.
        seed: equal seeds give equal candidates.

    Returns:
        int64 (min(items, count),), ascending right item ids.
    """
    if count >= items:
        return np.arange(items, dtype=np.int64)
    drawn = np.random.default_rng(seed).choice(items, size=count, replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def candidate_hash(candidates: Ints) -> str:
    """SHA-256 (hex) of the candidate ids as little-endian int64: equal hashes, comparable metrics.

    Args:
        candidates: int64 (candidates,).
    """
    return hashlib.sha256(candidates.astype("<i8").tobytes()).hexdigest()


@torch.no_grad()
def rank_relevant(
    left: Tensor,
    right: Tensor,
    candidates: Ints,
    relevant: Sets,
    excluded: Sets | None = None,
    depth: int = 100,
    chunk_rows: int = 256,
    progress: Callable[[int], object] | None = None,
) -> tuple[Ints, Ints]:
    """Rank each left row's relevant items among the candidates (the equation at the top of this file).

    Ranks up to ``depth`` are exact; a relevant item below it gets some rank greater than ``depth``.
    An item that is both relevant and excluded is relevant. The cost is little more than that of one float32
    product with all candidates. Memory beside the candidates' embeddings and the ranks is that of a chunk:
    ``chunk_rows`` x 65,536 products, ``chunk_rows`` x ``depth`` embeddings, 16,384 pairs of embeddings, the
    sets of ``chunk_rows`` rows, and, where a row is scored in float64, three times the first.

    Args:
        left: floating (left rows, k), embeddings u.
        right: floating (right items, k), embeddings v, on the same device.
        candidates: int64 (candidates,), strictly ascending right item ids.
        relevant: the relevant right items of each left row; they need not be candidates.
        excluded: right items that are not to be ranked, for each left row.
        depth: greatest cut-off that the ranks will be used with, >= 1.
        chunk_rows: left rows ranked at once; it changes memory and time, not the result.
        progress: called with the number of rows done after each chunk, as ``tqdm.update``.

    Returns:
        ``ranks``, int64 (relevant pairs,), ascending within each left row, and ``relevant.offsets``:
        the input of :mod:`gramrun.evaluation.metrics`.

    Raises:
        RunError: if the embeddings hold NaN or are so large that scores overflow.
        ValueError: if the shapes do not fit, or ``candidates`` is not strictly ascending.
    """
    unranked = [relevant] if excluded is None else [relevant, excluded]  # what is no negative
    for sets in unranked:
        if len(sets) != len(left):
            raise ValueError(f"{len(left)} left embeddings, but item sets of {len(sets)} rows")
    if np.any(np.diff(candidates) <= 0):
        raise ValueError("candidates must be strictly ascending")
    _check_scores_are_finite(left, right)

    device = left.device
    # `torch.tensor` copies: the sets may be read-only memory maps, which tensors cannot share.
    ids = torch.tensor(candidates, device=device)
    negatives = Negatives(right[ids], depth, min(chunk_rows, len(left)))
    offsets = relevant.offsets
    ranks = np.empty(offsets[-1], dtype=np.int64)
    with full_float32_products():
        for start in range(0, len(left), chunk_rows):
            u = left[start : start + chunk_rows]
            stop = start + len(u)
            pairs = zip(*(sets.rows(start, stop) for sets in unranked), strict=True)
            row, item = (torch.tensor(np.concatenate(arrays), device=device) for arrays in pairs)
            masked = _candidate_cells(row, item, ids)
            lengths = torch.tensor(np.diff(offsets[start : stop + 1]), device=device)
            row, item = row[: lengths.sum()], item[: lengths.sum()]  # the relevant pairs come first
            scores = _pair_scores(u, right, row, item)
            chunk_ranks = _rank_chunk(negatives, u, masked, scores, lengths)
            ranks[offsets[start] : offsets[stop]] = chunk_ranks.cpu().numpy()
            if progress is not None:
                progress(len(u))
    return ranks, offsets


def _rank_chunk(negatives: Negatives, u: Tensor, masked: Cells, scores: Tensor, lengths: Tensor) -> Tensor:
    """Ranks of the relevant scores (flat, ``lengths`` of them in each row of ``u``)."""
    column = torch.arange(int(lengths.max()), device=scores.device)
    is_filled = column < lengths[:, None]
    padded = scores.new_full(is_filled.shape, -torch.inf)
    padded[is_filled] = scores
    not_below = negatives.count(u, masked, padded.sort(dim=1, descending=True).values)
    # A count that reaches the depth may be too small, but its rank is beyond the depth then.
    return (not_below + column + 1)[is_filled]


def _check_scores_are_finite(left: Tensor, right: Tensor) -> None:
    """Refuse embeddings whose scores cannot be ordered: |<u, v>| <= |u| |v| must stay within float32."""
    if len(left) == 0 or len(right) == 0:
        return
    # `not <` is also true of NaN.
    if not norms(left).max() * norms(right).max() < torch.finfo(torch.float32).max:
        raise RunError(
            "cannot rank: the embeddings hold NaN or overflow, so training has diverged; "
            "try a smaller train.learning_rate"
        )


def _pair_scores(u: Tensor, right: Tensor, rows: Tensor, items: Tensor) -> Tensor:
    """The score of each (row of ``u``, right item) pair, float32 (pairs,)."""
    scores = [u.new_empty(0, dtype=torch.float32)]
    for row, item in zip(rows.split(_PAIRS_AT_ONCE), items.split(_PAIRS_AT_ONCE), strict=True):
        scores.append((u[row].double() * right[item]).sum(dim=1).float())
    return torch.cat(scores)


def _candidate_cells(rows: Tensor, items: Tensor, ids: Tensor) -> Cells:
    """The (row, candidate position) cells of those (row, item) pairs whose item is a candidate."""
    if len(ids) == 0:
        return rows[:0], items[:0]
    positions = torch.searchsorted(ids, items).clamp(max=len(ids) - 1)
    is_candidate = ids[positions] == items
    return rows[is_candidate], positions[is_candidate]
