"""The CPU engine: dense layers by autograd, feature tables by compiled loops (`gramrun.model.bags`).

The gradients of the tables never become tensors: the loops update the touched rows from ∂L/∂z. The towers
share only tables, so `both` runs the left and the right one on two threads.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.model import bags
from gramrun.model.delayed_adam import AdamSteps, Delayed
from gramrun.model.engine import Batch, Engine, TowerInputs, set_rates
from gramrun.model.optimizers import (
    OptimizerOptions,
    load_in_place,
    load_optimizer_state,
    make_dense_optimizer,
)
from gramrun.model.towers import FeatureColumn, Tower, TwoTower, table_name

T = TypeVar("T")


@dataclass
class _Table:
    """A feature table and its optimizer's state; `weight` shares the parameter's memory.

    Attributes:
        momentum: m of Adam and sparse Adam; of other optimizers no row.
        accumulated: s of Adagrad, v of Adam and sparse Adam; for SGD no row.
        decay: d of the L2 penalty (`gramrun.model.l2`), or None.
        delayed: for Adam, which steps its rows have had; None for other optimizers.
    """

    weight: np.ndarray
    momentum: np.ndarray
    accumulated: np.ndarray
    slots: np.ndarray
    decay: np.ndarray | None
    delayed: Delayed | None
    touched: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))
    shrink: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.float32))

    def reserve(self, rows: int) -> None:
        """Allocate the sums of a batch that touches at most so many rows."""
        needed = min(rows, len(self.weight))
        if needed > len(self.touched):
            self.touched = np.empty(needed + needed // 4, dtype=np.int64)
            self.sums = np.empty((len(self.touched), self.weight.shape[1]), dtype=np.float32)
            self.shrink = np.zeros(len(self.touched), dtype=np.float32)


@dataclass(frozen=True)
class _Column:
    """A feature of one side: its bags, its table, its first column in the inputs, whether it is the id."""

    offsets: np.ndarray
    indices: np.ndarray
    table: str
    start: int
    is_id: bool

    def list_rows(self, items: np.ndarray, without_id: np.ndarray | None) -> _ColumnRows:
        """List the rows of the bags of `items`; those of dropped ids are empty."""
        if self.is_id and without_id is not None:
            kept = self.list_rows(items[~without_id], None)
            ends = np.concatenate([[0], kept.ends])[np.cumsum(~without_id)]
            return _ColumnRows(self, kept.rows, ends)
        rows = np.empty(bags.count_rows(self.offsets, self.indices, items)[0], dtype=np.int32)
        ends = np.empty(len(items), dtype=np.int64)
        bags.list_rows(self.offsets, self.indices, items, rows, ends)
        return _ColumnRows(self, rows, ends)


@dataclass(frozen=True)
class _ColumnRows:
    """The table rows of a batch in one column: bag b is ``rows[ends[b − 1] : ends[b]]``."""

    column: _Column
    rows: np.ndarray
    ends: np.ndarray


Inputs = TowerInputs[list[_ColumnRows]]


class CompiledEngine(Engine[list[_ColumnRows]]):
    """Autograd for the dense layers, compiled loops for the tables, the towers on two threads.

    Args:
        model: the towers and tables, on the CPU, float32.
        optimizer: of tables and dense layers.
        mean: whether bags are means instead of sums.
        threads: the number of PyTorch's threads. A gradient step uses half of them: with hidden towers and 2
            or more each tower does.
        processes: the processes that train replicas of the model. Each gathers its part of a batch, and
            updates its tables from the gradients of all.
        decays: of the L2 penalty (`gramrun.model.l2.row_decays`), by table; empty: none.
    """

    def __init__(
        self,
        model: TwoTower,
        optimizer: OptimizerOptions,
        *,
        mean: bool,
        threads: int,
        processes: Processes = SINGLE_PROCESS,
        decays: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__(model, processes)
        self._dense_parameters = model.dense_parameters()
        self._dense_optimizer = make_dense_optimizer(model, optimizer)
        self._optimizer = optimizer
        self._factor = 1.0  # of both learning rates
        self._steps = torch.zeros((), dtype=torch.int64)  # t of Adam
        self._mean = mean
        adam, sgd = optimizer.name in ("adam", "sparse-adam"), optimizer.name == "sgd"
        self._has_moments = adam
        self._adam_steps = AdamSteps(*optimizer.betas)
        self._tables = {
            name: _Table(
                weight := parameter.detach().numpy(),
                np.zeros_like(weight if adam else weight[:0]),
                np.full_like(weight[:0] if sgd else weight, 0 if adam else optimizer.initial_accumulator),
                np.full(len(weight), -1, dtype=np.int32),
                decays[name].numpy() if decays else None,
                Delayed(len(weight)) if optimizer.name == "adam" else None,
            )
            for name, parameter in model.named_tables().items()
        }
        self._width = next(iter(self._tables.values())).weight.shape[1]
        self._columns = {side: self._lay_out(tower) for side, tower in self.towers.items()}
        costs = dict.fromkeys(self._tables, 0.0)  # mean rows of each table that a pair touches
        for c in itertools.chain(*self._columns.values()):
            costs[c.table] += len(c.indices) / (len(c.offsets) - 1)
        self._table_shares = _even_shares(costs)
        self._threads = threads
        # A linear tower takes no longer than handing it to another thread.
        hidden = bool(self._dense_parameters)
        self._second_thread = ThreadPoolExecutor(1, "left tower") if threads > 1 and hidden else None

    def _lay_out(self, tower: Tower) -> list[_Column]:
        columns: list[FeatureColumn] = list(tower.columns)  # type: ignore[arg-type]
        step = 0 if tower.output is None else self._width  # the bags of a linear tower are summed
        return [
            _Column(c.offsets.numpy(), c.indices.numpy(), table_name(c.vocabulary), i * step, c.is_id)
            for i, c in enumerate(columns)
        ]

    def scale_rates(self, factor: float) -> None:  # noqa: D102
        self._factor = factor
        if self._dense_optimizer is not None:
            set_rates([self._dense_optimizer], [self._optimizer.dense_learning_rate], factor)

    def gather(self, batch: Batch) -> Inputs:  # noqa: D102
        columns, part = self._columns[batch.side], batch.part
        inputs = torch.zeros(part.stop - part.start, columns[-1].start + self._width)
        dropped = None if batch.without_id is None else batch.without_id.numpy()
        listed = [c.list_rows(batch.items.numpy(), dropped) for c in columns]
        for c in listed:
            self._catch_up(self._tables[c.column.table], c.rows)
            first = c.ends[part.start - 1] if part.start else 0
            weight, start = self._tables[c.column.table].weight, c.column.start
            bags.gather_bags(c.rows[first:], c.ends[part] - first, weight, self._mean, inputs.numpy(), start)
        return TowerInputs(inputs.requires_grad_(torch.is_grad_enabled()), listed)

    def _catch_up(self, table: _Table, rows: np.ndarray) -> None:
        if table.delayed is not None:
            state = table.weight, table.momentum, table.accumulated, self._adam_steps
            table.delayed.catch_up(rows, *state, int(self._steps))

    def settle(self) -> None:  # noqa: D102
        for table in self._tables.values():
            self._catch_up(table, np.arange(len(table.weight), dtype=np.int32))

    def update(self, left: Inputs, right: Inputs) -> None:  # noqa: D102
        if self._dense_optimizer is not None:
            self.processes.add_gradients(self._dense_parameters)
            self._dense_optimizer.step()
            self._dense_optimizer.zero_grad(set_to_none=True)
        self._steps += 1
        if self._optimizer.name == "adam":
            self._adam_steps.add(int(self._steps), self._optimizer.table_learning_rate * self._factor)
        gradients = []
        for side in (left, right):
            assert side.inputs.grad is not None
            gradients.append((side.rows, self.processes.gather(side.inputs.grad).numpy()))
        first, second = self._table_shares
        self.both(self._update_tables, (first, gradients), (second, gradients))

    def _update_tables(
        self, tables: Sequence[str], gradients: Sequence[tuple[list[_ColumnRows], np.ndarray]]
    ) -> None:
        """Update the touched rows of some tables; a table belongs to one thread."""
        step, betas = int(self._steps), self._optimizer.betas
        rate, correction = self._optimizer.table_learning_rate * self._factor, 1.0
        if self._optimizer.name == "sparse-adam":
            rate *= math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)  # Adam's bias corrections
        elif self._optimizer.name == "adam":
            rate = float(self._adam_steps.rates[step])
            correction = float(self._adam_steps.corrections[step])
        for name in tables:
            table = self._tables[name]
            used = [(c, gradient) for rows, gradient in gradients for c in rows if c.column.table == name]
            table.reserve(sum(len(c.rows) for c, _ in used))
            count = 0
            for c, gradient in used:
                sums = (table.slots, table.touched, table.sums, count)
                count, _ = bags.sum_gradients(c.rows, c.ends, gradient, c.column.start, self._mean, *sums)
                if table.decay is not None:
                    bags.add_decays(c.rows, table.decay, table.slots, table.shrink)
            touched = (table.slots, table.touched, table.sums, table.shrink, count, rate)
            match self._optimizer.name:
                case "adagrad":
                    bags.update_adagrad(table.weight, table.accumulated, *touched)
                case "sgd":
                    bags.update_sgd(table.weight, *touched)
                case _:
                    if table.delayed is not None:
                        rows = table.touched[:count]
                        table.delayed.decay(table.momentum, table.accumulated, rows, step, betas)
                    bags.update_adam(
                        table.weight, table.momentum, table.accumulated, *touched, *betas, correction
                    )

    def both(self, function: Callable[..., T], left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[T, T]:
        """Call ``function(*left)`` on a second thread and ``function(*right)`` here, for hidden towers."""
        if self._second_thread is None:
            return function(*left), function(*right)
        pending = self._second_thread.submit(function, *left)
        try:
            right_result = function(*right)
        finally:
            wait([pending])  # after an error here the other thread must not go on changing parameters
        return pending.result(), right_result

    @contextlib.contextmanager
    def thread_limit(self) -> Iterator[None]:  # noqa: D102
        torch.set_num_threads(max(1, self._threads // 2))
        try:
            yield
        finally:
            torch.set_num_threads(self._threads)

    def state_dict(self) -> dict[str, Any]:  # noqa: D102
        accumulated = {name: torch.from_numpy(t.accumulated) for name, t in self._tables.items()}
        if not self._has_moments:
            return {"accumulated": accumulated, "dense_accumulated": self._dense_accumulated()}
        momentum = {name: torch.from_numpy(t.momentum) for name, t in self._tables.items()}
        dense = {} if self._dense_optimizer is None else self._dense_optimizer.state_dict()["state"]
        last = {n: torch.from_numpy(t.delayed.last) for n, t in self._tables.items() if t.delayed is not None}
        moments = {"momentum": momentum, "accumulated": accumulated, "last": last}
        return {"steps": [self._steps], **moments, "dense": dense}

    def _dense_accumulated(self) -> list[Tensor]:
        """Adagrad's sums of the dense parameters, in their order; empty tensors for SGD."""
        if self._dense_optimizer is None or self._optimizer.name == "sgd":
            return [parameter.detach()[:0] for parameter in self._dense_parameters]
        return [self._dense_optimizer.state[parameter]["sum"] for parameter in self._dense_parameters]

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: D102
        own = self.state_dict()
        own.pop("dense", None)
        if own.get("last") and not all(_within(rows, state["steps"][0]) for rows in state["last"].values()):
            raise ValueError("its steps are damaged")
        load_in_place(own, state)
        if self._has_moments and self._dense_optimizer is not None:
            load_optimizer_state(self._dense_optimizer, state["dense"])
        for table in self._tables.values():
            if table.delayed is not None:
                table.delayed.done.fill(int(self._steps))  # the parameters were saved settled


def _within(last: Tensor, steps: Tensor) -> bool:
    """Whether the steps of last gradients are among the steps done."""
    return bool(((last >= 0) & (last <= steps)).all())


def _even_shares(costs: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Split the tables into two groups of about equal cost: each, dearest first, to the cheaper group."""
    shares: tuple[list[str], list[str]] = [], []
    totals = [0.0, 0.0]
    for name in sorted(costs, key=lambda n: (-costs[n], n)):
        least = int(totals[1] < totals[0])
        shares[least].append(name)
        totals[least] += costs[name]
    return shares
