"""The two towers u(θ, x) and v(θ, y): feature bags → embeddings (paper, Sections 2.1 and 4.1, App. E).

For one item with feature bags x_1 .. x_F over tables E_1 .. E_F,

    inputs   z = [bag(E_1, x_1); ...; bag(E_F, x_F)]                     concatenated, as in the paper
    hidden   h_0 = z,  h_l = relu(W_l h_{l-1} + b_l)
    output   e = W_out h_L + b_out                                       + W_skip z  (option ``skip``)

A tower without hidden layers is linear: each table has the width of the embedding and e is the sum of the
bags, which is matrix factorisation with features. Features of both sides with the same vocabulary share one
table (paper, footnote 1).

Items never seen. A table row that no training pair holds stays as it was made. It is 0
(`gramrun.model.build.clear_untrained_rows`), so an item without a training pair has the embedding of its
features, and its id contributes what a dropped id contributes in training (``train.id_dropout_right``): 0.

Initial scale. Table entries are N(0, s²), dense layers He normal with zero biases. With one-hot features, the
entries of the embeddings have scale s at any depth; every further term of a sum (bags of several values,
features of a linear tower, the skip) adds its variance. `configs/README.md` says how to choose s.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from gramrun.config import ModelSection

if TYPE_CHECKING:
    from gramrun.model.row_wise import RowWiseTables

EMBED_CHUNK = 8192  # items that `embed_in_chunks` embeds at once; bounds memory
_ROWS_DRAWN = 65_536  # at once by `initial_rows`


class FeatureColumn(nn.Module):
    """One feature of one side: the table rows of each item's bag (CSR).

    Attributes:
        is_id: whether the feature is the item's own id, which `gramrun.training.side` can drop.
    """

    offsets: Tensor
    indices: Tensor

    def __init__(self, vocabulary: str, offsets: Tensor, indices: Tensor, *, is_id: bool = False) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.is_id = is_id
        self.longest = int(offsets.diff().max())  # values of the largest bag
        self.one_hot = len(indices) == len(offsets) - 1 and bool((offsets.diff() == 1).all())
        # Features are data, not parameters: they follow the device but stay out of checkpoints.
        self.register_buffer("offsets", offsets, persistent=False)
        self.register_buffer("indices", indices, persistent=False)

    def forward(self, items: Tensor, table: nn.EmbeddingBag) -> Tensor:
        """Embed the bags of `items`, shape (B,): returns (B, width of the table)."""
        if self.one_hot:
            return functional.embedding(self.indices[items], table.weight, sparse=table.sparse)
        rows, begins = self.rows(items)
        return functional.embedding_bag(rows, table.weight, begins, mode=table.mode, sparse=table.sparse)

    def rows(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """List the rows of the bags of `items`, one bag after the other, and where each bag begins."""
        starts = self.offsets[items]
        lengths = self.offsets[items + 1] - starts
        ends = lengths.cumsum(0)
        # The flat position p of bag b reads indices[starts[b] + p - ends[b] + lengths[b]].
        shift = torch.repeat_interleave(starts - ends + lengths, lengths)
        return self.indices[torch.arange(len(shift), device=items.device) + shift], ends - lengths


class Tower(nn.Module):
    """The dense layers of one side. Its tables belong to the `TwoTower` model, since sides share them."""

    def __init__(self, columns: Sequence[FeatureColumn], shape: ModelSection) -> None:
        super().__init__()
        self.columns = nn.ModuleList(columns)
        self.linear_output = shape.output == "linear"
        self.rounds_products = shape.products == "bfloat16"
        self.hidden = nn.ModuleList()
        self.output: nn.Linear | None = None
        self.skip: nn.Linear | None = None
        if shape.hidden:
            widths = [len(columns) * shape.input_dim, *shape.hidden]
            self.hidden.extend(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
            self.output = nn.Linear(widths[-1], shape.embedding_dim)
            if shape.skip:
                self.skip = nn.Linear(widths[0], shape.embedding_dim, bias=False)

    def forward(self, items: Tensor, tables: nn.ModuleDict) -> Tensor:
        """Embed `items`, int64, shape (B,): returns (B, k)."""
        return self.dense(self.inputs(items, tables))

    def inputs(
        self,
        items: Tensor,
        tables: nn.ModuleDict,
        columns: Sequence[FeatureColumn] | None = None,
        without_id: Tensor | None = None,
    ) -> Tensor:
        """Gather z, the bags of `items`: shape (B, width of all bags); linear towers: their sum, (B, k).

        Args:
            items: int64, shape (B,).
            tables: the feature tables by `table_name`.
            columns: the same features of other items; None for the tower's own.
            without_id: bool, shape (B,). Where the bag of the item's id is 0; None: nowhere.
        """
        if columns is None:
            columns = list(self.columns)  # type: ignore[arg-type]
        bags = []
        for column in columns:
            table = tables[table_name(column.vocabulary)]
            if without_id is not None and column.is_id:
                kept = (~without_id).nonzero().squeeze(1)
                # Not looked up, so that sparse Adam does not count the rows of the others as touched.
                own = column(items[kept], table)
                bag = own.new_zeros(len(items), own.shape[1]).index_copy(0, kept, own)
            else:
                bag = column(items, table)
            bags.append(bag)
        return sum(bags[1:], start=bags[0]) if self.output is None else torch.cat(bags, 1)

    def dense(self, inputs: Tensor) -> Tensor:
        """Apply the dense layers to z, as `inputs` gives it: returns the embeddings, shape (B, k)."""
        embeddings = inputs
        if self.output is not None:
            with self._rounding(inputs.device.type):
                embeddings = self._layers(inputs, self.output).float()
        return embeddings if self.linear_output else functional.relu(embeddings)

    def _rounding(self, device_type: str) -> contextlib.AbstractContextManager[object]:
        if not self.rounds_products:
            return contextlib.nullcontext()
        return torch.autocast(device_type, torch.bfloat16, cache_enabled=False)

    def _layers(self, inputs: Tensor, output: nn.Linear) -> Tensor:
        activations = inputs
        for layer in self.hidden:
            activations = functional.relu(layer(activations))
        embeddings: Tensor = output(activations)
        return embeddings if self.skip is None else embeddings + self.skip(inputs)


def table_name(vocabulary: str) -> str:
    """Return a vocabulary's name as a `ModuleDict` key: without dots, and unlike any of its attributes."""
    return "table:" + vocabulary.replace("%", "%25").replace(".", "%2E")


