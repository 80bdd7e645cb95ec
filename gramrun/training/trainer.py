"""Training as a generator of plain records, one a step (`gramrun.training.step`).

B and B' come from independent streams (Proposition 1's condition; with ``batch: previous`` up to 1/n, see
docs/mathematics.md#reused-batches). Progress, evaluation, checkpoints and Gramian errors consume the records.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gramrun.base.errors import ConfigError, InputError
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data import batches
from gramrun.data.batches import IndexStream
from gramrun.data.corpus import Side, SplitCorpus
from gramrun.gramian import CacheOptions, make_estimator
from gramrun.gramian.cache import CACHE_DTYPES
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import make_population
from gramrun.gramian.sagram import SAGram
from gramrun.gramian.schedule import AlphaSchedule
from gramrun.model.build import choose_device, make_engine, make_model, make_split_tables
from gramrun.model.row_wise import as_dtensors
from gramrun.model.svd_start import svd_start
from gramrun.model.towers import TwoTower
from gramrun.training.checks import check_run
from gramrun.training.objective import make_objective
from gramrun.training.side import EmbeddedSide
from gramrun.training.step import gradient_step, statistics, training_step


@dataclass(frozen=True)
class StepRecord:
    """The result of one step.

    Attributes:
        step: gradient steps done so far, from 1.
        epoch: passes over the training pairs done so far.
        loss: f, the mean loss of the observed pairs in the batch, before the step.
        train_seconds: seconds spent in steps so far and in a start at a decomposition, without evaluation
            and checkpoints.
    """

    step: int
    epoch: float
    loss: float
    train_seconds: float


class Trainer:
    """The whole state of a run: parameters, optimizer, estimators, and the position in the streams.

    Args:
        config: the run's configuration.
        corpus: the prepared corpus.
        processes: the processes that train together, each with a trainer of its own.

    Attributes:
        step: t, the steps done so far.
        total_steps: of the whole run.
        pair_stream: the gradient batches B', as indices of training pairs.
        target: s_i of every training pair, or None for 1.
        previous: u and v of the last gradient batch, for ``batch: previous``.
        gradient_step: a gradient step of this trainer, which the engine may have captured as a graph.

    Raises:
        ConfigError: when the configuration does not fit the corpus, the device or the processes.
        InputError: when the file of a prior does not fit the corpus.
    """

    def __init__(self, config: RunConfig, corpus: SplitCorpus, processes: Processes = SINGLE_PROCESS) -> None:
        check_run(config, corpus, processes)
        self.config = config
        self.processes = processes
        self.pairs = len(corpus.train)
        self.total_steps = config.train.total_steps(self.pairs)
        self.device = choose_device(config.device)
        if self.device.type == "cuda":
            torch.set_float32_matmul_precision("high" if config.model.products == "tf32" else "highest")
        self.split_tables = make_split_tables(config, corpus, processes)
        started = time.perf_counter()
        model = make_model(config, corpus, self.split_tables)
        if config.train.start == "svd":
            svd_start(model, config, corpus)
        model.to(self.device)
        self.train_seconds = time.perf_counter() - started if config.train.start == "svd" else 0.0
        self.engine = make_engine(config, model, corpus, processes, self.split_tables)
        # Without a cycle, so that tables and accumulators are freed with the last reference to their trainer.
        self.gradient_step = self.engine.capture(partial(gradient_step, weakref.proxy(self)))
        self.left = self._side("left", corpus.left, corpus.train.left)
        self.right = self._side("right", corpus.right, corpus.train.right)
        target = torch.from_numpy(corpus.train.target) if config.train.target == "value" else None
        self.target = None if target is None else target.to(self.device)
        self.objective = make_objective(config, corpus, self.left.population, self.right.population)
        # The right one first: what the left one observes may depend on it.
        self.right_estimator = self.make_estimator(config.estimator, self.right)
        self.left_estimator = self.make_estimator(config.estimator, self.left)
        self.step = 0
        self.previous: tuple[Tensor, Tensor] | None = None
        shuffled = batches.ShuffledPairs(self.pairs, config.train.batch_size, config.train.seed)
        self.pair_stream = IndexStream(shuffled.batch, self.device)

    def _side(self, name: str, side: Side, pair_items: np.ndarray) -> EmbeddedSide:
        left = name == "left"
        gamma = self.config.train.gamma_left if left else self.config.train.gamma_right
        stream = batches.Stream.LEFT_GRAMIAN if left else batches.Stream.RIGHT_GRAMIAN
        population = make_population(torch.from_numpy(pair_items), side.items, gamma).to(self.device)
        embed = partial(self.engine.embed, name)
        train = self.config.train
        dropout = train.id_dropout_left if left else train.id_dropout_right
        return EmbeddedSide(name, side.items, population, embed, stream, self.processes, dropout)

    @property
    def model(self) -> TwoTower:
        """The towers and tables, up to date. Do not keep their parameters over a step."""
        self.engine.settle()
        return self.engine.model

    @property
    def epoch(self) -> float:
        """Passes over the training pairs done so far."""
        return self.step * self.config.train.batch_size / self.pairs

    def make_estimator(self, section: EstimatorSection, side: EmbeddedSide) -> GramianEstimator:
        """Make an estimator of one side's Gramian and start it under the current parameters.

        Raises:
            ConfigError: for a custom estimator that cannot be made, or looks ahead with ``batch: previous``.
        """
        cache = None
        if section.cache_entry is not None:
            cache = CacheOptions(
                section.cache_entry,
                CACHE_DTYPES[section.cache_dtype],
                section.cache_folder,
                section.rebuild_every.steps(self.pairs, self.config.train.batch_size),
                None if self.split_tables is None else self.processes,
            )
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
            cache=cache,
        ).to(self.device)
        if estimator.looks_ahead and section.batch == "previous":
            raise ConfigError(
                f"{section.name} looks ahead to the batch of the next step, which is not known yet with "
                "batch: previous; set batch: drawn"
            )
        if estimator.needs_start:
            items = torch.arange(side.items, device=self.device)
            estimator.start(statistics(self, side, chunk) for chunk in side.chunks(items))
        return estimator

    def steps(self) -> Iterator[StepRecord]:
        """Train from the current step to the last, yielding one record a step.

        Raises:
            RunError: when the objective is not finite. On a CPU the parameters are left unchanged.
        """
        while self.step < self.total_steps:
            started = time.perf_counter()
            loss = training_step(self)
            self.step += 1
            self.train_seconds += time.perf_counter() - started
            yield StepRecord(self.step, self.epoch, loss, self.train_seconds)

    def state_dict(self) -> dict[str, Any]:
        """The whole state. Batches need none: they are functions of seed and step."""
        return {
            "step": self.step,
            "train_seconds": self.train_seconds,
            "model": self.model.state_dict(),
            "optimizer": self.engine.state_dict(),
            "left_estimator": self.left_estimator.state_dict(),
            "right_estimator": self.right_estimator.state_dict(),
            "previous": self.previous if self.config.estimator.batch == "previous" else None,
        }

    def parts(self) -> dict[str, tuple[int, Tensor]]:
        """What is split among the processes: tables, their optimizer's state, SAGram's caches.

        Returns:
            By name: the number of rows in all processes, and the rows here; empty without split tables.
        """
        if self.split_tables is None:
            return {}
        parts = self.split_tables.parts()
        for side, estimator in (("left", self.left_estimator), ("right", self.right_estimator)):
            for module in estimator.modules():
                if isinstance(module, SAGram):
                    caches = {"cache": module.cache, "companions": module.companion_cache}
                    held = {f"{side}.{name}": c for name, c in caches.items() if c.shape[1]}
                    parts |= {name: (module.entries, cache) for name, cache in held.items()}
        return parts

    def split_state(self) -> dict[str, Tensor]:
        """`parts` as DTensors, which share their memory."""
        parts = self.parts()
        return as_dtensors(parts, self.processes) if parts else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`'s state.

        Raises:
            InputError: when the state belongs to another model, optimizer or estimator.
        """
        try:
            for part in ("model", "left_estimator", "right_estimator"):
                check_tensors(part, state[part])
            self.model.load_state_dict(state["model"])
            self.engine.load_state_dict(state["optimizer"])
            self.left_estimator.load_state_dict(state["left_estimator"])
            self.right_estimator.load_state_dict(state["right_estimator"])
            self.previous = self._previous(state["previous"], int(state["step"]))
            self.step = int(state["step"])
            self.train_seconds = float(state["train_seconds"])
        except STATE_ERRORS as error:
            reason = state_reason(error)
            raise InputError(f"the checkpoint belongs to another model or method: {reason}") from None

    def _previous(self, saved: Any, step: int) -> tuple[Tensor, Tensor] | None:
        """Check the saved embeddings of the last gradient batch and move them to the device."""
        if self.config.estimator.batch != "previous" or (saved is None and step == 0):
            return None
        if saved is None:
            raise ValueError("its last batch is missing")
        shape = (self.config.train.batch_size, self.config.model.embedding_dim)
        left, right = saved
        if not all(isinstance(rows, Tensor) and rows.shape == shape for rows in (left, right)):
            raise ValueError("its last batch has another shape")
        return left.to(self.device), right.to(self.device)


# What loading a state of another shape or kind can raise.
STATE_ERRORS = (LookupError, ValueError, RuntimeError, TypeError, AttributeError)


def check_tensors(name: str, state: Any) -> None:
    """Check that the state of a module is tensors by name, which PyTorch does not.

    Raises:
        ValueError: when it is anything else.
    """
    if not (isinstance(state, dict) and all(isinstance(value, Tensor) for value in state.values())):
        raise ValueError(f"its {name} is not a set of tensors")


def state_reason(error: Exception) -> str:
    """Return why a state could not be loaded, in one line and without Python's type names."""
    readable = isinstance(error, RuntimeError | ValueError)
    return " ".join(str(error).split())[:160] if readable else "its state has other parts"
