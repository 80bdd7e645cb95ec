"""Create and resume run directories, and record how a run ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gramrun.base.errors import ConfigError, GramrunError, InputError, RunError, one_line
from gramrun.base.files import (
    check_recorded,
    check_replaceable,
    new_file,
    new_folder,
    read_json,
    recorded,
    sha256_of,
    write_json,
    write_text,
)
from gramrun.base.interruption import Interrupted, deferred_interrupt
from gramrun.base.locks import locked
from gramrun.base.provenance import now, provenance
from gramrun.base.records import is_number
from gramrun.config import BaselineConfig, LogSection, RunConfig, Section
from gramrun.config.loading import config_hash, config_hashes, dump_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.runs.directory import (
    CHECKPOINTS,
    CONFIG,
    CORPUS,
    EVALUATION,
    MANIFEST,
    PER_ITEM,
    RECORDED,
    SCHEMA_VERSION,
    BaselineRun,
    Run,
    checksums,
    flatten,
    open_run,
    per_item,
)

# How long to wait for another process to write evaluation.json, which takes milliseconds.
_EVALUATION_LOCK_SECONDS = 60.0

Kind = Literal["train", "gram-error"]


def default_path(config_file: Path, seed: int) -> Path:
    """Where a run goes without ``--output``: runs/<dataset>/<method>-seed<seed>."""
    return Path("runs") / config_file.resolve().parent.name / f"{config_file.stem}-seed{seed}"


def check_free(path: Path, *, force: bool, corpus: Path | None = None) -> None:
    """Check that a run on a corpus may be written to `path`.

    Raises:
        InputError: when something is there already, unless `force` is true and it is a run directory without
            that corpus.
    """
    check_replaceable(path)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / MANIFEST).is_file() or not (path / CONFIG).is_file():
        raise InputError(f"{path}: is no run directory, so it is not replaced; choose another path")
    if not force:
        raise InputError(
            f"{path}: exists already; replace it with --force, or go on with a training: --resume"
        )
    if corpus is not None and corpus.resolve().is_relative_to(path.resolve()):
        raise InputError(f"{path}: holds the corpus of this run, so it is not replaced; choose another path")


def create(path: Path, kind: Kind, config: RunConfig, data_hash: str, *, force: bool = False) -> Run:
    """Create a run directory.

    Raises:
        InputError: when something is there already, unless `force` is true and it is a run directory.
        RunError: when it cannot be written.
    """
    check_free(path, force=force)
    manifest = {**new_manifest(kind, config, config.train.seed, data_hash), "inputs": _inputs(config)}
    with new_folder(path) as temporary:
        (temporary / CHECKPOINTS).mkdir()
        write_text(temporary / CONFIG, dump_config(config))
        manifest["files"] = checksums(temporary)
        write_json(temporary / MANIFEST, manifest)
    return Run(path, config, manifest)


def new_manifest(kind: str, config: Section, seed: int, data_hash: str) -> dict[str, Any]:
    """The manifest of a run at its start."""
    return {
        "schema_version": SCHEMA_VERSION,
        **provenance(),
        "kind": kind,
        "started": now(),
        "status": "running",
        "config_hash": config_hash(config),
        "data_hash": data_hash,
        "seed": seed,
    }


def resume(path: Path, kind: Kind, config: RunConfig, data_hash: str) -> Run:
    """Open a run to continue it under `config`. Writes nothing yet.

    Raises:
        InputError: when `path` is no run of this kind, or was started on another corpus or prior.
        ConfigError: when `config` changes more than a resumed run may change.
    """
    run = open_run(path)
    if run.manifest["kind"] != kind:
        raise InputError(f"{path}: was made by `gramrun {run.manifest['kind']}`; resume it with that command")
    check_same_data(run, data_hash, corpus_folder(path, config))
    config = config.model_copy(update={"data": run.config.data})  # of the same corpus at another place
    old, new = (flatten(_fixed_part(c).model_dump(mode="json")) for c in (run.config, config))
    differing = [key for key in {**new, **old} if new.get(key) != old.get(key)]
    if differing:
        raise ConfigError(
            f"{path}: was started with another {differing[0]}; --resume may change only train.epochs, "
            "train.steps, train.checkpoints_kept and log, and data.path where the corpus has moved (start a "
            "new run with another --output)"
        )
    if run.manifest.get("inputs", {}) != _inputs(config):
        raise InputError(f"{config.train.prior.path}: is another prior than the one {path} was started with")
    return Run(path, config, run.manifest)


def _inputs(config: RunConfig) -> dict[str, str]:
    """SHA-256 of each input file other than the corpus."""
    prior = config.train.prior.path
    return {} if prior is None else {"prior": sha256_of(prior)}


def _fixed_part(config: RunConfig) -> RunConfig:
    """The configuration with everything that a resumed run may change set to a constant."""
    train = config.train.model_copy(update={"epochs": None, "steps": None, "checkpoints_kept": 1})
    return config.model_copy(update={"train": train, "log": LogSection()})


def corpus_folder(path: Path, config: RunConfig | BaselineConfig) -> Path:
    """The corpus in a run directory, or else that which its configuration names."""
    own = path / CORPUS
    return own if own.exists() else config.data.path


def corpus_of(run: Run | BaselineRun, moved_to: Path | None = None) -> SplitCorpus:
    """Open the corpus of a run: `moved_to`, that in its directory, or that which its configuration names.

    Raises:
        InputError: when it is missing or damaged, or is another corpus.
    """
    folder = moved_to or corpus_folder(run.path, run.config)
    if moved_to is None and not folder.exists():
        raise InputError(
            f"{folder}: the corpus of {run.path} is not there; name its new place with --data (from Python: "
            "data=), or prepare it again"
        )
    corpus = open_corpus(folder)
    check_same_data(run, corpus.content_hash, folder)
    return corpus


def check_same_data(run: Run | BaselineRun, data_hash: str, folder: Path | None = None) -> None:
    """Check that `data_hash`, of the corpus in `folder`, is that of the run's corpus.

    Raises:
        InputError: when it is another.
    """
    if run.manifest["data_hash"] != data_hash:
        raise InputError(
            f"{folder or run.config.data.path}: holds another corpus than that of {run.path}; name the "
            "right one with --data, prepare it again, or start a new run"
        )


def identities(run: Run) -> list[dict[str, str]]:
    """What a checkpoint must share with its run, what a resume may not change: today's and older ones."""
    fixed = {"kind": str(run.manifest["kind"]), "data_hash": str(run.manifest["data_hash"])}
    return [{**fixed, "config_hash": found} for found in config_hashes(_fixed_part(run.config))]


