"""Training as a generator of plain records (paper, Algorithms 1 and 2 around their Gramian updates).

At step t, with parameters θ:

    1. Gramian batch B:   draw members, embed them under θ, let the two estimators observe them;
    2. gradient batch B': θ ← θ − η ∇_θ (1/|B'|) sum_{i in B'} [f_i(θ) + λ ĝ_i(θ, Ĝ_u, Ĝ_v)].

B and B' come from independent streams (Proposition 1's condition; with ``batch: previous`` up to 1/n,
see `gramrun.gramian.estimator`). Whatever watches training (progress, evaluation, checkpoints, Gramian
errors) consumes the records and is not known here.
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

from gramrun.caches import check_caches
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data import batches
from gramrun.data.corpus import Side
from gramrun.data.shards import PreparedCorpus
from gramrun.errors import ConfigError, InputError, RunError
from gramrun.gramian import CacheOptions, make_estimator
from gramrun.gramian.batch import GramianBatch, weighted_moments
from gramrun.gramian.cache import CACHE_DTYPES
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import make_population
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.model.losses import squared_error
from gramrun.model.optimizers import SPARSE_OPTIMIZERS, make_optimizer
from gramrun.model.towers import FeatureColumn, TowerShape, TwoTower
from gramrun.objectives import GradientBatch, make_objective
from gramrun.sides import TrainingSide, embed_in_chunks

_EXACT_CHUNK = 65536  # pairs whose loss is summed at once; bounds memory, not a result


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
        self.objective = make_objective(config, corpus, self.left.population, self.right.population)
        check_caches(config, [config.estimator], corpus, self.objective.companion_dim)
        # The right one first: what the left one observes may depend on it.
        self.right_estimator = self.make_estimator(config.estimator, self.right)
        self.left_estimator = self.make_estimator(config.estimator, self.left)
        self.step = 0
        self.train_seconds = 0.0
        self.previous: tuple[Tensor, Tensor] | None = None
        self._batches = batches.ShuffledPairs(self.pairs, config.train.batch_size, config.train.seed)

    def _side(
        self, name: str, side: Side, pair_items: np.ndarray, embed: Callable[[Tensor], Tensor]
    ) -> TrainingSide:
        left = name == "left"
        gamma = self.config.train.gamma_left if left else self.config.train.gamma_right
        stream = batches.LEFT_GRAMIAN_STREAM if left else batches.RIGHT_GRAMIAN_STREAM
        population = make_population(torch.from_numpy(pair_items), side.items, gamma)
        return TrainingSide(name, side.items, population, embed, stream)

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
            companion_dim=self.objective.companion_dim,
            schedule=AlphaSchedule(section.alpha, section.alpha_schedule),
            debias=section.debias,
            exact_start=section.start == "exact",
            beta=section.beta,
            project=section.project,
            cache=self._cache_options(section),
        )
        if estimator.needs_start:
            items = torch.arange(side.items)
            estimator.start(self._statistics(side, batch) for batch in side.chunks(items))
        return estimator

    def _cache_options(self, section: EstimatorSection) -> CacheOptions | None:
        if section.cache_entry is None:
            return None
        return CacheOptions(
            section.cache_entry,
            CACHE_DTYPES[section.cache_dtype],
            section.cache_folder,
            section.rebuild_every.steps(self.pairs, self.config.train.batch_size),
        )

    def _statistics(self, side: TrainingSide, batch: GramianBatch) -> GramianBatch:
        other = self.right_estimator if side is self.left else None
        return self.objective.statistics(side.name, batch, other)

    def observe(self, section: EstimatorSection, estimator: GramianEstimator, side: TrainingSide) -> None:
        """Show one estimator its Gramian batch of the current step."""
        if estimator.observes == "nothing":
            return
        if estimator.observes == "corpus":
            self.show(estimator, side, side.whole())
        elif section.batch == "previous" and self.previous is not None:
            self.show(estimator, side, self.previous_batch(side))
        else:
            size, seed = section.gramian_batch_size, self.config.train.seed
            self.show(estimator, side, side.drawn(seed, side.stream, self.step, size))
            if estimator.looks_ahead:
                self.look_ahead(estimator, side, side.drawn(seed, side.stream, self.step + 1, size))

    def show(self, estimator: GramianEstimator, side: TrainingSide, batch: GramianBatch) -> None:
        """Let an estimator observe what the objective needs of a batch."""
        estimator.observe(self._statistics(side, batch))

    def look_ahead(self, estimator: GramianEstimator, side: TrainingSide, batch: GramianBatch) -> None:
        """Let an estimator see the next step's batch under the parameters of this one."""
        estimator.look_ahead(self._statistics(side, batch))

    def previous_batch(self, side: TrainingSide) -> GramianBatch:
        """The gradient batch of the step before, under that step's parameters: one step stale.

        Raises:
            ValueError: before the first step.
        """
        if self.previous is None:
            raise ValueError("there is no gradient batch before the first step")
        pairs = torch.from_numpy(self._batches.batch(self.step - 1))
        return side.reused(pairs, self.previous[0 if side is self.left else 1])

    def steps(self) -> Iterator[StepRecord]:
        """Train from the current step to the last, yielding one record a step.

        Raises:
            RunError: when the loss stops being finite; the parameters are left as they were.
        """
        while self.step < self.total_steps:
            started = time.perf_counter()
            self.observe(self.config.estimator, self.right_estimator, self.right)
            self.observe(self.config.estimator, self.left_estimator, self.left)
            loss = self._gradient_step()
            self.step += 1
            self.train_seconds += time.perf_counter() - started
            yield StepRecord(self.step, self.epoch, loss, self.train_seconds)

    def exact_objective(self) -> float:
        """The objective under the current parameters, over all pairs, with exact Gramians.

        Raises:
            ValueError: where the objective is not a function of them.
        """
        loss = 0.0
        for pairs in torch.arange(self.pairs).split(_EXACT_CHUNK):
            left, right = (self.left.population.pair_items[pairs], self.right.population.pair_items[pairs])
            u, v = self.left.embed_items(left.long()), self.right.embed_items(right.long())
            target = 1.0 if self.target is None else self.target[pairs]
            loss += float(squared_error(u.double(), v.double(), target)) * len(pairs) / self.pairs
        moments = [
            weighted_moments(
                (self._statistics(side, chunk) for chunk in side.chunks(side.population.weighted_items)),
                side.population.item_weights,
            )
            for side in (self.left, self.right)
        ]
        penalty = self.objective.penalty(*moments)
        if penalty is None:
            raise ValueError("only gravity is a function of its Gramians")
        return loss + self.config.train.gravity * penalty

    def _gradient_step(self) -> float:
        pairs = torch.from_numpy(self._batches.batch(self.step))
        left = self.left.population.pair_items[pairs].long()
        right = self.right.population.pair_items[pairs].long()
        batch = GradientBatch(
            left,
            right,
            self.left.embed(left),
            self.right.embed(right),
            1.0 if self.target is None else self.target[pairs],
            _at(self.left.population.importance, left),
            _at(self.right.population.importance, right),
        )
        loss, surrogate = self.objective.terms(batch, self.left_estimator, self.right_estimator)
        objective = loss + self.config.train.gravity * surrogate
        if not math.isfinite(objective.item()):
            raise RunError(
                f"step {self.step + 1}: the objective is {objective.item()} (loss {loss.item():g}, its "
                f"surrogate over all pairs {surrogate.item():g}); lower train.learning_rate or train.gravity"
            )
        self.previous = batch.left.detach(), batch.right.detach()
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
            "previous": self.previous if self.config.estimator.batch == "previous" else None,
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
            self.previous = None if state["previous"] is None else tuple(state["previous"])
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
    left = embed_in_chunks(model.left_embeddings, torch.arange(corpus.left.items))
    right = embed_in_chunks(model.right_embeddings, torch.arange(corpus.right.items))
    return left, right


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
