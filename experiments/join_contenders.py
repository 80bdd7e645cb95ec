"""The joins of a dump's tables, each done several ways: the processes that `experiments.title_joins` times.

    python -m experiments.join_contenders COLUMNS.npz WAY TASK OUTPUT.json [--memory-limit BYTES]

does one join and writes what it took. Tasks:

``titles``: for each row of ``linktarget`` the row of the page with that title: int32, −1 where there is none.
``links``: ``pagelinks`` (page_id, lt_id) → the distinct pairs (source row, target row), two int32 arrays,
    sorted by source and then target: sources are articles, redirects are resolved, self-links are dropped.

Every way starts from the same parsed columns in memory and ends with the same arrays. The libraries read the
columns as Arrow tables, which copy nothing, and may use two threads; gramrun's joins use one. Polars is asked
in the form that measured fastest. Redirects are resolved for the libraries in numpy, which spares a join.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

THREADS = 2
os.environ["POLARS_MAX_THREADS"] = str(THREADS)  # polars reads it when it is imported

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from gramrun.data.byte_strings import ByteStrings  # noqa: E402
from gramrun.data.sparse_rows import RowBuilder  # noqa: E402
from gramrun.data.wikipedia.graph import LINK_CLASSES, follow_redirects, judge_links  # noqa: E402
from gramrun.data.wikipedia.pages import UNKNOWN_NUMBER, UNKNOWN_PAGE, NumberMap  # noqa: E402
from gramrun.data.wikipedia.title_index import ABSENT, TitleIndex  # noqa: E402

_BATCH = 1 << 18  # links, as the reader of a dump gives them at a time, about
_WARM_UP = 1000  # rows of each table: what is imported, compiled and started at a first call is not timed


@dataclass(frozen=True)
class Columns:
    """What a reader of the tables has parsed: p pages and t link targets of namespace 0, and l links.

    Attributes:
        page_ids: int64, shape (p,), ascending.
        page_title_offsets, page_title_data: the titles, as in `ByteStrings`.
        is_redirect: bool, shape (p,).
        final: int32, shape (p,). Where each page leads in the end, as `resolve_redirects` says it.
        target_ids: int64, shape (t,). lt_id.
        target_title_offsets, target_title_data: their titles.
        target_rows: int32, shape (t,). What the task ``titles`` finds and the task ``links`` is given.
        link_sources: int64, shape (l,). page_id.
        link_targets: int64, shape (l,). lt_id.
    """

    page_ids: np.ndarray
    page_title_offsets: np.ndarray
    page_title_data: np.ndarray
    is_redirect: np.ndarray
    final: np.ndarray
    target_ids: np.ndarray
    target_title_offsets: np.ndarray
    target_title_data: np.ndarray
    target_rows: np.ndarray
    link_sources: np.ndarray
    link_targets: np.ndarray

    @classmethod
    def load(cls, path: Path) -> Columns:
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(**{field.name: arrays[field.name] for field in fields(cls)})

    def save(self, path: Path) -> None:
        """Write the arrays as one file without compression."""
        np.savez(path, **{field.name: getattr(self, field.name) for field in fields(self)})

    @property
    def page_titles(self) -> ByteStrings:
        """The p titles of the pages."""
        return ByteStrings(self.page_title_offsets, self.page_title_data)

    @property
    def target_titles(self) -> ByteStrings:
        """The t titles of the link targets."""
        return ByteStrings(self.target_title_offsets, self.target_title_data)

    def few(self, rows: int) -> Columns:
        """Columns of the same kind, of so many rows a table, whose links all lead to pages."""
        pages = min(rows, len(self.page_ids))
        numbers = np.arange(pages, dtype=np.int64)
        titles = self.page_titles.take(numbers)
        return Columns(
            page_ids=numbers,
            page_title_offsets=titles.offsets,
            page_title_data=titles.data,
            is_redirect=np.zeros(pages, dtype=bool),
            final=numbers.astype(np.int32),
            target_ids=numbers,
            target_title_offsets=titles.offsets,
            target_title_data=titles.data,
            target_rows=numbers.astype(np.int32),
            link_sources=numbers,
            link_targets=numbers[::-1].copy(),
        )


@dataclass(frozen=True)
class Taken:
    """What a join took, and what came out.

    Attributes:
        wall: seconds on the clock.
        processor: seconds of all threads.
        memory: bytes that the process grew by at its largest.
        spilled: bytes written to the disk.
        digest: SHA-256 of the resulting arrays.
    """

    wall: float
    processor: float
    memory: int
    spilled: int
    digest: str


@dataclass(frozen=True)
class Joined:
    """The resulting arrays, and how many bytes the join wrote to the disk."""

    arrays: tuple[np.ndarray, ...]
    spilled: int = 0


def gramrun_titles(columns: Columns) -> Joined:
    """A hash table of the pages' titles."""
    return Joined((TitleIndex(columns.page_titles).find(columns.target_titles),))


