"""The interface of all Gramian estimators: observe a batch of embeddings, give a Gramian.

One estimator tracks one side's Gramian, and with it the products of the embeddings with their companions
(`gramrun.gramian.batch`). At step t the training loop

    1. draws a batch B of items x ~ w (`gramrun.gramian.population`) and embeds it under θ(t),
    2. calls ``observe(B)``,
    3. reads ``gramian`` and ``cross``, constants in the gradient of the surrogate,
    4. where ``looks_ahead``: embeds the batch of step t + 1 under θ(t) too and calls ``look_ahead`` with it.

The gradient batch B' is drawn from another stream, which is what makes Ĝ independent of it, as
Proposition 1 asks. (A reused gradient batch of the step before is so up to 1/n: within a shuffled epoch
it holds none of B', and E[Ĝ | i in B'] = G + (G − term_i)/(n − 1). Its surrogate is that of the gravity
over pairs i ≠ j.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from gramrun.gramian.batch import GramianBatch


class GramianEstimator(nn.Module, ABC):
    """Base of the estimators. State lives in buffers, so saving, loading and devices are torch's own.

    Args:
        embedding_dim: k.
        companion_dim: r, how many companions an item has; 0 without a prior.

    Attributes:
        moments: the estimate of sum_x w_x u(x) ⊗ [u(x), c(x)]: float32, shape (k, k + r). Never part of an
            autograd graph.
        observes: what `observe` must be given: a drawn batch, the whole corpus, or nothing at all.
        needs_rows: True where `observe` needs every row of a batch, and not only its mean rank-one term,
            which several processes can each take of their part.
        needs_start: True where `start` must be called before the first `observe`.
        observed: batches observed so far, where the estimator counts them.
        looks_ahead: True where `look_ahead` must be called after each `observe`.
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
        # On the host, where the schedules need it: to ask a GPU for a number is to wait for it.
        self.observed = 0

    def get_extra_state(self) -> Tensor:
        """The number of batches observed so far."""
        return torch.tensor(self.observed)

    def set_extra_state(self, state: Tensor) -> None:
        """Go on counting from what `get_extra_state` gave."""
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
        """Initialise from all items, each in exactly one chunk; a no-op for most."""

    @abstractmethod
    def observe(self, batch: GramianBatch) -> None:
        """Update the estimate from a batch under the current parameters."""

    def look_ahead(self, batch: GramianBatch) -> None:
        """See the next step's batch under the parameters of this step; a no-op for most."""


class NoGramian(GramianEstimator):
    """The estimate 0: no gravity at all, for objectives that have none and to see what happens without."""

    observes = "nothing"

    def observe(self, batch: GramianBatch) -> None:
        """Do nothing."""
