"""The runs behind a section, as their manifests describe them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gramrun.runs import directory

SHORT = 12  # hex digits shown of a hash; manifests have them all


@dataclass(frozen=True)
class RunRecord:
    """One run. `seconds` is its duration; hashes are complete."""

    name: str
    seed: int
    data: str
    data_hash: str
    config_hash: str
    git_commit: str
    environment: str
    machine: str
    device: str
    threads: int
    started: str
    seconds: float
    status: str

    @property
    def short_commit(self) -> str:
        """The first digits of the commit, and whether files differed from it."""
        digits, plus, changes = self.git_commit.partition("+")
        return digits[:SHORT] + plus + changes


def read_record(path: Path) -> RunRecord:
    """Read one run directory.

    Raises:
        InputError: it has no readable manifest.
        ConfigError: this version cannot read its configuration.
    """
    run = directory.open_directory(path)
    manifest = run.manifest
    return RunRecord(
        name=f"{path.parent.name}/{path.name}",
        seed=int(manifest["seed"]),
        data=run.config.data.path.name,
        data_hash=str(manifest["data_hash"]),
        config_hash=str(manifest["config_hash"]),
        git_commit=str(manifest.get("git_commit") or "unknown"),
        environment=environment(manifest),
        machine=str(manifest.get("processor", "unknown")),
        device="cuda" if getattr(run.config, "device", "cpu") == "cuda" else "cpu",
        threads=int(manifest.get("threads", 0)),
        started=str(manifest.get("started", "")),
        seconds=float(manifest.get("seconds", 0.0)),
        status=str(manifest.get("status", "finished")),
    )


def environment(made: dict[str, Any]) -> str:
    """Python, packages, machine and threads of a manifest or of `provenance`, in one line."""
    parts = [f"Python {made.get('python', '?')}", *(f"{k} {v}" for k, v in made.get("versions", {}).items())]
    parts += [str(made.get("processor", "")).strip()]
    parts += [f"{made['host_threads']} cores"] if "host_threads" in made else []
    if "threads" in made:
        parts.append(f"{made['threads']} thread{'s' * (made['threads'] != 1)} a run")
    return ", ".join(filter(None, parts))


def common_lines(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """What the runs of a section have in common, as (what, value) lines; empty without runs."""
    if not records:
        return []
    unfinished = sum(record.status != "finished" for record in records)
    minutes = sum(record.seconds for record in records) / 60
    number = f"{len(records)} runs, {minutes:,.1f} minutes in all"
    return [
        ("Runs", number + (f"; {unfinished} NOT FINISHED" if unfinished else "")),
        ("Seeds", _distinct(str(seed) for seed in sorted({record.seed for record in records}))),
        ("Data", _distinct(f"{record.data} {record.data_hash[:SHORT]}" for record in records)),
        ("Configs", f"{len({record.config_hash for record in records})}"),
        ("Code", _distinct(record.short_commit for record in records)),
        ("Environment", _distinct(record.environment for record in records)),
    ]


def time_table(records: Sequence[RunRecord]) -> pd.DataFrame:
    """When and where each run was made, and for how many seconds it ran, with whatever ran beside it."""
    columns = ["run", "seconds", "machine", "device", "threads", "started", "commit"]
    rows = [
        (r.name, round(r.seconds, 1), r.machine, r.device, r.threads, r.started, r.short_commit)
        for r in records
    ]
    return pd.DataFrame(rows, columns=columns)


def hours(times: pd.DataFrame) -> str:
    """How many runs there are and how long they ran, on each machine and its GPU, in one line."""
    each = [
        f"{len(seconds)} on {machine}{' with a GPU' * (device == 'cuda')}, {seconds.sum() / 3600:,.1f} hours"
        for (machine, device), seconds in times.groupby(["machine", "device"])["seconds"]
    ]
    return "; ".join(each) or "none here"


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
