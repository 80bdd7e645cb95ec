"""Many estimators on one fixed trajectory, held against the exact Gramian (paper, Section 4.2).

The configured estimator drives the trajectory θ(1), θ(2), ...; the watching estimators see the same
parameters and, at equal batch size, the same draws (common random numbers), and never influence it. Every
m steps the exact Gramians are computed (or estimated from a large sample, Appendix D) and each estimator's
normalised error is written, with what Proposition 5 asks of the trajectory beside it
(`gramrun.training.trajectory`):

    ‖Ĝ(t) − G(θ(t))‖_F / ‖G(θ(t))‖_F
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
from gramrun.config.loading import config_hash
from gramrun.data.batches import LEFT_OBSERVER_STREAM, RIGHT_OBSERVER_STREAM
from gramrun.gramian.batch import GramianBatch
from gramrun.gramian.exact import relative_error
from gramrun.runs import checkpoints
from gramrun.runs.directory import Run
from gramrun.training import trajectory
from gramrun.training.loop import stop_if
from gramrun.training.progress import Schedule, progress_bar
from gramrun.training.sides import TrainingSide
from gramrun.training.trainer import Trainer, check_tensors, misfit
from gramrun.training.trajectory import Trajectory

COLUMNS = ("step", "epoch", "seconds", "estimator", "batch_size", "alpha", "side", "error")
CSV = "gram_error.csv"


class Observers:
    """The watching estimators of both sides.

    Args:
        sections: one estimator each.
        trainer: whose parameters they watch; caches are started under its current ones.
    """

    def __init__(self, sections: tuple[EstimatorSection, ...], trainer: Trainer) -> None:
        self.sections = sections
        self.trainer = trainer
        self.sides = (trainer.left, trainer.right)
        self.estimators = [
            [trainer.make_estimator(section, side) for section in sections] for side in self.sides
        ]

    def observe(self) -> None:
        """Draw and embed one batch a side, and let every estimator see as much of it as its size asks."""
        streams = (LEFT_OBSERVER_STREAM, RIGHT_OBSERVER_STREAM)
        for side, estimators, stream in zip(self.sides, self.estimators, streams, strict=True):
            batch = self._drawn(side, stream, self.trainer.step)
            ahead = None
            if any(estimator.looks_ahead for estimator in estimators):
                ahead = self._drawn(side, stream, self.trainer.step + 1)
            for section, estimator in zip(self.sections, estimators, strict=True):
                if estimator.observes == "corpus" or section.batch == "previous":
                    seen = self.trainer.gramian_batches(section, estimator, side)
                else:
                    drawn = [batch] if ahead is None or not estimator.looks_ahead else [batch, ahead]
                    seen = tuple(b.first(section.gramian_batch_size) for b in drawn)
                self.trainer.show(estimator, side, seen)

    def _drawn(self, side: TrainingSide, stream: int, step: int) -> GramianBatch:
        largest = max(section.gramian_batch_size for section in self.sections)
        return side.drawn(self.trainer.config.train.seed, stream, step, largest)

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
        except (LookupError, ValueError, RuntimeError, TypeError, AttributeError) as error:
            reason = misfit(error)
            raise InputError(f"the checkpoint belongs to other gram_error.estimators: {reason}") from None


def check_config(config: RunConfig) -> None:
    """Check that there is something to watch.

    Raises:
        ConfigError: when ``gram_error.estimators`` is empty, ``gram_error.every`` is 0, or the objective
            has no Gramians.
    """
    if not config.gram_error.estimators:
        raise ConfigError("gram_error.estimators is empty; list the estimators that watch the trajectory")
    if not config.gram_error.every.count:
        raise ConfigError("gram_error.every is 0; set how often the exact Gramian is computed")
    if config.train.objective != "gravity":
        raise ConfigError(
            f"gram_error watches Gramians; train.objective is {config.train.objective}, set gravity"
        )


def check_finished(run: Run) -> None:
    """Check that a finished run was not asked to go on: its caches are gone.

    Raises:
        ConfigError: when the configuration asks for another length.
    """
    if run.manifest["config_hash"] != config_hash(run.config):
        raise ConfigError(f"{run.path}: is finished, and cannot be lengthened; start anew with --force")


def watch(run: Run, trainer: Trainer, observers: Observers) -> Path:
    """Follow the trajectory to its end, writing ``gram_error.csv`` as it goes; return the file.

    Errors are written at step 1, at every multiple of ``gram_error.every`` and at the last step, and beside
    them, in ``trajectory.csv``, a row for each side.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, with the state of trajectory and estimators saved.
        RunError: when the trajectory breaks down or the disk is full.
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
            if saving.due(record) or interrupted():
                checkpoints.save(run, trainer, observers=observers.state_dict())
            bar.update(record)
            stop_if(interrupted() and not last, run, trainer)
        run.drop_checkpoints(0)  # caches are large, and nothing reads the model of a finished trajectory
    return path
