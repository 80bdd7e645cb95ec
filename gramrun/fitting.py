"""One training run: the consumer of `Trainer.steps` that evaluates, logs, saves, and stops well."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tqdm import tqdm

from gramrun import checkpoints
from gramrun.data.shards import PreparedCorpus
from gramrun.errors import GramrunError, InputError
from gramrun.evaluation import evaluate_embeddings, evaluate_popularity
from gramrun.interruption import Interrupted, deferred_interrupt
from gramrun.model.towers import TwoTower
from gramrun.runs import Run, check_same_data, now
from gramrun.training import StepRecord, Trainer, embed_all


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
    run.update_manifest(status="running", threads=torch.get_num_threads())
    previous = run.metrics()
    seconds_before = previous[-1]["seconds"] if previous else 0.0
    started = time.perf_counter()
    pending = list(losses)
    try:
        with deferred_interrupt() as interrupted, progress_bar(trainer) as bar:
            for record in trainer.steps():
                pending.append(record.loss)
                last = record.step == trainer.total_steps
                if last or (evaluate_every and record.step % evaluate_every == 0):
                    seconds = seconds_before + time.perf_counter() - started
                    metrics = _measure(record, pending, seconds, trainer.model, corpus, run)
                    run.append_metrics(metrics)
                    pending = []
                    bar.set_postfix(_headline(metrics), refresh=False)
                if last or (save_every and record.step % save_every == 0) or interrupted():
                    checkpoints.save(run, trainer, losses=pending)
                bar.update()
                if interrupted() and not last:
                    run.update_manifest(status="interrupted", stopped=now())
                    raise Interrupted(
                        f"interrupted at step {trainer.step} of {trainer.total_steps}, state saved; "
                        f"go on with `gramrun train --output {run.path} --resume`"
                    )
    except Interrupted:
        raise
    except GramrunError as error:
        run.update_manifest(status="failed", stopped=now(), error=str(error))
        saved = run.checkpoints()
        hint = f"; the last good checkpoint is {saved[-1]}" if saved else "; no checkpoint was saved before"
        raise type(error)(f"{run.path}: {error}{hint}") from error
    run.update_manifest(status="finished", finished=now(), train_seconds=trainer.train_seconds)
    return run.metrics()[-1]


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


def _measure(
    record: StepRecord,
    losses: list[float],
    seconds: float,
    model: TwoTower,
    corpus: PreparedCorpus,
    run: Run,
) -> dict[str, Any]:
    """One line of ``metrics.jsonl``; the loss is the mean over the steps since the line before."""
    metrics: dict[str, Any] = {
        "step": record.step,
        "epoch": record.epoch,
        "seconds": seconds,
        "train_seconds": record.train_seconds,
        "loss": sum(losses) / len(losses),
        "gravity": record.gravity,
    }
    left, right = embed_all(model, corpus)
    for split in run.config.evaluation.splits:
        result = evaluate_embeddings(left, right, corpus, split, run.config.evaluation)
        prefix = "" if split == "validation" else "train_"
        metrics.update({f"{prefix}{name}": result[name] for name in ("map@10", "recall@10", "ndcg@10")})
    return metrics


def _headline(metrics: Mapping[str, Any]) -> dict[str, str]:
    shown = {"loss": metrics["loss"]}
    if "map@10" in metrics:
        shown["MAP@10"] = metrics["map@10"]
    return {name: f"{value:.4f}" for name, value in shown.items()}


def evaluate_run(
    run: Run, corpus: PreparedCorpus, split: str, *, candidates: int | None = None, full: bool = False
) -> dict[str, Any]:
    """Evaluate a run's newest checkpoint, with popularity beside it.

    Raises:
        InputError: when the run has no checkpoint, or one that does not fit its config.
    """
    check_same_data(run, corpus.content_hash)
    state = checkpoints.load_newest(run)
    if state is None:
        raise InputError(f"{run.path}: has no checkpoint yet; train it first")
    trainer = Trainer(run.config, corpus)
    trainer.load_state_dict(state["trainer"])
    settings = run.config.evaluation
    if candidates is not None:
        settings = settings.model_copy(update={"candidates": candidates})
    left, right = embed_all(trainer.model, corpus)
    result = evaluate_embeddings(left, right, corpus, split, settings, full=full)
    popularity = evaluate_popularity(corpus, split, settings, full=full)
    kept = ("map@10", "ci95", "map@10_relevant", "recall@10", "recall@100", "ndcg@10")
    return {
        **result,
        "step": trainer.step,
        "method": run.config.estimator.label,
        "data_hash": corpus.content_hash,
        "popularity": {name: popularity[name] for name in kept},
    }
