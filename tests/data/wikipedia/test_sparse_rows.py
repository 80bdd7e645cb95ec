"""`SparseRows` against sets of pairs."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gramrun.data.wikipedia import sparse_rows
from gramrun.data.wikipedia.sparse_rows import RowBuilder

ROWS, COLUMNS = 4, 6
PAIR = st.tuples(st.integers(0, ROWS - 1), st.integers(0, COLUMNS - 1))
BATCHES = st.lists(st.lists(PAIR, max_size=60), max_size=4)
MASKS = st.tuples(
    st.lists(st.booleans(), min_size=ROWS, max_size=ROWS),
    st.lists(st.booleans(), min_size=COLUMNS, max_size=COLUMNS),
)


@pytest.fixture(autouse=True, params=[3, 1 << 24], ids=["small blocks", "blocks"])
def _blocks(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_rows, "_BLOCK", request.param)
        patch.setattr(sparse_rows, "_KEYS_AT_ONCE", request.param)
        yield


def build(batches):
    builder = RowBuilder(ROWS)
    for batch in batches:
        rows, columns = np.array(batch, dtype=np.int32).reshape(-1, 2).T
        builder.add(rows.copy(), columns.copy())
    assert builder.pairs == sum(map(len, batches))
    return builder.build()


def pairs(rows):
    return list(zip(rows.rows().tolist(), rows.columns.tolist(), strict=True))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES)
def test_rows_are_sorted_and_distinct(batches):
    distinct = {pair for batch in batches for pair in batch}
    rows = build(batches)
    assert pairs(rows) == sorted(distinct)
    assert rows.lengths.tolist() == [sum(row == r for row, _ in distinct) for r in range(ROWS)]
    assert rows.column_counts(COLUMNS).tolist() == [sum(c == k for _, c in distinct) for k in range(COLUMNS)]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, MASKS)
def test_selection_renumbers_in_order(batches, masks):
    kept_rows, kept_columns = map(np.array, masks)
    new_row, new_column = np.cumsum(kept_rows) - 1, np.cumsum(kept_columns) - 1
    expected = sorted(
        (new_row[row], new_column[column])
        for row, column in {pair for batch in batches for pair in batch}
        if kept_rows[row] and kept_columns[column]
    )
    selected = build(batches).select(kept_rows, kept_columns)
    assert pairs(selected) == expected
    assert len(selected) == kept_rows.sum()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, st.lists(st.integers(0, ROWS - 1), max_size=6))
def test_take_gives_rows_in_the_order_asked_for(batches, asked):
    rows = build(batches)
    taken = rows.take(np.array(asked, dtype=np.int64))
    assert [taken.columns[a:b].tolist() for a, b in pairwise(taken.offsets)] == [
        rows.columns[rows.offsets[row] : rows.offsets[row + 1]].tolist() for row in asked
    ]
