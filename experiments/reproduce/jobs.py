"""Jobs (runs of gramrun, and scripts that write a file) and their states."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gramrun import runs
from gramrun.base.errors import GramrunError, InputError
from gramrun.base.files import read_json, write_json
from gramrun.base.locks import locked
from gramrun.config import BaselineConfig, RunConfig
from gramrun.config.loading import config_hash, load_config
from gramrun.data.shards import MANIFEST, read_manifest
from gramrun.runs import directory


@dataclass(frozen=True)
class Task:
    """One ``gramrun train``, ``gramrun gram-error`` or ``gramrun baseline``.

    Attributes:
        command: ``train``, ``gram-error`` or ``baseline``.
        config: the YAML file.
        overrides: ``--set`` settings.
        output: the run directory.
    """

    command: str
    config: Path
    overrides: tuple[str, ...]
    output: Path

    def arguments(self, *flags: str) -> list[str]:
        """The command line after ``gramrun``."""
        settings = [part for override in self.overrides for part in ("--set", override)]
        return [self.command, "--config", str(self.config), *settings, "--output", str(self.output), *flags]

    def wanted(self) -> RunConfig | BaselineConfig:
        """The configuration that it asks for."""
        if self.command == "baseline":
            return load_config(BaselineConfig, self.config, self.overrides)
        return load_config(RunConfig, self.config, self.overrides)


@dataclass(frozen=True)
class Script:
    """A call of ``python -m MODULE ... --output FILE``.

    A stamp beside the file records how it was made. If arguments or settings change, the file is made again.

    Attributes:
        module: as ``python -m`` takes it; it must accept ``--output``.
        arguments: of its command line, without ``--output``.
        settings: a hash of the constants of the module that decide its result.
        output: the file.
    """

    module: str
    arguments: tuple[str, ...]
    settings: str
    output: Path

    @property
    def stamp(self) -> Path:
        """The file that records how `output` was made."""
        return stamp_of(self.output)

    def describe(self) -> dict[str, object]:
        """The contents of the stamp that decide whether the file is current."""
        return {"arguments": list(self.arguments), "settings": self.settings}


Job = Task | Script


def stamp_of(file: Path) -> Path:
    """Where a script's stamp is."""
    return file.with_name(f"{file.name}.stamp.json")


def kept_manifest(folder: Path) -> Path:
    """Where the manifest of a corpus is kept without the corpus (`published`)."""
    return Path("results") / "corpora" / f"{folder.name}.json"


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a prepared corpus, or the published one where the corpus is not prepared here."""
    kept = kept_manifest(folder)
    return read_manifest(folder) if (folder / MANIFEST).exists() or not kept.exists() else read_json(kept)


def state_of(job: Job) -> str:
    """The state of a job.

    Returns:
        ``new``, ``done``, ``resume`` (not finished), ``failed``, or ``stale`` (another config or data).
    """
    if not job.output.exists():
        return "new"
    try:
        if isinstance(job, Script):
            stamp, wanted = read_json(job.stamp), job.describe()
            return "done" if {key: stamp.get(key) for key in wanted} == wanted else "stale"
        return _state_of_task(job)
    except GramrunError:
        return "stale"


def _state_of_task(task: Task) -> str:
    run = runs.open_directory(task.output)
    manifest, wanted = run.manifest, task.wanted()
    data_hash = manifest_of(wanted.data.path)["content_hash"]
    if config_hash(run.config) != config_hash(wanted) or manifest["data_hash"] != data_hash:
        return "stale"
    return {"finished": "done", "failed": "failed"}.get(manifest["status"], "resume")


def remember_failure(job: Job, reason: str) -> None:
    """Record a failure in a run's manifest if the run could not do so itself (it was killed)."""
    manifest = job.output / directory.MANIFEST
    if not isinstance(job, Task) or not manifest.exists():
        return
    with contextlib.suppress(InputError), locked(job.output):  # InputError: another process holds the run
        known = read_json(manifest)
        if known.get("status") == "running":
            write_json(manifest, {**known, "status": "failed", "error": reason})


def failure_of(job: Job) -> str:
    """Why a run failed, by its manifest."""
    return str(read_json(job.output / directory.MANIFEST).get("error") or "no reason was kept")


def seconds_of(job: Job) -> float | None:
    """How long a finished job took; None where it is not finished."""
    try:
        if isinstance(job, Script):
            return float(read_json(job.stamp)["seconds"])
        manifest = read_json(job.output / directory.MANIFEST)
    except (GramrunError, KeyError):
        return None
    return float(manifest["seconds"]) if manifest["status"] == "finished" else None
