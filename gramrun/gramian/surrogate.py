"""The gravity term, and the surrogate whose gradient estimates the gravity's.

    g(θ)  = ⟨G_u, G_v⟩_F = (1/n²) sum_i sum_j ⟨u_i, v_j⟩²                        (paper, equation 5)
    ĝ_i   = ⟨u_i, Ĝ_v u_i⟩ + ⟨v_i, Ĝ_u v_i⟩,   Ĝ held constant                   (paper, equation 8)

If i is uniform, Ĝ is unbiased and independent of i, then E ∇ĝ_i = ∇g (Proposition 1).

Conventions, because the paper mixes two: g is the *mean* of the paper's g_i = ½[⟨u_i, G_v u_i⟩ +
⟨v_i, G_u v_i⟩]; the surrogate carries no ½, because each of its terms sees only one of the two factors
of the product ⟨G_u, G_v⟩ move. So the mean of ĝ_i at exact Gramians is 2g, while its gradient is ∇g.
"""

from __future__ import annotations

from torch import Tensor


def gravity(left_gramian: Tensor, right_gramian: Tensor) -> Tensor:
    """g = ⟨G_u, G_v⟩_F, a scalar, from two (k, k) Gramians."""
    return (left_gramian * right_gramian).sum()


def gravity_surrogate(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    left_gramian: Tensor,
    right_gramian: Tensor,
    left_importance: Tensor | None = None,
    right_importance: Tensor | None = None,
) -> Tensor:
    """The batch mean of ĝ_i, a scalar to differentiate with respect to the embeddings.

    Args:
        left_embeddings: u, shape (B', k), requiring gradients.
        right_embeddings: v, shape (B', k), requiring gradients.
        left_gramian: Ĝ_u, shape (k, k), constant; it acts on the right embeddings.
        right_gramian: Ĝ_v, shape (k, k), constant; it acts on the left embeddings.
        left_importance: shape (B',), how much each left item's term counts
            (`gramrun.gramian.population.Population.importance`); None for 1.
        right_importance: the same for the right items.
    """
    left = _quadratic_forms(left_embeddings, right_gramian)
    right = _quadratic_forms(right_embeddings, left_gramian)
    if left_importance is not None:
        left = left * left_importance
    if right_importance is not None:
        right = right * right_importance
    return left.mean() + right.mean()


def _quadratic_forms(embeddings: Tensor, gramian: Tensor) -> Tensor:
    """⟨e, G e⟩ for each row e: shape (B',)."""
    return ((embeddings @ gramian.detach()) * embeddings).sum(1)
