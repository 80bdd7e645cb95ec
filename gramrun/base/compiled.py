"""Loops over arrays, compiled by numba: cached on disk, and run without Python's lock."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; later processes load it from a cache.

    As in C, an index out of bounds is undefined behaviour; a division by zero gives infinity, as in numpy.
    Threads that call compiled functions run at the same time.

    Loops that index by unsigned integers (`numba.uintp`) are vectorised; a signed index is tested for being
    negative at every access.
    """
    return _compiled(function)


def inlined(function: F) -> F:
    """Compile a function into the compiled functions that call it."""
    return _compiled(function, forceinline=True)


def kernel(function: F) -> F:
    """Compile a function that allocates and returns no array, as do all that it calls.

    numba then counts no references, which would cost 10 ns for each array that a helper function is given.
    """
    return _compiled(function, _nrt=False, forceinline=True)


def _compiled(function: F, **options: Any) -> F:
    try:
        dispatcher: Any = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
        # numba compares the file of a function, but not the files of the functions that it calls.
        file = dispatcher._cache._cache_file
        file._source_stamp = (file._source_stamp, _package_stamp())
    # No folder for a cache can be written, or numba keeps none there (NUMBA_DISABLE_JIT): do without.
    except (RuntimeError, AttributeError):
        dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    return cast(F, dispatcher)


@functools.cache
def _package_stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, size and modification time of every source file of the package."""
    package = Path(__file__).parents[1]
    states = [(str(path.relative_to(package)), path.stat()) for path in sorted(package.rglob("*.py"))]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
