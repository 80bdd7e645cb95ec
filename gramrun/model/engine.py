"""The interface of the training engines, and the plain one, which is PyTorch throughout.

A training step (`gramrun.training.step`) is the same for every engine. Engines differ in how they gather the
feature bags of a batch and how they update the parameters:

    gather    z_b = [bag(E_1, x_b1); ...; bag(E_F, x_bF)]          the inputs of a tower
    update    W ← W − η_dense · optimizer(∂L/∂W)                   dense layers
              E_f ← E_f − η · optimizer(∂L/∂E_f)                   feature tables, from ∂L/∂z

`plain` uses embedding bags, autograd and optimizers of PyTorch. It is the reference for `compiled`
(`gramrun.model.compiled_engine`) and `static` (`gramrun.model.static_engine`).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.model.optimizers import OptimizerOptions, load_optimizer_state, make_optimizers
from gramrun.model.towers import FeatureColumn, Tower, TwoTower, table_name

T = TypeVar("T")
Rows = TypeVar("Rows")
GradientStep = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class TowerInputs(Generic[Rows]):
    """The gathered bags of one side of a batch.

    Attributes:
        inputs: z, what `gramrun.model.towers.Tower.dense` takes, in an autograd graph.
        rows: the table rows behind the inputs, in the engine's own form.
    """

    inputs: Tensor
    rows: Rows


@dataclass(frozen=True)
class Batch:
    """What one side of a batch gathers.

    Attributes:
        side: ``left`` or ``right``.
        items: int64, shape (B',), the whole batch.
        part: the rows of the batch that belong to this process.
        without_id: bool, shape (B',). Where the bag of the item's id is left empty; None: nowhere.
    """

    side: str
    items: Tensor
    part: slice
    without_id: Tensor | None


class Engine(ABC, Generic[Rows]):
    """Embeds items and updates parameters.

    Args:
        model: the towers and tables.
        processes: the processes that train replicas of the model.

    Attributes:
        device: the device of the parameters.
        captured: whether a gradient step runs as a captured graph, which cannot wait for a value.
    """

    captured: bool = False

    def __init__(self, model: TwoTower, processes: Processes = SINGLE_PROCESS) -> None:
        self.model = model
        self.processes = processes
        self.device: torch.device = model.device
        self.towers: dict[str, Tower] = {"left": model.left, "right": model.right}

    @abstractmethod
    def gather(self, batch: Batch) -> TowerInputs[Rows]:
        """Gather the bags of a batch: the inputs of its `part`. The rows may cover the whole batch."""

    def gather_pairs(self, left: Batch, right: Batch) -> tuple[TowerInputs[Rows], TowerInputs[Rows]]:
        """Gather the bags of both sides of B', of which `update` takes the gradients."""
        return self.both(self.gather, (left,), (right,))

    @abstractmethod
    def update(self, left: TowerInputs[Rows], right: TowerInputs[Rows]) -> None:
        """Update the dense layers and the feature tables after the backward pass, and clear all gradients."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the optimizer's state.

        Raises:
            KeyError, ValueError, RuntimeError: when it belongs to another model, optimizer or engine.
        """

    @abstractmethod
    def scale_rates(self, factor: float) -> None:
        """Set both learning rates to the configured ones times a factor, until the next call."""

    @torch.no_grad()
    def embed(self, side: str, items: Tensor, without_id: Tensor | None = None) -> Tensor:
        """Embed items without a graph: int64, shape (B,), to float32, shape (B, k)."""
        batch = Batch(side, items, slice(0, len(items)), without_id)
        return self.towers[side].dense(self.gather(batch).inputs)

    def settle(self) -> None:
        """Bring every row of the tables up to date: a lazy engine puts a row's steps off until it is read."""

    def answer(self) -> None:
        """Help the first process to embed items until it calls `stop_answers`; with split tables only."""

    def stop_answers(self) -> None:
        """Let the other processes go on after `answer`."""

    def both(self, function: Callable[..., T], left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[T, T]:
        """``function(*left), function(*right)``, on two threads where that is faster."""
        return function(*left), function(*right)

    @contextlib.contextmanager
    def thread_limit(self) -> Iterator[None]:
        """Limit PyTorch's threads in a gradient step, where `both` can use two."""
        yield

    def capture(self, gradient_step: GradientStep) -> GradientStep:
        """Return the function that runs a gradient step: the given one, or a captured graph of it."""
        return gradient_step


def _rates(optimizers: Sequence[torch.optim.Optimizer]) -> list[float]:
    """The learning rate of every group of parameters."""
    return [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]


def set_rates(optimizers: Sequence[torch.optim.Optimizer], rates: Sequence[float], factor: float) -> None:
    """Set the learning rate of every group to its own times a factor."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate * factor


TableRows = list[tuple[str, Tensor]]  # the rows of a batch in each column: name of the table, int32


class PlainEngine(Engine[TableRows]):
    """PyTorch throughout.

    Args:
        model: the towers and tables; the tables have sparse gradients where the optimizer takes them.
        optimizer: which optimizer.
        processes: the processes that train replicas of the model.
        decays: of the L2 penalty (`gramrun.model.l2.row_decays`), by table; empty: none.
    """

    def __init__(
        self,
        model: TwoTower,
        optimizer: OptimizerOptions,
        processes: Processes = SINGLE_PROCESS,
        decays: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model, processes)
        self._decays = {name: decay.to(self.device) for name, decay in (decays or {}).items()}
        self._optimizers = make_optimizers(model, optimizer)
        self._rates = _rates(self._optimizers)

    def scale_rates(self, factor: float) -> None:  # noqa: D102
        set_rates(self._optimizers, self._rates, factor)

    def gather(self, batch: Batch) -> TowerInputs[TableRows]:  # noqa: D102
        tower = self.towers[batch.side]
        columns: list[FeatureColumn] = list(tower.columns)  # type: ignore[arg-type]
        own = batch.items[batch.part]
        dropped = None if batch.without_id is None else batch.without_id[batch.part]
        rows = []
        if self._decays and torch.is_grad_enabled():
            for c in columns:
                listed = own[~dropped] if dropped is not None and c.is_id else own
                rows.append((table_name(c.vocabulary), c.rows(listed)[0]))
        return TowerInputs(tower.inputs(own, self.model.tables, without_id=dropped), rows)

    def update(self, left: TowerInputs[TableRows], right: TowerInputs[TableRows]) -> None:  # noqa: D102
        for name, rows in (*left.rows, *right.rows):
            self._penalty(name, rows).backward()
        self.processes.add_gradients(self.model.parameters())
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _penalty(self, name: str, rows: Tensor) -> Tensor:
        """½ sum_r d_r ‖E_r‖² over these rows of a table, each as often as it is listed."""
        table = self.model.tables[name]
        assert isinstance(table, nn.EmbeddingBag)
        squares = functional.embedding(rows, table.weight, sparse=table.sparse).square().sum(1)
        return self._decays[name].index_select(0, rows) @ squares / 2

    def state_dict(self) -> dict[str, Any]:  # noqa: D102
        first, *second = [optimizer.state_dict() for optimizer in self._optimizers]
        return {**first, "dense": second[0]} if second else first

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: D102
        if not isinstance(state, dict) or "param_groups" not in state:
            raise ValueError("its optimizer is that of another train.engine")
        saved = [state, state["dense"]] if len(self._optimizers) == 2 else [state]
        for optimizer, part in zip(self._optimizers, saved, strict=True):
            load_optimizer_state(optimizer, part["state"])
