"""Feature tables that are split by rows among the processes, by TorchRec (``train.tables: row-wise``).

Of a table of V rows, process p of N holds the rows p⌈V/N⌉ … (p + 1)⌈V/N⌉ − 1 and their optimizer's state, so
tables end where the memory of all processes ends. In a step, with the |B'|/N items of each process,

    gather   the rows that the items need are asked of the processes that hold them; each holder adds up what
             it has of every bag, and the sums over the holders come back: z, as in `gramrun.model.bags`
    update   ∂L/∂z of all processes goes to all; each sums the gradients of its rows and updates them,
             fused into the backward pass (fbgemm's exact SGD and exact Adagrad)

These are the formulas of `gramrun.model.bags` with the sums in another order: gradients of a row that occurs
several times in a batch are summed first. So N processes give the trajectory of one up to rounding. The dense
layers and the estimators are replicas, as without split tables (`gramrun.base.processes`).

With an L2 penalty (`gramrun.model.l2`) the bags of B' hold one row each and are summed after the exchange, so
that the gradient of each occurrence of a row can have its d_r E_r. This exchanges values instead of bags.

TorchRec takes tables whose width is a multiple of 4, and of which every process holds a row: they are padded
with columns and rows that stay 0.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from gramrun.base.errors import ConfigError
from gramrun.base.processes import SINGLE_PROCESS, Processes, exchange_errors
from gramrun.model.engine import Batch, Engine, TowerInputs, set_rates
from gramrun.model.optimizers import OptimizerOptions, load_in_place, make_dense_optimizer
from gramrun.model.towers import FeatureColumn, Tower, TwoTower, table_name

_MULTIPLE = 4  # fbgemm's, of a table's width
_EPSILON = 1e-10  # of PyTorch's Adagrad

Bags = tuple[Tensor, Tensor]  # one column of a batch: its rows one bag after the other, and each bag's length


@dataclass(frozen=True)
class Shard:
    """The rows of a table that this process holds; the tensors share the memory of TorchRec's.

    Attributes:
        rows: V, of the whole table.
        first: the number of the first row here.
        weight: float32, shape (rows here, width).
        accumulated: s of Adagrad, of the same shape; None for SGD.
    """

    rows: int
    first: int
    weight: Tensor
    accumulated: Tensor | None


def check_torchrec() -> None:
    """Check that TorchRec can be loaded.

    Raises:
        ConfigError: when it is missing, with the command that installs it.
    """
    needed = ("torchrec", "fbgemm_gpu", "tensordict", "pyre_extensions")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"train.tables: row-wise needs TorchRec, and {missing[0]} is not installed; install it as "
            "docs/many-items.md says, or set train.tables: replicated"
        )


class RowWiseTables:
    """The tables of a model, split by rows among all processes. All must call the same methods in turn.

    Args:
        sizes: V of each table, by `table_name`.
        features: the table of each column, by side.
        width: of every table.
        mean: whether bags are means instead of sums.
        optimizer: ``sgd`` or ``adagrad``.
        processes: the processes that train together.

    Raises:
        ConfigError: when TorchRec is not installed.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        features: Mapping[str, Sequence[str]],
        width: int,
        *,
        mean: bool,
        optimizer: OptimizerOptions,
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        check_torchrec()
        if not dist.is_initialized():  # a single process, which torchrun has not started
            dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        self._width, self._rate, self.mean = width, optimizer.table_learning_rate, mean
        self._columns = {side: [f"{side}:{i}" for i in range(len(names))] for side, names in features.items()}
        readers = {
            table: [
                f"{side}:{i}" for side, names in features.items() for i, n in enumerate(names) if n == table
            ]
            for table in sizes
        }
        self._keys = [key for table in sizes for key in readers[table]]
        padded = {table: padded_rows(rows, processes.count) for table, rows in sizes.items()}
        self._collection = _collection(padded, readers, width, mean, optimizer, processes.count)
        self.shards = self._shards(sizes, optimizer.name)
        for shard in self.shards.values():
            if shard.accumulated is not None:
                shard.accumulated.fill_(optimizer.initial_accumulator)

    @torch.no_grad()
    def _shards(self, sizes: Mapping[str, int], optimizer: str) -> dict[str, Shard]:
        weights = self._collection.state_dict()
        states = self._collection.fused_optimizer.state_dict()["state"]
        shards = {}
        for table, rows in sizes.items():
            key = f"embedding_bags.{table}.weight"
            (here,) = weights[key].local_shards()
            here.tensor.zero_()
            first = here.metadata.shard_offsets[0]
            own = slice(max(rows - first, 0)), slice(self._width)
            accumulated = None
            if optimizer == "adagrad":
                (state,) = states[key][f"{table}.momentum1"].local_shards()
                accumulated = state.tensor[own]
            shards[table] = Shard(rows, first, here.tensor.detach()[own], accumulated)
        return shards

    @torch.no_grad()
    def fill(self, table: str, start: int, rows: Tensor) -> None:
        """Set the rows ``start : start + len(rows)`` of a table, as far as they are here."""
        shard = self.shards[table]
        begin = max(start, shard.first)
        end = min(start + len(rows), shard.first + len(shard.weight))
        if begin < end:
            shard.weight[begin - shard.first : end - shard.first] = rows[begin - start : end - start]

    @torch.no_grad()
    def clear(self, table: str, untrained: Tensor) -> None:
        """Set the rows at which `untrained`, bool, shape (V,), is true to 0, as far as they are here."""
        shard = self.shards[table]
        shard.weight[untrained[shard.first : shard.first + len(shard.weight)]] = 0

    def parts(self) -> dict[str, tuple[int, Tensor]]:
        """The tables and their optimizer's state by name: V, and the rows here."""
        parts = {f"weight.{table}": (shard.rows, shard.weight) for table, shard in self.shards.items()}
        for table, shard in self.shards.items():
            if shard.accumulated is not None:
                parts[f"accumulated.{table}"] = shard.rows, shard.accumulated
        return parts

    def set_rate(self, rate: float) -> None:
        """Set η of the tables."""
        if rate != self._rate:
            optimizer = self._collection.fused_optimizer
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()  # hands the rate to the fused update, and does nothing else
            self._rate = rate

    def look_up(self, bags: Mapping[str, Sequence[Bags]]) -> dict[str, list[Tensor]]:
        """Exchange rows: the bags of one or both sides, of this process's part of a batch.

        Args:
            bags: of each column of a side; equally many bags in all. Other processes may have other numbers
                of bags, but not where gradients follow.

        Returns:
            float32, shape (bags, width), of each column by side. Going backward from them updates the rows.
        """
        listed = {
            key: b
            for side, columns in bags.items()
            for key, b in zip(self._columns[side], columns, strict=True)
        }
        (_, some) = next(iter(listed.values()))
        nothing = some.new_empty(0), torch.zeros_like(some)
        given = [listed.get(key, nothing) for key in self._keys]
        from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

        jagged = KeyedJaggedTensor(
            keys=self._keys,
            values=torch.cat([rows.long() for rows, _ in given]),
            lengths=torch.cat([lengths for _, lengths in given]),
        )
        with exchange_errors():
            found = self._collection(jagged)
            values = dict(zip(found.keys(), found.values().split(padded_width(self._width), 1), strict=True))
        return {side: [values[key][:, : self._width] for key in self._columns[side]] for side in bags}


