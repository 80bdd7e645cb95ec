"""Training as a generator of plain records (paper, Algorithms 1 and 2 around their Gramian updates).

At step t, with parameters θ:

    1. Gramian batch B:   draw members, embed them under θ, let the two estimators observe them;
    2. gradient batch B': θ ← θ − η ∇_θ (1/|B'|) sum_{i in B'} [f_i(θ) + λ ĝ_i(θ, Ĝ_u, Ĝ_v)].

B and B' come from independent streams (Proposition 1's condition). Whatever watches training (progress,
evaluation, checkpoints, Gramian errors) consumes the records and is not known here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gramrun.config import EstimatorSection, RunConfig
from gramrun.data import batches
from gramrun.data.corpus import Side
from gramrun.data.shards import PreparedCorpus
from gramrun.errors import ConfigError, InputError, RunError
from gramrun.gramian import make_estimator
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.exact import exact_gramian
from gramrun.gramian.population import Population, make_population
from gramrun.gramian.surrogate import gravity_surrogate
from gramrun.model.losses import squared_error
from gramrun.model.optimizers import SPARSE_OPTIMIZERS, make_optimizer
from gramrun.model.towers import FeatureColumn, TowerShape, TwoTower

_EMBED_CHUNK = 8192  # rows embedded at once outside of training; bounds memory, not a result


@dataclass(frozen=True)
class StepRecord:
    """What one step did.

    Attributes:
        step: gradient steps done so far, from 1.
        epoch: passes over the training pairs done so far.
        loss: f, the batch mean of the observed-pair loss, before the step.
        train_seconds: seconds spent in steps so far, without evaluation or checkpoints.
    """

    step: int
    epoch: float
    loss: float
    train_seconds: float


@dataclass(frozen=True)
class TrainingSide:
    """One side as training sees it: how to embed it, what its Gramian averages, where batches come from."""

    name: str
    items: int
    pair_items: Tensor
    population: Population
    embed: Callable[[Tensor], Tensor]
    stream: int

    def draw(self, seed: int, stream: int, step: int, size: int) -> Tensor:
        """Draw population members uniformly with replacement: int64, shape (size,)."""
        return torch.from_numpy(batches.uniform_draws(seed, stream, step, self.population.size, size))

    @torch.no_grad()
    def embed_members(self, members: Tensor) -> Tensor:
        """Embed population members without a graph: shape (B, k)."""
        return self.embed(self.population.member_items[members].long())

    @torch.no_grad()
    def embed_items(self, items: Tensor) -> Tensor:
        """Embed any number of items without a graph: shape (len(items), k)."""
        return _embed_in_chunks(self.embed, items)

    def embed_chunks(self, items: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Embed any number of items, a chunk at a time: item ids (c,) and embeddings (c, k)."""
        return ((chunk, self.embed_items(chunk)) for chunk in items.split(_EMBED_CHUNK))

    def exact_gramian(self) -> Tensor:
        """G of this side under the current parameters: float64, shape (k, k)."""
        chunks = self.embed_chunks(self.population.weighted_items)
        return exact_gramian(chunks, self.population.item_weights)


