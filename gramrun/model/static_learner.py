"""The gradient step on a GPU: every tensor of it has one shape and one place, so that it can be replayed.

Started one by one, the hundred small kernels of a step cost the processor longer than a GPU needs to run
them. A CUDA graph starts them all at once, but can hold nothing whose size the data decides: no list of a
batch's rows, no distinct ones, no sparse gradient. So, with L the longest bag of a column,

    gather       z_b = scale_b sum_{l < L} [l < |R(b)|] E_{r(b, l)}        r(b, l) repeats the bag's last row
    gradient     D_r = sum over b, l with r(b, l) = r of scale_b [l < |R(b)|] dz_b     D as large as the table
    Adagrad      for every r(b, l): s ← s + D_r²,  E_r ← E_r − η D_r / (√s + 10⁻¹⁰);  then D_r ← 0

The last line computes a row as often as it occurs and writes the same value each time, which is cheaper than
finding out how often. D costs as much memory again as the table, and no time that grows with it.

On a GPU the sums into D are in no fixed order, so equal seeds give equal results to rounding, not to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gramrun.model.learners import BatchItems, Learner, NotFinite, Step, Terms, load_sums
from gramrun.model.towers import FeatureColumn, Tower, TwoTower, table_name

_EPSILON = 1e-10  # torch's own, of Adagrad
_EAGER_CALLS = 3  # before a capture: lazily made handles and workspaces must exist by then


@dataclass(frozen=True)
class _Column:
    """A feature of one side."""

    offsets: Tensor
    indices: Tensor
    table: str
    longest: int

    def bags(self, items: Tensor, mean: bool) -> tuple[Tensor, Tensor]:
        """r(b, l), int64, and scale_b [l < |R(b)|], float32: both of shape (B, L)."""
        starts = self.offsets[items]
        lengths = self.offsets[items + 1] - starts
        place = torch.arange(self.longest, device=items.device)
        inside = (place < lengths[:, None]).float()
        within = torch.minimum(place, (lengths - 1).clamp_min(0)[:, None])
        rows = self.indices[(starts[:, None] + within).clamp_max(len(self.indices) - 1)].long()
        return rows, inside / lengths.clamp_min(1)[:, None] if mean else inside


@dataclass
class _Table:
    """A feature table, its accumulator and its gradient D; `accumulated` is empty for gradient descent."""

    weight: Tensor
    accumulated: Tensor
    gradient: Tensor


class StaticLearner(Learner):
    """The step in fixed shapes; on a GPU as CUDA graphs, on a CPU (its twin in the tests) kernel by kernel.

    Args:
        model: float32, on the device.
        optimizer: one of `SPARSE_OPTIMIZERS`.
        table_learning_rate: η of the feature tables.
        dense_learning_rate: η of the dense layers.
        mean: whether bags are means.
    """

    def __init__(
        self,
        model: TwoTower,
        optimizer: str,
        table_learning_rate: float,
        dense_learning_rate: float,
        *,
        mean: bool,
    ) -> None:
        tables = {name: table.detach() for name, table in model.named_tables().items()}
        self.device = model.device
        self._towers: dict[str, Tower] = {"left": model.left, "right": model.right}
        self._rates = {"tables": table_learning_rate, "dense": dense_learning_rate}
        self._adagrad = optimizer == "adagrad"
        self._mean = mean

        def accumulator(parameter: Tensor) -> Tensor:
            return torch.zeros_like(parameter if self._adagrad else parameter[:0])

        self._tables = {
            name: _Table(table, accumulator(table), torch.zeros_like(table)) for name, table in tables.items()
        }
        self._dense = model.dense_parameters()
        self._dense_accumulated = [accumulator(parameter.detach()) for parameter in self._dense]
        self._columns = {side: _columns(tower) for side, tower in self._towers.items()}
        self._linear = {side: tower.output is None for side, tower in self._towers.items()}
        self._taken: dict[str, Tensor] = {}
        self._replayed: dict[Any, _Replayed] = {}

    def embed(self, side: str, items: Tensor) -> Tensor:  # noqa: D102
        # A copy: the next batch of the size is embedded into the same place.
        return self._run(("embed", side), lambda x: (self._embed(side, x),), items)[0].clone()

    @torch.no_grad()
    def _embed(self, side: str, items: Tensor) -> Tensor:
        return self._towers[side].dense(self._gather(side, items)[0])

    def take(self, side: str, items: Tensor) -> None:  # noqa: D102
        self._taken[side] = items

    def descend(self, batch: BatchItems, terms: Terms) -> Step:  # noqa: D102
        items = (batch.pairs, self._taken.pop("left"), self._taken.pop("right"))
        loss, objective, u, v = self._run("descend", lambda *x: self._descend(BatchItems(*x), terms), *items)
        if not torch.isfinite(objective):  # after the step: to look before would stop the device in its midst
            raise NotFinite(f"the objective is {objective.item():g} (loss {loss.item():g})")
        return Step(loss, u, v)

    def _descend(self, batch: BatchItems, terms: Terms) -> tuple[Tensor, ...]:
        inputs, bags = {}, {}
        for side, items in (("left", batch.left), ("right", batch.right)):
            with torch.no_grad():
                inputs[side], bags[side] = self._gather(side, items)
            inputs[side].requires_grad_()
        u, v = (self._towers[side].dense(inputs[side]) for side in ("left", "right"))
        loss, penalty = terms(batch, u, v)
        objective = loss + penalty
        gradients = torch.autograd.grad(objective, [*inputs.values(), *self._dense])
        with torch.no_grad():
            for name, table in self._tables.items():
                self._update_table(
                    table,
                    [
                        (gradients[i][:, start : start + table.weight.shape[1]], *bag)
                        for i, side in enumerate(("left", "right"))
                        for used, start, bag in bags[side]
                        if used == name
                    ],
                )
            for parameter, accumulated, gradient in zip(
                self._dense, self._dense_accumulated, gradients[2:], strict=True
            ):
                parameter.sub_(self._scaled(gradient, accumulated), alpha=self._rates["dense"])
        return loss.detach(), objective.detach(), u.detach(), v.detach()

    def _gather(
        self, side: str, items: Tensor
    ) -> tuple[Tensor, list[tuple[str, int, tuple[Tensor, Tensor]]]]:
        """z, and for every column its table, its first column in z, and its bags."""
        parts, bags = [], []
        start = 0
        for column in self._columns[side]:
            weight = self._tables[column.table].weight
            if column.longest:
                rows, scales = column.bags(items, self._mean)
                parts.append((weight[rows] * scales[:, :, None]).sum(1))
                bags.append((column.table, start, (rows, scales)))
            else:  # a column without any value
                parts.append(weight.new_zeros(len(items), weight.shape[1]))
            start += 0 if self._linear[side] else weight.shape[1]
        return sum(parts[1:], start=parts[0]) if self._linear[side] else torch.cat(parts, 1), bags

    def _update_table(self, table: _Table, used: list[tuple[Tensor, Tensor, Tensor]]) -> None:
        if not used:
            return
        for gradient, rows, scales in used:
            table.gradient.index_add_(
                0, rows.flatten(), (gradient[:, None] * scales[:, :, None]).flatten(0, 1)
            )
        touched = torch.cat([rows.flatten() for _, rows, _ in used])
        gradient = table.gradient[touched]
        if self._adagrad:
            accumulated = table.accumulated[touched] + gradient.square()
            table.accumulated[touched] = accumulated
            gradient = gradient / (accumulated.sqrt() + _EPSILON)
        table.weight[touched] = table.weight[touched] - self._rates["tables"] * gradient
        table.gradient.index_fill_(0, touched, 0)

    def _scaled(self, gradient: Tensor, accumulated: Tensor) -> Tensor:
        """What the rate multiplies: Adagrad's g / (√s + ε) with s ← s + g², or g."""
        if not self._adagrad:
            return gradient
        accumulated += gradient.square()
        return gradient / (accumulated.sqrt() + _EPSILON)

    def _run(
        self, name: Any, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """Call a function of tensors, on a GPU as a graph of its own for every name and shape of inputs."""
        if self.device.type != "cuda":
            return function(*inputs)
        key = (name, *(len(x) for x in inputs))
        if key not in self._replayed:
            self._replayed[key] = _Replayed(function, inputs)
        return self._replayed[key](*inputs)

    def state_dict(self) -> dict[str, Any]:  # noqa: D102
        return {
            "accumulated": {name: table.accumulated for name, table in self._tables.items()},
            "dense_accumulated": self._dense_accumulated,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: D102
        load_sums(self.state_dict(), state)


class _Replayed:
    """A function of tensors on a GPU: called as it is a few times, then captured once and replayed.

    Args:
        function: of `inputs`; changes nothing but tensors, and always the same ones.
        inputs: of the shapes that all calls have.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...]) -> None:
        self._function = function
        self._inputs = tuple(x.clone() for x in inputs)
        self._stream = torch.cuda.Stream()
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._outputs: tuple[Tensor, ...] = ()

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given, non_blocking=True)
        self._calls += 1
        if self._calls <= _EAGER_CALLS:
            # On another stream than the default one, as a capture will be.
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                outputs = self._function(*self._inputs)
            torch.cuda.current_stream().wait_stream(self._stream)
            return outputs
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self._stream):  # records, and runs nothing
                self._outputs = self._function(*self._inputs)
        self._graph.replay()
        return self._outputs


def _columns(tower: Tower) -> list[_Column]:
    columns: list[FeatureColumn] = list(tower.columns)  # type: ignore[arg-type]
    return [_Column(c.offsets, c.indices, table_name(c.vocabulary), c.longest) for c in columns]
