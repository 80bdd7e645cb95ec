"""The distribution w over items under which a Gramian is the mean (paper, equation 4 and its footnote 4).

    G_u = sum_x w_x u(x) ⊗ u(x),      w_x = f_x^γ / sum_y f_y^γ  over the items with f_x > 0 training pairs

γ = 1 is the paper's mean over training pairs, γ = 0 weighs all items alike. A Gramian batch draws x ~ w. A
gradient batch draws pairs, so an item's gravity term counts `importance` = w_x / p_x times, with
p_x = f_x / n (docs/mathematics.md#weights).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Population:
    """The distribution over the items of one side.

    Attributes:
        pair_items: int32 or int64, shape (n,), the item of each training pair.
        item_weights: float32, shape (items,). w_x; sums to 1, and is 0 for an item without training pairs.
        importance: float32, shape (items,), w_x / p_x; 0 for an item without training pairs. None for γ = 1,
            where it is 1.
        cumulative: float64, shape (items,), the running sum of w_x; None for γ = 1.
    """

    pair_items: Tensor
    item_weights: Tensor
    importance: Tensor | None
    cumulative: np.ndarray | None

    def to(self, device: torch.device) -> Population:
        """The same population on a device. Drawing stays on the host."""
        importance = None if self.importance is None else self.importance.to(device)
        return Population(
            self.pair_items.to(device), self.item_weights.to(device), importance, self.cumulative
        )

    @property
    def weighted_items(self) -> Tensor:
        """The items of positive weight: int64, ascending."""
        return self.item_weights.nonzero().squeeze(1)

    def choose(self, random: np.random.Generator, size: int) -> np.ndarray:
        """Draw with replacement, on the host.

        Returns:
            int64, shape (size,): training pairs i ~ Uniform(n) for γ = 1 (Algorithms 1 and 2), else items
            x ~ w. `members` gives the items of either.
        """
        if self.cumulative is None:
            return random.integers(len(self.pair_items), size=size)
        # Inverse transform sampling; the last entry is 1 only up to rounding.
        uniform = random.random(size) * self.cumulative[-1]
        chosen: np.ndarray = np.searchsorted(self.cumulative, uniform, side="right")
        return chosen

    def members(self, chosen: Tensor) -> tuple[Tensor, Tensor | None]:
        """The items that `choose` drew, int64, and for γ = 1 their training pairs.

        Args:
            chosen: int64, shape (size,), on the device of the population.
        """
        if self.cumulative is None:
            return self.pair_items[chosen].long(), chosen
        return chosen, None

    def draw(self, random: np.random.Generator, size: int) -> tuple[Tensor, Tensor | None]:
        """Draw items x ~ w with replacement: `members` of `choose`, both of shape (size,)."""
        return self.members(torch.from_numpy(self.choose(random, size)).to(self.pair_items.device))


def make_population(pair_items: Tensor, items: int, gamma: float) -> Population:
    """Make the population of one side. An item without a training pair has weight 0 for every γ.

    Args:
        pair_items: integers, shape (n,), the item of each training pair.
        items: number of items of the side.
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
