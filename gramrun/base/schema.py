"""The schema number that a file carries, held against the one that this gramrun reads.

Each kind of file has a number of its own, raised when its layout changes: that of prepared corpora stands in
`gramrun.data.shards`, of checkpoints in `gramrun.runs.checkpoints`, of run directories in
`gramrun.runs.directory`.
"""

from __future__ import annotations

from pathlib import Path

from gramrun import __version__
from gramrun.base.errors import InputError


def check_schema(path: Path, found: object, known: int, remedy: str) -> None:
    """Check that a file has the layout that this gramrun reads.

    Args:
        path: the file.
        found: its schema number, as read from it.
        known: the number that this gramrun writes.
        remedy: what to do with a file of an older number.

    Raises:
        InputError: when it has another one; of a newer one the remedy is a newer gramrun.
    """
    if type(found) is not int:  # True is an int too, and 1.0 equals 1
        raise InputError(f"{path}: damaged: {str(found)[:40]!r} is no schema version; {remedy}")
    if found > known:
        raise InputError(
            f"{path}: schema version {found}, but gramrun {__version__} reads version {known}: a newer "
            "gramrun made it; update gramrun"
        )
    if found < known:
        raise InputError(
            f"{path}: schema version {found}, but gramrun {__version__} reads version {known}: an older "
            f"gramrun made it; {remedy}"
        )
