"""The errors of many estimators on one training trajectory (paper, Section 4.2): ``gram_error.csv``.

    ‖Ĝ(t) − G(θ(t))‖_F / ‖G(θ(t))‖_F

The configured estimator drives the trajectory θ(1), θ(2), ... The observing estimators see the same
parameters and, at equal batch size, the same draws (common random numbers), and do not influence it. Every m
steps, G is computed exactly or from a large sample (Appendix D), and `gramrun.training.trajectory` writes the
quantities of Proposition 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gramrun import runs
from gramrun.base.errors import ConfigError, InputError
from gramrun.base.interruption import deferred_interrupt
from gramrun.base.records import append_rows, keep_rows
from gramrun.config import EstimatorSection, RunConfig
from gramrun.config.loading import config_hashes
from gramrun.data.batches import Stream
from gramrun.gramian.batch import GramianBatch
from gramrun.gramian.exact import relative_error
from gramrun.runs import checkpoints
from gramrun.runs.directory import Run
from gramrun.training import trajectory
from gramrun.training.checks import check_measurable
from gramrun.training.loop import interrupted_run
from gramrun.training.progress import Schedule, progress_bar
from gramrun.training.side import EmbeddedSide
from gramrun.training.step import gramian_batches, observe
from gramrun.training.trainer import STATE_ERRORS, Trainer, check_tensors, state_reason
from gramrun.training.trajectory import Trajectory

COLUMNS = ("step", "epoch", "seconds", "estimator", "batch_size", "alpha", "side", "error")
CSV = "gram_error.csv"


class Observers:
    """The observing estimators of both sides.

    Args:
        sections: one estimator each.
        trainer: the trainer whose parameters they observe; caches start under its current ones.
    """

    def __init__(self, sections: tuple[EstimatorSection, ...], trainer: Trainer) -> None:
        self.sections = sections
        self.trainer = trainer
        self.sides = (trainer.left, trainer.right)
        self.estimators = [
            [trainer.make_estimator(section, side) for section in sections] for side in self.sides
        ]

    def observe(self) -> None:
        """Draw and embed one batch a side; every estimator observes as much of it as its size asks for."""
        trainer = self.trainer
        streams = (Stream.LEFT_OBSERVER, Stream.RIGHT_OBSERVER)
        for side, estimators, stream in zip(self.sides, self.estimators, streams, strict=True):
            shared = [self._draw(side, stream, trainer.step)]
            if any(estimator.looks_ahead for estimator in estimators):
                shared.append(self._draw(side, stream, trainer.step + 1))
            for section, estimator in zip(self.sections, estimators, strict=True):
                if estimator.observes == "corpus" or section.batch == "previous":
                    batches = gramian_batches(trainer, section, estimator, side)
                else:
                    drawn = shared if estimator.looks_ahead else shared[:1]
                    batches = tuple(batch.first(section.gramian_batch_size) for batch in drawn)
                observe(trainer, estimator, side, batches)

    def _draw(self, side: EmbeddedSide, stream: int, step: int) -> GramianBatch:
        largest = max(section.gramian_batch_size for section in self.sections)
        return side.draw(self.trainer.config.train.seed, stream, step, largest)

    def errors(self, gramians: Sequence[Tensor]) -> Iterator[dict[str, Any]]:
        """Each estimator's error on each side, against the reference Gramians of the two sides."""
        for side, estimators, exact in zip(self.sides, self.estimators, gramians, strict=True):
            for section, estimator in zip(self.sections, estimators, strict=True):
                yield {
                    "estimator": section.family,
                    "batch_size": section.gramian_batch_size,
                    "alpha": section.alpha if section.has_alpha else None,
                    "side": side.name,
                    "error": relative_error(estimator.gramian, exact),
                }

    def state_dict(self) -> list[list[dict[str, Tensor]]]:
        """Every estimator's state."""
        return [[estimator.state_dict() for estimator in estimators] for estimators in self.estimators]

    def load_state_dict(self, state: Any) -> None:
        """Restore `state_dict`'s state.

        Raises:
            InputError: when it belongs to other estimators.
        """
        try:
            if [len(states) for states in state] != [len(self.sections)] * len(self.sides):
                raise ValueError("it has another number of them")
            for estimators, states in zip(self.estimators, state, strict=True):
                for section, estimator, values in zip(self.sections, estimators, states, strict=True):
                    check_tensors(section.name, values)
                    estimator.load_state_dict(values)
        except STATE_ERRORS as error:
            reason = state_reason(error)
            raise InputError(f"the checkpoint belongs to other gram_error.estimators: {reason}") from None


def check_config(config: RunConfig) -> None:
    """Check that there are estimators and errors to measure.

    Raises:
        ConfigError: when ``gram_error.estimators`` is empty, ``gram_error.every`` is 0, or the Gramians
            cannot be measured.
    """
    if not config.gram_error.estimators:
        raise ConfigError("gram_error.estimators is empty; list the estimators to measure")
    if not config.gram_error.every.count:
        raise ConfigError("gram_error.every is 0; set how often the exact Gramian is computed")
    check_measurable(config, "gram-error")


def check_finished(run: Run) -> None:
    """Check that a finished run is not to be lengthened: its checkpoints are gone.

    Raises:
        ConfigError: when the configuration asks for another length.
    """
    if run.manifest["config_hash"] not in config_hashes(run.config):
        raise ConfigError(f"{run.path}: is finished, and its checkpoints are gone; start anew with --force")


def measure(run: Run, trainer: Trainer, observers: Observers) -> Path:
    """Train to the last step, writing ``gram_error.csv`` and ``trajectory.csv``; return the former's path.

    Both get rows at step 1, at every multiple of ``gram_error.every`` and at the last step.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, with the state saved.
        RunError: when training diverges or the disk is full.
    """
    config = run.config
    every = config.gram_error.every.steps(trainer.pairs, config.train.batch_size)
    saving = Schedule(config.train.checkpoint_every, trainer)
    path, trajectory_path = run.path / CSV, run.path / trajectory.CSV
    measured = Trajectory(trainer)

    def is_measured(step: int) -> bool:
        return step in (1, trainer.total_steps) or step % every == 0

    with (
        runs.outcome(run, torch.get_num_threads()),
        deferred_interrupt() as interrupted,
        progress_bar(trainer) as bar,
    ):
        keep_rows(path, COLUMNS, trainer.step)
        keep_rows(trajectory_path, trajectory.COLUMNS, trainer.step)
        if is_measured(trainer.step + 1):
            measured.prepare()
        for record in trainer.steps():
            observers.observe()
            last = record.step == trainer.total_steps
            if is_measured(record.step):
                place = {"step": record.step, "epoch": record.epoch, "seconds": record.train_seconds}
                sides = measured.measure()
                errors = observers.errors([side.reference.gramian for side in sides])
                append_rows(path, COLUMNS, [{**place, **error} for error in errors])
                append_rows(trajectory_path, trajectory.COLUMNS, [{**place, **side.row()} for side in sides])
            if not last and is_measured(record.step + 1):
                measured.prepare()
            stopped = interrupted()
            if saving.due(record) or stopped:
                checkpoints.save(run, trainer, observers=observers.state_dict())
            bar.update(record)
            if stopped and not last:
                raise interrupted_run(run, trainer)
    run.drop_checkpoints(0)  # they hold the caches, and nothing reads the model
    return path
