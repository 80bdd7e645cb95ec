"""The gravity term, and the surrogate whose gradient estimates the gravity's.

    g(θ)  = ⟨G_u, G_v⟩_F = (1/n²) sum_i sum_j ⟨u_i, v_j⟩²                        (paper, equation 5)
    ĝ_i   = ⟨u_i, Ĝ_v u_i⟩ + ⟨v_i, Ĝ_u v_i⟩,   Ĝ held constant                   (paper, equation 8)

and with a low-rank prior p_ij = ⟨q_i, r_j⟩ (paper, Appendix C; H_u = (1/n) sum_i u_i ⊗ q_i, H_v with r_i),

    g(θ)  = (1/n²) sum_i sum_j (⟨u_i, v_j⟩ − ⟨q_i, r_j⟩)² = ⟨G_u, G_v⟩ − 2⟨H_u, H_v⟩ + ⟨G_q, G_r⟩
    ĝ_i   = ⟨u_i, Ĝ_v u_i⟩ + ⟨v_i, Ĝ_u v_i⟩ − 2⟨u_i, Ĥ_v q_i⟩ − 2⟨v_i, Ĥ_u r_i⟩.

If i is uniform, the estimates are unbiased and independent of i, then E ∇ĝ_i = ∇g (Propositions 1 and 6).

Conventions, because the paper mixes two: g is the *mean* of the paper's g_i = ½[⟨u_i, G_v u_i⟩ +
⟨v_i, G_u v_i⟩]; the surrogate carries no ½, because each of its terms sees only one of the two factors
of the product ⟨G_u, G_v⟩ move. So the mean of ĝ_i at exact Gramians is 2 (g − ⟨G_q, G_r⟩), while its gradient
is ∇g.
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
    """One side of a gradient batch, as the surrogate sees it.

    Attributes:
        embeddings: u, shape (B', k), requiring gradients.
        importance: shape (B',), how much each item's term counts
            (`gramrun.gramian.population.Population.importance`); None for 1.
        prior: q, shape (B', rank), the items' vectors of the low-rank prior; None without one.
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
        left_gramian: Ĝ_u, shape (k, k), constant; it acts on the right embeddings.
        right_gramian: Ĝ_v, shape (k, k), constant; it acts on the left embeddings.
        left_cross: Ĥ_u, shape (k, rank), constant; needed where there is a prior.
        right_cross: Ĥ_v, shape (k, rank), constant; needed where there is a prior.

    Example:
        With exact Gramians of two pairs, its gradient is that of the mean of all four squared products.

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
