"""The gradient step on a CPU: dense layers by autograd, feature tables by compiled loops.

The bags are gathered before and their rows updated after autograd's part (`gramrun.model.bags`), so the
tables' gradients never become tensors, and the two towers, which share nothing but tables, work side by side
on two threads.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gramrun.base.processes import ALONE, Processes
from gramrun.model import bags
from gramrun.model.learners import BatchItems, Learner, Step, Terms, checked_loss, load_sums, part_of
from gramrun.model.optimizers import OptimizerName, make_dense_optimizer
from gramrun.model.towers import FeatureColumn, Tower, TwoTower, table_name

T = TypeVar("T")


@dataclass
class _Table:
    """A feature table as the compiled loops see it; the arrays share the parameters' memory."""

    weight: np.ndarray
    accumulated: np.ndarray
    slots: np.ndarray
    met: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))

    def make_room(self, rows: int) -> None:
        """Have room for the sums of a batch whose bags hold so many rows."""
        needed = min(rows, len(self.weight))
        if needed > len(self.met):
            self.met = np.empty(needed + needed // 4, dtype=np.int64)
            self.sums = np.empty((len(self.met), self.weight.shape[1]), dtype=np.float32)


@dataclass(frozen=True)
class _Column:
    """A feature of one side: its bags, its table, and where its bags stand among the tower's inputs."""

    offsets: np.ndarray
    indices: np.ndarray
    table: str
    start: int


@dataclass(frozen=True)
class _Bags:
    """The bags of a batch in one column, listed."""

    column: _Column
    rows: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class _Batch:
    """One side of a gradient batch on its way through a tower."""

    bags: list[_Bags]
    inputs: Tensor
    embeddings: Tensor
    leaf: Tensor


class CompiledLearner(Learner):
    """Dense layers by torch's autograd, feature tables by compiled loops, the towers side by side.

    Args:
        model: on the CPU, float32.
        optimizer: one of `SPARSE_OPTIMIZERS`.
        table_learning_rate: η of the feature tables.
        dense_learning_rate: η of the dense layers.
        mean: whether bags are means.
        threads: of all; with 1, or linear towers, one after the other, else half of them for each.
        processes: that have a replica of the model each. Each gathers the bags of its part of a batch, and
            updates its tables by all, whose gradients come from where they were gathered.
    """

    def __init__(
        self,
        model: TwoTower,
        optimizer: OptimizerName,
        table_learning_rate: float,
        dense_learning_rate: float,
        *,
        mean: bool,
        threads: int,
        processes: Processes = ALONE,
    ) -> None:
        self._towers: dict[str, Tower] = {"left": model.left, "right": model.right}
        self._optimizer = make_dense_optimizer(model, optimizer, dense_learning_rate)
        self._dense_parameters = model.dense_parameters()
        self._processes = processes
        self._learning_rate = table_learning_rate
        self._adagrad = optimizer == "adagrad"
        self._mean = mean
        self._tables = {
            name: _Table(
                weight := parameter.detach().numpy(),
                np.zeros_like(weight if self._adagrad else weight[:0]),
                np.full(len(weight), -1, dtype=np.int32),
            )
            for name, parameter in model.named_tables().items()
        }
        self._width = next(iter(self._tables.values())).weight.shape[1]
        self._columns = {side: self._lay_out(tower) for side, tower in self._towers.items()}
        costs = dict.fromkeys(self._tables, 0.0)  # rows of each table that a pair touches, about
        for c in itertools.chain(*self._columns.values()):
            costs[c.table] += len(c.indices) / (len(c.offsets) - 1)
        self._shares = _even_shares(costs)
        self._taken: dict[str, _Batch] = {}
        self._threads = threads
        # The step of a linear tower takes no longer than handing it to another thread.
        deep = bool(self._dense_parameters)
        self._helper = ThreadPoolExecutor(1, "left tower") if threads > 1 and deep else None

    def _lay_out(self, tower: Tower) -> list[_Column]:
        columns: list[FeatureColumn] = list(tower.columns)  # type: ignore[arg-type]
        step = 0 if tower.output is None else self._width  # the bags of a linear tower are summed
        return [
            _Column(c.offsets.numpy(), c.indices.numpy(), table_name(c.vocabulary), i * step)
            for i, c in enumerate(columns)
        ]

    def _gather(self, side: str, items: np.ndarray, part: slice) -> tuple[Tensor, list[_Bags]]:
        """List the bags of `items`, and gather those of a part of them: the part's inputs, and all bags."""
        inputs = torch.zeros(part.stop - part.start, self._columns[side][-1].start + self._width)
        listed = []
        for c in self._columns[side]:
            rows = np.empty(bags.count_rows(c.offsets, c.indices, items)[0], dtype=np.int32)
            ends = np.empty(len(items), dtype=np.int64)
            bags.list_rows(c.offsets, c.indices, items, rows, ends)
            weight = self._tables[c.table].weight
            first = ends[part.start - 1] if part.start else 0
            bags.gather_bags(rows[first:], ends[part] - first, weight, self._mean, inputs.numpy(), c.start)
            listed.append(_Bags(c, rows, ends))
        return inputs, listed

    @torch.no_grad()
    def embed(self, side: str, items: Tensor) -> Tensor:  # noqa: D102
        return self._towers[side].dense(self._gather(side, items.numpy(), slice(0, len(items)))[0])

    def take(self, side: str, items: Tensor) -> None:  # noqa: D102
        inputs, listed = self._gather(side, items.numpy(), self._processes.part(len(items)))
        embeddings = self._towers[side].dense(inputs.requires_grad_())
        # A leaf of its own: the towers' graphs are then two, and can be walked at the same time.
        self._taken[side] = _Batch(listed, inputs, embeddings, embeddings.detach().requires_grad_())

    def descend(self, batch: BatchItems, terms: Terms) -> Step:  # noqa: D102
        left, right = self._taken.pop("left"), self._taken.pop("right")
        loss, penalty = terms(part_of(batch, self._processes), left.leaf, right.leaf)
        mean_loss = checked_loss(loss, penalty, self._processes)
        ((loss + penalty) / self._processes.count).backward()
        slopes = self.side_by_side(lambda: _walk_back(left), lambda: _walk_back(right))
        if self._optimizer is not None:
            self._processes.add_gradients(self._dense_parameters)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
        wholes = [self._processes.gather(slope).numpy() for slope in slopes]
        sides = list(zip((left.bags, right.bags), wholes, strict=True))
        first, second = self._shares
        self.side_by_side(lambda: self._update(first, sides), lambda: self._update(second, sides))
        return Step(mean_loss, left.leaf.detach(), right.leaf.detach())

    def _update(self, tables: Sequence[str], sides: Sequence[tuple[list[_Bags], np.ndarray]]) -> None:
        """Update the rows of some tables; a table belongs to one thread, so nothing is written twice."""
        for name in tables:
            table = self._tables[name]
            used = [(b, gradient) for listed, gradient in sides for b in listed if b.column.table == name]
            table.make_room(sum(len(b.rows) for b, _ in used))
            count = 0
            for b, gradient in used:
                sums = (table.slots, table.met, table.sums, count)
                count, _ = bags.sum_gradients(b.rows, b.ends, gradient, b.column.start, self._mean, *sums)
            touched = (table.slots, table.met, table.sums, count, self._learning_rate)
            if self._adagrad:
                bags.update_adagrad(table.weight, table.accumulated, *touched)
            else:
                bags.update_sgd(table.weight, *touched)

    def side_by_side(self, left: Callable[[], T], right: Callable[[], T]) -> tuple[T, T]:  # noqa: D102
        if self._helper is None:
            return left(), right()
        pending = self._helper.submit(left)
        try:
            right_result = right()
        finally:
            wait([pending])  # an error here must not leave the other half at work on the parameters
        return pending.result(), right_result

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:  # noqa: D102
        torch.set_num_threads(max(1, self._threads // 2))
        try:
            yield
        finally:
            torch.set_num_threads(self._threads)

    def state_dict(self) -> dict[str, Any]:  # noqa: D102
        return {
            "accumulated": {name: torch.from_numpy(t.accumulated) for name, t in self._tables.items()},
            "dense_accumulated": self._dense_accumulated(),
        }

    def _dense_accumulated(self) -> list[Tensor]:
        """Adagrad's sums of the dense parameters, in their order; empty ones for gradient descent."""
        if self._optimizer is None or not self._adagrad:
            return [parameter.detach()[:0] for parameter in self._dense_parameters]
        return [self._optimizer.state[parameter]["sum"] for parameter in self._dense_parameters]

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: D102
        load_sums(self.state_dict(), state)


def _walk_back(batch: _Batch) -> Tensor:
    """Take the gradient from the embeddings down to the dense parameters, and to the inputs: the latter."""
    assert batch.leaf.grad is not None
    torch.autograd.backward(batch.embeddings, batch.leaf.grad)
    assert batch.inputs.grad is not None
    return batch.inputs.grad


def _even_shares(costs: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Two groups of about equal cost: the dearest first, each to the group that has less so far."""
    shares: tuple[list[str], list[str]] = [], []
    totals = [0.0, 0.0]
    for name in sorted(costs, key=lambda n: (-costs[n], n)):
        least = int(totals[1] < totals[0])
        shares[least].append(name)
        totals[least] += costs[name]
    return shares
