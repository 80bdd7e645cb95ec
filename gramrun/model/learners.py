"""The gradient step on the parameters: embed the batch B' with gradients, then descend.

    θ ← optimizer(θ, ∇_θ objective(u(θ, x), v(θ, y)))

`PlainLearner` is torch throughout: embedding bags, autograd through both towers, torch's optimizers. The fast
ones (`gramrun.model.compiled_learner` on a CPU, `gramrun.model.static_learner` on a GPU) are held against it,
and optimizers that change every row of a table at every step (Adam) have no other.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from gramrun.base.processes import ALONE, Processes
from gramrun.model.optimizers import OptimizerName, load_sums_of_steps, make_optimizer
from gramrun.model.towers import TwoTower

T = TypeVar("T")


@dataclass(frozen=True)
class BatchItems:
    """The gradient batch B': which pairs.

    Attributes:
        pairs: int64, shape (B',), training pairs.
        left: int64, shape (B',), their left items.
        right: int64, shape (B',), their right items.
    """

    pairs: Tensor
    left: Tensor
    right: Tensor


@dataclass(frozen=True)
class Step:
    """What a step saw, before it changed the parameters.

    Attributes:
        loss: the observed-pair loss over the whole batch, a scalar.
        left: u of this process's part, shape (B'/N, k), without a graph; good until the next step.
        right: v, likewise.
    """

    loss: Tensor
    left: Tensor
    right: Tensor


# The objective's two parts, the observed-pair loss and the weighted term over all pairs, from B', u and v.
Terms = Callable[[BatchItems, Tensor, Tensor], tuple[Tensor, Tensor]]


class NotFinite(ArithmeticError):
    """The objective is no number any more."""


def part_of(batch: BatchItems, processes: Processes) -> BatchItems:
    """What this process has to do of a batch."""
    return BatchItems(*(processes.share(column) for column in (batch.pairs, batch.left, batch.right)))


def checked_loss(loss: Tensor, penalty: Tensor, processes: Processes) -> Tensor:
    """The mean over the processes of the observed-pair loss.

    Raises:
        NotFinite: in all of them, when the mean objective, loss + penalty, is infinite or no number.
    """
    means = processes.mean(torch.stack([loss.detach(), penalty.detach()]))
    if not torch.isfinite(means.sum()):
        raise NotFinite(
            f"the objective is {float(means.sum()):g} (loss {float(means[0]):g}, weighted term over all "
            f"pairs {float(means[1]):g})"
        )
    return means[0]


def load_sums(own: dict[str, Any], saved: dict[str, Any]) -> None:
    """Bring Adagrad's sums back into their place, where a captured step goes on with them.

    The compiled and the static learner have the same state, so a run may move between a CPU and a GPU.

    Raises:
        KeyError, ValueError: when they belong to another model or to another engine.
    """
    if not isinstance(saved, dict) or "accumulated" not in saved:
        raise ValueError("its optimizer is that of train.engine: plain")
    if not isinstance(saved["accumulated"], dict):
        raise ValueError("its optimizer has no sums by table")
    pairs = [
        *((table, saved["accumulated"][name]) for name, table in own["accumulated"].items()),
        *zip(own["dense_accumulated"], saved["dense_accumulated"], strict=True),
    ]
    if not all(isinstance(other, Tensor) and mine.shape == other.shape for mine, other in pairs):
        raise ValueError("its optimizer has other shapes")
    for mine, other in pairs:
        mine.copy_(other)


class Learner(ABC):
    """Embeds items of either side, and descends.

    Attributes:
        device: where its parameters are; items and pairs are given on it.
    """

    device: torch.device = torch.device("cpu")

    @abstractmethod
    def embed(self, side: str, items: Tensor) -> Tensor:
        """Embed items without a graph.

        Args:
            side: ``left`` or ``right``.
            items: int64, shape (B,).

        Returns:
            float32, shape (B, k).
        """

    @abstractmethod
    def take(self, side: str, items: Tensor) -> None:
        """Take one side of the batch B', int64, shape (B',), for the next `descend`: of all processes."""

    @abstractmethod
    def descend(self, batch: BatchItems, terms: Terms) -> Step:
        """Take one step of the optimizer along the gradient of the objective over the batch that was taken.

        Raises:
            NotFinite: when the objective is infinite or no number. On a CPU the parameters are as before.
        """

    def side_by_side(self, left: Callable[[], T], right: Callable[[], T]) -> tuple[T, T]:
        """Do the left and the right side's part of something, at the same time where that is faster."""
        return left(), right()

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Stands around a step: here torch uses the threads that suit it, and outside of it all."""
        yield

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it.

        Raises:
            KeyError, ValueError, RuntimeError: when it belongs to another model or learner.
        """


class PlainLearner(Learner):
    """Everything by torch.

    Args:
        model: its tables have sparse gradients where the optimizer takes them.
        optimizer: which.
        table_learning_rate: η of the feature tables.
        dense_learning_rate: η of the dense layers.
        processes: that have a replica of the model each.
    """

    def __init__(
        self,
        model: TwoTower,
        optimizer: OptimizerName,
        table_learning_rate: float,
        dense_learning_rate: float,
        processes: Processes = ALONE,
    ) -> None:
        self.device = model.device
        self._model = model
        self._processes = processes
        self._optimizer = make_optimizer(model, optimizer, table_learning_rate, dense_learning_rate)
        self._taken: dict[str, Tensor] = {}

    def embed(self, side: str, items: Tensor) -> Tensor:  # noqa: D102
        with torch.no_grad():
            return self._embed(side, items)

    def _embed(self, side: str, items: Tensor) -> Tensor:
        return self._model.left_embeddings(items) if side == "left" else self._model.right_embeddings(items)

    def take(self, side: str, items: Tensor) -> None:  # noqa: D102
        self._taken[side] = self._embed(side, self._processes.share(items))

    def descend(self, batch: BatchItems, terms: Terms) -> Step:  # noqa: D102
        u, v = self._taken.pop("left"), self._taken.pop("right")
        loss, penalty = terms(part_of(batch, self._processes), u, v)
        mean_loss = checked_loss(loss, penalty, self._processes)
        self._optimizer.zero_grad(set_to_none=True)
        ((loss + penalty) / self._processes.count).backward()
        self._processes.add_gradients(self._model.parameters())
        self._optimizer.step()
        return Step(mean_loss, u.detach(), v.detach())

    def state_dict(self) -> dict[str, Any]:  # noqa: D102
        return self._optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: D102
        if not isinstance(state, dict) or "param_groups" not in state:
            raise ValueError("its optimizer is that of train.engine: compiled")
        load_sums_of_steps(self._optimizer, state["state"])
