"""The Gramian batch B and its mean rank-one term, from which every estimator is built.

    moments = (1/|B|) sum_{b in B} r_b u_b ⊗ [u_b, c_b]        shape (k, k + r)

The first k columns are the Gramian of the batch. The *companions* c_b are r more numbers per item whose
products with u the objective needs: the vectors of a low-rank prior (paper, Appendix C), or statistics of
`gramrun.gramian.taylor_softmax`. r_b is the importance of b (`gramrun.gramian.population`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GramianBatch:
    """Items and their embeddings under the current parameters.

    Attributes:
        items: int64, shape (B,).
        embeddings: float, shape (B, k).
        companions: float, shape (B, r), or None for r = 0.
        pairs: int64, shape (B,), the training pairs through which the items were drawn; None where they were
            drawn as items.
        importance: float, shape (B,), the ratio of an item's weight to its probability of being drawn;
            None where it is 1.
        moments: float, shape (k, k + r), the mean rank-one term of the whole batch where these rows are the
            part of one process (`gramrun.base.processes`); None where the rows are the batch.
    """

    items: Tensor
    embeddings: Tensor
    companions: Tensor | None = None
    pairs: Tensor | None = None
    importance: Tensor | None = None
    moments: Tensor | None = None

    def first(self, size: int) -> GramianBatch:
        """The first `size` rows of the batch."""
        return self.each(lambda column: column[:size])

    def each(self, change: Callable[[Tensor], Tensor]) -> GramianBatch:
        """The batch with `change` applied to every column, and without known moments."""
        columns = (self.items, self.embeddings, self.companions, self.pairs, self.importance)
        return GramianBatch(*(None if column is None else change(column) for column in columns))  # type: ignore[arg-type]


def join_moments(gramian: Tensor, cross: Tensor | None) -> Tensor:
    """[gramian, cross], from shapes (k, k) and (k, r) or None."""
    return gramian if cross is None or not cross.shape[1] else torch.cat([gramian, cross], 1)


def _weighted_sum(rows: Tensor, companions: Tensor | None, weights: Tensor | None) -> Tensor:
    """sum_b r_b u_b ⊗ [u_b, c_b]. Two products, so that companions do not change a bit of the Gramian."""
    weighted = rows if weights is None else rows * weights[:, None]
    return join_moments(weighted.T @ rows, None if companions is None else weighted.T @ companions)


def batch_moments(batch: GramianBatch) -> Tensor:
    """The mean rank-one term of the batch: shape (k, k + r), in the dtype of the embeddings.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> batch_moments(GramianBatch(torch.tensor([5, 3]), rows))
        tensor([[1., 1.],
                [1., 2.]])
    """
    if batch.moments is not None:
        return batch.moments
    companions = None if batch.companions is None else batch.companions.detach()
    rows = batch.embeddings.detach()
    return _weighted_sum(rows, companions, batch.importance) / len(rows)


def weighted_moments(chunks: Iterable[GramianBatch], item_weights: Tensor) -> Tensor:
    """sum_x w_x u(x) ⊗ [u(x), c(x)] over chunks of distinct items: float64, shape (k, k + r).

    Args:
        chunks: the items; those of weight 0 may be left out.
        item_weights: w, shape (items,), of all items.

    Raises:
        ValueError: where there is no chunk.
    """
    total: Tensor | None = None
    for chunk in chunks:
        companions = None if chunk.companions is None else chunk.companions.detach().double()
        weights = item_weights.to(chunk.embeddings.device)[chunk.items].double()
        term = _weighted_sum(chunk.embeddings.detach().double(), companions, weights)
        total = term if total is None else total + term
    if total is None:
        raise ValueError("a sum over all items needs at least one chunk of them")
    return total
