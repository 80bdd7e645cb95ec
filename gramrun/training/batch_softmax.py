"""The in-batch softmax with the logQ correction, the usual loss of two-tower models.

For a batch of pairs (x_i, y_i), with scores s_ij = ⟨u_i, v_j⟩ / τ and q_j the probability with which right
item y_j enters a batch slot,

    loss = −(1/B) sum_i log [ exp(s_ii − log q_i) / D_i ],
    D_i  = exp(s_ii − log q_i)  +  sum over j ≠ i with y_j ≠ y_i of exp(s_ij − log q_j).

It approximates the softmax over all right items, −log [ exp(s_i(y_i)) / Z_i ] with Z_i = sum_y exp(s_i(y)).
Popular items are negatives more often; the correction divides each negative by its frequency. "Accidental
hits", other slots with the positive's item, are left out of D_i.

Bias. If the other slots are independent draws from q, each contributes Z_i − exp(s_ii) on average, so that

    E D_i = (B − 1) (Z_i − exp(s_ii))  +  exp(s_ii) / q_i,

which is (B − 1) Z_i only if q_i = 1 / (B − 1). The negatives have the right weights relative to one another.
The positive, which is in the batch by construction, has 1 / ((B − 1) q_i) times its weight: too much for rare
items, too little for popular ones. Also, log D_i is below log E D_i on average (Jensen), by O(1/B). Both bias
the gradient. The Gramian surrogate has no bias if its Gramians have none (Proposition 1), but its objective
is another.

Reference: Bengio and Senécal (2008); Yi et al., RecSys 2019, "Sampling-bias-corrected neural modeling".
"""

from __future__ import annotations

import torch
from torch import Tensor


def corrected_scores(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    right_items: Tensor,
    right_log_probability: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """s_ij − log q_j, and −∞ at accidental hits: shape (B, B); log D is its logsumexp by row.

    Args:
        left_embeddings: u, shape (B, k).
        right_embeddings: v, shape (B, k).
        right_items: integers, shape (B,). The right item of each pair.
        right_log_probability: log q, shape (B,), of the right item of each pair: its share of the training
            pairs.
        temperature: τ > 0.
    """
    scores = left_embeddings @ right_embeddings.T / temperature - right_log_probability
    same_item = right_items[:, None] == right_items
    accidental = same_item & ~torch.eye(len(right_items), dtype=torch.bool, device=same_item.device)
    return scores.masked_fill(accidental, float("-inf"))


def batch_softmax_loss(
    left_embeddings: Tensor,
    right_embeddings: Tensor,
    right_items: Tensor,
    right_log_probability: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """The corrected in-batch softmax loss of `corrected_scores`, a scalar to differentiate."""
    scores = corrected_scores(
        left_embeddings, right_embeddings, right_items, right_log_probability, temperature
    )
    return (scores.logsumexp(1) - scores.diagonal()).mean()
