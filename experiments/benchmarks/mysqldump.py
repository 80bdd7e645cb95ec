"""Write a wiki's tables as mysqldump writes them, in the shape of any year, for benchmarks and tests.

A row is the concatenation of its columns as SQL literals; rows are joined to INSERT lines of about 1 MB.
Columns that no reader needs get plausible values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip

from experiments.benchmarks.dump_schemas import GENERATIONS, PREAMBLES, column_names
from gramrun.base.files import new_folder
from gramrun.data.wikipedia.byte_strings import ByteStrings
from gramrun.data.wikipedia.records import Links, Wiki

LINE_BYTES = 1 << 20
_COMPRESSION_LEVEL = 3  # igzip's strongest: about the size of gzip -6, as the official dumps are
_POOL = 1 << 12  # distinct values of a column that no reader needs

_HEADER = """\
-- MySQL dump 10.13  Distrib 5.5.44, for debian-linux-gnu (x86_64)
-- ------------------------------------------------------
/*!40101 SET NAMES utf8 */;
DROP TABLE IF EXISTS `{table}`;
/*!40101 SET character_set_client = utf8 */;
{create}
LOCK TABLES `{table}` WRITE;
/*!40000 ALTER TABLE `{table}` DISABLE KEYS */;
"""
_TRAILER = """\
/*!40000 ALTER TABLE `{table}` ENABLE KEYS */;
UNLOCK TABLES;
-- Dump completed on 2026-01-01 00:00:00
"""
_ESCAPES = {
    b"\\": b"\\\\",
    b"\0": b"\\0",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\x1a": b"\\Z",
    b'"': b'\\"',
    b"'": b"\\'",
}

Columns = Mapping[str, np.ndarray | pa.Array]


def write_tables(wiki: Wiki, folder: Path, generation: str, *, suffix: str = ".sql.gz") -> Path:
    """Write a wiki as ``NAME-20260101-TABLE.sql.gz``, all tables or none; do nothing where `folder` exists.

    Args:
        wiki: its links and memberships name their targets by number.
        folder: where to.
        generation: of `GENERATIONS`. Where links have titles, links to unknown numbers are left out.
        suffix: ``.sql.gz`` or ``.sql``.
    """
    if not folder.exists():
        with new_folder(folder) as temporary:
            tables = _tables(wiki)
            for table, create in GENERATIONS[generation].items():
                path = temporary / f"{wiki.name}-20260101-{table}{suffix}"
                _write(path, table, PREAMBLES[generation], create, tables[table])
    return folder


def literals(strings: pa.Array) -> pa.Array:
    """Byte strings as SQL literals: in single quotes, with MySQL's escapes."""
    for byte, escape in _ESCAPES.items():
        strings = pc.replace_substring(strings, byte, escape)
    return pc.binary_join_element_wise(b"'", strings, b"'", b"")


def insert_lines(table: str, columns: list[np.ndarray | pa.Array]) -> Iterator[bytes]:
    """INSERT lines of rows; columns hold integers or SQL literals (binary); rows with a null are dropped."""
    texts = [
        pa.array(column).cast(pa.string()).cast(pa.binary()) if isinstance(column, np.ndarray) else column
        for column in columns
    ]
    rows = pc.binary_join_element_wise(*texts, b",").drop_null()
    sizes = np.cumsum(pc.binary_length(rows).to_numpy() + len("(),"))
    ends = (
        np.searchsorted(sizes, np.arange(LINE_BYTES, sizes[-1] + LINE_BYTES, LINE_BYTES))
        if len(sizes)
        else []
    )
    start = 0
    for end in ends:
        end = min(max(int(end), start + 1), len(rows))
        if start < end:
            one_line = pa.ListArray.from_arrays(pa.array([0, end - start], pa.int32()), rows[start:end])
            text = pc.binary_join(one_line, b"),(")[0].as_py()
            yield b"INSERT INTO `%s` VALUES (%s);\n" % (table.encode(), text)
            start = end


def _write(path: Path, table: str, preamble: str, create: str, batches: Iterator[Columns]) -> None:
    opened: Any = (
        igzip.open(path, "wb", compresslevel=_COMPRESSION_LEVEL) if path.suffix == ".gz" else path.open("wb")
    )
    names = {"table": table, "create": create.strip()}
    with opened as file:
        file.write((preamble + _HEADER.format(**names)).encode())
        for columns in batches:
            rows = len(next(iter(columns.values())))
            wanted = [columns[c] if c in columns else _filler(c, rows) for c in column_names(create)]
            for line in insert_lines(table, wanted):
                file.write(line)
        file.write(_TRAILER.format(**names).encode())


