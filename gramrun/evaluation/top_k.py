r"""The best negatives of many rows: float32 products, a bound of their rounding, float64 where it decides.

Scores s are float64 sums rounded to float32, so that no kernel's order of summation makes or breaks a tie.
To compute all of them so would take three times as long as the float32 products a(c) of a row u with every
candidate. But for any order of summation, fused or not, of k products with unit roundoff ε = 2⁻²⁴ (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd ed., Section 3.1)

.. math:: |a(c) - \langle u, v_c \rangle| \le \gamma_k |u| |v_c|, \qquad \gamma_k = k ε / (1 - k ε),

and s(c), and u and v_c where they come in float64, are one rounding each away, so that

.. math:: |a(c) - s(c)| \le E = \gamma_{k+4} |u| \max_c |v_c|.

Kept are the ``depth`` negatives of largest a, and a few more; let t be the least of their a. A negative c
outside has a(c) ≤ t. To count the negatives with s(c) ≥ s(j) for some j, where counts beyond the depth need
not be told apart:

1. Those with a(c) ≥ s(j) + E surely count, and no others than those with a(c) ≥ s(j) − E can. Where the two
   are as many, or the first as many as the depth, that is the answer.
2. Else the kept ones are scored in float64. Those outside have s(c) ≤ t + E: if s(j) is greater, or if
   as many as the depth count already (as where everything ties), that is the answer.
3. Else the row is scored in float64 against all candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

# Candidates scored at once. It bounds memory when millions of items are ranked (a chunk of 256 left
# rows takes 256 x 65,536 x 4 bytes = 67 MB) and holds the usual 50,000 candidates in one block.
CANDIDATE_BLOCK = 65_536
# The best products of a row lie in the groups of best maxima, which cost a tenth of a `topk`. Measured on
# two cores (50,000 candidates, depth 100): groups of 16 and 32 take longer.
_GROUP = 64
_MARGIN = 8  # kept beyond the depth: next to no row then comes to step 3 by its rounding
_UNIT_ROUNDOFF = 2.0**-24  # of float32
_LEAST_NORMAL = 2.0**-126  # of float32: what one operation may lose where subnormals are flushed to zero

Cells = tuple[Tensor, Tensor]  # int64 rows and candidate positions


@dataclass(frozen=True)
class Kept:
    """The negatives of largest product of some rows.

    Attributes:
        products: a(c), float32 (rows, kept), descending; -inf where there are fewer.
        positions: of these candidates, int64 (rows, kept).
        error: E, float64 (rows,); infinite where nothing is known of the products.
    """

    products: Tensor
    positions: Tensor
    error: Tensor

    def rows(self, rows: Tensor) -> Kept:
        """Some of the rows."""
        return Kept(self.products[rows], self.positions[rows], self.error[rows])


class Negatives:
    """The candidates that all rows share.

    Args:
        v: floating (candidates, k), the candidates' embeddings.
        depth: the greatest count that matters, >= 1.
        rows: the most rows that will be asked about at once.
    """

    def __init__(self, v: Tensor, depth: int, rows: int) -> None:
        self._v = v
        self._v32 = v.float()
        self._depth = depth
        self._kept = min(depth + _MARGIN, len(v))
        self._greatest_norm = norms(v).max() if len(v) > 0 else v.new_zeros((), dtype=torch.float64)
        # Fresh memory for each chunk would cost as much as its product: the system clears every page.
        self._products = self._v32.new_empty(rows * _whole_groups(min(len(v), CANDIDATE_BLOCK)))

    def count(self, u: Tensor, masked: Cells, scores: Tensor) -> Tensor:
        """For each s(j) of each row, count the negatives with s(c) >= s(j), exactly up to ``depth``.

        Args:
            u: floating (rows, k).
            masked: the cells that are no negatives.
            scores: s(j), float32 (rows, n), descending in each row; -inf is not counted for.

        Returns:
            int64 (rows, n), at most ``depth``; anything where s(j) is -inf.
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
        """Steps 2 and 3 of what `count` does, for rows that its bound has left open."""
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
        """Scores of the kept negatives, and what no other negative's exceeds (step 2).

        Returns:
            s(c), float32 (rows, kept), descending; and t + E, float64 (rows,).
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
        """The ``depth`` largest scores, float32 (rows, <= depth), descending, from all of them (step 3)."""
        top = self._v32.new_empty((len(u), 0))
        for start in range(0, len(self._v), CANDIDATE_BLOCK):
            v = self._v[start : start + CANDIDATE_BLOCK].double()
            scores = (u.double() @ v.T).float()
            scores[_in_block(masked, start, len(v))] = -torch.inf
            top = torch.cat([top, scores.topk(min(self._depth, len(v)), dim=1).values], dim=1)
        return top.topk(min(self._depth, top.shape[1]), dim=1).values

    def _error(self, u: Tensor) -> Tensor:
        """E of each row, with what flushed subnormals may add; infinite where products may overflow."""
        u_norms, v_norm, terms = norms(u), self._greatest_norm, u.shape[1] + 4
        relative = terms * _UNIT_ROUNDOFF / (1 - terms * _UNIT_ROUNDOFF)
        flushed = 2 * terms * _LEAST_NORMAL * (1 + u_norms + v_norm)
        error = relative * u_norms * v_norm + flushed
        largest = torch.maximum(u_norms * v_norm, torch.maximum(u_norms, v_norm))
        error[largest > torch.finfo(torch.float32).max / 2] = torch.inf
        return error


def norms(embeddings: Tensor) -> Tensor:
    """The Euclidean norm of each row, float64 (rows,)."""
    result: Tensor = torch.linalg.vector_norm(embeddings, dim=1, dtype=torch.float64)
    return result


@contextmanager
def full_float32_products() -> Iterator[None]:
    """Multiply float32 as such, not as TF32 or bfloat16, whatever `set_float32_matmul_precision` chose."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _best_cells(products: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """What ``topk`` gives (unsorted), of rows that are a whole number of groups.

    Were one of the best outside the ``depth`` groups of greatest maximum, each of these would hold one that
    is as large: only equals can be exchanged. The least of these maxima is a lower bound of the best.
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
    """What ``topk`` gives (unsorted), of rows with ``depth`` values or more that are at least ``least``.

    These are seldom many more, and a ``topk`` of them alone is several times as fast.
    """
    row, column = (values >= least[:, None]).nonzero(as_tuple=True)
    counts = torch.bincount(row, minlength=len(values))
    widest = int(counts.max())
    if int(counts.min()) < depth or widest > 4 * depth:  # NaN, or ties
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
    """The cells of a block of candidates, by their position in it."""
    row, position = cells
    inside = (position >= start) & (position < start + width)
    return row[inside], position[inside] - start


def _of_rows(cells: Cells, rows: Tensor, count: int) -> Cells:
    """The cells of some of ``count`` rows, which are renumbered from 0."""
    number = torch.full((count,), -1, device=rows.device)
    number[rows] = torch.arange(len(rows), device=rows.device)
    row, position = cells
    inside = number[row] >= 0
    return number[row[inside]], position[inside]


def _count(descending: Tensor, thresholds: Tensor) -> Tensor:
    """How many of each row of ``descending`` are at least each threshold (descending too) of that row."""
    # Negated, both are ascending, and right=True counts those that equal the threshold.
    return torch.searchsorted(-descending.to(thresholds.dtype), -thresholds, right=True)
