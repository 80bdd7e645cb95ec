"""The GPU engine of fixed shapes: one CUDA graph replays a whole gradient step (``train.engine: static``).

Started one by one, the hundred small kernels of a step cost the host more time than the GPU needs to run
them. A CUDA graph starts them together, but no shape in it may depend on the data: no list of a batch's rows,
no sparse gradient. With L the longest bag of a column,

    gather       z_b = scale_b sum_{l < L} [l < |R(b)|] E_{r(b, l)}        behind its end a bag reads on
    gradient     D_r = sum over b, l with r(b, l) = r of scale_b [l < |R(b)|] dz_b     D as large as the table
    Adagrad      for every r(b, l): s ← s + D_r²,  E_r ← E_r − η D_r / (√s + 10⁻¹⁰);  then D_r ← 0
    Adam         PyTorch's, of every row; then D ← 0

Adagrad's line computes a row as often as it occurs and writes the same value each time; a row that is read
behind the end of a bag has D_r = 0 and does not change. D takes the memory of the table again. η is a number
on the device, so that it can fall. On a GPU the sums into D have no fixed order: equal seeds give results
equal up to rounding.

The tests compare it with the plain engine on the CPU, and on a GPU with the CPU's engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from gramrun.model.engine import Batch, Engine, GradientStep, TowerInputs
from gramrun.model.optimizers import OptimizerOptions, load_in_place
from gramrun.model.towers import FeatureColumn, Tower, TwoTower, table_name

_EPSILON = 1e-10  # of PyTorch's Adagrad
_ADAM_EPSILON = 1e-8  # of PyTorch's Adam
_EAGER_CALLS = 3  # before a capture: handles and workspaces that are made lazily must exist by then


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
        rows = self.indices[(starts[:, None] + place).clamp_max(len(self.indices) - 1)].long()
        return rows, inside / lengths.clamp_min(1)[:, None] if mean else inside


@dataclass
class _Table:
    """A feature table, its gradient D, s or v (empty for SGD), and m (empty but for Adam)."""

    weight: Tensor
    gradient: Tensor
    accumulated: Tensor
    momentum: Tensor


@dataclass(frozen=True)
class _ColumnRows:
    """The padded bags of a batch in one column, whose inputs begin at column `start`."""

    table: str
    start: int
    rows: Tensor
    scales: Tensor


Inputs = TowerInputs[list[_ColumnRows]]


class StaticEngine(Engine[list[_ColumnRows]]):
    """Fixed shapes: captured as CUDA graphs on a GPU, run kernel by kernel on a CPU.

    Args:
        model: the towers and tables, float32, on the device.
        optimizer: ``adagrad``, ``adam`` or ``sgd``.
        mean: whether bags are means instead of sums.
    """

    def __init__(self, model: TwoTower, optimizer: OptimizerOptions, *, mean: bool) -> None:
        super().__init__(model)
        self.captured = self.device.type != "cpu"
        self._optimizer = optimizer
        self._mean = mean
        start = optimizer.initial_accumulator if optimizer.name == "adagrad" else 0.0

        def accumulator(parameter: Tensor) -> Tensor:
            return torch.full_like(parameter[:0] if optimizer.name == "sgd" else parameter, start)

        def momentum(parameter: Tensor) -> Tensor:
            return torch.zeros_like(parameter if optimizer.name == "adam" else parameter[:0])

        self._tables = {
            name: _Table(w := table.detach(), torch.zeros_like(w), accumulator(w), momentum(w))
            for name, table in model.named_tables().items()
        }
        self._dense = model.dense_parameters()
        detached = [parameter.detach() for parameter in self._dense]
        self._dense_accumulated = [accumulator(weight) for weight in detached]
        self._dense_momentum = [momentum(weight) for weight in detached]
        self._adam_steps = torch.zeros(len(self._tables) + len(self._dense), device=self.device)  # t of each
        self._factor = 1.0
        self._table_rate = torch.tensor(optimizer.table_learning_rate, device=self.device)
        self._dense_rate = torch.tensor(optimizer.dense_learning_rate, device=self.device)
        self._columns = {side: _columns(tower) for side, tower in self.towers.items()}
        self._embed = {side: self._replayed(partial(self._embed_outputs, side)) for side in self.towers}

    def embed(  # noqa: D102
        self, side: str, items: Tensor, without_id: Tensor | None = None
    ) -> Tensor:
        assert without_id is None, "a captured graph draws nothing; `checks` refuses to drop ids"
        return self._embed[side](items)[0].clone()  # the next batch overwrites the graph's output

    def _embed_outputs(self, side: str, items: Tensor) -> tuple[Tensor]:
        return (super().embed(side, items),)

    def capture(self, gradient_step: GradientStep) -> GradientStep:  # noqa: D102
        return self._replayed(gradient_step)  # type: ignore[return-value]

    def _replayed(self, function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
        return _Captured(function) if self.device.type == "cuda" else function

    def scale_rates(self, factor: float) -> None:  # noqa: D102
        if factor != self._factor:
            self._factor = factor
            self._table_rate.fill_(self._optimizer.table_learning_rate * factor)
            self._dense_rate.fill_(self._optimizer.dense_learning_rate * factor)

    def gather(self, batch: Batch) -> Inputs:  # noqa: D102
        assert batch.without_id is None, "a captured graph draws nothing; `checks` refuses to drop ids"
        summed = self.towers[batch.side].output is None  # the bags of a linear tower
        parts, listed = [], []
        start = 0
        with torch.no_grad():
            for column in self._columns[batch.side]:
                weight = self._tables[column.table].weight
                if column.longest:
                    rows, scales = column.bags(batch.items, self._mean)
                    parts.append((weight[rows] * scales[:, :, None]).sum(1))
                    listed.append(_ColumnRows(column.table, start, rows, scales))
                else:  # a column without any value
                    parts.append(weight.new_zeros(len(batch.items), weight.shape[1]))
                start += 0 if summed else weight.shape[1]
            inputs = sum(parts[1:], start=parts[0]) if summed else torch.cat(parts, 1)
        return TowerInputs(inputs.requires_grad_(torch.is_grad_enabled()), listed)

    @torch.no_grad()
    def update(self, left: Inputs, right: Inputs) -> None:  # noqa: D102
        used: dict[str, list[tuple[Tensor | None, _ColumnRows]]] = {}
        for side in (left, right):
            for column in side.rows:
                used.setdefault(column.table, []).append((side.inputs.grad, column))
        touched = {name: self._add_gradients(self._tables[name], columns) for name, columns in used.items()}
        gradients = []
        for parameter in self._dense:
            assert parameter.grad is not None
            gradients.append(parameter.grad)
            parameter.grad = None
        if self._optimizer.name == "adam":
            self._update_adam(gradients)
        else:
            self._update_dense(gradients)
            for name, rows in touched.items():
                self._update_rows(self._tables[name], rows)

    def _add_gradients(self, table: _Table, used: list[tuple[Tensor | None, _ColumnRows]]) -> Tensor:
        """Sum into D the gradients of a table's columns; return their rows, with repeats."""
        width = table.weight.shape[1]
        for inputs_gradient, c in used:
            assert inputs_gradient is not None
            bag_gradient = inputs_gradient[:, None, c.start : c.start + width] * c.scales[:, :, None]
            table.gradient.index_add_(0, c.rows.flatten(), bag_gradient.flatten(0, 1))
        return torch.cat([c.rows.flatten() for _, c in used])

    def _update_rows(self, table: _Table, touched: Tensor) -> None:
        gradient = table.gradient[touched]
        if self._optimizer.name == "adagrad":
            accumulated = table.accumulated[touched] + gradient.square()
            table.accumulated[touched] = accumulated
            gradient = gradient / (accumulated.sqrt() + _EPSILON)
        table.weight[touched] = table.weight[touched] - self._table_rate * gradient
        table.gradient.index_fill_(0, touched, 0)

    def _update_dense(self, gradients: list[Tensor]) -> None:
        """All dense layers at once: a kernel of each would take as long."""
        if not gradients:
            return
        scaled = gradients
        if self._optimizer.name == "adagrad":
            torch._foreach_addcmul_(self._dense_accumulated, gradients, gradients)
            roots = torch._foreach_sqrt(self._dense_accumulated)
            torch._foreach_add_(roots, _EPSILON)
            scaled = list(torch._foreach_div(gradients, roots))
        torch._foreach_sub_(list(self._dense), torch._foreach_mul(scaled, self._dense_rate))

    def _update_adam(self, gradients: list[Tensor]) -> None:
        beta1, beta2 = self._optimizer.betas

        update = partial(
            adam,
            max_exp_avg_sqs=[],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            weight_decay=0,
            eps=_ADAM_EPSILON,
            maximize=False,
        )
        tables, steps = list(self._tables.values()), list(self._adam_steps.unbind())
        of_tables = [table.gradient for table in tables]
        momenta, squares = [table.momentum for table in tables], [table.accumulated for table in tables]
        weights = [table.weight for table in tables]
        update(weights, of_tables, momenta, squares, state_steps=steps[: len(tables)], lr=self._table_rate)
        dense: list[Tensor] = list(self._dense)
        momenta, squares = self._dense_momentum, self._dense_accumulated
        update(dense, gradients, momenta, squares, state_steps=steps[len(tables) :], lr=self._dense_rate)
        torch._foreach_zero_(of_tables)

    def state_dict(self) -> dict[str, Any]:  # noqa: D102
        state: dict[str, Any] = {
            "accumulated": {name: table.accumulated for name, table in self._tables.items()},
            "dense_accumulated": self._dense_accumulated,
        }
        if self._optimizer.name == "adam":
            state["momentum"] = {name: table.momentum for name, table in self._tables.items()}
            state["dense_momentum"] = self._dense_momentum
            state["steps"] = [self._adam_steps]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: D102
        load_in_place(self.state_dict(), state)


class _Captured:
    """A function of tensors as CUDA graphs, one for each size of its inputs.

    Args:
        function: changes only tensors, and always the same ones.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]]) -> None:
        self._function = function
        self._graphs: dict[tuple[int, ...], _Graph] = {}

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        sizes = tuple(len(x) for x in inputs)
        if sizes not in self._graphs:
            self._graphs[sizes] = _Graph(self._function, inputs)
        return self._graphs[sizes](*inputs)


class _Graph:
    """Calls a function eagerly a few times, then captures it once and replays it from then on."""

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
            # On a side stream, as the capture will be.
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
