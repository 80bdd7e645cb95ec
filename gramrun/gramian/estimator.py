"""The interface of the Gramian estimators: observe a batch of embeddings, give a Gramian.

One estimator tracks the Gramian of one side, and the products of the embeddings with their companions
(`gramrun.gramian.batch`). At step t the training loop

    1. draws a batch B of items x ~ w (`gramrun.gramian.population`) and embeds it under θ(t),
    2. calls ``observe(B)``,
    3. reads ``gramian`` and ``cross``, constants in the gradient of the surrogate,
    4. where ``looks_ahead``: embeds the batch of step t + 1 under θ(t) and calls ``look_ahead`` with it.

The gradient batch B' comes from another random stream, so that Ĝ is independent of it, as Proposition 1
requires. On reusing B' as the next B: docs/mathematics.md#reused-batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from gramrun.gramian.batch import GramianBatch


class GramianEstimator(nn.Module, ABC):
    """Base class of the estimators. State lives in buffers, so torch saves, loads and moves it.

    Args:
        embedding_dim: k.
        companion_dim: r, the number of companions of an item; 0 without a prior.

    Attributes:
        moments: the estimate of sum_x w_x u(x) ⊗ [u(x), c(x)]: float32, shape (k, k + r), never part of an
            autograd graph.
        observes: what `observe` needs: a drawn batch, the whole corpus, or nothing.
        needs_rows: whether `observe` needs every row of a batch, and not only its mean rank-one term, which
            several processes can compute in parts.
        needs_start: whether `start` must be called before the first `observe`.
        observed: number of batches observed so far, where the estimator counts them.
        looks_ahead: whether `look_ahead` must be called after each `observe`.
    """

    observes: ClassVar[Literal["batch", "corpus", "nothing"]] = "batch"
    needs_rows: bool = False
    needs_start: bool = False
    looks_ahead: ClassVar[bool] = False
    moments: Tensor

    def __init__(self, embedding_dim: int, companion_dim: int = 0) -> None:
        super().__init__()
        self.embedding_dim = embedding_dim
        self.register_buffer("moments", torch.zeros(embedding_dim, embedding_dim + companion_dim))
        # A Python int on the host: schedules read it, and reading a number from a GPU waits for it.
        self.observed = 0

    def get_extra_state(self) -> Tensor:
        """The number of batches observed so far."""
        return torch.tensor(self.observed)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the number of batches observed so far."""
        self.observed = int(state)

    @property
    def gramian(self) -> Tensor:
        """Ĝ, shape (k, k)."""
        return self.moments[:, : self.embedding_dim].contiguous()

    @property
    def cross(self) -> Tensor:
        """Ĥ, the estimate of sum_x w_x u(x) ⊗ c(x): shape (k, r)."""
        return self.moments[:, self.embedding_dim :].contiguous()

    def start(self, chunks: Iterable[GramianBatch]) -> None:
        """Initialise from all items, each in exactly one chunk. Does nothing by default."""

    @abstractmethod
    def observe(self, batch: GramianBatch) -> None:
        """Update the estimate from a batch under the current parameters."""

    def look_ahead(self, batch: GramianBatch) -> None:
        """Observe the batch of the next step under the current parameters. Does nothing by default."""


class NoGramian(GramianEstimator):
    """The estimate 0, for objectives without gravity."""

    observes = "nothing"

    def observe(self, batch: GramianBatch) -> None:
        """Do nothing."""
