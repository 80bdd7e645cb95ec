r"""EASE: every right item is predicted from the others by ridge regression, in closed form.

X is the binary matrix of training pairs, shape (left items, right items). EASE minimises

    ‖X − X B‖²_F + λ ‖B‖²_F    subject to  B_jj = 0,        λ = ``baseline.l2``,

one constrained least-squares problem for each column of B. With G = XᵀX + λI and P = G⁻¹, the minimum is

    B_ij = −P_ij / P_jj  for i ≠ j,      B_jj = 0,

and the scores of left item u are row u of X B: the sum of the rows of B of its training items.

Nothing is random, and no embeddings exist: B has full rank in general. Where the left items are the right
ones (pages of a wiki), X is the adjacency matrix.

G is inverted in float64: its condition number is 1 + σ₁²/λ, with σ₁ the largest singular value of X. At the
10³ to 10⁶ that occur, float32 would leave one to four digits. B is kept in float32, as scores are. With m
right items, one float64 matrix holds G, its Cholesky factor and P in turn (8m² bytes), beside B (4m² bytes).
The time is m³ multiplications and additions.

Reference: Steck, Embarrassingly Shallow Autoencoders for Sparse Data (2019), equation 8. Targets are unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gramrun.base.capacity import check_capacity
from gramrun.base.errors import RunError
from gramrun.config import EvaluationSection
from gramrun.data.corpus import Pairs, SplitCorpus
from gramrun.evaluation.protocol import Among, measure, ranking_task
from gramrun.evaluation.ranking import Chunk, Ints, ItemSets, ScoredChunk

Weights = NDArray[np.float32]

_NUMBERS = 2**22  # float64 at once, beside the matrices: 34 MB; does not change a result
_OVERHEAD = 2**28  # bytes of parts of matrices, of LAPACK and of the ranking that follows
_PAIR_BYTES = 48  # of X and its transpose in compressed rows, while they are made


def check_memory(items: int, pairs: int) -> None:
    """Check that the memory for `fit` is available.

    Args:
        items: m, the number of right items.
        pairs: the number of training pairs.

    Raises:
        ConfigError: when it is not.
    """
    check_capacity(
        12 * items**2 + _PAIR_BYTES * pairs + _OVERHEAD,
        "memory",
        what=f"EASE's matrices of {items:,} x {items:,} right items",
        remedy="set baseline.name: implicit-als, or prepare a corpus with fewer right items",
    )


def fit(train: Pairs, left_items: int, right_items: int, l2: float) -> Weights:
    """Solve for B.

    Args:
        train: the training pairs.
        left_items: the number of left items.
        right_items: m, the number of right items.
        l2: λ, positive.

    Returns:
        B, float32, shape (m, m).

    Raises:
        ConfigError: when the memory for it is not available.
        RunError: when G is not positive definite in float64, because λ is too small or too large.
    """
    check_memory(right_items, len(train))
    matrix = _gramian(train, (left_items, right_items))
    matrix[np.diag_indices_from(matrix)] += l2
    _invert(matrix)
    weights = np.empty(matrix.shape, dtype=np.float32)
    diagonal = matrix.diagonal().copy()
    for rows in _row_blocks(right_items):
        weights[rows] = matrix[rows] / -diagonal
    np.fill_diagonal(weights, 0)
    if not all(np.isfinite(weights[rows]).all() for rows in _row_blocks(right_items)):
        raise RunError(f"EASE broke down: its weights leave float32's range at baseline.l2={l2:g}; change it")
    return weights


def _gramian(train: Pairs, shape: tuple[int, int]) -> NDArray[np.float64]:
    """XᵀX, float64: the product of sparse matrices, made dense a block of rows at a time."""
    from scipy.sparse import csr_array

    x = csr_array((np.ones(len(train)), (train.left, train.right)), shape=shape)
    transposed = x.T.tocsr()
    gramian = np.empty((shape[1], shape[1]))
    for rows in _row_blocks(shape[1]):
        (transposed[rows] @ x).toarray(out=gramian[rows])
    return gramian


def _invert(matrix: NDArray[np.float64]) -> None:
    """Replace a symmetric positive definite matrix, in C order, by its inverse, in place.

    Raises:
        RunError: when it is not positive definite in float64.
    """
    from scipy.linalg.lapack import dpotrf, dpotri

    # LAPACK works on columns: the transpose, the same symmetric matrix, is passed without a copy.
    factor, failed = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if not failed:
        inverse, failed = dpotri(factor, lower=1, overwrite_c=1)
        assert np.shares_memory(inverse, matrix), "LAPACK worked on a copy"
    if failed:
        raise RunError("EASE broke down: XᵀX + λI is singular in float64; raise baseline.l2")
    # The inverse is in the triangle above the diagonal of `matrix`.
    for rows in _row_blocks(len(matrix)):
        start, stop = rows.start, rows.stop
        corner = np.triu(matrix[rows, rows])
        matrix[rows, rows] = corner + np.triu(corner, 1).T
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T


def _row_blocks(items: int) -> Iterator[slice]:
    """The rows of a matrix with `items` columns, in parts of at most `_NUMBERS` numbers, or of one row."""
    size = max(1, _NUMBERS // items)
    for start in range(0, items, size):
        yield slice(start, min(start + size, items))


@dataclass(frozen=True)
class ItemScores:
    """Scores X_u B: a `Scorer` of left items.

    Attributes:
        seen: the training items of each left item.
        weights: B, float32, shape (m, m); it may be a memory map.
    """

    seen: ItemSets
    weights: Weights

    @classmethod
    def of(cls, corpus: SplitCorpus, left_items: Ints, weights: Weights) -> ItemScores:
        """The scores of some left items, int64 (left rows,)."""
        train = corpus.train
        return cls(ItemSets.of_left_items(train.left, train.right, left_items), weights)

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def __len__(self) -> int:
        """Number of left rows."""
        return len(self.seen)

    def chunks(self, candidates: Tensor, depth: int, rows: int) -> Iterator[Chunk]:
        """See `gramrun.evaluation.ranking.Scorer`."""
        for start in range(0, len(self), rows):
            scores = self.scores(start, min(start + rows, len(self)))
            yield ScoredChunk(torch.from_numpy(scores), candidates, depth)

    def scores(self, start: int, stop: int) -> Weights:
        """Scores of the rows from `start` to `stop` with all right items.

        Float64 sums rounded to float32, in the order of item numbers: they depend on no chunk.

        Returns:
            float32, shape (stop - start, m).
        """
        from scipy.sparse import csr_array

        row, item = self.seen.rows(start, stop)
        used, column = np.unique(item, return_inverse=True)
        x = csr_array((np.ones(len(row)), (row, column)), shape=(stop - start, len(used)))
        scores = np.zeros((stop - start, len(self.weights)), dtype=np.float32)
        if len(used):
            width = max(1, _NUMBERS // len(used))
            for first in range(0, scores.shape[1], width):
                block = slice(first, first + width)
                scores[:, block] = x @ self.weights[used, block].astype(np.float64)
        return scores


def evaluate(
    weights: Weights,
    corpus: SplitCorpus,
    split: str,
    settings: EvaluationSection,
    among: Among = "all",
) -> dict[str, Any]:
    """As `gramrun.evaluation.protocol.evaluate_embeddings`, by X_u B instead of ⟨u, v⟩.

    `weights` is B, float32, shape (right items, right items).
    """
    task = ranking_task(corpus, split, settings, among)
    return measure(task, ItemScores.of(corpus, task.left_items, weights), settings.seed)
