"""Open a run directory, train in it with evaluation and checkpoints, stop, and resume."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gramrun import runs
from gramrun.base.capacity import check_capacity
from gramrun.base.errors import InputError, RunError, quoted
from gramrun.base.interruption import Interrupted, deferred_interrupt
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.base.records import is_number
from gramrun.base.torchrun import environment_number
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.evaluation.protocol import evaluate_model
from gramrun.runs import Kind, checkpoints, directory
from gramrun.runs.directory import Run
from gramrun.training.checks import check_run
from gramrun.training.inner_products import InnerProducts
from gramrun.training.memory import check_memory
from gramrun.training.progress import Schedule, progress_bar, tensorboard
from gramrun.training.resources import estimate_resources
from gramrun.training.trainer import Trainer
from gramrun.training.trajectory import own_errors

OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"  # torch's: 1 gives every restart a store of its own


def resolve(
    config: Path | None, output: Path | None, settings: list[str], *, resume: bool, force: bool
) -> tuple[RunConfig, Path]:
    """Return the configuration and the run directory that the options of a command name.

    Raises:
        InputError: when the options contradict one another, or name too little.
        ConfigError: when the configuration is invalid.
    """
    if resume and force:
        raise InputError("--resume goes on with a run and --force replaces it; give one of them")
    if config is None:
        if not (resume and output):
            raise InputError("give --config FILE, or --resume with --output RUN")
        config = runs.open_run(output).path / directory.CONFIG
    resolved = load_config(RunConfig, config, settings)
    return resolved, output or runs.default_path(config, resolved.train.seed)


def goes_on(path: Path, processes: Processes, *, resume: bool) -> bool:
    """Whether to resume: with --resume, or under ``torchrun --max-restarts`` from the second start on.

    Args:
        path: the run directory.
        processes: the processes that train together.
        resume: whether --resume was given.

    Raises:
        InputError: under ``--max-restarts`` without --resume, as a restart would find the run there; or of
            several launchers with one store for all restarts.
    """
    if not environment_number("TORCHELASTIC_MAX_RESTARTS", 0):
        return resume
    if not resume:
        raise InputError(
            "torchrun --max-restarts repeats this command: give --resume, which begins a run where there is "
            "none and goes on from its last checkpoint where there is one"
        )
    if environment_number("GROUP_WORLD_SIZE", 1) > 1 and not environment_number(OWN_STORE, 0):
        raise InputError(
            f"torchrun --max-restarts on several machines needs {OWN_STORE}=1 in the environment of every "
            "torchrun: a restart would find the addresses of processes that are gone"
        )
    return processes.from_first((path / directory.MANIFEST).exists)


def open_run(
    kind: Kind,
    path: Path,
    config: RunConfig,
    corpus: SplitCorpus,
    processes: Processes = SINGLE_PROCESS,
    *,
    resume: bool,
    force: bool,
) -> tuple[Callable[[], Run], Trainer]:
    """Check a run, and make a trainer at step 0 of it.

    Of several processes only the first reads and writes the directory.

    Returns:
        A function that makes the run directory, or returns the run to resume: call it last, so that a failure
        before leaves the old run as it was. And the trainer, at step 0.

    Raises:
        InputError: when there is a run and neither `resume` nor `force`, or none to resume.
        ConfigError: when the configuration does not fit the corpus or the machine.
    """
    if not processes.first:
        run = Run(path, config)
    elif resume:
        run = runs.resume(path, kind, config, corpus.content_hash)
    else:
        runs.check_free(path, force=force, corpus=config.data.path)
    observers = config.gram_error.estimators if kind == "gram-error" else ()
    if observers:
        check_run(config, corpus, processes, observers)
    needed = estimate_resources(config, corpus, processes, observers)  # checks the run alone
    check_memory(config, corpus, processes, needed["gram_error"]["memory"])
    processes.wait()  # no process allocates before all have seen what is free
    trainer = Trainer(config, corpus, processes)
    if resume or not processes.first:
        return lambda: run, trainer
    need = needed["disk"]["checkpoints"] + needed["gram_error"]["checkpoints"]
    check_capacity(need, "disk", what="checkpoints", remedy="name an --output on another disk", path=path)
    return partial(runs.create, path, kind, config, corpus.content_hash, force=force), trainer


def fit(run: Run, trainer: Trainer, corpus: SplitCorpus, losses: Sequence[float] = ()) -> dict[str, Any]:
    """Train `trainer` to its last step inside `run`; return the last metrics record.

    Of several processes the first calls this, while the others `follow`.

    Args:
        run: the run directory.
        trainer: at step 0, or restored from a checkpoint of `run`.
        corpus: the corpus of the run.
        losses: add up to the losses since the last metrics record, as the checkpoint has them.

    Raises:
        InputError: when `losses`, which come from a file, are no numbers.
        Interrupted: after Ctrl-C or SIGTERM, with the state saved.
        RunError: when training diverges or the disk is full; the manifest says so.
    """
    if not (isinstance(losses, list | tuple) and all(map(is_number, losses))):
        raise InputError(f"{run.path}: its checkpoint is damaged (losses); start the run anew with --force")
    evaluating = Schedule(run.config.evaluation.every, trainer)
    saving = Schedule(run.config.train.checkpoint_every, trainer)
    processes = trainer.processes
    with (
        runs.outcome(run, torch.get_num_threads()) as elapsed,
        deferred_interrupt(passed_on=processes.count > 1) as interrupted,
        progress_bar(trainer) as bar,
        tensorboard(run, trainer.step) as write,
    ):
        run.truncate_metrics(trainer.step)
        products = InnerProducts(run, corpus, trainer.step)
        since = SinceLastRecord(run, sum(losses))

        def log() -> None:
            metrics = _measure(run, trainer, corpus, since, products, elapsed())
            trainer.engine.stop_answers()
            run.append_metrics(metrics)
            write(metrics)
            bar.measured(metrics)
            since.reset(metrics)

        for record in trainer.steps():
            since.loss += record.loss
            bar.update(record)
            last = record.step == trainer.total_steps
            # The clock of the first process decides for all when to evaluate and to save.
            stopped, saved, measured = processes.any(
                interrupted(), last or saving.due(record), last or evaluating.due(record)
            )
            if measured:
                log()
            if saved or stopped:
                started = time.perf_counter()
                check_replicas(trainer)
                checkpoints.save(run, trainer, losses=[since.loss])
                since.checkpoint_seconds += time.perf_counter() - started
            if stopped and not last:
                processes.wait()
                raise interrupted_run(run, trainer)
        # Resumed at its last step, from a checkpoint of a longer run.
        if processes.any(trainer.step > since.step)[0]:
            log()
        processes.wait()
    return run.metrics()[-1]


class SinceLastRecord:
    """Sums over the steps since the last metrics record.

    Args:
        run: the run; its metrics end at or before the current step.
        loss: the sum of the losses since.

    Attributes:
        step: the step of the last record, 0 where there is none.
        train_seconds: of the last record.
        loss: the sum of the losses since.
        checkpoint_seconds: the seconds spent on checkpoints since.
    """

    def __init__(self, run: Run, loss: float) -> None:
        self.reset((run.metrics() or [{"step": 0, "train_seconds": 0.0}])[-1])
        self.loss = loss

    def reset(self, metrics: Mapping[str, Any]) -> None:
        """Start again at a metrics record."""
        self.step: int = metrics["step"]
        self.train_seconds: float = metrics.get("train_seconds", 0.0)
        self.loss = 0.0
        self.checkpoint_seconds = 0.0


def follow(run: Run, trainer: Trainer) -> None:
    """Train in step with the first process, which alone evaluates, logs and saves.

    With split tables, this process helps to embed items and saves its part.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM in any process, when the first one has saved the state.
        RunError: when training diverges or the first process has ended.
    """
    processes = trainer.processes
    with deferred_interrupt(passed_on=True) as interrupted:
        for record in trainer.steps():
            stopped, saved, measured = processes.any(interrupted(), False, False)
            if measured:
                trainer.engine.answer()
            if saved or stopped:
                check_replicas(trainer)
                checkpoints.save_split(run, trainer)
            if stopped and record.step < trainer.total_steps:
                processes.wait()
                raise Interrupted(f"interrupted at step {trainer.step}")
        if processes.any(False)[0]:
            trainer.engine.answer()
        processes.wait()


def check_replicas(trainer: Trainer) -> None:
    """Check that all processes have the same parameters and Gramians, bit for bit.

    Raises:
        RunError: in every process, when they differ.
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


