"""Make the model of a run and its training engine from the configuration and the corpus."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from gramrun.base.errors import ConfigError
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.config import RunConfig
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.model.compiled_engine import CompiledEngine
from gramrun.model.engine import Engine, PlainEngine
from gramrun.model.l2 import dense_decay, row_decays
from gramrun.model.optimizers import SPARSE_OPTIMIZERS, OptimizerOptions
from gramrun.model.static_engine import StaticEngine
from gramrun.model.towers import FeatureColumn, TowerShape, TwoTower, embed_in_chunks


def make_model(config: RunConfig, corpus: SplitCorpus) -> TwoTower:
    """Make the towers that `config` describes over the features of `corpus`."""
    section = config.model
    shape = TowerShape(
        embedding_dim=section.embedding_dim,
        input_dim=section.input_dim,
        hidden=section.hidden,
        output=section.output,
        skip=section.skip,
        bag=section.bag,
        table_scale=section.table_scale,
        bfloat16_products=section.products == "bfloat16",
    )

    def columns(side: Side) -> list[FeatureColumn]:
        return [
            FeatureColumn(f.vocabulary, torch.from_numpy(f.offsets), torch.from_numpy(f.indices))
            for f in side.features
        ]

    return TwoTower(
        columns(corpus.left),
        columns(corpus.right),
        corpus.vocabulary_sizes,
        shape,
        seed=config.train.seed,
        sparse_gradients=config.train.optimizer in SPARSE_OPTIMIZERS,
    )


def choose_device(name: str) -> torch.device:
    """Return the device that the key ``device`` names.

    Raises:
        ConfigError: for ``cuda`` where PyTorch finds no GPU.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device is cuda, but torch finds no GPU (see `gramrun doctor`); set device: auto or cpu"
        )
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


EngineName = Literal["plain", "compiled", "static"]


def engine_name(config: RunConfig, device: torch.device) -> EngineName:
    """Return the engine of a run whose model is on `device`.

    The default, ``compiled``, is the plain engine on a GPU and for Adam.
    """
    engine = config.train.engine
    on_gpu_or_adam = device.type == "cuda" or config.train.optimizer not in SPARSE_OPTIMIZERS
    return "plain" if engine == "compiled" and on_gpu_or_adam else engine


def make_engine(
    config: RunConfig, model: TwoTower, corpus: SplitCorpus, processes: Processes = SINGLE_PROCESS
) -> Engine[Any]:
    """Make the engine that trains `model` on `corpus`, one of the replicas of `processes`."""
    train = config.train
    optimizer = OptimizerOptions(
        name=train.optimizer,
        table_learning_rate=train.learning_rate,
        dense_learning_rate=train.dense_learning_rate or train.learning_rate,
        initial_accumulator=train.initial_accumulator,
        dense_decay=dense_decay(config),
    )
    decays = row_decays(config, corpus)
    mean = config.model.bag == "mean"
    match engine_name(config, model.device):
        case "plain":
            return PlainEngine(model, optimizer, processes, decays)
        case "static":
            return StaticEngine(model, optimizer, mean=mean)
        case "compiled":
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
