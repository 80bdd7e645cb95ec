"""The joins that are compared: every way comes to what dictionaries and sets come to, and is measured alike."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest

from experiments import join_contenders, title_joins
from experiments.join_contenders import GRAMRUN, SPILLING, TASKS, WAYS, Columns
from gramrun.data.wikipedia.planted import PlantedWiki

TOY = PlantedWiki(pages=400, links=4000, words=40, categories=8, topics=2)


@pytest.fixture(scope="module")
def columns_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("joins")
    title_joins.write_columns(TOY, folder / "tables", folder / "columns.npz")
    return folder / "columns.npz"


@pytest.fixture(scope="module")
def columns(columns_path):
    return Columns.load(columns_path)


def literally(columns):
    """Both tasks with Python's own dictionaries and sets."""
    row_of_title = {title: row for row, title in enumerate(columns.page_titles)}
    titles = [row_of_title.get(title, -1) for title in columns.target_titles]
    row_of_page = {number: row for row, number in enumerate(columns.page_ids.tolist())}
    row_of_target = dict(zip(columns.target_ids.tolist(), titles, strict=True))
    pairs = set()
    for page, number in zip(columns.link_sources.tolist(), columns.link_targets.tolist(), strict=True):
        source, target = row_of_page.get(page, -1), row_of_target.get(number, -1)
        if source >= 0 and target >= 0 and not columns.is_redirect[source]:
            end = int(columns.final[target])
            if end >= 0 and end != source:
                pairs.add((source, end))
    return {"titles": [titles], "links": [list(side) for side in zip(*sorted(pairs), strict=True)]}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_comes_to_what_dictionaries_come_to(columns, way, task):
    join = WAYS[way][task]
    if way == SPILLING:
        join = partial(join, memory_limit=title_joins.LEAST_MEMORY)
    arrays = join(columns).arrays
    assert [array.tolist() for array in arrays] == literally(columns)[task]
    assert {array.dtype for array in arrays} == {np.dtype(np.int32)}


def test_the_toy_wiki_has_what_joins_must_drop(columns):
    wanted = literally(columns)
    assert len(wanted["links"][0]) == TOY.links < len(columns.link_sources)
    assert -1 in wanted["titles"][0]
    assert (columns.final[columns.is_redirect] >= 0).any()


def test_duckdb_spills_where_memory_is_little():
    """A million random links do not fit; what comes out is the same."""
    random = np.random.default_rng(0)
    small = Columns(
        page_ids=np.arange(2000),
        page_title_offsets=np.zeros(2001, dtype=np.int64),
        page_title_data=np.zeros(0, dtype=np.uint8),
        is_redirect=np.zeros(2000, dtype=bool),
        final=np.arange(2000, dtype=np.int32),
        target_ids=np.arange(2000),
        target_title_offsets=np.zeros(2001, dtype=np.int64),
        target_title_data=np.zeros(0, dtype=np.uint8),
        target_rows=np.arange(2000, dtype=np.int32),
        link_sources=random.integers(2000, size=3_000_000),
        link_targets=random.integers(2000, size=3_000_000),
    )
    little = join_contenders.duckdb_links(small, title_joins.LEAST_MEMORY)
    plenty = join_contenders.duckdb_links(small)
    assert little.spilled > 0 == plenty.spilled
    for one, other in zip(little.arrays, plenty.arrays, strict=True):
        assert np.array_equal(one, other)


def test_what_a_join_takes_is_its_own(columns):
    """Memory that it takes and frees counts; memory that was taken and freed before does not."""
    calls = []

    def hungry(given):
        calls.append(len(given.page_ids))
        block = np.ones((100 if len(calls) == 2 else 400) << 20, dtype=np.uint8)
        return join_contenders.Joined((block[:1].astype(np.int32),))

    taken = join_contenders.take(hungry, columns)
    assert calls == [min(1000, len(columns.page_ids)), len(columns.page_ids)]
    assert 95 << 20 < taken.memory < 200 << 20
    assert taken.wall > 0 < taken.processor


def test_the_measurement_at_toy_size(columns_path, monkeypatch):
    monkeypatch.setattr(title_joins, "WAYS", {way: WAYS[way] for way in (GRAMRUN, "polars, streaming")})
    frame = title_joins.measure(columns_path, 1, title_joins.LEAST_MEMORY)
    assert len(frame) == 2 * len(TASKS)
    lines = title_joins.rows_of("toy", 5000, frame)
    assert lines[0].startswith("| toy | 0.0 | titles | gramrun |")
    assert "| 1.00 (1.00–1.00) |" in lines[0]
    json.dumps(frame.to_dict(orient="list"))


def test_ways_that_differ_fail_the_measurement():
    frame = pd.DataFrame(
        {"task": ["titles", "links", "titles", "links"], "way": list("abcd"), "digest": list("xyxy")}
    )
    title_joins.require_equal_results(frame)
    frame.loc[3, "digest"] = "z"
    with pytest.raises(RuntimeError, match=r"links: results differ: \['b'\], \['d'\]"):
        title_joins.require_equal_results(frame)
