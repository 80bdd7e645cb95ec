"""The map of page and target numbers against a dictionary, and how much memory stray numbers cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramrun.base.errors import InputError
from gramrun.data.wikipedia import pages
from gramrun.data.wikipedia.pages import LARGEST_NUMBER, NumberMap

NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, 2_000), st.integers(0, LARGEST_NUMBER))
BATCHES = st.lists(st.lists(st.tuples(NUMBERS, st.integers(0, 99)), max_size=8), max_size=6)


@given(
    BATCHES, st.lists(st.one_of(NUMBERS, st.integers(-(2**63), 2**63 - 1)), max_size=8), st.integers(0, 50)
)
def test_it_is_a_dictionary(batches, asked, always_plain):
    """Also where next to no number is near enough for the array, or becomes so with later rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_ALWAYS_PLAIN", always_plain)
        found, expected = NumberMap(-1), {}
        for batch in batches:
            # Of a number that stands twice in one batch numpy may keep either.
            batch = list(dict(batch).items())
            expected.update(batch)
            numbers, values = np.array(batch, dtype=np.int64).reshape(-1, 2).T
            found.set(numbers, values.astype(np.int32), "page_id")
        found.settle()
        asked = [*asked, *expected]
        twice = found.changed(lambda values: np.where(values < 0, values, 2 * values).astype(np.int32))
        wanted = np.array(asked, dtype=np.int64)
        assert found.get(wanted).tolist() == [expected.get(number, -1) for number in asked]
        assert twice.get(wanted).tolist() == [2 * expected[n] if n in expected else -1 for n in asked]


def test_a_stray_number_costs_no_gigabytes():
    tracemalloc.start()
    try:
        found = NumberMap(-1)
        found.set(np.arange(1_000), np.arange(1_000, dtype=np.int32), "page_id")
        found.set(np.array([LARGEST_NUMBER]), 7, "page_id")
        found.settle()
        assert found.get(np.array([5, LARGEST_NUMBER, LARGEST_NUMBER - 1])).tolist() == [5, 7, -1]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("number", [-1, LARGEST_NUMBER + 1])
def test_what_is_no_number_is_refused(number):
    with pytest.raises(InputError, match=f"lt_id {number} is no number of a wiki"):
        NumberMap(-1).set(np.array([3, number]), 0, "lt_id")