def _tables(wiki: Wiki) -> dict[str, Iterator[Columns]]:
    """The columns of each table that are not fillers, in batches."""
    pages = list(wiki.pages())
    page_ids = np.concatenate([page.numbers for page in pages])
    order = np.argsort(page_ids)
    namespaces = np.concatenate([page.namespaces for page in pages])[order]
    page_ids = page_ids[order]
    targets = list(wiki.link_targets())
    numbers = np.concatenate([target.numbers for target in targets])
    titles = pa.concat_arrays([_quoted(target.titles) for target in targets])
    target_namespaces = np.concatenate([target.namespaces for target in targets])

    def linked(prefix: str, batches: Iterator[Links]) -> Iterator[Columns]:
        by_number = np.argsort(numbers)
        for batch in batches:
            wanted = batch.targets.numbers
            row = by_number[np.minimum(np.searchsorted(numbers[by_number], wanted), len(numbers) - 1)]
            known = numbers[row] == wanted
            sources = batch.sources
            page = np.minimum(np.searchsorted(page_ids, sources), len(page_ids) - 1)
            yield {
                f"{prefix}_from": sources,
                f"{prefix}_namespace": target_namespaces[row],
                f"{prefix}_title": titles.take(pa.array(row, mask=~known)),
                f"{prefix}_to": titles.take(pa.array(row, mask=~known)),
                f"{prefix}_from_namespace": np.where(page_ids[page] == sources, namespaces[page], 0),
                f"{prefix}_target_id": wanted,
            }

    def page_props() -> Iterator[Columns]:
        for name, batches in (("hiddencat", wiki.hidden_categories()), ("wikibase_item", [page_ids])):
            for ids in batches:
                yield {
                    "pp_page": ids,
                    "pp_propname": pa.array([f"'{name}'".encode()] * len(ids), pa.binary()),
                }

    return {
        "page": (
            {
                "page_id": page.numbers,
                "page_namespace": page.namespaces,
                "page_title": _quoted(page.titles),
                "page_is_redirect": page.is_redirect.astype(np.int64),
            }
            for page in pages
        ),
        "redirect": (
            {
                "rd_from": redirect.sources,
                "rd_namespace": redirect.targets.namespaces,
                "rd_title": _quoted(redirect.targets.titles),
                "rd_interwiki": pa.array(
                    [b"'de'" if far else b"''" for far in redirect.interwiki], pa.binary()
                ),
            }
            for redirect in wiki.redirects()
        ),
        "linktarget": iter([{"lt_id": numbers, "lt_namespace": target_namespaces, "lt_title": titles}]),
        "pagelinks": linked("pl", wiki.links()),
        "categorylinks": linked("cl", wiki.category_links()),
        "page_props": page_props(),
    }


def _quoted(strings: ByteStrings) -> pa.Array:
    return literals(strings.binary().cast(pa.binary()))


def _filler(column: str, rows: int) -> pa.Array:
    """Values of a column that no reader needs: a pool of them, over and over."""
    random = np.random.default_rng(0)
    pools: dict[str, list[bytes]] = {
        "page_random": [b"%.12f" % u for u in random.random(_POOL)],
        "page_touched": [b"'2025%010d'" % n for n in random.integers(101_000_000, 1_231_235_959, _POOL)],
        "page_links_updated": [b"'20250101000000'", b"NULL"],
        "page_latest": [b"%d" % n for n in random.integers(1, 10**9, _POOL)],
        "page_len": [b"%d" % n for n in 40 * random.pareto(1.1, _POOL)],
        "page_restrictions": [b"''", b"'move=autoconfirmed:edit=autoconfirmed'"],
        "page_content_model": [b"'wikitext'", b"NULL"],
        "page_lang": [b"NULL"],
        "rd_fragment": [b"''", b"NULL", b"'See_\\'also\\''"],
        "cl_sortkey": literals(pa.array([random.bytes(5 + n % 50) for n in range(_POOL)])).to_pylist(),
        "cl_timestamp": [b"'2025-%02d-01 12:59:01'" % month for month in range(1, 13)],
        "cl_sortkey_prefix": [b"''", b"'*'", b"'Smith,_J.'", b"'\\'n_(a),(b)'"],
        "cl_collation": [b"'uca-default'"],
        "cl_type": [b"'page'"],
        "cl_collation_id": [b"1"],
        "pp_value": [*(b"'Q%d'" % n for n in random.integers(1, 10**8, _POOL)), b"'J.\\\" (b),(c)'", b"''"],
        "pp_sortkey": [b"NULL", b"-0.5", b"1e20", b"3"],
    }
    pool = pa.array(pools.get(column, [b"0"]), pa.binary())
    return pool.take(pa.array(np.arange(rows) % len(pool)))
