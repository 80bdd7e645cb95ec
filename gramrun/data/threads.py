"""Work in a second thread, for functions that release Python's lock: a prefetching iterator, and a future."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

THREAD_NAME = "gramrun: second thread"


def start_thread(function: Callable[[], T]) -> Callable[[], T]:
    """Run a function in a daemon thread.

    Returns:
        A function that waits for the result and returns it, or raises the error. If it is never called,
        nothing waits for the thread, not even the end of the program.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:  # raised again in the caller's thread
            result.set_exception(error)

    threading.Thread(target=run, name=THREAD_NAME, daemon=True).start()
    return result.result


def prefetch(items: Iterator[T], ahead: int = 2) -> Generator[T]:
    """Yield the items of an iterator, which a second thread computes ahead of the caller.

    Closing the generator, or leaving it by an exception, ends the thread and closes `items` if it is a
    generator.

    Args:
        items: any iterator; its errors are raised in the caller's thread.
        ahead: the number of items that may wait for the caller.
    """
    waiting: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(ahead)
    stop = threading.Event()

    def produce() -> None:
        try:
            for item in items:
                waiting.put((item,))
                if stop.is_set():
                    return
            waiting.put(None)
        except BaseException as error:  # raised again in the caller's thread
            waiting.put(error)
        finally:
            if isinstance(items, Generator):
                items.close()

    thread = threading.Thread(target=produce, name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        while (taken := waiting.get()) is not None:
            if isinstance(taken, BaseException):
                raise taken
            yield taken[0]
    finally:
        stop.set()
        # Empty the queue: the thread may be blocked on putting one more item.
        with contextlib.suppress(queue.Empty):
            while True:
                waiting.get_nowait()
        thread.join()
