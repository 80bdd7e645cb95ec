"""The Taylor softmax over all right items, from Gramian-like statistics (de Brébisson and Vincent, 2016).

    loss_i = −log h(⟨u_i, v_i⟩) + log Z(u_i),      h(o) = 1 + o + o²/2 ≥ ½
    Z(u) = sum_y w_y h(⟨u, v_y⟩) = 1 + ⟨u, m_v⟩ + ½⟨u, G_v u⟩,      m_v = sum_y w_y v_y

The estimators of this package estimate (m_v, G_v) as moments of v with the companion 1, and the statistics
a = (1/n) sum_i u_i / Z(u_i) and B = (1/n) sum_i u_i ⊗ u_i / Z(u_i) of the left side as moments of u/√Z(u)
with the companion 1/√Z(u). The surrogate of log Z is, with constant statistics,

    log Ẑ(u_i) + (w_y/p_y) [⟨v_i, â⟩ + ½⟨v_i, B̂ v_i⟩].

Derivation and bias: docs/mathematics.md#the-taylor-softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gramrun.gramian.surrogate import GravitySide

_LEAST_PARTITION = 0.5  # h ≥ ½, so Z ≥ ½; an estimate outside the PSD cone can be smaller


def taylor_exponential(scores: Tensor) -> Tensor:
    """h(o) = 1 + o + o²/2, elementwise."""
    return 1 + scores + scores.square() / 2


def partition(left_embeddings: Tensor, right_mean: Tensor, right_gramian: Tensor) -> Tensor:
    """Z(u) for each row u, at least ½.

    Args:
        left_embeddings: u, shape (B, k).
        right_mean: m_v, shape (k,).
        right_gramian: G_v, shape (k, k).

    Returns:
        Shape (B,).
    """
    quadratic = ((left_embeddings @ right_gramian) * left_embeddings).sum(1)
    return (1 + left_embeddings @ right_mean + quadratic / 2).clamp_min(_LEAST_PARTITION)


def observed_loss(left_embeddings: Tensor, right_embeddings: Tensor) -> Tensor:
    """The batch mean of −log h(⟨u_i, v_i⟩), a scalar, from u and v, both of shape (B', k)."""
    return -taylor_exponential((left_embeddings * right_embeddings).sum(1)).log().mean()


def left_rows(left_embeddings: Tensor, right_mean: Tensor, right_gramian: Tensor) -> tuple[Tensor, Tensor]:
    """The rows u/√Z(u), shape (B, k), and their companions 1/√Z(u), shape (B, 1). Args as `partition`."""
    scale = partition(left_embeddings, right_mean, right_gramian).rsqrt()[:, None]
    return left_embeddings * scale, scale


def partition_surrogate(
    left: GravitySide,
    right: GravitySide,
    left_gramian: Tensor,
    right_gramian: Tensor,
    left_mean: Tensor,
    right_mean: Tensor,
) -> Tensor:
    """The batch mean of the surrogate of log Z, a scalar to differentiate with respect to the embeddings.

    Args:
        left: u; its importance is None, because the loss is a mean over pairs.
        right: v and w_y/p_y.
        left_gramian: B̂, shape (k, k), constant.
        right_gramian: Ĝ_v, shape (k, k), constant.
        left_mean: â, shape (k,), constant.
        right_mean: m̂_v, shape (k,), constant.
    """
    from_left = partition(left.embeddings, right_mean.detach(), right_gramian.detach()).log()
    v = right.embeddings
    from_right = v @ left_mean.detach() + ((v @ left_gramian.detach()) * v).sum(1) / 2
    if right.importance is not None:
        from_right = from_right * right.importance
    return torch.add(from_left.mean(), from_right.mean())
