"""Files that grow during a run: JSON lines and CSV tables, appended to, cut to a step, read strictly.

A crash can cut off the last line. Readers drop a last line without a newline; any other damage is an error.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gramrun.base.errors import InputError
from gramrun.base.files import disk_errors, new_file

REMEDY = "bring it back from a copy, or start the run anew with --force"


def read_records(path: Path, numbers: Sequence[str]) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line.

    Args:
        path: the file; a missing file has no records.
        numbers: keys whose values, where present, are finite numbers. Every record has a ``step``.

    Raises:
        InputError: names the line that is damaged.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if line.endswith(b"\n"):
            try:
                record = json.loads(line)
                valid = isinstance(record, dict) and all(is_number(record.get(key, 0)) for key in numbers)
            except (ValueError, RecursionError):
                valid = False
            if not valid or type(record.get("step")) is not int:
                raise InputError(f"{path} line {number}: damaged; {REMEDY}")
            records.append(record)
    return records


def read_table(path: Path, numbers: Sequence[str] = (), names: Sequence[str] = ()) -> pd.DataFrame:
    """Read a CSV file of a run.

    Args:
        path: the file.
        numbers: required columns of numbers; fields may be empty.
        names: required columns of text in every row.

    Raises:
        InputError: when a column is missing or has another type.
    """
    try:
        text = path.read_text(encoding="utf-8")
        whole_rows = io.StringIO(text[: text.rfind("\n") + 1])
        frame = pd.read_csv(whole_rows, keep_default_na=False, na_values=["", "nan"])  # null may be a name
    except (OSError, ValueError, OverflowError) as error:  # pandas' own errors are ValueErrors
        raise InputError(f"{path}: damaged ({' '.join(str(error).split())}); {REMEDY}") from None
    problem = None
    for column in (*numbers, *names):
        if column not in frame:
            problem = f"no column {column}"
        elif column in numbers and len(frame) and frame[column].dtype.kind not in "iuf":
            problem = f"{column} holds no numbers"
        elif column in names and not all(isinstance(name, str) for name in frame[column]):
            problem = f"{column} holds no text in some row"
        if problem:
            raise InputError(f"{path}: damaged ({problem}); {REMEDY}")
    return frame


def append_rows(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a CSV file that `keep_rows` started.

    Raises:
        RunError: when the disk is full.
    """
    with disk_errors(path), path.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writerows(rows)


def keep_rows(path: Path, columns: Sequence[str], step: int) -> None:
    """Start a CSV file with its header, or cut an existing one back to `step`.

    Args:
        path: the file.
        columns: its columns, one of them ``step``.
        step: the last step whose rows stay.

    Raises:
        InputError: when the file has other columns or a damaged row.
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


def is_number(value: object) -> bool:
    """Whether a JSON value is a finite number; NaN, infinities and booleans are not."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # a comparison converts no integer, however long
