"""A prototype: one training step where every table is split by rows over several processes.

`gramrun train` does not run this; it keeps a replica of every table in each process. This is the step that
would take over where the tables outgrow one device, written to be measured (`experiments.split_tables`) and
to be held against the real step (`tests/experiments/test_split_tables.py`).

All tables are stacked into one of V rows. With N processes, row r lies on process r mod N, its owner, as its
row r // N. A process has its part of the batches B' (gradients) and B (Gramians), and a step is

    merge       the rows that its part holds, each once
    ids         all-to-all: how many, then which, to their owners; a bit tells those that B' holds
    rows        all-to-all: the rows come back
    bags        gathered out of what came, as out of a table
    dense       towers, Gramians and the dense layers' update
    sums        all-reduce: Gramians, and later the dense layers' gradients and the loss
    gradients   summed by row, then all-to-all to the owners, in the order in which the rows were asked for
    update      Adagrad by the owner, on the sums over the processes

So a row travels once to every process that needs it, and its gradient once back, however often it stands in
the batch. The state that a process keeps is its rows, their accumulators, and 4 bytes a row of slots.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from gramrun.base.processes import Processes
from gramrun.gramian.surrogate import GravitySide, gravity_surrogate
from gramrun.model import bags
from gramrun.model.losses import squared_error
from gramrun.model.towers import Tower


@dataclass(frozen=True)
class CountedProcesses(Processes):
    """Processes that count the bytes each receives, by kind, and know the all-to-all exchange.

    Attributes:
        received: bytes so far; a sum over a ring brings 2 (N − 1)/N of its size.
    """

    received: Counter[str] = field(default_factory=Counter)

    def gather(self, rows: Tensor) -> Tensor:
        """As `Processes.gather`, counted."""
        self.received["gathered"] += (self.count - 1) * rows.nbytes
        return super().gather(rows)

    def sum(self, tensor: Tensor) -> Tensor:
        """As `Processes.sum`, counted."""
        self.received["summed"] += 2 * (self.count - 1) * tensor.nbytes // self.count
        return super().sum(tensor)

    def swap(self, kind: str, rows: np.ndarray, sent: list[int], received: list[int]) -> np.ndarray:
        """Send the first ``sent[0]`` rows to process 0, the next ``sent[1]`` to process 1, and so on.

        Args:
            kind: what is counted under.
            rows: shape (sum of `sent`, ...).
            sent: how many rows go to each process.
            received: how many come from each.

        Returns:
            What came, in order of processes: shape (sum of `received`, ...).
        """
        if self.count == 1:
            return rows
        came = np.empty((sum(received), *rows.shape[1:]), dtype=rows.dtype)
        dist.all_to_all_single(torch.from_numpy(came), torch.from_numpy(rows), received, sent)
        self.received[kind] += (len(came) - received[self.rank]) * rows[:1].nbytes  # its own stay at home
        return came


@dataclass
class TableShare:
    """The rows of the stacked table that one process owns.

    Attributes:
        weight: float32, shape (V/N, width).
        accumulated: of the same shape, Adagrad's sums.
        slots: int32, shape (V/N,), where `gramrun.model.bags` keeps places between two loops.
    """

    weight: np.ndarray
    accumulated: np.ndarray
    slots: np.ndarray

    @classmethod
    def of(cls, weight: np.ndarray) -> TableShare:
        """A share that starts with these rows; every page of its memory is written, hence resident."""
        accumulated = np.empty_like(weight)
        accumulated.fill(0)
        return cls(weight, accumulated, np.full(len(weight), -1, dtype=np.int32))


@dataclass(frozen=True)
class Bags:
    """One feature of one side, for this process's part of a batch.

    Attributes:
        rows: int64, of the stacked table, bag after bag.
        ends: int64, shape (items,): bag b is ``rows[ends[b − 1] : ends[b]]``.
        start: the bags' first column in the tower's inputs.
    """

    rows: np.ndarray
    ends: np.ndarray
    start: int


Sides = tuple[Sequence[Bags], Sequence[Bags]]  # left, right


@dataclass(frozen=True)
class _Request:
    """The distinct rows of a step, in order of owners, and what others ask of this process.

    Attributes:
        places: int32, for each row of the bags, one after the other, its place among the distinct.
        in_gradient: bool, shape (distinct,): whether B' holds it.
        sent: how many of the distinct each process owns.
        asked: int64, this process's own rows that others ask for, in order of processes.
        asked_in_gradient: bool, of the same shape.
        received: how many each process asks for.
    """

    places: np.ndarray
    in_gradient: np.ndarray
    sent: list[int]
    asked: np.ndarray
    asked_in_gradient: np.ndarray
    received: list[int]


class SplitStep:
    """A training step over tables split by rows: gravity, squared error against 1, Adagrad.

    Args:
        towers: left and right, whose dense layers every process has a replica of.
        share: this process's rows.
        rows: V.
        processes: of the run.
        table_learning_rate: η of the tables.
        dense_learning_rate: η of the dense layers.
        gravity: λ.
        mean: whether bags are means.

    Attributes:
        seconds: by part of the step, so far. Waiting for others counts where it happens.
    """

    def __init__(
        self,
        towers: tuple[Tower, Tower],
        share: TableShare,
        rows: int,
        processes: CountedProcesses,
        *,
        table_learning_rate: float,
        dense_learning_rate: float,
        gravity: float,
        mean: bool = False,
    ) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._towers, self._share, self._processes = towers, share, processes
        self._most = -(-rows // processes.count)  # rows of the process that owns most
        assert 2 * self._most < 2**31, "row numbers travel as int32, with one bit more"
        self._rate, self._gravity, self._mean = table_learning_rate, gravity, mean
        self._dense = [p for tower in towers for p in tower.parameters()]
        self._optimizer = (
            torch.optim.Adagrad(self._dense, lr=dense_learning_rate, fused=True) if self._dense else None
        )

    def step(self, gradient: Sides, gramian: Sides) -> float:
        """Take one step on this process's part of B' and of B: the loss over all of B'."""
        listed = [b for sides in (gradient, gramian) for side in sides for b in side]
        ask = self._ask(listed, sum(len(b.rows) for side in gradient for b in side))
        rows = self._fetch(ask)
        with self._timed("bags"):
            ends = np.cumsum([len(b.rows) for b in listed])
            of = {id(b): ask.places[end - len(b.rows) : end] for b, end in zip(listed, ends, strict=True)}
            inputs, members = (
                [self._gather(side, of, rows) for side in sides] for sides in (gradient, gramian)
            )
        loss, slopes = self._descend(inputs, members)
        with self._timed("gradients"):
            came = self._give_back(ask, self._row_sums(ask, gradient, of, slopes))
        with self._timed("update"):
            self._update(ask.asked[ask.asked_in_gradient].astype(np.int32), came)
        return loss

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - begin

    def _ask(self, listed: Sequence[Bags], gradient_rows: int) -> _Request:
        """Merge the rows of the bags, those of B' first, and tell their owners."""
        count = self._processes.count
        with self._timed("merge"):
            rows = np.concatenate([b.rows for b in listed])
            # Numbered so that an owner's rows follow one another: sorted is then in order of owners.
            keys = rows % count * self._most + rows // count
            distinct, places = np.unique(keys, return_inverse=True)
            in_gradient = np.zeros(len(distinct), dtype=bool)
            in_gradient[places[:gradient_rows]] = True
            sent = np.bincount(distinct // self._most, minlength=count)
        with self._timed("ids"):
            ones = [1] * count
            received = self._processes.swap("counts", sent, ones, ones).tolist()
            numbers = (distinct % self._most * 2 + in_gradient).astype(np.int32)
            asked = self._processes.swap("ids", numbers, sent.tolist(), received)
        return _Request(
            places.astype(np.int32), in_gradient, sent.tolist(), asked // 2, asked % 2 == 1, received
        )

    def _fetch(self, ask: _Request) -> np.ndarray:
        """The distinct rows, from their owners: shape (distinct, width)."""
        with self._timed("rows"):
            given = self._share.weight.take(ask.asked, axis=0)
            return self._processes.swap("rows", given, ask.received, ask.sent)

    def _gather(self, side: Sequence[Bags], of: dict[int, np.ndarray], rows: np.ndarray) -> Tensor:
        width = rows.shape[1]
        inputs = torch.zeros(len(side[0].ends), side[-1].start + width)
        for b in side:
            bags.gather_bags(of[id(b)], b.ends, rows, self._mean, inputs.numpy(), b.start)
        return inputs

    def _descend(self, inputs: list[Tensor], members: list[Tensor]) -> tuple[float, list[np.ndarray]]:
        """Update the dense layers: the loss over all of B', and the gradients of both sides' inputs."""
        processes = self._processes
        with self._timed("dense"), torch.no_grad():
            rows = [tower.dense(z) for tower, z in zip(self._towers, members, strict=True)]
            moments = torch.stack([e.T @ e / len(e) for e in rows])
        with self._timed("sums"):
            gramians = processes.mean(moments)
        with self._timed("dense"):
            leaves = [z.requires_grad_() for z in inputs]
            u, v = (tower.dense(z) for tower, z in zip(self._towers, leaves, strict=True))
            loss = squared_error(u, v, 1.0)
            pull = gravity_surrogate(GravitySide(u), GravitySide(v), gramians[0], gramians[1])
            ((loss + self._gravity * pull) / processes.count).backward()
        with self._timed("sums"):
            processes.add_gradients(self._dense)
            mean_loss = float(processes.mean(loss.detach()))
        if self._optimizer is not None:
            with self._timed("dense"):
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
        return mean_loss, [z.grad.numpy() for z in leaves if z.grad is not None]

    def _row_sums(
        self, ask: _Request, gradient: Sides, of: dict[int, np.ndarray], slopes: list[np.ndarray]
    ) -> np.ndarray:
        """The gradient of each row that this process's part of B' holds, in order of owners."""
        count = int(ask.in_gradient.sum())
        slots = np.full(len(ask.in_gradient), -1, dtype=np.int32)
        slots[ask.in_gradient] = np.arange(count, dtype=np.int32)
        sums = np.zeros((count, self._share.weight.shape[1]), dtype=np.float32)
        met = np.empty(0, dtype=np.int64)  # every row has its slot already: none is met for the first time
        for side, slope in zip(gradient, slopes, strict=True):
            for b in side:
                listed = (of[id(b)], b.ends, slope, b.start, self._mean)
                bags.sum_gradients(*listed, slots, met, sums, count)
        return sums

    def _give_back(self, ask: _Request, sums: np.ndarray) -> np.ndarray:
        """Send the sums to the owners: those that came to this one, in the order of what was asked of it."""
        sent = [int(part.sum()) for part in np.split(ask.in_gradient, np.cumsum(ask.sent)[:-1])]
        asked = np.split(ask.asked_in_gradient, np.cumsum(ask.received)[:-1])
        return self._processes.swap("gradients", sums, sent, [int(part.sum()) for part in asked])

    def _update(self, rows: np.ndarray, gradients: np.ndarray) -> None:
        """Adagrad on own rows, each by its sum over the processes."""
        share = self._share
        ends = np.arange(1, len(rows) + 1)
        met, sums = np.empty(len(rows), dtype=np.int64), np.empty_like(gradients)
        count, _ = bags.sum_gradients(rows, ends, gradients, 0, False, share.slots, met, sums, 0)
        bags.update_adagrad(share.weight, share.accumulated, share.slots, met, sums, count, self._rate)
