"""How loops over arrays are compiled: by numba, once per machine, and without holding Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; later processes find the code on disk.

    numba keeps its cache by the file that a function stands in, so a compiled function that another file
    calls is not noticed when it changes: kernels call only kernels of their own file.

    Arguments are not checked: an index out of bounds is undefined behaviour, as in C. Where two threads
    call such functions, both run at once.
    """
    return cast(F, numba.njit(cache=True, nogil=True)(function))
