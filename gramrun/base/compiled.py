"""How loops over arrays are compiled: by numba, once per machine, and without holding Python's lock."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; later processes find the code on disk.

    Arguments are not checked: an index out of bounds is undefined behaviour, as in C, and a division by zero
    gives infinity, as in numpy. Where two threads call such functions, both run at once.

    What is indexed by unsigned integers (`numba.uintp`) is compiled to vector instructions: for signed ones
    every access asks whether it counts from the end.
    """
    return _compiled(function)


def inlined(function: F) -> F:
    """Compile into the compiled functions that call it, so that the call costs nothing."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **options: Any) -> F:
    try:
        return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function))
    except RuntimeError:  # neither the package's folder nor the user's can be written: compile every time
        return cast(F, numba.njit(nogil=True, error_model="numpy", **options)(function))


def drop_stale_code(package: Path) -> None:
    """Remove the code that numba keeps beside sources, where any of these has changed since.

    numba looks at the file of a function and not at what it calls, so that after an update a function would
    go on with an old one of another file. What cannot be written or removed is left: then nothing is kept
    there either.
    """
    sources = sorted(package.rglob("*.py"))
    states = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    state = hashlib.sha256(repr(states).encode()).hexdigest()
    note = package / "__pycache__" / "compiled-from.sha256"
    with contextlib.suppress(OSError):
        if note.is_file() and note.read_text() == state:
            return
        for kept in (*package.rglob("__pycache__/*.nbi"), *package.rglob("__pycache__/*.nbc")):
            kept.unlink(missing_ok=True)
        note.parent.mkdir(exist_ok=True)
        note.write_text(state)


drop_stale_code(Path(__file__).parents[1])
