"""One training run: the consumer of `Trainer.steps` that evaluates, logs, saves, and stops well."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gramrun import runs
from gramrun.base.errors import InputError, RunError
from gramrun.base.interruption import Interrupted, deferred_interrupt
from gramrun.base.records import is_number
from gramrun.data.corpus import SplitCorpus
from gramrun.evaluation.protocol import evaluate_model
from gramrun.runs import checkpoints
from gramrun.runs.directory import Run
from gramrun.training.inner_products import InnerProducts
from gramrun.training.progress import Schedule, progress_bar, tensorboard
from gramrun.training.trainer import Trainer


def fit(run: Run, trainer: Trainer, corpus: SplitCorpus, losses: Sequence[float] = ()) -> dict[str, Any]:
    """Train `trainer` to its last step inside `run`; return the last metrics record.

    Of several processes this is what the first one does, while the others `follow`.

    Args:
        run: the run directory.
        trainer: at step 0, or restored from a checkpoint of `run`.
        corpus: what it trains on.
        losses: sum to that of the steps since the last metrics record, as the checkpoint has them.

    Raises:
        InputError: when `losses`, which come from a file, are no numbers.
        Interrupted: after Ctrl-C or SIGTERM, with the state saved.
        RunError: when training breaks down or the disk is full; the manifest says so.
    """
    if not (isinstance(losses, list | tuple) and all(map(is_number, losses))):
        raise InputError(f"{run.path}: its checkpoint is damaged (losses); start the run anew with --force")
    evaluating = Schedule(run.config.evaluation.every, trainer)
    saving = Schedule(run.config.train.checkpoint_every, trainer)
    together = trainer.processes
    with (
        runs.outcome(run, torch.get_num_threads()) as elapsed,
        deferred_interrupt(passed_on=together.count > 1) as interrupted,
        progress_bar(trainer) as bar,
        tensorboard(run, trainer.step) as write,
    ):
        run.truncate_metrics(trainer.step)
        products = InnerProducts(run, corpus, trainer.step)
        stretch = Stretch(run, sum(losses))

        def log() -> None:
            metrics = _measure(run, trainer, corpus, stretch, products, elapsed())
            run.append_metrics(metrics)
            write(metrics)
            bar.measured(metrics)
            stretch.restart(metrics)

        for record in trainer.steps():
            stretch.loss += record.loss
            bar.update(record)
            last = record.step == trainer.total_steps
            # The first process's clock decides for all when they save.
            stopped, saved = together.any(interrupted(), last or saving.due(record))
            if last or evaluating.due(record):
                log()
            if saved or stopped:
                started = time.perf_counter()
                check_replicas(trainer)
                checkpoints.save(run, trainer, losses=[stretch.loss])
                stretch.checkpoint_seconds += time.perf_counter() - started
            if stopped and not last:
                together.wait()
                stop_if(True, run, trainer)
        if trainer.step > stretch.step:  # resumed at its last step, from a checkpoint of a longer run
            log()
        together.wait()
    return run.metrics()[-1]


class Stretch:
    """The steps since the last metrics record.

    Args:
        run: whose metrics end at or before the step that it goes on from.
        loss: the sum of the losses of the steps since.

    Attributes:
        step: the step of the last record, 0 where there is none.
        train_seconds: of that record.
        loss: the sum of the losses since.
        checkpoint_seconds: spent on checkpoints since, in this sitting.
    """

    def __init__(self, run: Run, loss: float) -> None:
        self.restart((run.metrics() or [{"step": 0, "train_seconds": 0.0}])[-1])
        self.loss = loss

    def restart(self, metrics: Mapping[str, Any]) -> None:
        """Begin anew after a metrics record."""
        self.step: int = metrics["step"]
        self.train_seconds: float = metrics.get("train_seconds", 0.0)
        self.loss = 0.0
        self.checkpoint_seconds = 0.0


def follow(trainer: Trainer) -> None:
    """Train in step with the first process, which alone evaluates, logs and saves, until it has ended.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM in any process, when the first one has saved the state.
        RunError: when training breaks down or the first process has ended.
    """
    together = trainer.processes
    with deferred_interrupt(passed_on=True) as interrupted:
        for record in trainer.steps():
            stopped, saved = together.any(interrupted(), False)
            if saved or stopped:
                check_replicas(trainer)
            if stopped and record.step < trainer.total_steps:
                together.wait()
                raise Interrupted(f"interrupted at step {trainer.step}")
        together.wait()


def check_replicas(trainer: Trainer) -> None:
    """Check that all processes have the same parameters and Gramians, to the last bit.

    Raises:
        RunError: when they do not, in every one of them.
    """
    if trainer.processes.count == 1:
        return
    checksum = 0
    for part in (trainer.model, trainer.left_estimator, trainer.right_estimator):
        for tensor in part.state_dict().values():
            checksum = zlib.crc32(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy(), checksum)
    checksums = trainer.processes.gather(torch.tensor([checksum])).tolist()
    if len(set(checksums)) > 1:
        raise RunError(
            f"step {trainer.step}: the processes no longer have the same parameters; run them on machines of "
            "one kind, and go on with --resume"
        )


def stop_if(stopped: bool, run: Run, trainer: Trainer) -> None:
    """Leave the loop of a run whose state is saved.

    Raises:
        Interrupted: if `stopped`, with the command that goes on.
    """
    if stopped:
        raise Interrupted(
            f"interrupted at step {trainer.step} of {trainer.total_steps}, state saved; "
            f"go on with `gramrun {run.manifest['kind']} --output {run.path} --resume`"
        )


def _measure(
    run: Run,
    trainer: Trainer,
    corpus: SplitCorpus,
    stretch: Stretch,
    products: InnerProducts,
    seconds: float,
) -> dict[str, Any]:
    """A record for ``metrics.jsonl``; `docs/file-formats.md` says what its fields are."""
    steps = trainer.step - stretch.step
    train_seconds = trainer.train_seconds - stretch.train_seconds
    metrics: dict[str, Any] = {
        "step": trainer.step,
        "epoch": trainer.epoch,
        "seconds": seconds,
        "train_seconds": trainer.train_seconds,
        "pairs_per_second": steps * run.config.train.batch_size / train_seconds,
        "loss": stretch.loss / steps,
        "gravity": trainer.objective.penalty(trainer.left_estimator.moments, trainer.right_estimator.moments),
    }
    started = time.perf_counter()
    settings = run.config.evaluation
    for split, result in evaluate_model(trainer.model, corpus, settings.splits, settings).items():
        prefix = "" if split == "validation" else "train_"
        metrics.update({f"{prefix}{name}": result[name] for name in ("map@10", "recall@10", "ndcg@10")})
    products.record(trainer)
    metrics["evaluation_seconds"] = time.perf_counter() - started
    metrics["checkpoint_seconds"] = stretch.checkpoint_seconds
    return metrics
