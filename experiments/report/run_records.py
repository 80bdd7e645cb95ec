"""What stands behind a section: its runs' manifests, one row a run, and their common lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from gramrun.base.files import read_json
from gramrun.runs import directory

SHORT = 12  # hex digits that are shown of a hash; the manifests have them all


@dataclass(frozen=True)
class RunRecord:
    """One run, by what its manifest says.

    Attributes:
        name: of its folder, with the folder above: that of the corpus.
        kind: ``train``, ``gram-error`` or ``baseline``.
        seed: of parameters and batches.
        data: the name of the prepared corpus.
        data_hash: the corpus's content hash.
        config_hash: that of the resolved config.
        git_commit: of the code; "unknown" outside a checkout.
        environment: Python, packages, machine and threads in one line.
        seconds: what it took.
        status: ``finished`` for all that a report should show.
        command: what made it.
    """

    name: str
    kind: str
    seed: int
    data: str
    data_hash: str
    config_hash: str
    git_commit: str
    environment: str
    seconds: float
    status: str
    command: str

    @property
    def short_commit(self) -> str:
        """The first digits of the commit, and whether files differed from it."""
        digits, plus, changes = self.git_commit.partition("+")
        return digits[:SHORT] + plus + changes


def read_record(path: Path) -> RunRecord:
    """Read one run directory.

    Raises:
        InputError: when it has no readable manifest.
    """
    manifest = read_json(path / directory.MANIFEST)
    config = yaml.safe_load((path / directory.CONFIG).read_text(encoding="utf-8"))
    return RunRecord(
        name=f"{path.parent.name}/{path.name}",
        kind=str(manifest["kind"]),
        seed=int(manifest["seed"]),
        data=Path(config["data"]["path"]).name,
        data_hash=str(manifest["data_hash"]),
        config_hash=str(manifest["config_hash"]),
        git_commit=str(manifest.get("git_commit") or "unknown"),
        environment=_environment(manifest),
        seconds=float(manifest.get("seconds", 0.0)),
        status=str(manifest.get("status", "finished")),
        command=re.sub(r"^__main__\.py ", "gramrun ", str(manifest.get("command", ""))),
    )


def _environment(manifest: dict[str, object]) -> str:
    versions = manifest.get("versions")
    packages = [f"{k} {v}" for k, v in versions.items()] if isinstance(versions, dict) else []
    parts = [f"Python {manifest.get('python', '?')}", *packages, str(manifest.get("processor", "")).strip()]
    if "host_threads" in manifest:
        parts.append(f"{manifest['host_threads']} cores")
    if "threads" in manifest:
        parts.append(f"{manifest['threads']} thread{'s' * (manifest['threads'] != 1)} a run")
    return ", ".join(part for part in parts if part)


def common_lines(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """What the runs of a section have in common, as (what, value) lines; empty without runs."""
    if not records:
        return []
    unfinished = sum(record.status != "finished" for record in records)
    minutes = sum(record.seconds for record in records) / 60
    number = f"{len(records)} runs, {minutes:,.1f} minutes in all"
    lines = [
        ("Runs", number + (f"; {unfinished} NOT FINISHED" if unfinished else "")),
        ("Seeds", _unique(str(seed) for seed in sorted({record.seed for record in records}))),
        ("Data", _unique(f"{record.data} {record.data_hash[:SHORT]}" for record in records)),
        ("Configs", _few([record.config_hash[:SHORT] for record in records])),
        ("Code", _unique(record.short_commit for record in records)),
        ("Environment", "; ".join(dict.fromkeys(record.environment for record in records))),
    ]
    return lines


def _unique(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _few(hashes: Sequence[str], shown: int = 4) -> str:
    different = list(dict.fromkeys(hashes))
    more = len(different) - shown
    return ", ".join(different[:shown]) + (f" and {more} more" if more > 0 else "")
