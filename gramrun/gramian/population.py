"""What a Gramian is the mean over: every pair (the paper) or every distinct item.

The paper's Gramians are means over the n training *pairs* (equation 4),

    G_u = (1/n) sum_{i=1..n} u_i ⊗ u_i = sum_x w_x u(x) ⊗ u(x),    w_x = (pairs with left item x) / n,

so that an item weighs as often as it occurs. Its footnote on that equation allows the other choice,
a mean over the m distinct items, w_x = 1/m. A `Population` holds the choice for one side, so that no
estimator has to know which one was made: each sees members drawn uniformly from the population.

When gradients come from a batch of pairs, an item x turns up with probability p_x = (pairs with x) / n,
so its gravity gradient must count w_x / p_x times to stay unbiased: that ratio is `importance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Weighting = Literal["frequency", "uniform"]


@dataclass(frozen=True)
class Population:
    """One side's population, over which its Gramian is the mean.

    Attributes:
        member_items: int32 or int64, shape (size,). The item of each member. Under ``frequency`` a
            member is a training pair, under ``uniform`` it is a distinct item.
        item_weights: float32, shape (items,). w_x, the share of the members that are item x; sums to 1.
        importance: float32, shape (items,), or None where it is 1 for all. w_x / p_x as above; 0 for an
            item without training pairs, which no batch of pairs can reach.
    """

    member_items: Tensor
    item_weights: Tensor
    importance: Tensor | None

    @property
    def size(self) -> int:
        """How many members there are: n pairs or m items."""
        return len(self.member_items)

    @property
    def weighted_items(self) -> Tensor:
        """The items of positive weight: int64, ascending."""
        return self.item_weights.nonzero().squeeze(1)


def make_population(pair_items: Tensor, items: int, weighting: Weighting) -> Population:
    """Make the population of one side from its column of the training pairs.

    Under ``uniform`` the population is the items that have at least one training pair: an item
    without any gets no gradient from observed pairs, so weighing it would bias the gravity term.

    Args:
        pair_items: integers, shape (n,). This side's item in each training pair.
        items: how many items the side has.
        weighting: ``frequency`` for the paper's equation 4, ``uniform`` for its footnote.

    Returns:
        The population. Under ``frequency`` its members share memory with `pair_items`.
    """
    counts = torch.bincount(pair_items, minlength=items).double()
    shares = counts / counts.sum()
    if weighting == "frequency":
        return Population(pair_items, shares.float(), None)
    members = counts.nonzero().squeeze(1)
    weights = (counts > 0).double() / len(members)
    importance = torch.where(counts > 0, weights / shares.clamp_min(torch.finfo(torch.double).tiny), 0.0)
    return Population(members, weights.float(), importance.float())
