"""The environment variables of torchrun and like launchers, readable without importing torch."""

from __future__ import annotations

import os

from gramrun.base.errors import InputError


def environment_number(name: str, default: int) -> int:
    """The whole number in an environment variable; `default` where it is absent or empty.

    Raises:
        InputError: when it holds anything else.
    """
    text = os.environ.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"the environment variable {name} is {text!r}, which is no number; unset it, or start the "
            "processes with torchrun"
        ) from None


def process_count() -> int:
    """How many processes were started together; 1 without a launcher."""
    return environment_number("WORLD_SIZE", 1)
