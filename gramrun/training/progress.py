"""The schedule of evaluations and checkpoints, the progress bar, and TensorBoard."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tqdm import tqdm

from gramrun.base.errors import ConfigError
from gramrun.base.files import disk_errors
from gramrun.config import RunConfig, TimedInterval
from gramrun.runs.directory import Run
from gramrun.training.trainer import StepRecord, Trainer

TENSORBOARD = "tensorboard"  # the folder in a run directory, and the package
SECONDS_BETWEEN_DRAWINGS = 0.5  # twice a second can still be read

Metrics = Mapping[str, Any]


class Schedule:
    """Tells when something periodic is due.

    An interval in minutes is due at every multiple of that much training time. So a resumed run needs no
    state besides its `train_seconds`.

    Args:
        interval: the period.
        trainer: the trainer, at the step where it starts or resumes.
    """

    def __init__(self, interval: TimedInterval, trainer: Trainer) -> None:
        timed = interval.unit == "minutes"
        self._seconds = 60 * interval.count if timed else 0.0
        self._steps = 0 if timed else interval.steps(trainer.pairs, trainer.config.train.batch_size)
        self._multiple = self._multiple_at(trainer.train_seconds)

    def _multiple_at(self, seconds: float) -> int:
        return int(seconds // self._seconds) if self._seconds else 0

    def due(self, record: StepRecord) -> bool:
        """Return whether it is due after this step; in minutes, at the first step after each multiple."""
        if self._steps:
            return record.step % self._steps == 0
        before, self._multiple = self._multiple, self._multiple_at(record.train_seconds)
        return self._multiple > before


class ProgressBar:
    """Shows the steps done, pairs per second, the loss, and the last metrics.

    Speed and loss are means over the steps since the last update on the screen.

    Args:
        bar: counts the steps.
        trainer: the trainer, at the step where it starts or resumes.
    """

    def __init__(self, bar: tqdm[Any], trainer: Trainer) -> None:
        self._bar = bar
        self._batch_size = trainer.config.train.batch_size
        self._running: dict[str, str] = {}
        self._measured: dict[str, str] = {}
        self._restart(trainer.train_seconds)

    def _restart(self, train_seconds: float) -> None:
        self._loss, self._steps, self._train_seconds = 0.0, 0, train_seconds

    def update(self, record: StepRecord) -> None:
        """Count one step."""
        self._loss += record.loss
        self._steps += 1
        if self._bar.update():  # whether the bar was drawn; costs less than a microsecond
            speed = self._steps * self._batch_size / (record.train_seconds - self._train_seconds)
            loss = self._loss / self._steps
            self._running = {"loss": f"{loss:.4f}", "pairs/s": tqdm.format_sizeof(speed)}
            self._draw()
            self._restart(record.train_seconds)

    def measured(self, metrics: Metrics) -> None:
        """Show gravity and MAP@10 of a metrics record."""
        names = {"map@10": "MAP@10", "gravity": "gravity"}
        shown = {name: metrics[field] for field, name in names.items() if metrics.get(field) is not None}
        self._measured = {name: f"{value:.4f}" for name, value in shown.items()}
        self._draw()

    def _draw(self) -> None:
        self._bar.set_postfix(self._running | self._measured)


@contextlib.contextmanager
def progress_bar(trainer: Trainer) -> Iterator[ProgressBar]:
    """Make a bar over the steps of a run, on a terminal only."""
    with tqdm(
        total=trainer.total_steps,
        initial=trainer.step,
        desc=trainer.config.estimator.label,
        disable=not sys.stderr.isatty(),
        dynamic_ncols=True,
        mininterval=SECONDS_BETWEEN_DRAWINGS,
        # Without tqdm's rate, which includes evaluations.
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]",
    ) as bar:
        yield ProgressBar(bar, trainer)


def check_tensorboard(config: RunConfig) -> None:
    """Check that TensorBoard's scalars can be written.

    Raises:
        ConfigError: when ``log.tensorboard`` is true and the package is missing.
    """
    if config.log.tensorboard and importlib.util.find_spec(TENSORBOARD) is None:
        raise ConfigError(
            "log.tensorboard: true needs the package tensorboard, which is not installed; install it "
            "with: pip install 'gramrun[tensorboard]' (or pip install tensorboard)"
        )


@contextlib.contextmanager
def tensorboard(run: Run, step: int) -> Iterator[Callable[[Metrics], None]]:
    """Make a function that writes a metrics record to ``RUN/tensorboard``, where ``log.tensorboard`` is true.

    Scalars have the names of ``metrics.jsonl``.

    Args:
        run: the run; its metrics up to `step` are written first if the folder is new.
        step: the step where the run starts or resumes; later scalars of an earlier process are dropped.

    Raises:
        RunError: when the disk is full.
    """
    if not run.config.log.tensorboard:
        yield lambda metrics: None
        return
    from torch.utils.tensorboard import SummaryWriter  # optional, and slow to import

    folder = run.path / TENSORBOARD
    earlier = [] if folder.exists() else [record for record in run.metrics() if record["step"] <= step]

    def write(metrics: Metrics) -> None:
        with disk_errors(folder):
            for name, value in metrics.items():
                if name != "step" and value is not None:
                    writer.add_scalar(name, value, metrics["step"])
            writer.flush()  # a run that is killed keeps its curves

    with disk_errors(folder):
        writer = SummaryWriter(folder, purge_step=step + 1)
    try:
        for record in earlier:
            write(record)
        yield write
    finally:
        with disk_errors(folder):
            writer.close()
