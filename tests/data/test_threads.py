"""`prefetch` is the iterator itself, and its thread ends with it."""

import threading

import pytest

from gramrun.data.threads import prefetch, start_thread


def test_items_come_in_order_and_from_another_thread():
    threads = []

    def items():
        for item in range(100):
            threads.append(threading.current_thread())
            yield item

    assert list(prefetch(items())) == list(range(100))
    assert threading.current_thread() not in threads
    assert not threads[0].is_alive()


def test_an_error_is_raised_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("broken")

    taken = prefetch(items())
    assert next(taken) == 1
    with pytest.raises(ValueError, match="broken"):
        next(taken)


def test_closing_ends_the_thread_and_the_iterator():
    closed, made = threading.Event(), []

    def items():
        try:
            while True:
                made.append(None)
                yield len(made)
        finally:
            closed.set()

    before = threading.active_count()
    taken = prefetch(items(), ahead=1)
    assert next(taken) == 1
    taken.close()
    assert closed.is_set()
    assert threading.active_count() == before
    assert len(made) <= 4


def test_a_started_function_gives_its_result_or_its_error():
    begun = threading.Event()

    def work():
        begun.set()
        return threading.current_thread()

    result = start_thread(work)
    assert begun.wait(5)
    assert result() is not threading.current_thread()

    def fail():
        raise ValueError("broken")

    failed = start_thread(fail)
    with pytest.raises(ValueError, match="broken"):
        failed()