def gramrun_links(columns: Columns) -> Joined:
    """Numbers are indices of arrays; pairs are counted by row, scattered and sorted within rows."""
    row_of, target_of = NumberMap(UNKNOWN_PAGE), NumberMap(UNKNOWN_NUMBER)
    row_of.set(columns.page_ids, np.arange(len(columns.page_ids), dtype=np.int32), "page_id")
    target_of.set(columns.target_ids, columns.target_rows, "lt_id")
    row_of.settle()
    target_of.settle()
    builder = RowBuilder(len(columns.page_ids))
    tally = np.zeros(len(LINK_CLASSES), dtype=np.int64)
    end_of = target_of.changed(lambda targets: follow_redirects(targets, columns.final, False))
    for start in range(0, len(columns.link_sources), _BATCH):
        batch = slice(start, start + _BATCH)
        sources = row_of.get(columns.link_sources[batch])
        ends = end_of.get(columns.link_targets[batch])
        kept = judge_links(sources, ends, columns.is_redirect, tally)
        builder.add(sources[:kept], ends[:kept])
    rows = builder.build()
    return Joined((rows.rows(), rows.columns))


def duckdb_titles(columns: Columns, memory_limit: int | None = None) -> Joined:
    """SQL; in a memory of so many bytes, or in DuckDB's default, 80 % of the machine's."""
    found, spilled = _query(
        "SELECT target, page_row FROM targets JOIN pages USING (title)", _title_tables(columns), memory_limit
    )
    return Joined((_scattered(found["target"].to_numpy(), found["page_row"].to_numpy(), columns),), spilled)


def duckdb_links(columns: Columns, memory_limit: int | None = None) -> Joined:
    """SQL; with `source_row <> target_row`, DuckDB 2.0 begins with all pairs of articles and ends."""
    found, spilled = _query(
        "SELECT DISTINCT source_row, target_row FROM links JOIN articles USING (page_id) "
        "JOIN ends USING (lt_id) WHERE source_row - target_row <> 0 ORDER BY source_row, target_row",
        _link_tables(columns),
        memory_limit,
    )
    return Joined((found["source_row"].to_numpy(), found["target_row"].to_numpy()), spilled)


def polars_titles(columns: Columns, engine: str = "streaming") -> Joined:
    """A lazy inner join."""
    import polars as pl

    targets, pages = (pl.from_arrow(table).lazy() for table in _title_tables(columns).values())
    found = targets.join(pages, on="title").select("target", "page_row").collect(engine=engine)
    return Joined((_scattered(found["target"].to_numpy(), found["page_row"].to_numpy(), columns),))


def polars_links(columns: Columns, engine: str = "streaming") -> Joined:
    """Lazy inner joins; a pair is one int64, and equal neighbours go: `unique` takes twice as long."""
    import polars as pl

    links, articles, ends = (pl.from_arrow(table).lazy() for table in _link_tables(columns).values())
    pair = pl.col("pair")
    found = (
        links.join(articles, on="page_id")
        .join(ends, on="lt_id")
        .filter(pl.col("source_row") != pl.col("target_row"))
        .select(pair=pl.col("source_row").cast(pl.Int64) * 2**32 + pl.col("target_row"))
        .sort("pair")
        .filter((pair != pair.shift(1)).fill_null(True))
        .collect(engine=engine)["pair"]
        .to_numpy()
    )
    return Joined(((found >> 32).astype(np.int32), found.astype(np.int32)))


