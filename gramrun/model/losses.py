"""The loss ℓ(⟨u_i, v_i⟩, s_i) of an observed pair (paper, equation 2).

The paper does not name ℓ. Squared error is the natural reading: with it, λ and a zero prior, the
objective is the implicit-feedback objective of Hu, Koren and Volinsky (2008), which it generalises.
"""

from __future__ import annotations

from torch import Tensor


def squared_error(left_embeddings: Tensor, right_embeddings: Tensor, target: Tensor | float) -> Tensor:
    """f = mean_i (⟨u_i, v_i⟩ − s_i)², a scalar.

    Args:
        left_embeddings: u, shape (B', k).
        right_embeddings: v, shape (B', k).
        target: s, shape (B',), or one number for all pairs.
    """
    scores = (left_embeddings * right_embeddings).sum(1)
    return (scores - target).square().mean()
