"""The errors that a user may see. Any other exception is a bug and keeps its traceback.

The command line prints a `GramrunError` as one line on stderr (what is wrong, where, what to do) and exits
with its `exit_code`; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import shlex
from pathlib import Path

LONGEST_LINE = 1_000  # characters of a message; it may quote a damaged file

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


class GramrunError(Exception):
    """Base of all errors that are shown to a user as one line."""

    exit_code = EXIT_FAILED


class InputError(GramrunError):
    """A file, a folder or an argument that cannot be used as it is."""

    exit_code = EXIT_BAD_INPUT


class ConfigError(InputError):
    """A configuration with an unknown key, a wrong type or a value outside its range."""


class RunError(GramrunError):
    """A failure while running: a full disk, NaN in training, a lost process."""


def quoted(path: Path) -> str:
    """A path as a shell takes it, for the commands that a message names."""
    return shlex.quote(str(path))


def one_line(error: BaseException | str) -> str:
    """An error's message as one line of bounded length, with control characters escaped."""
    words = " ".join(str(error).split())
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in words)
    half = LONGEST_LINE // 2
    return shown if len(shown) <= LONGEST_LINE else f"{shown[:half]} … {shown[-half:]}"
