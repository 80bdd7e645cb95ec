"""Popularity: every left item is recommended the right items with the most training pairs.

    score(x, y) = number of training pairs with right item y

Written as one-dimensional embeddings, so that the model and the baseline share every line of evaluation.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def popularity_embeddings(left_items: int, right_frequency: np.ndarray) -> tuple[Tensor, Tensor]:
    """Embeddings whose inner products are the right items' frequencies.

    Args:
        left_items: how many left items.
        right_frequency: integers, shape (right items,).

    Returns:
        float32 tensors of shape (left items, 1), all ones, and (right items, 1).
    """
    return torch.ones(left_items, 1), torch.from_numpy(right_frequency.astype(np.float32))[:, None]
