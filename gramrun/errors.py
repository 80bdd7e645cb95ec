"""The errors that a user may see. Every other exception is a bug and keeps its traceback.

The command line prints a `GramrunError` as one line on stderr (what is wrong, where, what to do)
and leaves with its `exit_code`; the traceback appears only under ``--debug``.
"""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, the shell's own convention


class GramrunError(Exception):
    """Base of all errors that are shown to a user as one line."""

    exit_code = EXIT_FAILED


class InputError(GramrunError):
    """A file, a folder or an argument that cannot be used as it is."""

    exit_code = EXIT_BAD_INPUT


class ConfigError(InputError):
    """A configuration with an unknown key, a wrong type or a value outside its range."""


class RunError(GramrunError):
    """A run that started well and cannot go on: a full disk, NaN in training, a lost network."""
