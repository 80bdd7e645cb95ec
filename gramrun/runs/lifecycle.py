"""Runs: started, opened, gone on with, and their outcome; `gramrun.runs.directory` says what lies where."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from gramrun.base.errors import ConfigError, GramrunError, InputError, RunError
from gramrun.base.files import (
    check_recorded,
    new_folder,
    read_json,
    recorded,
    sha256_of,
    write_json,
    write_text,
)
from gramrun.base.interruption import Interrupted
from gramrun.base.locks import locked
from gramrun.base.provenance import now, provenance
from gramrun.base.records import REMEDY, is_number
from gramrun.config import BaselineConfig, LogSection, RunConfig, Section
from gramrun.config.loading import config_hash, dump_config, load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.runs.directory import (
    CHECKPOINTS,
    CONFIG,
    EVALUATION,
    MANIFEST,
    RECORDED,
    SCHEMA_VERSION,
    BaselineRun,
    Config,
    Run,
    RunDirectory,
    checksums,
    read_manifest,
)

SECONDS_FOR_ANOTHER_EVALUATION = 60.0  # to record its result, which takes milliseconds

Kind = Literal["train", "gram-error"]


def default_path(config_file: Path, seed: int) -> Path:
    """Where a run goes without ``--output``: runs/<dataset>/<method>-seed<seed>."""
    return Path("runs") / config_file.resolve().parent.name / f"{config_file.stem}-seed{seed}"


def check_free(path: Path, *, force: bool, resumable: bool = True) -> None:
    """Check that a run may be written to `path`; the error names --resume only where that would help.

    Raises:
        InputError: when something is there already (unless `force` and it is a run directory).
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not force:
        remedy = "continue it with --resume or replace it" if resumable else "replace it"
        raise InputError(f"{path}: exists already; {remedy} with --force")
    if not (path / MANIFEST).is_file() or not (path / CONFIG).is_file():
        raise InputError(f"{path}: is not a run directory, so --force will not replace it")


def create(path: Path, kind: Kind, config: RunConfig, data_hash: str, *, force: bool = False) -> Run:
    """Start a run directory.

    Raises:
        InputError: when something is there already (unless `force` and it is a run directory).
        RunError: when it cannot be written.
    """
    check_free(path, force=force)
    manifest = {**new_manifest(kind, config, config.train.seed, data_hash), "inputs": _inputs(config)}
    with new_folder(path) as temporary:
        (temporary / CHECKPOINTS).mkdir()
        write_text(temporary / CONFIG, dump_config(config))
        write_json(temporary / MANIFEST, {**manifest, "files": checksums(temporary)})
    return Run(path, config)


def new_manifest(kind: str, config: Section, seed: int, data_hash: str) -> dict[str, Any]:
    """What the manifest of a run says at its start."""
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


def reopen(path: Path, kind: Kind, config: RunConfig, data_hash: str) -> Run:
    """Open a run to go on with it under `config`, writing nothing yet.

    Raises:
        InputError: when `path` is no run of this kind, or was started on another corpus or prior.
        ConfigError: when `config` differs in more than a resumed run may change.
    """
    run = open_run(path)
    if run.field("kind") != kind:
        raise InputError(f"{path}: was made by `gramrun {run.field('kind')}`; resume it with that command")
    old, new = (flatten(_unchanging(c).model_dump(mode="json")) for c in (run.config, config))
    differing = [key for key in {**new, **old} if new.get(key) != old.get(key)]
    if differing:
        raise ConfigError(
            f"{path}: was started with another {differing[0]}; --resume may change only train.epochs, "
            "train.steps, train.checkpoints_kept and log (start a new run with another --output)"
        )
    check_same_data(run, data_hash)
    if run.manifest.get("inputs", {}) != _inputs(config):
        raise InputError(f"{config.train.prior.path}: is another prior than the one {path} was started with")
    return Run(path, config)


def _inputs(config: RunConfig) -> dict[str, str]:
    """SHA-256 of each file beside the corpus that the run depends on."""
    prior = config.train.prior.path
    return {} if prior is None else {"prior": sha256_of(prior)}


def _unchanging(config: RunConfig) -> RunConfig:
    """The configuration without what a resumed run may change."""
    train = config.train.model_copy(update={"epochs": None, "steps": None, "checkpoints_kept": 1})
    return config.model_copy(update={"train": train, "log": LogSection()})


def corpus_of(run: Run | BaselineRun, moved_to: Path | None = None) -> SplitCorpus:
    """The corpus of a run, from where it was or from where it is said to lie now.

    Raises:
        InputError: when it is missing or damaged, or another than the run's.
    """
    folder = moved_to or run.config.data.path
    if moved_to is None and not folder.exists():
        raise InputError(
            f"{folder}: the corpus of {run.path} is not there; say with --data where it lies now, or prepare "
            "it again"
        )
    corpus = open_corpus(folder)
    check_same_data(run, corpus.content_hash, moved_to)
    return corpus


