"""A run directory: resolved config, manifest, metrics, checkpoints. Written whole, never overwritten.

config.yaml             the resolved configuration
manifest.json           command, git commit, versions, data hash, config hash, seed, threads, times
metrics.jsonl           one JSON object a line, in order of steps; docs/file-formats.md lists its fields
                        (gram-error: gram_error.csv, trajectory.csv)
inner_products.csv      quantiles of inner products at each evaluation, if evaluation.inner_products is not 0
tensorboard/            the same numbers for TensorBoard, if log.tensorboard is true
checkpoints/step-<9 digits>.pt      one whole state a file; the newest is the last by name
embeddings.npz          a baseline's instead: left and right, float32, shapes (items, k)
evaluation.json         what `gramrun evaluate` measured

The JSON files carry checksums of themselves, and checkpoints those of their parts. Of the other files the
manifest records size and SHA-256 (``files``) when a run has stopped: of config.yaml from the start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

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

CONFIG, MANIFEST, METRICS = "config.yaml", "manifest.json", "metrics.jsonl"
INNER_PRODUCTS, CHECKPOINTS, EVALUATION = "inner_products.csv", "checkpoints", "evaluation.json"
SCHEMA_VERSION = 1  # of the whole directory, also of those whose manifest does not say it yet
# What grows without a checksum of its own, and is recorded when the run has stopped.
RECORDED = (CONFIG, METRICS, INNER_PRODUCTS, "gram_error.csv", "trajectory.csv", "embeddings.npz")
_NUMBERS = ("step", "epoch", "seconds", "train_seconds")  # what is counted on of a record

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
            raise InputError(f"{self.path / MANIFEST}: damaged (no {name}); {REMEDY}")
        return manifest[name]

    @property
    def manifest(self) -> dict[str, Any]:
        """The parsed ``manifest.json``.

        Raises:
            InputError: when it is missing or damaged.
        """
        return read_manifest(self.path)

    def update_manifest(self, **fields: Any) -> None:
        """Replace fields of the manifest."""
        write_json(self.path / MANIFEST, {**self.manifest, **fields})

    def file(self, name: str) -> Path:
        """The path of a result file, which is as the manifest records it; of a run under way, as it is.

        Raises:
            InputError: when the file is not what it was when the run stopped.
        """
        path, known = self.path / name, self.manifest.get("files", {})
        if name in known:
            check_recorded(path, known[name], REMEDY)
        return path

    def metrics(self) -> list[dict[str, Any]]:
        """All records of ``metrics.jsonl``; a torn last line, cut off by a crash, is left out.

        Raises:
            InputError: when the file is damaged.
        """
        return read_records(self.file(METRICS), _NUMBERS)

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


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the run directory `path`.

    Raises:
        InputError: when it is missing or damaged, or of another schema version.
    """
    manifest = read_json(path / MANIFEST, REMEDY)
    version = manifest.get("schema_version", 1)
    check_schema(path / MANIFEST, version, SCHEMA_VERSION, "start the run anew with --force")
    files = manifest.get("files", {})
    if not (isinstance(files, dict) and all(map(is_record, files.values()))):
        raise InputError(f"{path / MANIFEST}: damaged (files); {REMEDY}")
    return manifest


def checksums(folder: Path) -> dict[str, dict[str, int | str]]:
    """Size and SHA-256 of the files in a run's folder that have no checksum of their own."""
    return {name: recorded(folder / name) for name in RECORDED if (folder / name).exists()}
