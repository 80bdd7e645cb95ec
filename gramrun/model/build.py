"""The model of a run and what embeds with it, made from its configuration and corpus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from gramrun.base.errors import ConfigError
from gramrun.base.processes import ALONE, Processes
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.gramian.custom import find_custom
from gramrun.model.compiled_learner import CompiledLearner
from gramrun.model.embedding import EMBED_CHUNK, embed_in_chunks
from gramrun.model.learners import Learner, PlainLearner
from gramrun.model.optimizers import SPARSE_OPTIMIZERS
from gramrun.model.static_learner import StaticLearner
from gramrun.model.towers import FeatureColumn, TowerShape, TwoTower


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
    """The device that ``device`` names.

    Raises:
        ConfigError: for ``cuda`` where torch can use no GPU.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device is cuda, but torch finds no GPU (see `gramrun doctor`); set device: auto or cpu"
        )
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def check_device(config: RunConfig, device: torch.device) -> None:
    """Check that what the estimator keeps can be kept where the model is.

    Raises:
        ConfigError: for caches on disk beside a model on a GPU.
    """
    sections = (config.estimator, *config.gram_error.estimators)
    if device.type == "cuda" and any(section.cache_folder for section in sections):
        raise ConfigError(
            "estimator.cache_folder keeps caches on disk, for the CPU; drop it or set device: cpu"
        )


LearnerKind = Literal["plain", "compiled", "static"]

_MOST_PADDED = 4 * 10**9  # bytes


def padded_bytes(config: RunConfig, longest_bags: Iterable[int]) -> int:
    """What a batch of both sides takes where every bag is as long as its column's longest.

    Args:
        config: of the run.
        longest_bags: the values of the longest bag, of every column of both sides.
    """
    width = config.model.input_dim if config.model.hidden else config.model.embedding_dim
    rows = max(config.train.batch_size, EMBED_CHUNK)
    return 4 * rows * width * sum(longest_bags)


def learner_kind(
    config: RunConfig, device: torch.device, longest_bags: Iterable[int], processes: int = 1
) -> LearnerKind:
    """Which learner takes the gradient steps of a run.

    A captured step exchanges nothing and pads every bag to the longest: on a GPU, several processes and
    features with very long bags take torch's own.

    Args:
        config: of the run.
        device: where its model is.
        longest_bags: as for `padded_bytes`.
        processes: how many train together.
    """
    if config.train.engine == "plain" or config.train.optimizer not in SPARSE_OPTIMIZERS:
        return "plain"
    if device.type != "cuda":
        return "compiled"
    if processes > 1 or padded_bytes(config, longest_bags) > _MOST_PADDED:
        return "plain"
    return "static"


def make_learner(config: RunConfig, model: TwoTower, processes: Processes = ALONE) -> Learner:
    """Make what takes the gradient steps of a run on `model`, one of the replicas that `processes` have."""
    train = config.train
    rates = (train.learning_rate, train.dense_learning_rate or train.learning_rate)
    longest = [int(c.longest) for tower in (model.left, model.right) for c in tower.columns]  # type: ignore[arg-type]
    kind = learner_kind(config, model.device, longest, processes.count)
    if kind == "plain":
        return PlainLearner(model, train.optimizer, *rates, processes)
    if kind == "static":
        return StaticLearner(model, train.optimizer, *rates, mean=config.model.bag == "mean")
    return CompiledLearner(
        model,
        train.optimizer,
        *rates,
        mean=config.model.bag == "mean",
        threads=torch.get_num_threads(),
        processes=processes,
    )


@torch.no_grad()
def embed_all(model: TwoTower, corpus: SplitCorpus) -> tuple[Tensor, Tensor]:
    """Embed every item of both sides: (left items, k) and (right items, k)."""
    left = embed_in_chunks(model.left_embeddings, torch.arange(corpus.left.items, device=model.device))
    right = embed_in_chunks(model.right_embeddings, torch.arange(corpus.right.items, device=model.device))
    return left, right


def check_fits(config: RunConfig, corpus: SplitCorpus, watching: Sequence[EstimatorSection] = ()) -> None:
    """Check what only the corpus and the machine can tell.

    Args:
        config: of the run.
        corpus: the prepared corpus.
        watching: the estimators of ``gram_error`` that will be made, which only `gramrun gram-error` does.

    Raises:
        ConfigError: when a batch is larger than the training split, targets are asked for and absent, or a
            device or an estimator from outside is.
    """
    pairs = len(corpus.train)
    for key, size in (
        ("train.batch_size", config.train.batch_size),
        ("estimator.gramian_batch_size", config.estimator.gramian_batch_size),
        *(
            (f"gram_error.estimators.{i}.gramian_batch_size", estimator.gramian_batch_size)
            for i, estimator in enumerate(watching)
        ),
    ):
        if size > pairs:
            raise ConfigError(
                f"{key} is {size}, but {corpus.place} has only {pairs:,} training "
                f"{'pair' if pairs == 1 else 'pairs'}; set it to {pairs} or less"
            )
    if config.train.target == "value" and corpus.train.target is None:
        raise ConfigError(
            f"train.target is value, but the pairs of {corpus.place} carry no target; set train.target: one"
        )
    check_device(config, choose_device(config.device))
    for section in (config.estimator, *watching):
        if ":" in section.name:
            find_custom(section.name)