TASKS = ("titles", "links")
GRAMRUN, SPILLING = "gramrun", "DuckDB, little memory"
Way = dict[str, Callable[..., Joined]]
WAYS: dict[str, Way] = {
    GRAMRUN: {"titles": gramrun_titles, "links": gramrun_links},
    "DuckDB": {"titles": duckdb_titles, "links": duckdb_links},
    SPILLING: {"titles": duckdb_titles, "links": duckdb_links},
    "polars, streaming": {"titles": polars_titles, "links": polars_links},
    "polars, in memory": {
        "titles": partial(polars_titles, engine="in-memory"),
        "links": partial(polars_links, engine="in-memory"),
    },
}


def take(join: Callable[[Columns], Joined], columns: Columns) -> Taken:
    """Time a join and watch the memory of the process; a small one goes before."""
    join(columns.few(_WARM_UP))
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew from here
    wall, processor = time.perf_counter(), time.process_time()
    joined = join(columns)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    memory = max(0, _status("VmHWM") - before)
    digest = hashlib.sha256()
    for array in joined.arrays:
        assert array.dtype == np.int32
        digest.update(np.ascontiguousarray(array))
    return Taken(wall, processor, memory, joined.spilled, digest.hexdigest())


def _query(sql: str, tables: dict[str, pa.Table], memory_limit: int | None) -> tuple[pa.Table, int]:
    """The answer of DuckDB, and how many bytes it wrote to the disk."""
    import duckdb

    settings: dict[str, object] = {"threads": THREADS, "preserve_insertion_order": False}
    if memory_limit is not None:
        settings["memory_limit"] = f"{memory_limit}B"
    with (
        tempfile.TemporaryDirectory() as folder,
        duckdb.connect(config={**settings, "temp_directory": folder}) as connection,
    ):
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute("PRAGMA enable_profiling='no_output'")
        found = connection.sql(sql).to_arrow_table()
        profile = json.loads(connection.get_profiling_information(format="json"))
    return found, profile["io"]["total_bytes_written"]


def _title_tables(columns: Columns) -> dict[str, pa.Table]:
    pages = np.arange(len(columns.page_ids), dtype=np.int32)
    targets = np.arange(len(columns.target_ids), dtype=np.int32)
    return {
        "targets": pa.table({"title": columns.target_titles.binary(), "target": targets}),
        "pages": pa.table({"title": columns.page_titles.binary(), "page_row": pages}),
    }


def _scattered(targets: np.ndarray, page_rows: np.ndarray, columns: Columns) -> np.ndarray:
    rows = np.full(len(columns.target_ids), ABSENT, dtype=np.int32)
    rows[targets] = page_rows
    return rows


def _link_tables(columns: Columns) -> dict[str, pa.Table]:
    """Links; articles and their rows; link targets that lead to an article and its row."""
    articles = np.flatnonzero(~columns.is_redirect)
    found = np.flatnonzero(columns.target_rows >= 0)
    ends = columns.final[columns.target_rows[found]]
    found, ends = found[ends >= 0], ends[ends >= 0]
    return {
        "links": pa.table({"page_id": columns.link_sources, "lt_id": columns.link_targets}),
        "articles": pa.table(
            {"page_id": columns.page_ids[articles], "source_row": articles.astype(np.int32)}
        ),
        "ends": pa.table({"lt_id": columns.target_ids[found], "target_row": ends}),
    }


def _status(field: str) -> int:
    """Bytes of memory as Linux counts them for this process.

    Not `ru_maxrss`: a process that another one started begins with the largest memory of that one.
    """
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def main() -> None:
    """Do one join; write what it took."""
    parser = argparse.ArgumentParser(description="One join, by one way.")
    parser.add_argument("columns", type=Path)
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("output", type=Path)
    parser.add_argument("--memory-limit", type=int, default=0, help=f"bytes, of {SPILLING}")
    arguments = parser.parse_args()
    join = WAYS[arguments.way][arguments.task]
    if arguments.way == SPILLING:
        join = partial(join, memory_limit=arguments.memory_limit)
    taken = take(join, Columns.load(arguments.columns))
    arguments.output.write_text(json.dumps(asdict(taken)), encoding="utf-8")


if __name__ == "__main__":
    main()
