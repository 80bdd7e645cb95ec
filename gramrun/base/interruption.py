"""Ctrl-C and SIGTERM: an exception with its own exit code, or a flag that a loop checks between steps."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from gramrun.base.errors import EXIT_INTERRUPTED

SECONDS_UNTIL_RAISED_AGAIN = 0.02


class Interrupted(BaseException):
    """The user stopped a command.

    A `BaseException`, so that no library catches it as an ordinary error and continues.
    """

    exit_code = EXIT_INTERRUPTED


def interrupt_with_one_line() -> None:
    """From now on SIGINT and SIGTERM raise `Interrupted` in the main thread.

    `KeyboardInterrupt` would be caught by the command line's framework. Python ignores exceptions inside
    finalizers and callbacks of C libraries, so an interrupt that is lost there is raised again a moment
    later. After an interrupt, finalizers of half-initialised objects report no errors.
    """
    arrived = threading.Event()
    report = sys.unraisablehook

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        arrived.set()
        raise Interrupted("interrupted; nothing half-written was left behind")

    def raise_again(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, Interrupted):
            signal.setitimer(signal.ITIMER_REAL, SECONDS_UNTIL_RAISED_AGAIN)
        elif not arrived.is_set():
            report(unraisable)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, interrupt)
    sys.unraisablehook = raise_again


@contextlib.contextmanager
def deferred_interrupt(*, passed_on: bool = False) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM has arrived.

    The first signal only sets the flag; a second one raises `Interrupted` at once. Outside the main thread,
    where Python allows no signal handlers, nothing is deferred.

    Args:
        passed_on: True under torchrun, which forwards the signal that the terminal has sent already; a
            repeat is then not a second Ctrl-C.
    """
    arrived = threading.Event()

    def remember(number: int, frame: FrameType | None) -> None:
        if arrived.is_set() and not passed_on:
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
