"""Make the model of a run and its training engine from the configuration and the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from gramrun.base.errors import ConfigError
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.config import RunConfig
from gramrun.data.corpus import Feature, Side, SplitCorpus
from gramrun.model.compiled_engine import CompiledEngine
from gramrun.model.engine import Engine, PlainEngine
from gramrun.model.l2 import dense_decay, row_decays, row_frequencies
from gramrun.model.optimizers import SPARSE_OPTIMIZERS, OptimizerOptions
from gramrun.model.row_wise import RowWiseEngine, RowWiseTables
from gramrun.model.static_engine import StaticEngine
from gramrun.model.towers import FeatureColumn, TwoTower, embed_in_chunks, table_name


def make_model(config: RunConfig, corpus: SplitCorpus, split: RowWiseTables | None = None) -> TwoTower:
    """Make the towers that `config` describes over the features of `corpus`; untrained rows are 0.

    Args:
        config: the run's configuration.
        corpus: its corpus.
        split: the tables, if they are split among processes; None for a model that holds whole tables.
    """

    def columns(side: Side) -> list[FeatureColumn]:
        return [
            FeatureColumn(
                f.vocabulary,
                torch.from_numpy(f.offsets),
                torch.from_numpy(f.indices),
                is_id=f.vocabulary == side.item,
            )
            for f in side.features
        ]

    model = TwoTower(
        columns(corpus.left),
        columns(corpus.right),
        corpus.vocabulary_sizes,
        config.model,
        seed=config.train.seed,
        sparse_gradients=config.train.optimizer in SPARSE_OPTIMIZERS,
        split=split,
    )
    clear_untrained_rows(model, corpus, split)
    return model


def make_split_tables(config: RunConfig, corpus: SplitCorpus, processes: Processes) -> RowWiseTables | None:
    """Make this process's part of the tables with ``train.tables: row-wise``; None for whole tables.

    Raises:
        ConfigError: when TorchRec is not installed.
    """
    if config.train.tables == "replicated":
        return None
    sides = {"left": corpus.left, "right": corpus.right}
    features = {name: [table_name(f.vocabulary) for f in side.features] for name, side in sides.items()}
    return RowWiseTables(
        table_sizes(corpus),
        features,
        config.model.table_dim,
        mean=config.model.bag == "mean",
        optimizer=optimizer_options(config),
        processes=processes,
    )


def table_sizes(corpus: SplitCorpus) -> dict[str, int]:
    """V of each feature table, by `table_name`."""
    used = {f.vocabulary for side in (corpus.left, corpus.right) for f in side.features}
    return {table_name(name): corpus.vocabulary_sizes[name] for name in sorted(used)}


@torch.no_grad()
def clear_untrained_rows(model: TwoTower, corpus: SplitCorpus, split: RowWiseTables | None = None) -> None:
    """Set the table rows that no training pair holds to 0.

    They are the ids of items never seen, and values that only such items have. Training never changes them:
    no observed pair holds them, and their items have weight 0 in the Gramians. At their random start they
    would add noise to the embeddings of these items. The rows that training does change, and every draw, stay
    as they are.
    """
    tables = model.named_tables()
    for vocabulary, frequencies in row_frequencies(corpus).items():
        name, untrained = table_name(vocabulary), torch.from_numpy(frequencies == 0)
        if split is None:
            tables[name][untrained] = 0
        else:
            split.clear(name, untrained)


@torch.no_grad()
def embed_new_items(
    model: TwoTower, name: Literal["left", "right"], side: Side, features: Mapping[str, Feature]
) -> Tensor:
    """Embed items that the corpus does not hold, by their features and without an id.

    As an item of the corpus without a training pair: equal features have equal embeddings.

    Args:
        model: the towers.
        name: which tower.
        side: that side of the corpus, whose features the tower has.
        features: features of the new items by name, over the vocabularies of `side`. One that is left out is
            missing of all items.

    Returns:
        float32, shape (new items, k).

    Raises:
        ValueError: when there is no feature, one is not of this side or is the id, its values are not in its
            vocabulary, or the features are not all of equally many items.
    """
    known = {f.name: f.vocabulary for f in side.features if f.vocabulary != side.item}
    for given, feature in features.items():
        if known.get(given) != feature.vocabulary:
            raise ValueError(f"{given}: no feature of a {side.item}; it has {', '.join(known) or 'none'}")
        rows = len(model.named_tables()[table_name(feature.vocabulary)])
        if len(feature.indices) and not 0 <= feature.indices.min() <= feature.indices.max() < rows:
            raise ValueError(f"{given}: holds an index outside of 0 … {rows - 1:,}")
    items = next((len(feature.offsets) - 1 for feature in features.values()), 0)
    if not items or any(len(feature.offsets) - 1 != items for feature in features.values()):
        raise ValueError(
            f"give at least one feature of at least one new {side.item}, all of equally many items"
        )
    nothing = torch.zeros(items + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
    columns = []
    for own in side.features:
        new = features.get(own.name)
        bags = nothing if new is None else (torch.from_numpy(new.offsets), torch.from_numpy(new.indices))
        columns.append(FeatureColumn(own.vocabulary, *bags).to(model.device))
    tower = model.left if name == "left" else model.right
    return embed_in_chunks(
        lambda chosen: tower.dense(tower.inputs(chosen, model.tables, columns=columns)),
        torch.arange(items, device=model.device),
    )


def choose_device(name: str) -> torch.device:
    """Return the device that the key ``device`` names; for ``auto`` the CPU.

    Raises:
        ConfigError: for ``cuda`` where PyTorch finds no GPU.
    """
    if name != "cuda":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError(
            "device is cuda, but torch finds no GPU (see `gramrun doctor`); set device: auto or cpu"
        )
    return torch.device("cuda", torch.cuda.current_device())


EngineName = Literal["plain", "compiled", "static", "row-wise"]


def engine_name(config: RunConfig, device: torch.device) -> EngineName:
    """Return the engine of a run whose model is on `device`.

    The default, ``compiled``, is the plain engine on a GPU.
    """
    engine = config.train.engine
    if config.train.tables == "row-wise":
        return "row-wise"
    return "plain" if engine == "compiled" and device.type == "cuda" else engine


def optimizer_options(config: RunConfig) -> OptimizerOptions:
    """Return the optimizer that `config` names."""
    train = config.train
    return OptimizerOptions(
        name=train.optimizer,
        table_learning_rate=train.learning_rate,
        dense_learning_rate=train.dense_learning_rate or train.learning_rate,
        initial_accumulator=train.initial_accumulator,
        momentum=train.momentum,
        dense_decay=dense_decay(config),
    )


def make_engine(
    config: RunConfig,
    model: TwoTower,
    corpus: SplitCorpus,
    processes: Processes = SINGLE_PROCESS,
    split: RowWiseTables | None = None,
) -> Engine[Any]:
    """Make the engine that trains `model` on `corpus`, one of the replicas of `processes`.

    Args:
        config: the run's configuration.
        model: its model.
        corpus: its corpus.
        processes: the processes that train together.
        split: the tables that `make_model` got.
    """
    optimizer = optimizer_options(config)
    decays = row_decays(config, corpus)
    if split is not None:
        return RowWiseEngine(model, split, optimizer, processes, decays)
    mean = config.model.bag == "mean"
    match engine_name(config, model.device):
        case "plain":
            return PlainEngine(model, optimizer, processes, decays)
        case "static":
            return StaticEngine(model, optimizer, mean=mean)
        case _:
            return CompiledEngine(
                model,
                optimizer,
                mean=mean,
                threads=torch.get_num_threads(),
                processes=processes,
                decays=decays,
            )


@torch.no_grad()
def embed_all(model: TwoTower, corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    """Embed every item of both sides: (left items, k) and (right items, k)."""
    left = embed_in_chunks(model.left_embeddings, torch.arange(corpus.left.items, device=model.device))
    right = embed_in_chunks(model.right_embeddings, torch.arange(corpus.right.items, device=model.device))
    return left, right
