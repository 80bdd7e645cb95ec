"""Training as a generator of plain records (paper, Algorithms 1 and 2 around their Gramian updates).

At step t, with parameters θ:

    1. Gramian batch B:   draw members, embed them under θ, let the two estimators observe them;
    2. gradient batch B': θ ← θ − η ∇_θ (1/|B'|) sum_{i in B'} [f_i(θ) + λ ĝ_i(θ, Ĝ_u, Ĝ_v)].

B and B' come from independent streams (Proposition 1's condition; with ``batch: previous`` up to 1/n,
see `gramrun.gramian.estimator`). Whatever watches training (progress, evaluation, checkpoints, Gramian
errors) consumes the records and is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gramrun.base.errors import ConfigError, InputError, RunError
from gramrun.base.processes import ALONE, Processes
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data import batches
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.data.index_stream import IndexStream
from gramrun.gramian import CacheOptions, make_estimator
from gramrun.gramian.batch import GramianBatch, batch_moments
from gramrun.gramian.cache import CACHE_DTYPES
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import make_population
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.model.build import check_fits, choose_device, make_learner, make_model
from gramrun.model.learners import BatchItems, NotFinite
from gramrun.training.caches import check_caches
from gramrun.training.objective import GradientBatch, make_objective
from gramrun.training.sides import TrainingSide


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
        processes: that train together, each with a trainer of its own.

    Raises:
        ConfigError: when the configuration does not fit the corpus or the number of processes.
    """

    def __init__(self, config: RunConfig, corpus: SplitCorpus, processes: Processes = ALONE) -> None:
        check_fits(config, corpus)
        check_divides(config, processes.count)
        self.config = config
        self.processes = processes
        self.pairs = len(corpus.train)
        self.total_steps = config.train.total_steps(self.pairs)
        self.device = choose_device(config.device)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high" if config.model.products == "tf32" else "highest")
        self.model = make_model(config, corpus).to(self.device)
        self.learner = make_learner(config, self.model, processes)
        self.left = self._side("left", corpus.left, corpus.train.left)
        self.right = self._side("right", corpus.right, corpus.train.right)
        target = torch.from_numpy(corpus.train.target) if config.train.target == "value" else None
        self.target = None if target is None else target.to(self.device)
        self.objective = make_objective(config, corpus, self.left.population, self.right.population)
        check_caches(config, [config.estimator], corpus, self.objective.companion_dim)
        # The right one first: what the left one observes may depend on it.
        self.right_estimator = self.make_estimator(config.estimator, self.right)
        self.left_estimator = self.make_estimator(config.estimator, self.left)
        self.step = 0
        self.train_seconds = 0.0
        self.previous: tuple[Tensor, Tensor] | None = None
        shuffled = batches.ShuffledPairs(self.pairs, config.train.batch_size, config.train.seed)
        self._pairs = IndexStream(shuffled.batch, self.device)

    def _side(self, name: str, side: Side, pair_items: np.ndarray) -> TrainingSide:
        left = name == "left"
        gamma = self.config.train.gamma_left if left else self.config.train.gamma_right
        stream = batches.LEFT_GRAMIAN_STREAM if left else batches.RIGHT_GRAMIAN_STREAM
        population = make_population(torch.from_numpy(pair_items), side.items, gamma).to(self.device)
        embed = partial(self.learner.embed, name)
        return TrainingSide(name, side.items, population, embed, stream, self.processes)

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
        ).to(self.device)
        if estimator.needs_start:
            items = torch.arange(side.items, device=self.device)
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

    def gramian_batches(
        self, section: EstimatorSection, estimator: GramianEstimator, side: TrainingSide
    ) -> tuple[GramianBatch, ...]:
        """What an estimator is to see of one side at the current step: B; the next B too if it asks."""
        if estimator.observes == "nothing":
            return ()
        if estimator.observes == "corpus":
            return (side.whole(),)
        if section.batch == "previous" and self.previous is not None:
            return (self.previous_batch(side),)
        steps = (self.step, self.step + 1) if estimator.looks_ahead else (self.step,)
        size, seed = section.gramian_batch_size, self.config.train.seed
        return tuple(side.drawn(seed, side.stream, step, size) for step in steps)

    def show(self, estimator: GramianEstimator, side: TrainingSide, batches: Sequence[GramianBatch]) -> None:
        """Let an estimator observe what the objective needs of the batches that `gramian_batches` gave."""
        for batch, see in zip(batches, (estimator.observe, estimator.look_ahead), strict=False):
            see(self._of_all_processes(estimator, side, batch))

    def _of_all_processes(
        self, estimator: GramianEstimator, side: TrainingSide, batch: GramianBatch
    ) -> GramianBatch:
        """What an estimator needs of a batch of which each process has a part."""
        processes = self.processes
        if processes.count == 1:
            return self._statistics(side, batch)
        if estimator.needs_rows:
            gather = processes.gather_uneven if estimator.observes == "corpus" else processes.gather
            return self._statistics(side, batch.each(gather))
        part = self._statistics(side, batch)
        return replace(part, moments=processes.mean(batch_moments(part)))

    def previous_batch(self, side: TrainingSide) -> GramianBatch:
        """The gradient batch of the step before, under that step's parameters: one step stale.

        Raises:
            ValueError: before the first step.
        """
        if self.previous is None:
            raise ValueError("there is no gradient batch before the first step")
        pairs = self._pairs.batch(self.step - 1)
        return side.reused(pairs, self.previous[0 if side is self.left else 1])

    def steps(self) -> Iterator[StepRecord]:
        """Train from the current step to the last, yielding one record a step.

        Raises:
            RunError: when the loss stops being finite; on a CPU the parameters are left as they were.
        """
        while self.step < self.total_steps:
            started = time.perf_counter()
            loss = self._step()
            self.step += 1
            self.train_seconds += time.perf_counter() - started
            yield StepRecord(self.step, self.epoch, loss, self.train_seconds)

    def _step(self) -> float:
        pairs = self._pairs.batch(self.step)
        section = self.config.estimator

        def prepared(
            side: TrainingSide, estimator: GramianEstimator
        ) -> tuple[tuple[GramianBatch, ...], Tensor]:
            items = side.population.pair_items[pairs].long()
            seen = self.gramian_batches(section, estimator, side)
            self.learner.take(side.name, items)
            return seen, items

        with self.learner.at_work():
            (left_seen, left), (right_seen, right) = self.learner.side_by_side(
                lambda: prepared(self.left, self.left_estimator),
                lambda: prepared(self.right, self.right_estimator),
            )
            # The right one first: what the left one observes may depend on it.
            self.show(self.right_estimator, self.right, right_seen)
            self.show(self.left_estimator, self.left, left_seen)
            try:
                done = self.learner.descend(BatchItems(pairs, left, right), self._terms)
            except NotFinite as fault:
                raise RunError(
                    f"step {self.step + 1}: {fault}; lower train.learning_rate or train.gravity"
                ) from None
        if section.batch == "previous" or self.processes.count == 1:  # gram-error's observers may ask too
            self.previous = self.processes.gather(done.left), self.processes.gather(done.right)
        return float(done.loss)

    def _terms(self, items: BatchItems, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        batch = GradientBatch(
            items.left,
            items.right,
            u,
            v,
            1.0 if self.target is None else self.target[items.pairs],
            _at(self.left.population.importance, items.left),
            _at(self.right.population.importance, items.right),
        )
        loss, surrogate = self.objective.terms(batch, self.left_estimator, self.right_estimator)
        return loss, self.config.train.gravity * surrogate

    def state_dict(self) -> dict[str, Any]:
        """The whole state; batches need none, being functions of seed and step."""
        return {
            "step": self.step,
            "train_seconds": self.train_seconds,
            "model": self.model.state_dict(),
            "optimizer": self.learner.state_dict(),
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
            for part in ("model", "left_estimator", "right_estimator"):
                check_tensors(part, state[part])
            self.model.load_state_dict(state["model"])
            self.learner.load_state_dict(state["optimizer"])
            self.left_estimator.load_state_dict(state["left_estimator"])
            self.right_estimator.load_state_dict(state["right_estimator"])
            self.previous = self._last_batch(state["previous"], int(state["step"]))
            self.step = int(state["step"])
            self.train_seconds = float(state["train_seconds"])
        except (LookupError, ValueError, RuntimeError, TypeError, AttributeError) as error:
            raise InputError(f"the checkpoint belongs to another model or method: {misfit(error)}") from None

    def _last_batch(self, saved: Any, step: int) -> tuple[Tensor, Tensor] | None:
        """The embeddings of step's gradient batch, on this device; ValueError where they are none."""
        if self.config.estimator.batch != "previous" or (saved is None and step == 0):
            return None
        if saved is None:
            raise ValueError("its last batch is missing")
        shape = (self.config.train.batch_size, self.config.model.embedding_dim)
        left, right = saved
        if not all(isinstance(rows, Tensor) and rows.shape == shape for rows in (left, right)):
            raise ValueError("its last batch has another shape")
        return left.to(self.device), right.to(self.device)


def check_tensors(name: str, state: Any) -> None:
    """Check that a module's state is tensors by name, before torch looks for those of its parameters.

    Raises:
        ValueError: when it is anything else.
    """
    if not (isinstance(state, dict) and all(isinstance(value, Tensor) for value in state.values())):
        raise ValueError(f"its {name} is not a set of tensors")


def misfit(error: Exception) -> str:
    """Why a state could not be loaded: what torch or a learner says of it, and never Python's own words."""
    told = isinstance(error, RuntimeError | ValueError)
    return " ".join(str(error).split())[:160] if told else "its state has other parts"


def check_divides(config: RunConfig, processes: int) -> None:
    """Check that the work of a step divides evenly among the processes.

    Raises:
        ConfigError: when a batch does not, or the objective is not a mean over pairs.
    """
    if processes == 1:
        return
    sizes = {"train.batch_size": config.train.batch_size}
    if config.estimator.name not in ("exact", "none"):
        sizes["estimator.gramian_batch_size"] = config.estimator.gramian_batch_size
    for key, size in sizes.items():
        if size % processes:
            raise ConfigError(f"{key} is {size}; make it a multiple of the {processes} processes")
    if config.train.objective == "batch-softmax":
        raise ConfigError(
            "train.objective: batch-softmax sets each pair against the whole batch; train it in one process"
        )


def _at(importance: Tensor | None, items: Tensor) -> Tensor | None:
    return None if importance is None else importance[items]
