"""A run directory: its layout, opening one, and reading and writing its files.

config.yaml             the resolved configuration
manifest.json           command, git commit, versions, data hash, config hash, seed, threads, times
metrics.jsonl           one JSON object a line, in order of steps; docs/file-formats.md lists the fields
gram_error.csv, trajectory.csv      of `gramrun gram-error`, instead of metrics.jsonl
inner_products.csv      quantiles of inner products at each evaluation, if evaluation.inner_products is not 0
tensorboard/            the same numbers for TensorBoard, if log.tensorboard is true
checkpoints/step-<9 digits>.pt      the whole state at one step; the last name is the newest
checkpoints/step-<9 digits>.tables/     of split tables: the rows of each process (`gramrun.runs.parts`)
corpus/                 the prepared corpus of a model that was saved from Python
embeddings.npz          of a baseline, instead of checkpoints: left and right, float32, shapes (items, k)
item_weights.npy        of EASE, instead of embeddings.npz: B, float32, shape (right items, right items)
evaluation.json         the latest result of `gramrun evaluate` for each split
average_precision.SPLIT.npy     AP@10 of each left item in that result: float32, ascending left items

JSON files and checkpoints carry their own checksums. For the other files the manifest's field ``files`` has
size and SHA-256: of config.yaml from the start, of the rest once the run has stopped.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gramrun.base.errors import InputError
from gramrun.base.files import (
    check_recorded,
    check_schema,
    disk_errors,
    is_record,
    new_file,
    read_json,
    recorded,
    write_json,
)
from gramrun.base.records import REMEDY, read_records
from gramrun.config import BaselineConfig, RunConfig
from gramrun.config.loading import load_config

CONFIG, MANIFEST, METRICS = "config.yaml", "manifest.json", "metrics.jsonl"
INNER_PRODUCTS, CHECKPOINTS, EVALUATION = "inner_products.csv", "checkpoints", "evaluation.json"
CORPUS = "corpus"  # a folder
EMBEDDINGS, ITEM_WEIGHTS = "embeddings.npz", "item_weights.npy"
PER_ITEM = "average_precision"  # a field of an evaluation that has a file of its own
SCHEMA_VERSION = 1  # of the whole directory; a manifest without one has version 1

# The files whose size and SHA-256 the manifest records.
RECORDED = (CONFIG, METRICS, INNER_PRODUCTS, "gram_error.csv", "trajectory.csv", EMBEDDINGS, ITEM_WEIGHTS)
_REQUIRED = ("kind", "status", "config_hash", "data_hash")  # fields of the manifest that gramrun reads
_NUMBERS = ("step", "epoch", "seconds", "train_seconds")  # fields of a metrics record that gramrun reads


@dataclass(frozen=True)
class RunDirectory:
    """An open run directory.

    Attributes:
        path: the directory.
        config: its resolved configuration.
        manifest: ``manifest.json``, read and checked when the directory was opened.
    """

    path: Path
    config: RunConfig | BaselineConfig
    manifest: dict[str, Any] = field(default_factory=dict)

    def update_manifest(self, **fields: Any) -> None:
        """Replace fields of the manifest, here and in the file."""
        self.manifest.update(fields)
        write_json(self.path / MANIFEST, self.manifest)

    def file(self, name: str) -> Path:
        """The path of a result file, checked against the manifest if the run has stopped.

        Raises:
            InputError: when the file changed after the run stopped.
        """
        path, known = self.path / name, self.manifest.get("files", {})
        if name in known:
            check_recorded(path, known[name], REMEDY)
        return path

    def metrics(self) -> list[dict[str, Any]]:
        """All records of ``metrics.jsonl``, without a last line that a crash cut off.

        Raises:
            InputError: when the file is damaged.
        """
        return read_records(self.file(METRICS), _NUMBERS)


@dataclass(frozen=True)
class Run(RunDirectory):
    """The directory of `gramrun train` or `gramrun gram-error`."""

    config: RunConfig

    @property
    def method(self) -> str:
        """The estimator and its parameters, such as ``SOGram α=0.01``."""
        return self.config.estimator.label

    @property
    def seed(self) -> int:
        """The seed of training."""
        return self.config.train.seed

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Append one record and sync the file: later checkpoints rely on it."""
        with disk_errors(self.path), (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def truncate_metrics(self, step: int) -> None:
        """Drop the records after `step`: a resumed run writes them again."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        with new_file(self.path / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(r) + "\n" for r in kept), encoding="utf-8")

    def checkpoints(self) -> list[Path]:
        """The checkpoint files, oldest first."""
        return sorted((self.path / CHECKPOINTS).glob("step-*.pt"))

    def checkpoint_path(self, step: int) -> Path:
        """The path of the checkpoint of `step`."""
        return self.path / CHECKPOINTS / f"step-{step:09d}.pt"

    def drop_checkpoints(self, kept: int) -> None:
        """Remove all but the newest `kept` checkpoints, and the tables of others and of killed runs."""
        paths = self.checkpoints()
        for path in paths[: max(0, len(paths) - kept)]:
            path.unlink()
        whole = {path.with_suffix("") for path in self.checkpoints()}
        for folder in (self.path / CHECKPOINTS).glob("step-*.tables"):
            if folder.with_suffix("") not in whole:
                shutil.rmtree(folder)


@dataclass(frozen=True)
class BaselineRun(RunDirectory):
    """The directory of `gramrun baseline`."""

    config: BaselineConfig

    @property
    def method(self) -> str:
        """The baseline and its parameters, such as ``exact ALS λ=10 γ=0,0``."""
        return self.config.baseline.label

    @property
    def seed(self) -> int:
        """The seed of the baseline."""
        return self.config.baseline.seed


def open_directory(path: Path) -> Run | BaselineRun:
    """Open a run directory of any kind.

    Raises:
        InputError: when `path` is no run directory or is damaged.
        ConfigError: when this version cannot read its configuration.
    """
    if not (path / CONFIG).is_file():
        raise InputError(f"{path}: not a run directory (no {CONFIG}); `gramrun train` makes one")
    manifest = _read_manifest(path / MANIFEST)
    if CONFIG in manifest.get("files", {}):
        check_recorded(path / CONFIG, manifest["files"][CONFIG], REMEDY)
    if manifest["kind"] == "baseline":
        return BaselineRun(path, load_config(BaselineConfig, path / CONFIG), manifest)
    return Run(path, load_config(RunConfig, path / CONFIG), manifest)


def open_run(path: Path) -> Run:
    """Open the directory of a training or gram-error run.

    Raises:
        InputError: when `path` is no such directory or is damaged.
        ConfigError: when this version cannot read its configuration.
    """
    run = open_directory(path)
    if isinstance(run, BaselineRun):
        raise InputError(f"{path}: holds a baseline, not a trained model; `gramrun evaluate` reads it")
    return run


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = read_json(path, REMEDY)
    version = manifest.get("schema_version", 1)
    check_schema(path, version, SCHEMA_VERSION, "start the run anew with --force")
    files = manifest.get("files", {})
    damaged = [name for name in _REQUIRED if name not in manifest]
    if not (isinstance(files, dict) and all(map(is_record, files.values()))):
        damaged.append("files")
    if damaged:
        raise InputError(f"{path}: damaged ({damaged[0]}); {REMEDY}")
    return manifest


def per_item(split: str) -> str:
    """The name of the file with the AP@10 of each left item."""
    return f"{PER_ITEM}.{split}.npy"


def checksums(folder: Path) -> dict[str, dict[str, int | str]]:
    """Size and SHA-256 of the files in `folder` that the manifest records."""
    return {name: recorded(folder / name) for name in RECORDED if (folder / name).exists()}


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat.update(flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat
