"""The commands that make run directories: `train`, `baseline` and `gram-error`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gramrun.base.errors import quoted
from gramrun.cli.options import (
    ConfigOption,
    ForceOption,
    JsonOption,
    OutputOption,
    Report,
    ResumeOption,
    SetOption,
)

if TYPE_CHECKING:
    from gramrun.base.processes import Processes
    from gramrun.config import RunConfig
    from gramrun.data.corpus import SplitCorpus


def train(
    config: ConfigOption = None,
    output: OutputOption = None,
    settings: SetOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check configuration, corpus and memory alone.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a two-tower model with the configured Gramian estimator.

    With --resume, --config may be left out: the run directory holds it.

    JSON: run, dry_run; with --dry-run also config and resources, else step and metrics (the last record).

    Example: gramrun train --config configs/movielens-100k/sogram.yaml --set estimator.alpha=0.01
    """
    from gramrun import runs
    from gramrun.base.locks import locked
    from gramrun.base.processes import joined
    from gramrun.data.shards import open_corpus
    from gramrun.runs import checkpoints
    from gramrun.training.loop import fit, follow, goes_on, open_run, resolve
    from gramrun.training.progress import check_tensorboard

    with joined() as processes:
        resolved, path = resolve(config, output, settings or [], resume=resume, force=force)
        check_tensorboard(resolved)
        corpus = open_corpus(runs.corpus_folder(path, resolved) if resume else resolved.data.path)
        if dry_run:
            if processes.first:
                _dry_run(resolved, corpus, processes, path, Report(as_json))
            return
        resume = goes_on(path, processes, resume=resume)
        with locked(path) if processes.first else contextlib.nullcontext():
            begin, trainer = open_run("train", path, resolved, corpus, processes, resume=resume, force=force)
            run = begin()
            saved = checkpoints.restore(run, trainer) if resume else {}
            if not processes.first:
                follow(run, trainer)
                return
            last = fit(run, trainer, corpus, saved.get("losses", ()))
    report = Report(as_json)
    report.record({"run": path, "dry_run": False, "step": last["step"], "metrics": last})
    result = f", MAP@10 {last['map@10']:.4f}" if "map@10" in last else ""
    report.text(f"wrote {path}: step {last['step']:,}{result}; next: gramrun evaluate {quoted(path)}")


def _dry_run(
    config: RunConfig, corpus: SplitCorpus, processes: Processes, path: Path, report: Report
) -> None:
    """Check a run, and print its configuration and the resources that it needs."""
    from gramrun.config.loading import dump_config
    from gramrun.training.memory import check_memory
    from gramrun.training.resources import describe_resources, estimate_resources

    needed = estimate_resources(config, corpus, processes)
    report.text(dump_config(config).rstrip("\n"), *describe_resources(needed))
    check_memory(config, corpus, processes)
    plain = config.model_dump(mode="json")
    report.record({"run": path, "dry_run": True, "config": plain, "resources": needed})
    report.text(f"dry run: nothing written; the run would be {path}")


def baseline(
    config: Annotated[Path, typer.Option("--config", help="A YAML file, or a shipped config's name.")],
    output: OutputOption = None,
    settings: SetOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit and evaluate a baseline: popularity, by features, TF-IDF, implicit ALS, exact ALS or EASE.

    An interrupted exact ALS goes on when the same command is given again.

    JSON: run, method, evaluation (by split, each as `gramrun evaluate --json` has it).

    Example: gramrun baseline --config configs/movielens-100k/exact-als.yaml
    """
    from gramrun import runs
    from gramrun.base.locks import locked
    from gramrun.config import BaselineConfig
    from gramrun.config.loading import load_config
    from gramrun.data.shards import open_corpus
    from gramrun.evaluation.baselines.run import run_baseline
    from gramrun.evaluation.protocol import describe

    resolved = load_config(BaselineConfig, config, settings or [])
    path = output or runs.default_path(config, resolved.baseline.seed)
    with locked(path):
        results = run_baseline(path, resolved, open_corpus(resolved.data.path), force=force)
    report = Report(as_json)
    evaluation = {result["split"]: result for result in results}
    report.record({"run": path, "method": resolved.baseline.label, "evaluation": evaluation})
    hint = "" if results[0]["full"] else f"; next: gramrun evaluate {quoted(path)} --full"
    report.text(*map(describe, results), f"wrote {path}: {results[0]['method']}{hint}")


def gram_error(
    config: ConfigOption = None,
    output: OutputOption = None,
    settings: SetOption = None,
    resume: ResumeOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure many estimators' Gramian error on one trajectory, against the exact Gramian.

    JSON: run, written (false: it was finished already), step, gram_error and trajectory (the files).

    Example: gramrun gram-error --config configs/movielens-100k/gram-error.yaml
    """
    from gramrun import runs
    from gramrun.base.locks import locked
    from gramrun.data.shards import open_corpus
    from gramrun.runs import checkpoints
    from gramrun.training import gram_error as gram_errors
    from gramrun.training import trajectory
    from gramrun.training.loop import open_run, resolve

    resolved, path = resolve(config, output, settings or [], resume=resume, force=force)
    gram_errors.check_config(resolved)
    corpus = open_corpus(runs.corpus_folder(path, resolved) if resume else resolved.data.path)
    report = Report(as_json)
    with locked(path):
        begin, trainer = open_run("gram-error", path, resolved, corpus, resume=resume, force=force)
        observers = gram_errors.Observers(resolved.gram_error.estimators, trainer)
        run = begin()
        record: dict[str, Any] = {
            "run": run.path,
            "written": True,
            "step": trainer.total_steps,
            "gram_error": run.path / gram_errors.CSV,
            "trajectory": run.path / trajectory.CSV,
        }
        if resume and run.manifest["status"] == "finished":
            gram_errors.check_finished(run)
            run.drop_checkpoints(0)  # of a command that was killed just then
            report.record(record | {"written": False})
            report.text(f"{run.path}: finished already; nothing to do")
            return
        saved = checkpoints.restore(run, trainer) if resume else {}
        if trainer.step:
            observers.load_state_dict(saved.get("observers"))
        written = gram_errors.measure(run, trainer, observers)
    report.record(record)
    report.text(f"wrote {written}; next: gramrun plot gram-error {quoted(run.path)} --output gram-error.png")