def check_same_data(run: Run | BaselineRun, data_hash: str, folder: Path | None = None) -> None:
    """Check that a run goes on with the corpus it was started on.

    Args:
        run: the run.
        data_hash: the corpus's.
        folder: where the user says that it lies; by default it is where the run found it.

    Raises:
        InputError: when the corpus is another.
    """
    if run.field("data_hash") != data_hash:
        raise InputError(
            f"{folder or run.config.data.path}: holds another corpus than the one {run.path} was started on; "
            + ("name the right one with --data" if folder else "prepare that one again, or start a new run")
        )


def identity(run: Run) -> dict[str, str]:
    """What a checkpoint must share with a run to belong to it: all that no resume may change."""
    return {
        "kind": str(run.field("kind")),
        "config_hash": config_hash(_unchanging(run.config)),
        "data_hash": str(run.field("data_hash")),
    }


@contextlib.contextmanager
def outcome(run: Run, threads: int) -> Iterator[Callable[[], float]]:
    """Keep the manifest's status, times and error while a run is under way.

    Gives a function that says how many seconds the run has taken, earlier sittings included.

    Args:
        run: the run.
        threads: how many torch computes with, for the record.

    Raises:
        Interrupted: as it came.
        RunError: what broke the run, with its path and the last good checkpoint.
    """
    metrics = run.metrics()
    seconds = run.manifest.get("seconds", 0.0)
    before = max(seconds if is_number(seconds) else 0.0, metrics[-1].get("seconds", 0.0) if metrics else 0.0)
    started = time.perf_counter()

    def elapsed() -> float:
        return float(before) + time.perf_counter() - started

    for name in RECORDED:
        run.file(name)
    run.update_manifest(files={})  # before any of them changes: a process may be killed in between
    write_text(run.path / CONFIG, dump_config(run.config))  # a resumed run may have been lengthened
    known = {CONFIG: recorded(run.path / CONFIG)}
    run.update_manifest(
        status="running", config_hash=config_hash(run.config), threads=threads, error=None, files=known
    )

    def stop(status: str, **fields: Any) -> None:
        run.update_manifest(status=status, **fields, seconds=elapsed(), files=checksums(run.path))

    try:
        yield elapsed
    except Interrupted:
        stop("interrupted", stopped=now())
        raise
    except GramrunError as error:
        with contextlib.suppress(RunError):  # a full disk, of which the error tells already
            stop("failed", stopped=now(), error=str(error))
        saved = run.checkpoints()
        hint = f"; the last good checkpoint is {saved[-1]}" if saved else "; no checkpoint was saved before"
        raise type(error)(f"{run.path}: {error}{hint}") from error
    stop("finished", finished=now())


def record_evaluation(run: Run | BaselineRun, result: Mapping[str, Any]) -> None:
    """Write ``evaluation.json``: the latest result of each split, also of those that others evaluate now.

    Raises:
        InputError: when the file is damaged, or another process keeps it for a minute.
        RunError: when the disk is full or the folder cannot be written.
    """
    path = run.path / EVALUATION
    with locked(path, wait_seconds=SECONDS_FOR_ANOTHER_EVALUATION):
        known = read_json(path, "remove it and evaluate again") if path.exists() else {}
        write_json(path, {**known, str(result["split"]): dict(result)})


def open_run(path: Path) -> Run:
    """Open the directory of a training run.

    Raises:
        InputError: when it is none, or a baseline's, or damaged.
        ConfigError: when its config cannot be read by this version.
    """
    if is_baseline(path):
        raise InputError(f"{path}: holds a baseline, which has no training to go on with or to draw")
    return _opened(path, RunConfig)


def open_baseline(path: Path) -> BaselineRun:
    """Open the directory of a baseline.

    Raises:
        InputError: when it is damaged.
        ConfigError: when its config cannot be read by this version.
    """
    return _opened(path, BaselineConfig)


def _opened(path: Path, kind: type[Config]) -> RunDirectory[Config]:
    known = read_manifest(path).get("files", {})
    if CONFIG in known:
        check_recorded(path / CONFIG, known[CONFIG], REMEDY)
    return RunDirectory(path, load_config(kind, path / CONFIG))


def is_baseline(path: Path) -> bool:
    """Whether a run directory was made by `gramrun baseline`.

    Raises:
        InputError: when it is no run directory, or its manifest is missing or damaged.
    """
    if not (path / CONFIG).is_file():
        raise InputError(f"{path}: not a run directory (no {CONFIG}); `gramrun train` makes one")
    return read_manifest(path).get("kind") == "baseline"


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat
