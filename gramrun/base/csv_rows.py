"""CSV files that grow along a run: rows in order of steps, kept to a step when the run goes on from there."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gramrun.base.errors import InputError
from gramrun.base.files import disk_errors, new_file
from gramrun.base.json_lines import REMEDY


def append_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows; the checkpoint that follows has them on the disk before it is written.

    Raises:
        RunError: when the disk is full.
    """
    with disk_errors(path), path.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writerows(rows)


def keep_rows(path: Path, columns: Sequence[str], step: int) -> None:
    """Start the file with its header, or keep what it holds up to `step`; a torn last line is dropped.

    Args:
        path: the file.
        columns: its columns, of which one is ``step``.
        step: the last step whose rows stay.

    Raises:
        InputError: when the file holds other rows.
        RunError: when the disk is full.
    """
    rows: list[dict[str, Any]] = []
    if path.exists():
        try:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]
            rows = [row for row in csv.DictReader(whole) if int(row["step"]) <= step]
            damaged = any(set(row) != set(columns) for row in rows)
        except (ValueError, LookupError, TypeError, csv.Error):
            damaged = True
        if damaged:
            raise InputError(f"{path}: damaged; {REMEDY}")
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
