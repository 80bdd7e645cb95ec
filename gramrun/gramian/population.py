"""What a Gramian is the mean over, and how its members are drawn: items weighted by frequency^γ.

The paper's Gramians are means over the n training *pairs* (equation 4),

    G_u = (1/n) sum_{i=1..n} u_i ⊗ u_i = sum_x w_x u(x) ⊗ u(x),    w_x = f_x / n,

with f_x the pairs whose left item is x, so that an item weighs as often as it occurs. Its footnote on that
equation allows other weights. Here, with one γ in [0, 1] for each side,

    w_x = f_x^γ / sum_y f_y^γ        over the items with f_x > 0:    γ = 1 is the paper, γ = 0 is uniform.

A Gramian batch draws items x ~ w. A gradient batch draws pairs, so item x turns up with probability
p_x = f_x / n and its gravity term must count w_x / p_x times to stay unbiased: E_{x~p} (w_x/p_x) h(x) =
E_{x~w} h(x) for any h. That ratio is `importance`; it also turns a reused gradient batch into a Gramian
batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Population:
    """One side's population, over which its Gramian is the mean.

    Attributes:
        pair_items: int32 or int64, shape (n,). This side's item in each training pair.
        item_weights: float32, shape (items,). w_x; sums to 1, and is 0 for an item without training pairs.
        importance: float32, shape (items,), or None where it is 1 for all (γ = 1). w_x / p_x as above; 0 for
            an item without training pairs, which no batch of pairs can reach.
        cumulative: float64, shape (items,), or None where γ = 1. The running sum of w_x.
    """

    pair_items: Tensor
    item_weights: Tensor
    importance: Tensor | None
    cumulative: np.ndarray | None

    def to(self, device: torch.device) -> Population:
        """The same population on a device: members are drawn on the host, and go there."""
        importance = None if self.importance is None else self.importance.to(device)
        return Population(
            self.pair_items.to(device), self.item_weights.to(device), importance, self.cumulative
        )

    @property
    def weighted_items(self) -> Tensor:
        """The items of positive weight: int64, ascending."""
        return self.item_weights.nonzero().squeeze(1)

    def choose(self, random: np.random.Generator, size: int) -> np.ndarray:
        """Draw x ~ w with replacement, on the host; `members` says what was drawn.

        Returns:
            int64, shape (size,): training pairs i ~ Uniform(n), as in Algorithms 1 and 2, where γ = 1; items
            elsewhere.
        """
        if self.cumulative is None:
            return random.integers(len(self.pair_items), size=size)
        # The inverse of the distribution function; the last entry is 1 only up to rounding.
        reached = random.random(size) * self.cumulative[-1]
        chosen: np.ndarray = np.searchsorted(self.cumulative, reached, side="right")
        return chosen

    def members(self, chosen: Tensor) -> tuple[Tensor, Tensor | None]:
        """What `choose` drew: items, int64, and where γ = 1 the training pairs that they were drawn through.

        Args:
            chosen: int64, shape (size,), on the population's device.
        """
        if self.cumulative is None:
            return self.pair_items[chosen].long(), chosen
        return chosen, None

    def draw(self, random: np.random.Generator, size: int) -> tuple[Tensor, Tensor | None]:
        """Draw items x ~ w with replacement.

        Returns:
            `members` of what `choose` draws, both of shape (size,).
        """
        return self.members(torch.from_numpy(self.choose(random, size)).to(self.pair_items.device))


def make_population(pair_items: Tensor, items: int, gamma: float) -> Population:
    """Make the population of one side from its column of the training pairs.

    An item without any training pair gets no gradient from observed pairs, so weighing it would bias the
    gravity term: its weight is 0 for every γ.

    Args:
        pair_items: integers, shape (n,). This side's item in each training pair.
        items: how many items the side has.
        gamma: γ in [0, 1].

    Raises:
        ValueError: for a γ outside [0, 1].

    Example:
        Item 0 has three pairs, item 1 one, item 2 none.

        >>> pairs = torch.tensor([0, 0, 0, 1])
        >>> make_population(pairs, items=3, gamma=1.0).item_weights
        tensor([0.7500, 0.2500, 0.0000])
        >>> uniform = make_population(pairs, items=3, gamma=0.0)
        >>> uniform.item_weights, uniform.importance
        (tensor([0.5000, 0.5000, 0.0000]), tensor([0.6667, 2.0000, 0.0000]))
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie in [0, 1], not {gamma}")
    frequency = torch.bincount(pair_items, minlength=items).double()
    shares = frequency / frequency.sum()
    if gamma == 1:
        return Population(pair_items, shares.float(), None, None)
    weights = torch.where(frequency > 0, frequency.pow(gamma), 0.0)
    weights /= weights.sum()
    importance = torch.where(frequency > 0, weights / shares.clamp_min(torch.finfo(torch.double).tiny), 0.0)
    return Population(pair_items, weights.float(), importance.float(), weights.cumsum(0).numpy())
