"""The gravity term g, and the surrogate ĝ whose gradient estimates the gradient of g.

    g(θ)  = ⟨G_u, G_v⟩_F = (1/n²) sum_i sum_j ⟨u_i, v_j⟩²                        (paper, equation 5)
    ĝ_i   = ⟨u_i, Ĝ_v u_i⟩ + ⟨v_i, Ĝ_u v_i⟩,   Ĝ constant                        (paper, equation 8)

With a low-rank prior p_ij = ⟨q_i, r_j⟩ (paper, Appendix C), ĝ_i gets − 2⟨u_i, Ĥ_v q_i⟩ − 2⟨v_i, Ĥ_u r_i⟩. If
the estimates are unbiased and independent of i, then E ∇ĝ_i = ∇g (Propositions 1 and 6). Derivation, and why
ĝ has no factor ½: docs/mathematics.md#the-surrogate.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


def gravity(left_gramian: Tensor, right_gramian: Tensor) -> Tensor:
    """g = ⟨G_u, G_v⟩_F, a scalar, from two (k, k) Gramians; without a prior.

    Example:
        >>> import torch
        >>> gravity(torch.eye(2) / 2, torch.tensor([[3.0, 1.0], [1.0, 1.0]]))
        tensor(2.)
    """
    return (left_gramian * right_gramian).sum()


@dataclass(frozen=True)
class GravitySide:
    """One side of a gradient batch.

    Attributes:
        embeddings: u, shape (B', k), requiring gradients.
        importance: shape (B',), the weight of each item's term (`Population.importance`); None for 1.
        prior: q, shape (B', rank), the vectors of the low-rank prior; None without one.
    """

    embeddings: Tensor
    importance: Tensor | None = None
    prior: Tensor | None = None


def gravity_surrogate(
    left: GravitySide,
    right: GravitySide,
    left_gramian: Tensor,
    right_gramian: Tensor,
    left_cross: Tensor | None = None,
    right_cross: Tensor | None = None,
) -> Tensor:
    """The batch mean of ĝ_i, a scalar to differentiate with respect to the embeddings.

    Args:
        left: u, and q where there is a prior.
        right: v, and r where there is a prior.
        left_gramian: Ĝ_u, shape (k, k), constant.
        right_gramian: Ĝ_v, shape (k, k), constant.
        left_cross: Ĥ_u, shape (k, rank), constant; required with a prior.
        right_cross: Ĥ_v, shape (k, rank), constant; required with a prior.

    Example:
        With exact Gramians the gradient is that of the mean over all pairs.

        >>> import torch
        >>> u = torch.tensor([[1.0, 2.0], [0.0, 1.0]], requires_grad=True)
        >>> v = torch.tensor([[1.0, 0.0], [1.0, 1.0]], requires_grad=True)
        >>> left, right = (rows.detach().T @ rows.detach() / 2 for rows in (u, v))
        >>> surrogate = gravity_surrogate(GravitySide(u), GravitySide(v), left, right)
        >>> literal = (u @ v.T).square().mean()
        >>> [ours], [theirs] = torch.autograd.grad(surrogate, [u]), torch.autograd.grad(literal, [u])
        >>> bool(torch.allclose(ours, theirs))
        True
    """
    return _pull(left, right_gramian, right_cross) + _pull(right, left_gramian, left_cross)


def _pull(side: GravitySide, gramian: Tensor, cross: Tensor | None) -> Tensor:
    """The mean of r (⟨e, Ĝ e⟩ − 2⟨e, Ĥ q⟩) over the rows."""
    e = side.embeddings
    terms = ((e @ gramian.detach()) * e).sum(1)
    if side.prior is not None and cross is not None:
        terms = terms - 2 * ((side.prior @ cross.detach().T) * e).sum(1)
    if side.importance is not None:
        terms = terms * side.importance
    return terms.mean()
