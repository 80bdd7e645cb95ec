"""What a run wrote, read back strictly: lines of JSON and tables.

Whoever reads these may rely on the names and types that are asked for here; anything else is one line that
names the file.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gramrun.base.errors import InputError

REMEDY = "bring it back from a copy, or start the run anew with --force"


def read_records(path: Path, numbers: Sequence[str]) -> list[dict[str, Any]]:
    """Read a file with one JSON object a line; a torn last line, cut off by a crash, is left out.

    Args:
        path: the file; where there is none, there are no records.
        numbers: keys that have finite numbers where a record has them; every record has a ``step``.

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
                whole = isinstance(record, dict) and all(is_number(record.get(key, 0)) for key in numbers)
            except (ValueError, RecursionError):
                whole = False
            if not whole or type(record.get("step")) is not int:
                raise InputError(f"{path} line {number}: damaged; {REMEDY}")
            records.append(record)
    return records


def read_table(path: Path, numbers: Sequence[str] = (), names: Sequence[str] = ()) -> pd.DataFrame:
    """Read a CSV file that a run wrote; a last line that is not whole, as of a run under way, is left out.

    Args:
        path: the file.
        numbers: columns that it must have, of numbers or nothing.
        names: columns that it must have, of a text in every row.

    Raises:
        InputError: it is no such table.
    """
    try:
        text = path.read_text(encoding="utf-8")
        frame = pd.read_csv(io.StringIO(text[: text.rfind("\n") + 1]))
        missing = [column for column in (*numbers, *names) if column not in frame]
        wrong = [column for column in numbers if column in frame and frame[column].dtype.kind not in "iuf"]
        nameless = [
            column for column in names if not all(isinstance(name, str) for name in frame.get(column, ()))
        ]
    except (OSError, ValueError, OverflowError) as error:  # pandas' own errors are ValueErrors
        raise InputError(f"{path}: damaged ({' '.join(str(error).split())}); {REMEDY}") from None
    reasons = [f"no column {column}" for column in missing]
    reasons += [f"{column} holds no numbers" for column in wrong]
    reasons += [f"{column} holds no text in some row" for column in nameless]
    if reasons:
        raise InputError(f"{path}: damaged ({reasons[0]}); {REMEDY}")
    return frame


def is_number(value: object) -> bool:
    """Whether it is a finite number; JSON has true and NaN, too."""
    # A whole number of JSON may have any length; only comparing never converts it.
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max