def initial_rows(rows: int, shape: ModelSection, generator: torch.Generator) -> Iterator[tuple[int, Tensor]]:
    """Draw the initial rows of a table in parts, with the bits that one draw of the whole table gives.

    PyTorch draws normal numbers in blocks of 16, and the last 16 anew where the number is no multiple of 16.
    So parts are whole blocks, and the last part has at least 16 numbers.

    Yields:
        The number of the first row, and float32, shape (n, width).
    """
    start = 0
    while start < rows:
        count = rows - start if rows - start < _ROWS_DRAWN + 16 else _ROWS_DRAWN
        yield start, torch.empty(count, shape.table_dim).normal_(0, shape.table_scale, generator=generator)
        start += count


class TwoTower(nn.Module):
    """Both towers and the tables they share. Its score of a pair is ⟨u(θ, x), v(θ, y)⟩.

    Args:
        left: the left features.
        right: the right features.
        vocabulary_sizes: rows of each table, by vocabulary.
        shape: the towers' widths and layers.
        seed: of the initial parameters.
        sparse_gradients: whether tables have sparse gradients, whose cost does not depend on the table's
            size.
        split: where the tables are, if not here (`gramrun.model.row_wise`). It gets their initial rows.

    Attributes:
        embedding_dim: the width k of the embeddings.
        remote: with split tables, embeds items of a side; set by the engine.
    """

    def __init__(
        self,
        left: Sequence[FeatureColumn],
        right: Sequence[FeatureColumn],
        vocabulary_sizes: Mapping[str, int],
        shape: ModelSection,
        seed: int,
        sparse_gradients: bool = True,
        split: RowWiseTables | None = None,
    ) -> None:
        super().__init__()
        self.embedding_dim = shape.embedding_dim
        self.remote: Callable[[str, Tensor], Tensor] | None = None
        used = sorted({column.vocabulary for column in [*left, *right]})
        random = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):  # a new layer draws from the global generator
            self.tables = nn.ModuleDict(
                {
                    table_name(name): nn.EmbeddingBag(
                        vocabulary_sizes[name], shape.table_dim, mode=shape.bag, sparse=sparse_gradients
                    )
                    for name in used
                    if split is None
                }
            )
            self.left = Tower(left, shape)
            self.right = Tower(right, shape)
        if split is not None:
            for name in used:
                for start, rows in initial_rows(vocabulary_sizes[name], shape, random):
                    split.fill(table_name(name), start, rows)
        self._initialise(shape, random)

    @torch.no_grad()
    def _initialise(self, shape: ModelSection, generator: torch.Generator) -> None:
        for table in self.tables.values():
            assert isinstance(table, nn.EmbeddingBag)
            table.weight.normal_(0, shape.table_scale, generator=generator)
        for tower in (self.left, self.right):
            for layer in tower.hidden:
                assert isinstance(layer, nn.Linear)
                # He et al. 2015: variance 2 / fan-in keeps the second moment through a ReLU.
                layer.weight.normal_(0, math.sqrt(2 / layer.in_features), generator=generator)
                layer.bias.zero_()
            for linear in (tower.output, tower.skip):
                if linear is not None:
                    linear.weight.normal_(0, math.sqrt(1 / linear.in_features), generator=generator)
                    if linear.bias is not None:
                        linear.bias.zero_()

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.buffers()).device

    def left_embeddings(self, items: Tensor) -> Tensor:
        """u(θ, x) for left items x, int64, shape (B,): returns (B, k)."""
        return self._embeddings("left", items)

    def right_embeddings(self, items: Tensor) -> Tensor:
        """v(θ, y) for right items y, int64, shape (B,): returns (B, k)."""
        return self._embeddings("right", items)

    def _embeddings(self, side: str, items: Tensor) -> Tensor:
        if self.remote is not None:
            return self.remote(side, items)
        tower = self.left if side == "left" else self.right
        return tower(items, self.tables)  # type: ignore[no-any-return]

    def named_tables(self) -> dict[str, nn.Parameter]:
        """The feature tables by `table_name`, each of shape (rows, width)."""
        return {name.removesuffix(".weight"): table for name, table in self.tables.named_parameters()}

    def table_parameters(self) -> list[nn.Parameter]:
        """The feature tables."""
        return list(self.tables.parameters())

    def dense_parameters(self) -> list[nn.Parameter]:
        """The dense layers of both towers; empty for linear towers."""
        return [*self.left.parameters(), *self.right.parameters()]


def embed_in_chunks(embed: Callable[[Tensor], Tensor], items: Tensor) -> Tensor:
    """Embed any number of items: shape (len(items), k)."""
    return embed_chunks(embed, items.split(EMBED_CHUNK))


def embed_chunks(embed: Callable[[Tensor], Tensor], chunks: Sequence[Tensor]) -> Tensor:
    """Embed chunks of items, one after the other: shape (all items, k)."""
    first, *others = chunks
    rows = embed(first)
    if not others:
        return rows
    embeddings = rows.new_empty(sum(map(len, chunks)), rows.shape[1])  # torch.cat would take it twice
    embeddings[: len(first)] = rows
    done = len(first)
    for chunk in others:
        embeddings[done : done + len(chunk)] = embed(chunk)
        done += len(chunk)
    return embeddings
