"""A run that an experiment asks for, and whether it has to be made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gramrun import runs
from gramrun.config import RunConfig
from gramrun.config_loading import config_hash, load_config
from gramrun.data.shards import read_manifest
from gramrun.errors import GramrunError


@dataclass(frozen=True)
class Task:
    """One ``gramrun train`` or ``gramrun gram-error``.

    Attributes:
        command: ``train`` or ``gram-error``.
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

    def wanted(self) -> RunConfig:
        """The configuration that it asks for."""
        return load_config(RunConfig, self.config, self.overrides)


def state_of(task: Task) -> str:
    """``done``, ``resume`` (same config and data, not finished), ``stale`` (other ones) or ``new``."""
    if not task.output.exists():
        return "new"
    try:
        run = runs.open_run(task.output)
        manifest = run.manifest
    except GramrunError:
        return "stale"
    wanted = task.wanted()
    data_hash = read_manifest(wanted.data.path)["content_hash"]
    if config_hash(run.config) != config_hash(wanted) or manifest["data_hash"] != data_hash:
        return "stale"
    return "done" if manifest["status"] == "finished" else "resume"
