"""A run directory: resolved config, manifest, metrics, checkpoints. Written whole, never overwritten.

config.yaml             the resolved configuration
manifest.json           command, git commit, versions, data hash, config hash, seed, threads, times
metrics.jsonl           one JSON object a line, in order of steps; configs/README.md lists its fields
                        (gram-error: gram_error.csv, trajectory.csv)
inner_products.csv      quantiles of inner products at each evaluation, if evaluation.inner_products is not 0
tensorboard/            the same numbers for TensorBoard, if log.tensorboard is true
checkpoints/step-<9 digits>.pt      one whole state a file; the newest is the last by name
embeddings.npz          a baseline's instead: left and right, float32, shapes (items, k)
evaluation.json         what `gramrun evaluate` measured
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from gramrun.config import BaselineConfig, LogSection, RunConfig, Section
from gramrun.config_loading import config_hash, dump_config, load_config
from gramrun.errors import ConfigError, GramrunError, InputError
from gramrun.files import disk_errors, new_file, new_folder, sha256_of
from gramrun.interruption import Interrupted
from gramrun.provenance import now, provenance
from gramrun.records import is_number, read_json, read_records
from gramrun.results import load as load  # `runs.load(path)`: what a run holds, as frames
from gramrun.schema import check_schema

CONFIG, MANIFEST, METRICS = "config.yaml", "manifest.json", "metrics.jsonl"
INNER_PRODUCTS, CHECKPOINTS, EVALUATION = "inner_products.csv", "checkpoints", "evaluation.json"
SCHEMA_VERSION = 1  # of the whole directory, also of those whose manifest does not say it yet
_RECORD = ("step", "epoch", "seconds", "train_seconds")  # what every record of a training has
Kind = Literal["train", "gram-error"]
Config = TypeVar("Config", RunConfig, BaselineConfig)


@dataclass(frozen=True)
class RunDirectory(Generic[Config]):
    """A run directory.

    Attributes:
        path: the directory.
        config: its resolved configuration.
    """

    path: Path
    config: Config

    def field(self, name: str) -> Any:
        """One field of the manifest.

        Raises:
            InputError: when the manifest lacks it.
        """
        manifest = self.manifest
        if name not in manifest:
            raise InputError(f"{self.path / MANIFEST}: damaged (no {name}); start the run anew with --force")
        return manifest[name]

    @property
    def manifest(self) -> dict[str, Any]:
        """The parsed ``manifest.json``."""
        return _read_manifest(self.path)

    def update_manifest(self, **fields: Any) -> None:
        """Replace fields of the manifest."""
        write_json(self.path / MANIFEST, {**self.manifest, **fields})

    def metrics(self) -> list[dict[str, Any]]:
        """All records of ``metrics.jsonl``; a torn last line, cut off by a crash, is left out.

        Raises:
            InputError: when another line is damaged.
        """
        required = ("step", "seconds") if isinstance(self.config, BaselineConfig) else _RECORD
        return read_records(self.path / METRICS, required)

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Append one record and sync it: the checkpoints that follow count from it."""
        with disk_errors(self.path), (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def truncate_metrics(self, step: int) -> None:
        """Drop the records after `step`, which a resumed run will write again."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        with new_file(self.path / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")

    def checkpoints(self) -> list[Path]:
        """The checkpoint files, oldest first."""
        return sorted((self.path / CHECKPOINTS).glob("step-*.pt"))

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint of `step` lies."""
        return self.path / CHECKPOINTS / f"step-{step:09d}.pt"

    def drop_checkpoints(self, kept: int) -> None:
        """Remove all but the newest `kept` checkpoints."""
        paths = self.checkpoints()
        for path in paths[: max(0, len(paths) - kept)]:
            path.unlink()


Run = RunDirectory[RunConfig]  # of `gramrun train` or `gramrun gram-error`
BaselineRun = RunDirectory[BaselineConfig]


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
        write_json(temporary / MANIFEST, manifest)
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


def check_same_data(run: Run | BaselineRun, data_hash: str) -> None:
    """Check that a run goes on with the corpus it was started on.

    Raises:
        InputError: when the corpus has changed.
    """
    if run.field("data_hash") != data_hash:
        raise InputError(
            f"{run.config.data.path}: holds another corpus than the one {run.path} was started on; "
            "prepare that one again, or start a new run"
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
    before = max(seconds if is_number(seconds) else 0.0, metrics[-1]["seconds"] if metrics else 0.0)
    started = time.perf_counter()

    def elapsed() -> float:
        return float(before) + time.perf_counter() - started

    write_text(run.path / CONFIG, dump_config(run.config))  # a resumed run may have been lengthened
    run.update_manifest(status="running", config_hash=config_hash(run.config), threads=threads, error=None)
    try:
        yield elapsed
    except Interrupted:
        run.update_manifest(status="interrupted", stopped=now(), seconds=elapsed())
        raise
    except GramrunError as error:
        run.update_manifest(status="failed", stopped=now(), seconds=elapsed(), error=str(error))
        saved = run.checkpoints()
        hint = f"; the last good checkpoint is {saved[-1]}" if saved else "; no checkpoint was saved before"
        raise type(error)(f"{run.path}: {error}{hint}") from error
    run.update_manifest(status="finished", finished=now(), seconds=elapsed())


def record_evaluation(run: Run | BaselineRun, result: Mapping[str, Any]) -> None:
    """Write ``evaluation.json``: the latest result of each split."""
    path = run.path / EVALUATION
    known = read_json(path) if path.exists() else {}
    write_json(path, {**known, str(result["split"]): dict(result)})


def open_run(path: Path) -> Run:
    """Open the directory of a training run.

    Raises:
        InputError: when it is none, or a baseline's.
        ConfigError: when its config cannot be read by this version.
    """
    if is_baseline(path):
        raise InputError(f"{path}: holds a baseline, which has no training to go on with or to draw")
    return Run(path, load_config(RunConfig, path / CONFIG))


def open_baseline(path: Path) -> BaselineRun:
    """Open the directory of a baseline.

    Raises:
        ConfigError: when its config cannot be read by this version.
    """
    return BaselineRun(path, load_config(BaselineConfig, path / CONFIG))


def is_baseline(path: Path) -> bool:
    """Whether a run directory was made by `gramrun baseline`.

    Raises:
        InputError: when it is no run directory.
    """
    if not (path / CONFIG).is_file():
        raise InputError(f"{path}: not a run directory (no {CONFIG}); `gramrun train` makes one")
    return (path / MANIFEST).exists() and _read_manifest(path).get("kind") == "baseline"


def _read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the run directory `path`, of the schema version that this gramrun reads."""
    manifest = read_json(path / MANIFEST)
    version = manifest.get("schema_version", 1)
    check_schema(path / MANIFEST, version, SCHEMA_VERSION, "start the run anew with --force")
    return manifest


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat
