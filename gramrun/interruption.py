"""Ctrl-C and SIGTERM at a safe moment: the loop asks, finishes its step, saves, and leaves."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from gramrun.errors import EXIT_INTERRUPTED


class Interrupted(BaseException):
    """The user stopped a command; whatever can be resumed is saved.

    No `Exception`, so that no library takes it for a fault of its own and goes on.
    """

    exit_code = EXIT_INTERRUPTED


def raise_interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler for everything that is not resumable: clean up on the way out, and say so.

    Raises:
        Interrupted: always; unlike `KeyboardInterrupt`, it passes through the command line's framework.
    """
    raise Interrupted("interrupted; nothing half-written was left behind")


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether SIGINT or SIGTERM has arrived.

    The first signal is only remembered; a second one raises `Interrupted` at once. Outside of
    the main thread, where Python allows no handlers, nothing is deferred.
    """
    arrived = threading.Event()

    def remember(number: int, frame: FrameType | None) -> None:
        if arrived.is_set():
            raise Interrupted("stopped at once; --resume goes on from the last checkpoint")
        arrived.set()

    if threading.current_thread() is not threading.main_thread():
        yield arrived.is_set
        return
    previous = {s: signal.signal(s, remember) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
