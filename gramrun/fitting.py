"""One training run: the consumer of `Trainer.steps` that evaluates, logs, saves, and stops well."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tqdm import tqdm

from gramrun import checkpoints, runs
from gramrun.data.shards import PreparedCorpus
from gramrun.evaluation import evaluate_embeddings
from gramrun.interruption import Interrupted, deferred_interrupt
from gramrun.models import embed_all
from gramrun.runs import Run
from gramrun.training import Trainer


def fit(run: Run, trainer: Trainer, corpus: PreparedCorpus, losses: Sequence[float] = ()) -> dict[str, Any]:
    """Train `trainer` to its last step inside `run`; return the last metrics record.

    Args:
        run: the run directory.
        trainer: at step 0, or restored from a checkpoint of `run`.
        corpus: what it trains on.
        losses: of the steps since the last metrics record, as the checkpoint has them.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, with the state saved.
        RunError: when training breaks down or the disk is full; the manifest says so.
    """
    config = run.config
    evaluate_every = config.evaluation.every.steps(trainer.pairs, config.train.batch_size)
    save_every = config.train.checkpoint_every.steps(trainer.pairs, config.train.batch_size)
    pending = list(losses)
    with (
        runs.outcome(run, torch.get_num_threads()) as elapsed,
        deferred_interrupt() as interrupted,
        progress_bar(trainer) as bar,
    ):
        run.truncate_metrics(trainer.step)
        for record in trainer.steps():
            pending.append(record.loss)
            last = record.step == trainer.total_steps
            if last or (evaluate_every and record.step % evaluate_every == 0):
                bar.set_postfix(_log(run, trainer, corpus, pending, elapsed()), refresh=False)
                pending = []
            if last or (save_every and record.step % save_every == 0) or interrupted():
                checkpoints.save(run, trainer, losses=pending)
            bar.update()
            stop_if(interrupted() and not last, run, trainer)
        if pending:  # resumed at its last step, from a checkpoint of a run that was to be longer
            _log(run, trainer, corpus, pending, elapsed())
    return run.metrics()[-1]


def stop_if(stopped: bool, run: Run, trainer: Trainer) -> None:
    """Leave the loop of a run whose state is saved.

    Raises:
        Interrupted: if `stopped`, with the command that goes on.
    """
    if stopped:
        raise Interrupted(
            f"interrupted at step {trainer.step} of {trainer.total_steps}, state saved; "
            f"go on with `gramrun {run.field('kind')} --output {run.path} --resume`"
        )


def progress_bar(trainer: Trainer) -> tqdm[Any]:
    """A bar over the steps of a run, on a terminal only."""
    return tqdm(
        total=trainer.total_steps,
        initial=trainer.step,
        desc=trainer.config.estimator.label,
        unit="step",
        disable=not sys.stderr.isatty(),
        dynamic_ncols=True,
    )


def _log(
    run: Run, trainer: Trainer, corpus: PreparedCorpus, losses: Sequence[float], seconds: float
) -> dict[str, str]:
    """Append one line to ``metrics.jsonl``; return what the progress bar shows of it.

    The loss is the mean over the steps since the line before; gravity is g as the estimators see it.
    """
    metrics: dict[str, Any] = {
        "step": trainer.step,
        "epoch": trainer.epoch,
        "seconds": seconds,
        "train_seconds": trainer.train_seconds,
        "loss": sum(losses) / len(losses),
        "gravity": trainer.objective.penalty(trainer.left_estimator.moments, trainer.right_estimator.moments),
    }
    left, right = embed_all(trainer.model, corpus)
    for split in run.config.evaluation.splits:
        result = evaluate_embeddings(left, right, corpus, split, run.config.evaluation)
        prefix = "" if split == "validation" else "train_"
        metrics.update({f"{prefix}{name}": result[name] for name in ("map@10", "recall@10", "ndcg@10")})
    run.append_metrics(metrics)
    return _headline(metrics)


def _headline(metrics: Mapping[str, Any]) -> dict[str, str]:
    shown = {"loss": metrics["loss"]}
    if "map@10" in metrics:
        shown["MAP@10"] = metrics["map@10"]
    return {name: f"{value:.4f}" for name, value in shown.items()}
