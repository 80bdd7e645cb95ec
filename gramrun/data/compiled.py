"""How loops over arrays are compiled: by numba, once per machine, and without holding Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; later processes find the code on disk.

    numba compiles anew when the file of the function changes, and does not look at what it calls: whoever
    changes a compiled function that another file calls deletes the folders ``__pycache__``.

    Arguments are not checked: an index out of bounds is undefined behaviour, as in C. Where two threads
    call such functions, both run at once.
    """
    return _compiled(function)


def inlined(function: F) -> F:
    """Compile into the compiled functions that call it, so that the call costs nothing."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **options: bool) -> F:
    try:
        return cast(F, numba.njit(cache=True, nogil=True, **options)(function))
    except RuntimeError:  # neither the package's folder nor the user's can be written: compile every time
        return cast(F, numba.njit(nogil=True, **options)(function))
