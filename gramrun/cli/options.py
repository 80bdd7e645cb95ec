"""Options that several commands share, and their output: lines of text or one JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one config key, e.g. estimator.alpha=0.1."),
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A YAML file, or a shipped config's name.")
]
OutputOption = Annotated[Path | None, typer.Option("--output", help="The run directory.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in the run directory.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="The run's prepared corpus, if it has moved.")
]
Side = Literal["left", "right"]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


@dataclass(frozen=True)
class Report:
    """The output of a command: lines of text, or with --json one object and nothing else."""

    as_json: bool

    def text(self, *lines: str) -> None:
        """Print lines; nothing with --json."""
        if not self.as_json:
            typer.echo("\n".join(lines))

    def record(self, value: Mapping[str, Any]) -> None:
        """Print one JSON object on one line; nothing without --json.

        NaN and infinities, which JSON lacks, become null; paths become text.
        """
        if self.as_json:
            typer.echo(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
