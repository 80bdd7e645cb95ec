"""The Gramian batch B and its mean rank-one term, which every estimator is built from.

    moments = (1/|B|) sum_{b in B} r_b u_b ⊗ [u_b, c_b]        shape (k, k + r)

The first k columns are the batch's Gramian. The companions c_b are r further numbers of an item whose
products with u the objective needs: the vectors q_b of a low-rank prior (paper, Appendix C: then the last
columns are the batch's H_u) or a 1 (then they are the mean embedding: `gramrun.gramian.taylor_softmax`).
With r_b the importance of a batch that was not drawn from the population itself, E[moments] is the
population's sum_x w_x u(x) ⊗ [u(x), c(x)].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GramianBatch:
    """Some items and their embeddings under the current parameters.

    Attributes:
        items: int64, shape (B,).
        embeddings: float, shape (B, k).
        companions: float, shape (B, r), or None for r = 0.
        pairs: int64, shape (B,), the training pairs that the items were drawn through; None where they were
            drawn as items.
        importance: float, shape (B,), the ratio of an item's weight to its probability of being drawn;
            None where it is 1.
        moments: float, shape (k, k + r), the mean rank-one term of the whole batch of which these rows are
            one process's part (`gramrun.base.processes`); None where the rows are the batch.
    """

    items: Tensor
    embeddings: Tensor
    companions: Tensor | None = None
    pairs: Tensor | None = None
    importance: Tensor | None = None
    moments: Tensor | None = None

    def first(self, size: int) -> GramianBatch:
        """The batch's first `size` members."""
        return self.each(lambda column: column[:size])

    def each(self, change: Callable[[Tensor], Tensor]) -> GramianBatch:
        """The batch with every column of its rows changed, of which it no longer has the moments."""
        columns = (self.items, self.embeddings, self.companions, self.pairs, self.importance)
        return GramianBatch(*(None if column is None else change(column) for column in columns))  # type: ignore[arg-type]


def beside(gramian: Tensor, cross: Tensor | None) -> Tensor:
    """[gramian, cross]: the moments from their two parts, of shapes (k, k) and (k, r) or None."""
    return gramian if cross is None or not cross.shape[1] else torch.cat([gramian, cross], 1)


def batch_moments(batch: GramianBatch) -> Tensor:
    """The batch's mean rank-one term: shape (k, k + r), in the dtype of the embeddings.

    The two parts are two products, so that companions of 0 leave the Gramian the same to the last bit.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> batch_moments(GramianBatch(torch.tensor([5, 3]), rows))
        tensor([[1., 1.],
                [1., 2.]])
    """
    if batch.moments is not None:
        return batch.moments
    rows = batch.embeddings.detach()
    weighted = rows if batch.importance is None else rows * batch.importance[:, None]
    cross = None if batch.companions is None else weighted.T @ batch.companions.detach()
    return beside(weighted.T @ rows, cross) / len(rows)


def weighted_moments(chunks: Iterable[GramianBatch], item_weights: Tensor) -> Tensor:
    """sum_x w_x u(x) ⊗ [u(x), c(x)] over items given in chunks, each item once: float64, shape (k, k + r).

    Args:
        chunks: the items; one of weight 0 may be left out.
        item_weights: w, shape (items,), of all items.

    Raises:
        ValueError: where there is no chunk.
    """

    def terms() -> Iterator[Tensor]:
        for chunk in chunks:
            rows = chunk.embeddings.detach().double()
            weighted = rows * item_weights.to(rows.device)[chunk.items].double()[:, None]
            cross = None if chunk.companions is None else weighted.T @ chunk.companions.detach().double()
            yield beside(weighted.T @ rows, cross)

    total: Tensor | None = None
    for term in terms():
        total = term if total is None else total + term
    if total is None:
        raise ValueError("a sum over all items needs at least one chunk of them")
    return total
