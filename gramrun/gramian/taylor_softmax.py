"""The Taylor softmax: a loss of the spherical family that needs only Gramian-like statistics of all items.

The paper's gravity is one member of the spherical family (Vincent, de Brébisson and Bouthillier, 2015), the
losses that depend on the scores of all items only through their sum and their sum of squares. Here is another
(de Brébisson and Vincent, 2016): the softmax with exp replaced by its second-order Taylor expansion,

    h(o) = 1 + o + o²/2  (≥ ½ for every o),
    loss_i = −log h(⟨u_i, v_i⟩) + log Z(u_i),     Z(u) = sum_y w_y h(⟨u, v_y⟩) = 1 + ⟨u, m_v⟩ + ½⟨u, G_v u⟩,

with m_v = sum_y w_y v_y and G_v the right Gramian: k + k² numbers stand for all right items, exactly. The
gradient of the mean of log Z(u_i) over all pairs has two parts, and each needs only such statistics:

    towards u_i:  ∇_u log Z(u_i)
    towards v_y:  w_y [a + B v_y],   a = (1/n) sum_i u_i / Z(u_i),   B = (1/n) sum_i u_i ⊗ u_i / Z(u_i)

(a, B) are the moments of the left rows u_i/√Z(u_i) with the companion 1/√Z(u_i), so every estimator of this
package estimates them; (m_v, G_v) are the moments of the right rows with the companion 1. The surrogate

    log Ẑ(u_i) + (w_y/p_y) [⟨v_i, â⟩ + ½⟨v_i, B̂ v_i⟩],       statistics held constant,

has the gradient of the penalty as its mean over i where the statistics are exact.

Bias. Unlike gravity, log and 1/Z are not linear in the statistics, so unbiased ones give a biased gradient:
E log Ẑ = log Z − Var Ẑ/(2Z²) + ..., and E[∇Ẑ/Ẑ] = ∇Z/Z − Cov(∇Ẑ, Ẑ)/Z² + ∇Z Var Ẑ/Z³ + .... Both are of the
order of the estimate's variance: 1/|B| for sampling, and smaller by as much as an estimator's error is. A
mean of h over any weights is ≥ ½; SAGA and the control variate are no such means and may give less, where Ẑ
is held at ½ and does not pull at u_i until the estimate has recovered.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gramrun.gramian.surrogate import GravitySide

_LEAST_PARTITION = 0.5  # h ≥ ½, so Z ≥ ½: an estimate below it is an estimator's excursion


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
        left: u; its importance must be None, for the loss is a mean over pairs.
        right: v and w_y/p_y.
        left_gramian: B̂, shape (k, k), constant.
        right_gramian: Ĝ_v, shape (k, k), constant.
        left_mean: â, shape (k,), constant.
        right_mean: m̂_v, shape (k,), constant.

    Raises:
        ValueError: where the left side has an importance.
    """
    if left.importance is not None:
        raise ValueError("the Taylor softmax is a mean over pairs: the left side's gamma must be 1")
    from_left = partition(left.embeddings, right_mean.detach(), right_gramian.detach()).log()
    v = right.embeddings
    from_right = v @ left_mean.detach() + ((v @ left_gramian.detach()) * v).sum(1) / 2
    if right.importance is not None:
        from_right = from_right * right.importance
    return torch.add(from_left.mean(), from_right.mean())