def padded_width(width: int) -> int:
    """The width that a table of `width` columns takes in memory."""
    return -(-width // _MULTIPLE) * _MULTIPLE


def padded_rows(rows: int, count: int) -> int:
    """N⌈V/N⌉, the rows that TorchRec is given: fbgemm reads past the end of its sizes where it has none."""
    return count * -(-rows // count)


def as_dtensors(parts: Mapping[str, tuple[int, Tensor]], processes: Processes) -> dict[str, Tensor]:
    """DTensors by name, from the number of their rows and this process's block, whose memory they share."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Shard as ByRows

    mesh = init_device_mesh("cpu", (processes.count,))
    return {
        name: DTensor.from_local(
            here, mesh, [ByRows(0)], shape=torch.Size((rows, here.shape[1])), stride=(here.shape[1], 1)
        )
        for name, (rows, here) in parts.items()
    }


def _collection(
    sizes: Mapping[str, int],
    readers: Mapping[str, list[str]],
    width: int,
    mean: bool,
    optimizer: OptimizerOptions,
    count: int,
) -> Any:
    """TorchRec's EmbeddingBagCollection, sharded by rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that TorchRec imports
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from torchrec.distributed import comm_ops
        from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
        from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
        from torchrec.distributed.types import ShardingEnv
        from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
        from torchrec.modules.embedding_modules import EmbeddingBagCollection
    # TorchRec warns of its own calls.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\.c10d_logger")
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)
    comm_ops.set_gradient_division(False)  # gradients are sums over the processes, not means
    configs = [
        EmbeddingBagConfig(
            name=table,
            embedding_dim=padded_width(width),
            num_embeddings=rows,
            feature_names=readers[table],
            pooling=PoolingType.MEAN if mean else PoolingType.SUM,
        )
        for table, rows in sizes.items()
    ]
    fused = {
        "optimizer": EmbOptimType.EXACT_SGD if optimizer.name == "sgd" else EmbOptimType.EXACT_ADAGRAD,
        "learning_rate": optimizer.table_learning_rate,
        "eps": _EPSILON,
    }
    sharder = EmbeddingBagCollectionSharder(fused_params=fused)
    whole = EmbeddingBagCollection(device=torch.device("meta"), tables=configs)
    plan = construct_module_sharding_plan(
        whole,
        {table: row_wise(compute_kernel="fused") for table in sizes},
        sharder=sharder,
        world_size=count,
        local_size=count,
        device_type="cpu",
    )
    assert dist.group.WORLD is not None
    return sharder.shard(whole, plan, ShardingEnv.from_process_group(dist.group.WORLD), torch.device("cpu"))


class RowWiseEngine(Engine[tuple[Tensor, ...]]):
    """Autograd for the dense layers, `RowWiseTables` for the tables.

    Args:
        model: the towers; its tables are `tables`.
        tables: the rows that this process holds.
        optimizer: of the dense layers, and the rate of the tables.
        processes: the processes that train together.
        decays: of the L2 penalty (`gramrun.model.l2.row_decays`), by table; empty: none.
    """

    def __init__(
        self,
        model: TwoTower,
        tables: RowWiseTables,
        optimizer: OptimizerOptions,
        processes: Processes,
        decays: Mapping[str, Tensor],
    ) -> None:
        super().__init__(model, processes)
        self.tables = tables
        self._decays = decays
        self._optimizer = optimizer
        self._dense_parameters = model.dense_parameters()
        self._dense_optimizer = make_dense_optimizer(model, optimizer)
        model.remote = self.ask

    def scale_rates(self, factor: float) -> None:  # noqa: D102
        self.tables.set_rate(self._optimizer.table_learning_rate * factor)
        if self._dense_optimizer is not None:
            set_rates([self._dense_optimizer], [self._optimizer.dense_learning_rate], factor)

    def gather(self, batch: Batch) -> TowerInputs[tuple[Tensor, ...]]:  # noqa: D102
        (inputs,) = self._gather([batch])
        return inputs

    def gather_pairs(
        self, left: Batch, right: Batch
    ) -> tuple[TowerInputs[tuple[Tensor, ...]], TowerInputs[tuple[Tensor, ...]]]:
        """As `gather` of both sides, in one exchange: Adagrad takes the gradients of both at once."""
        first, second = self._gather([left, right])
        return first, second

    def _gather(self, batches: Sequence[Batch]) -> list[TowerInputs[tuple[Tensor, ...]]]:
        """z of each batch; its rows are z in the graph of the exchange, and the penalties of the columns."""
        bags = {b.side: _list_bags(self.towers[b.side], b) for b in batches}
        penalties: dict[str, list[Tensor]] = {side: [] for side in bags}
        if self._decays and torch.is_grad_enabled():
            found, penalties = self._look_up_rows(bags)
        else:
            found = self.tables.look_up(bags)
        gathered = []
        for side, columns in found.items():
            linear = self.towers[side].output is None
            joined = sum(columns[1:], start=columns[0]) if linear else torch.cat(columns, 1)
            # The towers' graph ends at z: both towers go backward before the rows are updated once.
            inputs = joined.detach().requires_grad_(torch.is_grad_enabled())
            gathered.append(TowerInputs(inputs, (joined, *penalties[side])))
        return gathered

    def _look_up_rows(
        self, bags: Mapping[str, Sequence[Bags]]
    ) -> tuple[dict[str, list[Tensor]], dict[str, list[Tensor]]]:
        """As `RowWiseTables.look_up`, by rows; and ½ sum_r d_r ‖E_r‖² over the rows of each column."""
        longest = max(len(rows) for columns in bags.values() for rows, _ in columns)
        most = int(self.processes.gather(torch.tensor([longest])).max())  # gloo wants equal gradients
        place = torch.arange(max(most, 1))
        found = self.tables.look_up(
            {
                side: [(rows, (place < len(rows)).long()) for rows, _ in columns]
                for side, columns in bags.items()
            }
        )
        sums: dict[str, list[Tensor]] = {side: [] for side in bags}
        penalties: dict[str, list[Tensor]] = {side: [] for side in bags}
        for side, columns in bags.items():
            features: list[FeatureColumn] = list(self.towers[side].columns)  # type: ignore[arg-type]
            for feature, (rows, lengths), padded in zip(features, columns, found[side], strict=True):
                values = padded[: len(rows)]
                bag = torch.repeat_interleave(lengths)
                total = values.new_zeros(len(lengths), values.shape[1]).index_add(0, bag, values)
                sums[side].append(total / lengths.clamp_min(1)[:, None] if self.tables.mean else total)
                decays = self._decays[table_name(feature.vocabulary)][rows.long()]
                penalties[side].append(decays @ values.square().sum(1) / 2)
        return sums, penalties

    def update(  # noqa: D102
        self, left: TowerInputs[tuple[Tensor, ...]], right: TowerInputs[tuple[Tensor, ...]]
    ) -> None:
        if self._dense_optimizer is not None:
            self.processes.add_gradients(self._dense_parameters)
            self._dense_optimizer.step()
            self._dense_optimizer.zero_grad(set_to_none=True)
        with exchange_errors():
            gradients = [g for z in (left, right) for g in (z.inputs.grad, *(None for _ in z.rows[1:]))]
            torch.autograd.backward([*left.rows, *right.rows], gradients)

    def state_dict(self) -> dict[str, Any]:  # noqa: D102
        dense = [parameter.detach()[:0] for parameter in self._dense_parameters]
        if self._dense_optimizer is not None and self._optimizer.name == "adagrad":
            dense = [self._dense_optimizer.state[parameter]["sum"] for parameter in self._dense_parameters]
        return {"accumulated": {}, "dense_accumulated": dense}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: D102
        load_in_place(self.state_dict(), state)

    @torch.no_grad()
    def ask(self, side: str, items: Tensor) -> Tensor:
        """Embed items for this process alone, while the others `answer`: shape (B, k)."""
        side, items = self.processes.from_first(lambda: (side, items))
        return self._embed_together(side, items)

    def answer(self) -> None:  # noqa: D102
        while (asked := self.processes.from_first(lambda: None)) is not None:
            self._embed_together(*asked)

    def stop_answers(self) -> None:  # noqa: D102
        self.processes.from_first(lambda: None)

    @torch.no_grad()
    def _embed_together(self, side: str, items: Tensor) -> Tensor:
        """Embed items that all processes know, each its part."""
        return self.processes.gather_uneven(self.embed(side, self.processes.share(items)))


def _list_bags(tower: Tower, batch: Batch) -> list[Bags]:
    """List the bags of this process's part of a batch, by column."""
    own = batch.items[batch.part]
    dropped = None if batch.without_id is None else batch.without_id[batch.part]
    columns: list[FeatureColumn] = list(tower.columns)  # type: ignore[arg-type]
    bags = []
    for column in columns:
        lengths = column.offsets[own + 1] - column.offsets[own]
        listed = own
        if dropped is not None and column.is_id:
            lengths = lengths.masked_fill(dropped, 0)
            listed = own[~dropped]
        bags.append((column.rows(listed)[0], lengths))
    return bags