def interrupted_run(run: Run, trainer: Trainer) -> Interrupted:
    """Return the exception of a run that was interrupted and saved, with the command that resumes it."""
    return Interrupted(
        f"interrupted at step {trainer.step} of {trainer.total_steps}, state saved; "
        f"go on with `gramrun {run.manifest['kind']} --output {quoted(run.path)} --resume`"
    )


def _measure(
    run: Run,
    trainer: Trainer,
    corpus: SplitCorpus,
    since: SinceLastRecord,
    products: InnerProducts,
    seconds: float,
) -> dict[str, Any]:
    """A record of ``metrics.jsonl``; `docs/file-formats.md` lists its fields."""
    steps = trainer.step - since.step
    train_seconds = trainer.train_seconds - since.train_seconds
    metrics: dict[str, Any] = {
        "step": trainer.step,
        "epoch": trainer.epoch,
        "seconds": seconds,
        "train_seconds": trainer.train_seconds,
        "pairs_per_second": steps * run.config.train.batch_size / train_seconds,
        "loss": since.loss / steps,
    }
    left, right = trainer.left_estimator, trainer.right_estimator
    measured = left.observes != "nothing"
    metrics["gravity"] = trainer.objective.penalty(left.moments, right.moments) if measured else None
    started = time.perf_counter()
    settings = run.config.evaluation
    for split, result in evaluate_model(trainer.model, corpus, settings.splits, settings).items():
        prefix = "" if split == "validation" else "train_"
        metrics.update({f"{prefix}{name}": result[name] for name in ("map@10", "recall@10", "ndcg@10")})
    if run.config.log.gramian_samples:
        metrics |= own_errors(trainer, run.config.log.gramian_samples)
    products.record(trainer)
    metrics["evaluation_seconds"] = time.perf_counter() - started
    metrics["checkpoint_seconds"] = since.checkpoint_seconds
    return metrics
