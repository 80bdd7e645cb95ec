r"""Count the negatives that score at least as high as given scores: exact, at the cost of float32 products.

A score s is a float64 sum rounded to float32, so that ties do not depend on a kernel's order of summation.
Computing all scores this way takes three times as long as the float32 products a(c) of a row u with every
candidate. For any order of summation, fused or not, of k products with unit roundoff ε = 2⁻²⁴ (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., Section 3.1)

.. math:: |a(c) - \langle u, v_c \rangle| \le \gamma_k |u| |v_c|, \qquad \gamma_k = k ε / (1 - k ε).

s(c) is one rounding away from the exact product, and so are u and v_c if they come in float64. Hence

.. math:: |a(c) - s(c)| \le E = \gamma_{k+4} |u| \max_c |v_c|.

The algorithm keeps the ``depth`` negatives of largest a and a few more. Let t be the least of their a; every
other negative has a(c) ≤ t. To count the negatives with s(c) ≥ s(j), up to ``depth``:

1. Negatives with a(c) ≥ s(j) + E certainly count; those with a(c) < s(j) − E certainly do not. If both bounds
   agree, or the first reaches the depth, the count is known.
2. Otherwise score the kept negatives in float64. The others have s(c) ≤ t + E. If s(j) is greater, or the
   count reaches the depth (as when everything ties), the count is known.
3. Otherwise score the row in float64 against all candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

# Candidates scored at once: bounds memory (256 left rows x 65,536 x 4 bytes = 67 MB), and the usual 50,000
# candidates fit into one block.
CANDIDATE_BLOCK = 65_536
# Group size of `_best_cells`. Measured on two cores (50,000 candidates, depth 100): 16 and 32 take longer.
_GROUP = 64
_MARGIN = 8  # kept beyond the depth, so that rounding hardly ever leads to step 3
_UNIT_ROUNDOFF = 2.0**-24  # of float32
_LEAST_NORMAL = 2.0**-126  # of float32: the loss of one operation if subnormals are flushed to zero

Cells = tuple[Tensor, Tensor]  # int64 rows and candidate positions


@dataclass(frozen=True)
class Kept:
    """The negatives of largest product, for some rows.

    Attributes:
        products: a(c), float32 (rows, kept), descending; -inf where a row has fewer.
        positions: candidate positions, int64 (rows, kept).
        error: E, float64 (rows,); infinite if products may overflow.
    """

    products: Tensor
    positions: Tensor
    error: Tensor

    def rows(self, rows: Tensor) -> Kept:
        """A subset of the rows."""
        return Kept(self.products[rows], self.positions[rows], self.error[rows])


class Negatives:
    """Counts negatives among candidates that all rows share.

    Args:
        v: floating (candidates, k), the candidates' embeddings.
        depth: counts are exact up to this number, >= 1.
        rows: the largest number of rows in one call.
    """

    def __init__(self, v: Tensor, depth: int, rows: int) -> None:
        self._v = v
        self._v32 = v.float()
        self._depth = depth
        self._kept = min(depth + _MARGIN, len(v))
        self._greatest_norm = norms(v).max() if len(v) > 0 else v.new_zeros((), dtype=torch.float64)
        # Reused for all chunks: fresh pages would cost as much as the product.
        self._products = self._v32.new_empty(rows * _whole_groups(min(len(v), CANDIDATE_BLOCK)))

    def count(self, u: Tensor, masked: Cells, scores: Tensor) -> Tensor:
        """For each s(j) of each row, count the negatives with s(c) >= s(j), exactly up to ``depth``.

        Args:
            u: floating (rows, k).
            masked: the cells that are not negatives.
            scores: s(j), float32 (rows, n), descending in each row; -inf is padding.

        Returns:
            int64 (rows, n), at most ``depth``; undefined for padding.
        """
        kept = self.largest(u, masked)
        error = kept.error[:, None]
        surely = _count(kept.products, scores + error)
        possibly = _count(kept.products, scores - error)
        open_cells = ((surely < possibly) & (surely < self._depth)) | error.isinf()
        rows = (open_cells & (scores > -torch.inf)).any(dim=1).nonzero().squeeze(1)
        if len(rows) > 0:
            surely[rows] = self._count_scores(
                u[rows], _of_rows(masked, rows, len(u)), scores[rows], kept.rows(rows)
            )
        return surely.clamp(max=self._depth)

    def _count_scores(self, u: Tensor, masked: Cells, scores: Tensor, kept: Kept) -> Tensor:
        """Steps 2 and 3, for rows that step 1 leaves open."""
        top, ceiling = self.score(u, kept)
        count = _count(top, scores)
        open_cells = (scores <= ceiling[:, None]) & (count < self._depth) & (scores > -torch.inf)
        rows = open_cells.any(dim=1).nonzero().squeeze(1)
        if len(rows) > 0:
            count[rows] = _count(self.score_all(u[rows], _of_rows(masked, rows, len(u))), scores[rows])
        return count

    def largest(self, u: Tensor, masked: Cells) -> Kept:
        """The negatives of largest float32 product of each row (step 1)."""
        products = self._v32.new_empty((len(u), 0))
        positions = torch.empty((len(u), 0), dtype=torch.long, device=u.device)
        for start in range(0, len(self._v), CANDIDATE_BLOCK):
            v = self._v32[start : start + CANDIDATE_BLOCK]
            width = _whole_groups(len(v))
            block = self._products[: len(u) * width].view(len(u), width)
            torch.mm(u.float(), v.T, out=block[:, : len(v)])
            block[:, len(v) :] = -torch.inf
            block[_in_block(masked, start, len(v))] = -torch.inf
            best, position = _best_cells(block, min(self._kept, len(v)))
            products = torch.cat([products, best], dim=1)
            positions = torch.cat([positions, position + start], dim=1)
        products, order = products.topk(self._kept, dim=1)
        # Padding, whose product is -inf, lies past the end of the last block.
        return Kept(products, positions.gather(1, order).clamp(max=len(self._v) - 1), self._error(u))

    def score(self, u: Tensor, kept: Kept) -> tuple[Tensor, Tensor]:
        """Scores of the kept negatives and an upper bound of all others (step 2).

        Returns:
            s(c), float32 (rows, kept), descending; t + E, float64 (rows,).
        """
        scores = torch.bmm(self._v[kept.positions].double(), u.double()[:, :, None]).squeeze(2).float()
        is_masked = kept.products == -torch.inf
        scores = scores.masked_fill(is_masked, -torch.inf).sort(dim=1, descending=True).values
        if self._kept == len(self._v):
            least = torch.full_like(kept.error, -torch.inf)
        else:
            least = kept.products[:, -1].double()
        return scores, torch.where(kept.error.isinf(), kept.error, least + kept.error)

    def score_all(self, u: Tensor, masked: Cells) -> Tensor:
        """The ``depth`` largest of all scores, float32 (rows, <= depth), descending (step 3)."""
        top = self._v32.new_empty((len(u), 0))
        for start in range(0, len(self._v), CANDIDATE_BLOCK):
            v = self._v[start : start + CANDIDATE_BLOCK].double()
            scores = (u.double() @ v.T).float()
            scores[_in_block(masked, start, len(v))] = -torch.inf
            top = torch.cat([top, scores.topk(min(self._depth, len(v)), dim=1).values], dim=1)
        return top.topk(min(self._depth, top.shape[1]), dim=1).values

    def _error(self, u: Tensor) -> Tensor:
        """E of each row, including flushed subnormals; infinite if products may overflow."""
        u_norms, v_norm, terms = norms(u), self._greatest_norm, u.shape[1] + 4
        relative = terms * _UNIT_ROUNDOFF / (1 - terms * _UNIT_ROUNDOFF)
        flushed = 2 * terms * _LEAST_NORMAL * (1 + u_norms + v_norm)
        error = relative * u_norms * v_norm + flushed
        largest = torch.maximum(u_norms * v_norm, torch.maximum(u_norms, v_norm))
        error[largest > torch.finfo(torch.float32).max / 2] = torch.inf
        return error


def count_scores(scores: Tensor, masked: Cells, thresholds: Tensor, depth: int) -> Tensor:
    """What `Negatives.count` counts, from the scores of all candidates; overwrites them.

    Args:
        scores: s, float32 (rows, candidates); the masked ones become -inf.
        masked: the cells that are not negatives.
        thresholds: s(j), float32 (rows, n); -inf is padding.
        depth: counts are exact up to this number.

    Returns:
        int64 (rows, n), at most ``depth``; undefined for padding.
    """
    scores[masked] = -torch.inf
    top = scores.topk(min(depth, scores.shape[1]), dim=1).values
    return _count(top, thresholds)


def norms(embeddings: Tensor) -> Tensor:
    """The Euclidean norm of each row, float64 (rows,)."""
    result: Tensor = torch.linalg.vector_norm(embeddings, dim=1, dtype=torch.float64)
    return result


@contextmanager
def full_float32_products() -> Iterator[None]:
    """Multiply in full float32, regardless of `torch.set_float32_matmul_precision`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _best_cells(products: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """``topk`` (unsorted) of rows whose width is a multiple of the group size.

    The largest ``depth`` values lie in the ``depth`` groups of largest maximum, up to ties: each of these
    groups holds a value at least as large as any value outside them. The maxima cost a tenth of a ``topk``,
    and their minimum is a lower bound of the result.
    """
    rows, width = products.shape
    groups = width // _GROUP
    if groups <= 2 * depth:  # nothing to gain
        best, position = products.topk(depth, dim=1, sorted=False)
        return best, position
    maxima, group = products.view(rows, groups, _GROUP).amax(dim=2).topk(depth, dim=1, sorted=False)
    group_row = torch.arange(rows, device=products.device)[:, None] * groups + group
    members = products.view(-1, _GROUP).index_select(0, group_row.flatten()).view(rows, depth * _GROUP)
    best, place = _largest_at_least(members, maxima.amin(dim=1), depth)
    return best, group.gather(1, place // _GROUP) * _GROUP + place % _GROUP


def _largest_at_least(values: Tensor, least: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """``topk`` (unsorted) of rows with at least ``depth`` values >= ``least``.

    There are seldom many more such values, and a ``topk`` of them alone is several times as fast.
    """
    row, column = (values >= least[:, None]).nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=len(values))
    widest = int(counts.max())
    if int(counts.min()) < depth or widest > 4 * depth:  # NaN or ties
        best, place = values.topk(depth, dim=1, sorted=False)
        return best, place
    index = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    packed = values.new_full((len(values), widest), -torch.inf)
    packed[row, index] = values[row, column]
    columns = column.new_zeros((len(values), widest))
    columns[row, index] = column
    best, place = packed.topk(depth, dim=1, sorted=False)
    return best, columns.gather(1, place)


def _whole_groups(columns: int) -> int:
    return -(-columns // _GROUP) * _GROUP


def _in_block(cells: Cells, start: int, width: int) -> Cells:
    """The cells of a block of candidates, with positions relative to it."""
    row, position = cells
    inside = (position >= start) & (position < start + width)
    return row[inside], position[inside] - start


def _of_rows(cells: Cells, rows: Tensor, count: int) -> Cells:
    """The cells of a subset of ``count`` rows, renumbered from 0."""
    number = torch.full((count,), -1, device=rows.device)
    number[rows] = torch.arange(len(rows), device=rows.device)
    row, position = cells
    inside = number[row] >= 0
    return number[row[inside]], position[inside]


def _count(descending: Tensor, thresholds: Tensor) -> Tensor:
    """For each threshold, the number of values in the same row that reach it; rows are descending."""
    # Both are ascending when negated; right=True includes equal values.
    return torch.searchsorted(-descending.to(thresholds.dtype), -thresholds, right=True)