@contextlib.contextmanager
def outcome(run: Run, threads: int) -> Iterator[Callable[[], float]]:
    """Record status, times and errors in the manifest while a run is under way.

    Yields a function that returns the seconds that the run has taken so far, earlier sessions included.

    Args:
        run: the run.
        threads: the number of torch's threads, for the record.

    Raises:
        Interrupted: unchanged.
        RunError: the error that ended the run, with the run's path and the last good checkpoint.
    """
    metrics = run.metrics()
    seconds = run.manifest.get("seconds", 0.0)
    before = max(seconds if is_number(seconds) else 0.0, metrics[-1].get("seconds", 0.0) if metrics else 0.0)
    started = time.perf_counter()

    def elapsed() -> float:
        return float(before) + time.perf_counter() - started

    for name in RECORDED:
        run.file(name)
    # Forget the checksums before a file changes: the process may be killed in between.
    run.update_manifest(files={})
    write_text(run.path / CONFIG, dump_config(run.config))  # a resume may have changed train.steps
    run.update_manifest(
        status="running",
        config_hash=config_hash(run.config),
        threads=threads,
        error=None,
        files={CONFIG: recorded(run.path / CONFIG)},
    )

    def stop(status: str, **fields: Any) -> None:
        # torchrun terminates the others as soon as one process has ended; the first one may be writing then.
        with deferred_interrupt(passed_on=True):
            run.update_manifest(status=status, **fields, seconds=elapsed(), files=checksums(run.path))

    try:
        yield elapsed
    except Interrupted:
        stop("interrupted", stopped=now())
        raise
    except Exception as error:
        with contextlib.suppress(RunError):  # the disk may be full, which `error` reports already
            stop("failed", stopped=now(), error=one_line(error))
        if not isinstance(error, GramrunError):  # as where memory runs out
            raise
        saved = run.checkpoints()
        hint = f"; the last good checkpoint is {saved[-1]}" if saved else "; no checkpoint was saved before"
        raise type(error)(f"{run.path}: {error}{hint}") from error
    stop("finished", finished=now())


def evaluations(run: Run | BaselineRun) -> dict[str, Any]:
    """The latest results by split, as ``evaluation.json`` holds them; empty where there is none.

    Raises:
        InputError: when the file is damaged.
    """
    path = run.path / EVALUATION
    return read_json(path, "remove it and evaluate again") if path.exists() else {}


def record_evaluation(run: Run | BaselineRun, result: Mapping[str, Any]) -> dict[str, Any]:
    """Store a result in ``evaluation.json``, which has the latest one of each split; return what it holds.

    Raises:
        InputError: when the file is damaged, or another process holds its lock for a minute.
        RunError: when the file cannot be written.
    """
    path = run.path / EVALUATION
    with locked(path, wait_seconds=_EVALUATION_LOCK_SECONDS):
        known = evaluations(run)
        record = write_per_item(run.path, result)
        write_json(path, {**known, str(result["split"]): record})
    return record


def write_per_item(folder: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """Write the AP@10 of each left item to its own file; return the result with its checksum instead."""
    with new_file(folder / per_item(str(result["split"]))) as temporary:
        np.save(temporary, result[PER_ITEM])
    return {**result, PER_ITEM: recorded(folder / per_item(str(result["split"])))}


def average_precision(run: Run | BaselineRun, split: str) -> np.ndarray:
    """The AP@10 of each left item in the latest evaluation of a split: float32, ascending left items.

    Raises:
        InputError: when the split was not evaluated, or the file is missing or damaged.
    """
    file, known = run.path / per_item(split), evaluations(run)
    if PER_ITEM not in known.get(split, {}):
        raise InputError(f"{run.path}: {split} was not evaluated; run `gramrun evaluate`")
    check_recorded(file, known[split][PER_ITEM], "evaluate again")
    return np.asarray(np.load(file))
