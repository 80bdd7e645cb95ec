"""An iterator that works ahead in a thread of its own, for steps that do not hold Python's lock."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

THREAD_NAME = "gramrun: works ahead"
_AHEAD = 2


def started(function: Callable[[], T]) -> Callable[[], T]:
    """Run a function in a thread of its own from now on.

    Returns:
        What waits for it and gives its result, or raises its error. Without that call nobody waits, also not
        the end of the program: after Ctrl-C or an error elsewhere, nothing more is wanted of it.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:  # raised again where the result is taken
            result.set_exception(error)

    threading.Thread(target=run, name=THREAD_NAME, daemon=True).start()
    return result.result


def in_background(items: Iterator[T], ahead: int = _AHEAD) -> Generator[T]:
    """Give what `items` gives, made by a second thread while the caller works.

    Closing the generator, or leaving it by an exception, ends the thread and closes `items`, if it can be.

    Args:
        items: any iterator; its errors are raised in the caller's thread.
        ahead: how many items may wait for the caller.
    """
    made: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(ahead)
    stop = threading.Event()

    def make() -> None:
        try:
            for item in items:
                made.put((item,))
                if stop.is_set():
                    return
            made.put(None)
        except BaseException as error:  # raised again where the items are taken
            made.put(error)
        finally:
            if isinstance(items, Generator):
                items.close()

    thread = threading.Thread(target=make, name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        while (taken := made.get()) is not None:
            if isinstance(taken, BaseException):
                raise taken
            yield taken[0]
    finally:
        stop.set()
        # The thread puts one more item at most: it must not wait for room.
        with contextlib.suppress(queue.Empty):
            while True:
                made.get_nowait()
        thread.join()
