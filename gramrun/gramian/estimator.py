"""The interface of all Gramian estimators: observe embeddings of a drawn batch, give a Gramian.

One estimator tracks one Gramian (left or right). At step t the training loop

    1. draws a batch B of population members, uniformly and with replacement,
    2. embeds them under θ(t) and calls ``observe(members, embeddings)``,
    3. reads ``gramian``, a constant in the gradient of the surrogate (`gramrun.gramian.surrogate`).

The gradient batch B' is drawn from another stream, which is what makes Ĝ independent of it, as
Proposition 1 asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn


class GramianEstimator(nn.Module, ABC):
    """Base of the estimators. State lives in buffers, so saving, loading and devices are torch's own.

    Attributes:
        gramian: Ĝ, float32, shape (k, k). Never part of an autograd graph.
        observes_corpus: True where `observe` must be given every item instead of a drawn batch.
        needs_start: True where `start` must be called before the first `observe`.
    """

    observes_corpus: ClassVar[bool] = False
    needs_start: ClassVar[bool] = False
    gramian: Tensor

    def __init__(self, embedding_dim: int) -> None:
        super().__init__()
        self.register_buffer("gramian", torch.zeros(embedding_dim, embedding_dim))

    def start(self, item_embeddings: Tensor) -> None:
        """Initialise from the embeddings of all items, shape (items, k); a no-op for most."""

    @abstractmethod
    def observe(self, members: Tensor, embeddings: Tensor) -> None:
        """Update Ĝ from a batch.

        Args:
            members: int64, shape (B,). Drawn uniformly with replacement from the population.
            embeddings: shape (B, k). Their embeddings under the current parameters.
        """
