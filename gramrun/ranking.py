r"""From embeddings to the ranks of the relevant items: the ranking protocol.

A left item's relevant items compete with *candidates*: the same right items for every left item, less
those that are relevant or excluded for it (its training positives). With score
:math:`s(j) = \langle u, v_j \rangle` and negatives :math:`N`, the rank of a relevant item is

.. math:: r(j) = |\{c \in N : s(c) \ge s(j)\}| + \text{position of } j \text{ among the relevant items}

so a negative that ties with a relevant item stands before it: ties count against the model, and a
constant predictor scores no more than chance.

The paper (section 4.3) ranks against 50,000 random candidates and says neither what happens to training
positives nor to ties; both are decided here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gramrun.errors import RunError

Ints = NDArray[np.int64]

# Candidates scored at once. It bounds memory when millions of items are ranked (a chunk of 256 left
# rows takes 256 x 65,536 x 12 bytes = 200 MB) and holds the usual 50,000 candidates in one block.
CANDIDATE_BLOCK = 65_536


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

    def rows(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Rows ``start`` to ``stop`` as (row relative to ``start``, item) pairs in row order."""
        offsets = self.offsets[start : stop + 1]
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return rows, self.items[offsets[0] : offsets[-1]]


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
    relevant: Relevant,
    excluded: Relevant | None = None,
    depth: int = 100,
    chunk_rows: int = 256,
    progress: Callable[[int], object] | None = None,
) -> tuple[Ints, Ints]:
    """Rank each left row's relevant items among the candidates (the equation at the top of this file).

    Ranks up to ``depth`` are exact; a relevant item below it gets some rank greater than ``depth``.
    An item that is both relevant and excluded is relevant. Only the ``depth`` best negatives of a row
    are kept, so the cost is that of the scores and one ``topk``.

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
        the input of :mod:`gramrun.metrics`.

    Raises:
        RunError: if the embeddings hold NaN or are so large that scores overflow.
        ValueError: if the shapes do not fit, or ``candidates`` is not strictly ascending.
    """
    unranked = [relevant] if excluded is None else [relevant, excluded]  # what is no negative
    for sets in unranked:
        if len(sets.offsets) != len(left) + 1:
            raise ValueError(f"{len(left)} left embeddings, but item sets of {len(sets.offsets) - 1} rows")
    if np.any(np.diff(candidates) <= 0):
        raise ValueError("candidates must be strictly ascending")
    _check_scores_are_finite(left, right)

    device = left.device
    # `torch.tensor` copies: the sets may be read-only memory maps, which tensors cannot share.
    ids = torch.tensor(candidates, device=device)
    candidate_v = right[ids].double()
    ranks = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(left), chunk_rows):
        u = left[start : start + chunk_rows].double()
        stop = start + len(u)
        pairs = zip(*(sets.rows(start, stop) for sets in unranked), strict=True)
        row, item = (torch.tensor(np.concatenate(arrays), device=device) for arrays in pairs)
        top = _top_negatives(u, candidate_v, _candidate_cells(row, item, ids), depth)

        lengths = torch.tensor(np.diff(relevant.offsets[start : stop + 1]), device=device)
        row, item = row[: lengths.sum()], item[: lengths.sum()]  # the relevant pairs come first
        scores = (u[row] * right[item].double()).sum(dim=1).float()
        ranks.append(_ranks_among(top, scores, lengths).cpu().numpy())
        if progress is not None:
            progress(len(u))
    return np.concatenate(ranks), relevant.offsets


def _check_scores_are_finite(left: Tensor, right: Tensor) -> None:
    """Refuse embeddings whose scores cannot be ordered: |<u, v>| <= |u| |v| must stay within float32."""
    if len(left) == 0 or len(right) == 0:
        return
    norms = [torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).max() for x in (left, right)]
    if not norms[0] * norms[1] < torch.finfo(torch.float32).max:  # `not <` is also true of NaN
        raise RunError(
            "cannot rank: the embeddings hold NaN or overflow, so training has diverged; "
            "try a smaller train.learning_rate"
        )


def _candidate_cells(rows: Tensor, items: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The (row, candidate position) cells of those (row, item) pairs whose item is a candidate."""
    if len(ids) == 0:
        return rows[:0], items[:0]
    positions = torch.searchsorted(ids, items).clamp(max=len(ids) - 1)
    is_candidate = ids[positions] == items
    return rows[is_candidate], positions[is_candidate]


def _top_negatives(u: Tensor, candidate_v: Tensor, masked: tuple[Tensor, Tensor], depth: int) -> Tensor:
    """Return the best scores of each row outside the masked cells: float32 (rows, <= depth), descending."""
    masked_row, masked_position = masked
    top = u.new_empty((len(u), 0), dtype=torch.float32)
    for start in range(0, len(candidate_v), CANDIDATE_BLOCK):
        v = candidate_v[start : start + CANDIDATE_BLOCK]
        # Kernels sum in different orders for different shapes and thread counts, which moves a score by
        # an ulp and would break (or make) ties by accident. The order of summation shows only in the last
        # bits of float64, far below the float32 that scores are rounded to and compared in.
        scores = (u @ v.T).float()
        inside = (masked_position >= start) & (masked_position < start + len(v))
        scores[masked_row[inside], masked_position[inside] - start] = -torch.inf
        best = scores.topk(min(depth, len(v)), dim=1).values
        top = best if start == 0 else torch.cat([top, best], dim=1)
    return top.topk(min(depth, top.shape[1]), dim=1).values


def _ranks_among(top: Tensor, scores: Tensor, lengths: Tensor) -> Tensor:
    """Ranks of the relevant scores (flat, ``lengths`` of them in each row), given each row's best negatives.

    A count that reaches the depth of ``top`` may be too small, but its rank is beyond the depth then.
    """
    column = torch.arange(int(lengths.max()), device=scores.device)
    is_filled = column < lengths[:, None]
    padded = scores.new_full(is_filled.shape, -torch.inf)
    padded[is_filled] = scores
    descending = padded.sort(dim=1, descending=True).values
    # Negated, both are ascending, and right=True counts the negatives with s(c) >= s(j).
    not_below = torch.searchsorted(-top, -descending, right=True)
    return (not_below + column + 1)[is_filled]
