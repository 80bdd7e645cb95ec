"""Maps of numbers and titles against dictionaries, and how much memory stray numbers cost."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wiki_twin import binary

from gramrun.base.errors import InputError
from gramrun.data.wikipedia import lookups
from gramrun.data.wikipedia.lookups import ABSENT, LARGEST_NUMBER, NumberMap, TitleIndex

NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, 2_000), st.integers(0, LARGEST_NUMBER))
BATCHES = st.lists(st.lists(st.tuples(NUMBERS, st.integers(0, 99)), max_size=8), max_size=6)
TITLES = st.lists(st.binary(max_size=3), max_size=20)


@given(
    BATCHES, st.lists(st.one_of(NUMBERS, st.integers(-(2**63), 2**63 - 1)), max_size=8), st.integers(0, 50)
)
def test_a_number_map_is_a_dictionary(batches, asked, always_plain):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookups, "_ALWAYS_PLAIN", always_plain)
        found, expected = NumberMap(-1), {}
        for batch in batches:
            # If a number stands twice in one batch, numpy may keep either value.
            batch = list(dict(batch).items())
            expected.update(batch)
            numbers, values = np.array(batch, dtype=np.int64).reshape(-1, 2).T
            found.set(numbers, values.astype(np.int32), "page_id")
        found.settle()
        asked = [*asked, *expected]
        got = found.get(np.array(asked, dtype=np.int64))
        assert got.tolist() == [expected.get(number, -1) for number in asked]


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
def test_an_impossible_number_is_refused(number):
    with pytest.raises(InputError, match=f"lt_id {number} is no number of a wiki"):
        NumberMap(-1).set(np.array([3, number]), 0, "lt_id")


@given(st.lists(TITLES, max_size=4), TITLES, st.data())
def test_a_title_index_is_a_dictionary(batches, asked, data):
    index, twin = TitleIndex(), {}

    def mask(titles):
        size = len(titles)
        return np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=bool)

    for batch in batches:
        rows = mask(batch)
        numbers = index.add(binary(batch), rows)
        expected = [
            twin.setdefault(title, len(twin)) if row else ABSENT
            for title, row in zip(batch, rows, strict=True)
        ]
        assert numbers.tolist() == expected
    assert index.titles.to_pylist() == list(twin)
    rows = mask(asked)
    expected = [twin.get(title, ABSENT) if row else ABSENT for title, row in zip(asked, rows, strict=True)]
    assert index.find(binary(asked), rows).tolist() == expected


def test_a_title_index_grows():
    titles = [b"%d" % number for number in range(50_000)]
    index = TitleIndex()
    every = np.ones(len(titles), dtype=bool)
    for start in range(0, len(titles), 7_001):
        batch = binary(titles[start : start + 7_001])
        index.add(batch, every[: len(batch)])
    assert (index.find(binary(titles), every) == np.arange(50_000)).all()
    assert (index.find(binary([b"50000", b"", b"0 "]), every[:3]) == ABSENT).all()