class Trainer:
    """Parameters, optimizer, estimators and the position in the stream: everything a run consists of.

    Args:
        config: the run's configuration.
        corpus: the prepared corpus that ``config.data.path`` names.

    Raises:
        ConfigError: when the configuration does not fit the corpus.
    """

    def __init__(self, config: RunConfig, corpus: PreparedCorpus) -> None:
        check_fits(config, corpus)
        self.config = config
        self.pairs = len(corpus.train)
        self.total_steps = config.train.total_steps(self.pairs)
        self.model = make_model(config, corpus)
        self.optimizer = make_optimizer(
            self.model,
            config.train.optimizer,
            config.train.learning_rate,
            config.train.dense_learning_rate or config.train.learning_rate,
        )
        self.left = self._side("left", corpus.left, corpus.train.left, self.model.left_embeddings)
        self.right = self._side("right", corpus.right, corpus.train.right, self.model.right_embeddings)
        self.target = torch.from_numpy(corpus.train.target) if config.train.target == "value" else None
        self.left_estimator = self.make_estimator(config.estimator, self.left)
        self.right_estimator = self.make_estimator(config.estimator, self.right)
        self.step = 0
        self.train_seconds = 0.0
        self._batches = batches.ShuffledPairs(self.pairs, config.train.batch_size, config.train.seed)

    def _side(
        self, name: str, side: Side, pair_items: np.ndarray, embed: Callable[[Tensor], Tensor]
    ) -> TrainingSide:
        items = torch.from_numpy(pair_items)
        stream = batches.LEFT_GRAMIAN_STREAM if name == "left" else batches.RIGHT_GRAMIAN_STREAM
        population = make_population(items, side.items, self.config.train.weighting)
        return TrainingSide(name, side.items, items, population, embed, stream)

    @property
    def epoch(self) -> float:
        """Passes over the training pairs done so far."""
        return self.step * self.config.train.batch_size / self.pairs

    def make_estimator(self, section: EstimatorSection, side: TrainingSide) -> GramianEstimator:
        """Make an estimator of one side's Gramian, started under the current parameters."""
        estimator = make_estimator(
            section.name,
            embedding_dim=self.config.model.embedding_dim,
            population=side.population,
            alpha=section.alpha,
            beta=section.beta,
            project=section.project,
        )
        if estimator.needs_start:
            estimator.start(side.embed_items(torch.arange(side.items)))
        return estimator

    def observe(self, estimator: GramianEstimator, side: TrainingSide) -> None:
        """Show one estimator its Gramian batch of the current step."""
        if estimator.observes_corpus:
            items = side.population.weighted_items
            estimator.observe(items, side.embed_items(items))
        else:
            size = self.config.estimator.gramian_batch_size
            members = side.draw(self.config.train.seed, side.stream, self.step, size)
            estimator.observe(members, side.embed_members(members))

    def steps(self) -> Iterator[StepRecord]:
        """Train from the current step to the last, yielding one record a step.

        Raises:
            RunError: when the loss stops being finite; the parameters are left as they were.
        """
        while self.step < self.total_steps:
            started = time.perf_counter()
            self.observe(self.left_estimator, self.left)
            self.observe(self.right_estimator, self.right)
            loss = self._gradient_step()
            self.step += 1
            self.train_seconds += time.perf_counter() - started
            yield StepRecord(self.step, self.epoch, loss, self.train_seconds)

    def _gradient_step(self) -> float:
        pairs = torch.from_numpy(self._batches.batch(self.step))
        left, right = self.left.pair_items[pairs].long(), self.right.pair_items[pairs].long()
        u, v = self.left.embed(left), self.right.embed(right)
        loss = squared_error(u, v, 1.0 if self.target is None else self.target[pairs])
        surrogate = gravity_surrogate(
            u,
            v,
            self.left_estimator.gramian,
            self.right_estimator.gramian,
            _at(self.left.population.importance, left),
            _at(self.right.population.importance, right),
        )
        objective = loss + self.config.train.gravity * surrogate
        if not math.isfinite(objective.item()):
            raise RunError(
                f"step {self.step + 1}: the objective is {objective.item()} (loss {loss.item():g}, "
                f"gravity {surrogate.item() / 2:g}); lower train.learning_rate or train.gravity"
            )
        self.optimizer.zero_grad(set_to_none=True)
        objective.backward()
        self.optimizer.step()
        return loss.item()

    def state_dict(self) -> dict[str, Any]:
        """The whole state; batches need none, being functions of seed and step."""
        return {
            "step": self.step,
            "train_seconds": self.train_seconds,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "left_estimator": self.left_estimator.state_dict(),
            "right_estimator": self.right_estimator.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`'s state.

        Raises:
            InputError: when the state belongs to another model, optimizer or estimator.
        """
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.left_estimator.load_state_dict(state["left_estimator"])
            self.right_estimator.load_state_dict(state["right_estimator"])
            self.step = int(state["step"])
            self.train_seconds = float(state["train_seconds"])
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise InputError(f"the checkpoint belongs to another model or method: {reason}") from None


def _at(importance: Tensor | None, items: Tensor) -> Tensor | None:
    return None if importance is None else importance[items]


def make_model(config: RunConfig, corpus: PreparedCorpus) -> TwoTower:
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


@torch.no_grad()
def embed_all(model: TwoTower, corpus: PreparedCorpus) -> tuple[Tensor, Tensor]:
    """Embed every item of both sides: (left items, k) and (right items, k)."""
    left = _embed_in_chunks(model.left_embeddings, torch.arange(corpus.left.items))
    right = _embed_in_chunks(model.right_embeddings, torch.arange(corpus.right.items))
    return left, right


def _embed_in_chunks(embed: Callable[[Tensor], Tensor], items: Tensor) -> Tensor:
    return torch.cat([embed(chunk) for chunk in items.split(_EMBED_CHUNK)])


def check_fits(config: RunConfig, corpus: PreparedCorpus) -> None:
    """Check what only the corpus can tell.

    Raises:
        ConfigError: when a batch is larger than the training split, or targets are asked for and absent.
    """
    pairs = len(corpus.train)
    for key, size in (
        ("train.batch_size", config.train.batch_size),
        ("estimator.gramian_batch_size", config.estimator.gramian_batch_size),
        *(
            (f"gram_error.estimators.{i}.gramian_batch_size", estimator.gramian_batch_size)
            for i, estimator in enumerate(config.gram_error.estimators)
        ),
    ):
        if size > pairs:
            raise ConfigError(
                f"{key} is {size}, but {corpus.path} has only {pairs} training pairs; "
                f"set it to {pairs} or less"
            )
    if config.train.target == "value" and corpus.train.target is None:
        raise ConfigError(
            f"train.target is value, but the pairs of {corpus.path} carry no target; set train.target: one"
        )
