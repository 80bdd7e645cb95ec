"""`TitleIndex` against a dictionary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gramrun.data.byte_strings import ByteStrings
from gramrun.data.wikipedia.title_index import ABSENT, TitleIndex

TITLES = st.lists(st.binary(max_size=3), max_size=20)


@given(st.lists(TITLES, max_size=4), TITLES)
def test_numbers_are_those_of_a_dictionary(batches, asked):
    index, twin = TitleIndex(), {}
    for batch in batches:
        numbers = index.add(ByteStrings.of(batch))
        assert numbers.tolist() == [twin.setdefault(title, len(twin)) for title in batch]
    assert list(index.titles) == list(twin)
    assert index.find(ByteStrings.of(asked)).tolist() == [twin.get(title, ABSENT) for title in asked]


def test_it_grows_past_its_first_slots():
    titles = [b"%d" % number for number in range(50_000)]
    index = TitleIndex()
    for start in range(0, len(titles), 7_001):
        index.add(ByteStrings.of(titles[start : start + 7_001]))
    assert (index.find(ByteStrings.of(titles)) == np.arange(50_000)).all()
    assert (index.find(ByteStrings.of([b"50000", b"", b"0 "])) == ABSENT).all()


def test_titles_of_other_rows_are_left_out():
    titles = ByteStrings.of([b"a", b"b", b"c"])
    index = TitleIndex()
    assert index.add(titles, np.array([True, False, True])).tolist() == [0, ABSENT, 1]
    assert index.find(titles, np.array([False, True, True])).tolist() == [ABSENT, ABSENT, 1]
    assert list(index.titles) == [b"a", b"c"]
