"""Ctrl-C and SIGTERM at a safe moment: the loop asks, finishes its step, saves, and leaves."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from gramrun.base.errors import EXIT_INTERRUPTED

SECONDS_UNTIL_IT_COMES_AGAIN = 0.02


class Interrupted(BaseException):
    """The user stopped a command; whatever can be resumed is saved.

    No `Exception`, so that no library takes it for a fault of its own and goes on.
    """

    exit_code = EXIT_INTERRUPTED


def interrupt_with_one_line() -> None:
    """From now on SIGINT and SIGTERM raise `Interrupted` in the main thread, to be told in one line.

    Not `KeyboardInterrupt`, which does not pass through the command line's framework. Python
    ignores what is raised inside a finalizer or a C library's callback (a compiler's, say) and
    goes on: an interrupt lost there comes again a moment later. Objects that an interrupt left
    half-made say nothing when they are finalized.
    """
    arrived = threading.Event()
    report = sys.unraisablehook

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        arrived.set()
        raise Interrupted("interrupted; nothing half-written was left behind")

    def come_again(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, Interrupted):
            signal.setitimer(signal.ITIMER_REAL, SECONDS_UNTIL_IT_COMES_AGAIN)
        elif not arrived.is_set():
            report(unraisable)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, interrupt)
    sys.unraisablehook = come_again


@contextlib.contextmanager
def deferred_interrupt(*, passed_on: bool = False) -> Iterator[Callable[[], bool]]:
    """Give a function that says whether SIGINT or SIGTERM has arrived.

    The first signal is only remembered; a second one raises `Interrupted` at once. Outside of
    the main thread, where Python allows no handlers, nothing is deferred.

    Args:
        passed_on: whether a launcher passes on what the terminal may have sent already: a second
            signal is then no second wish, and is remembered too.
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
