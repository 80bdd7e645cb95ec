"""Options that several commands share, and what they print: lines for people, or one JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
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
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on where the run directory stopped.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DataOption = Annotated[
    Path | None, typer.Option("--data", help="The run's prepared corpus, if it lies elsewhere now.")
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


class SideChoice(StrEnum):
    """The sides of a corpus."""

    left = "left"
    right = "right"


def side_name(side: SideChoice) -> Literal["left", "right"]:
    """The side as the rooms name it."""
    return "left" if side is SideChoice.left else "right"


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line; what is no number there (NaN, infinity) as null, paths as text."""
    typer.echo(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
