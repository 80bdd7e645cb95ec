"""Write a wiki's tables as mysqldump writes them, in the shape of any year, for benchmarks and tests.

A row is its columns as SQL literals. Rows are joined to INSERT lines of about 1 MB. The columns are those of
the Wikimedia dumps of 2016-01-11, 2024-03-01 and 2026-01-01, of categorylinks in 2025, and of pagelinks until
2014: https://www.mediawiki.org/wiki/Manual:Pagelinks_table, and likewise Manual:Page_table,
Manual:Linktarget_table and Manual:Categorylinks_table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip

from gramrun.base.files import new_folder
from gramrun.data.wikipedia.records import Links, Wiki

# The years in which dumps of each shape were usual.
GENERATIONS = ("2013", "2016", "2023", "2024", "2025", "2026")

# Table → lines of column, first and last generation that has it, type.
_COLUMNS = {
    "page": """
        page_id                2013-2026 int(10) unsigned
        page_namespace         2013-2026 int(11)
        page_title             2013-2026 varbinary(255)
        page_restrictions      2013-2016 varbinary(255)
        page_counter           2013-2016 bigint(20) unsigned
        page_is_redirect       2013-2026 tinyint(3) unsigned
        page_is_new            2013-2026 tinyint(3) unsigned
        page_random            2013-2026 double unsigned
        page_touched           2013-2026 binary(14)
        page_links_updated     2013-2026 varbinary(14)
        page_latest            2013-2026 int(10) unsigned
        page_len               2013-2026 int(10) unsigned
        page_no_title_convert  2016-2016 tinyint(1) unsigned
        page_content_model     2016-2026 varbinary(32)
        page_lang              2023-2026 varbinary(35)
    """,
    "pagelinks": """
        pl_from                2013-2026 int(8) unsigned
        pl_namespace           2013-2023 int(11)
        pl_title               2013-2023 varbinary(255)
        pl_from_namespace      2016-2026 int(11)
        pl_target_id           2023-2026 bigint(20) unsigned
    """,
    "linktarget": """
        lt_id                  2023-2026 bigint(20) unsigned
        lt_namespace           2023-2026 int(11)
        lt_title               2023-2026 varbinary(255)
    """,
    "categorylinks": """
        cl_from                2013-2026 int(8) unsigned
        cl_to                  2013-2025 varbinary(255)
        cl_sortkey             2013-2026 varbinary(230)
        cl_timestamp           2013-2026 timestamp
        cl_sortkey_prefix      2013-2026 varbinary(255)
        cl_collation           2013-2025 varbinary(32)
        cl_type                2013-2026 enum('page','subcat','file')
        cl_collation_id        2025-2026 smallint(5) unsigned
        cl_target_id           2025-2026 bigint(20) unsigned
    """,
    "redirect": """
        rd_from                2013-2026 int(8) unsigned
        rd_namespace           2013-2026 int(11)
        rd_title               2013-2026 varbinary(255)
        rd_interwiki           2013-2026 varbinary(32)
        rd_fragment            2013-2026 varbinary(255)
    """,
    "page_props": """
        pp_page                2013-2026 int(10) unsigned
        pp_propname            2013-2026 varbinary(60)
        pp_value               2013-2026 blob
        pp_sortkey             2013-2026 float
    """,
}
_LINE_BYTES = 1 << 20
_COMPRESSION_LEVEL = 3  # igzip's strongest: about the size of gzip -6, as the official dumps are
_POOL = 1 << 12  # distinct values of a column that no reader needs

_SANDBOX = "/*M!999999\\- enable the sandbox mode */ \n"  # the first line of MariaDB's newer dumps
_HEADER = """\
-- MySQL dump 10.13  Distrib 5.5.44, for debian-linux-gnu (x86_64)
-- ------------------------------------------------------
/*!40101 SET NAMES utf8 */;
DROP TABLE IF EXISTS `{table}`;
/*!40101 SET character_set_client = utf8 */;
CREATE TABLE `{table}` (
{columns}
  PRIMARY KEY (`{key}`)
) ENGINE=InnoDB AUTO_INCREMENT=2417 DEFAULT CHARSET=binary ROW_FORMAT=COMPRESSED;
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


def columns_of(generation: str) -> dict[str, dict[str, str]]:
    """The tables of a generation: their columns in order, and the type of each."""
    found: dict[str, dict[str, str]] = {}
    for table, lines in _COLUMNS.items():
        for line in lines.strip().splitlines():
            name, years, kind = line.split(maxsplit=2)
            first, last = years.split("-")
            if first <= generation <= last:
                found.setdefault(table, {})[name] = kind
    return found


def write_tables(wiki: Wiki, folder: Path, generation: str, *, suffix: str = ".sql.gz") -> Path:
    """Write a wiki as ``NAME-20260101-TABLE.sql.gz``, all tables or none; do nothing where `folder` exists.

    Args:
        wiki: a wiki whose links and memberships refer to targets by number.
        folder: the folder to write.
        generation: one of `GENERATIONS`. Where links have titles, links to unknown numbers are left out.
        suffix: ``.sql.gz`` or ``.sql``.
    """
    if not folder.exists():
        with new_folder(folder) as temporary:
            rows = _tables(wiki)
            preamble = _SANDBOX if generation > "2024" else ""
            for table, types in columns_of(generation).items():
                path = temporary / f"{wiki.name}-20260101-{table}{suffix}"
                _write(path, table, types, preamble, rows[table])
    return folder


def _literals(strings: pa.Array) -> pa.Array:
    """Byte strings as SQL literals: in single quotes, with MySQL's escapes."""
    for byte, escape in _ESCAPES.items():
        strings = pc.replace_substring(strings, byte, escape)
    return pc.binary_join_element_wise(b"'", strings, b"'", b"")


def _insert_lines(table: str, columns: list[np.ndarray | pa.Array]) -> Iterator[bytes]:
    """INSERT lines of rows; columns hold integers or SQL literals (binary); rows with a null are dropped."""
    texts = [
        pa.array(column).cast(pa.string()).cast(pa.binary()) if isinstance(column, np.ndarray) else column
        for column in columns
    ]
    rows = pc.binary_join_element_wise(*texts, b",").drop_null()
    sizes = np.cumsum(pc.binary_length(rows).to_numpy() + len("(),"))
    ends = (
        np.searchsorted(sizes, np.arange(_LINE_BYTES, sizes[-1] + _LINE_BYTES, _LINE_BYTES), side="right")
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


def _write(
    path: Path, table: str, types: Mapping[str, str], preamble: str, batches: Iterator[Columns]
) -> None:
    opened: Any = (
        igzip.open(path, "wb", compresslevel=_COMPRESSION_LEVEL) if path.suffix == ".gz" else path.open("wb")
    )
    lines = "\n".join(f"  `{name}` {kind} DEFAULT NULL," for name, kind in types.items())
    with opened as file:
        file.write((preamble + _HEADER.format(table=table, columns=lines, key=next(iter(types)))).encode())
        for columns in batches:
            rows = len(next(iter(columns.values())))
            for line in _insert_lines(
                table, [columns[c] if c in columns else _filler(c, rows) for c in types]
            ):
                file.write(line)
        file.write(_TRAILER.format(table=table).encode())


def _tables(wiki: Wiki) -> dict[str, Iterator[Columns]]:
    """The columns of each table that hold the wiki's data, in batches."""
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


def _quoted(strings: pa.Array) -> pa.Array:
    return _literals(strings.cast(pa.binary()))


def _filler(column: str, rows: int) -> pa.Array:
    """Plausible values of a column that no reader needs, repeated from a small pool."""
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
        "cl_sortkey": _literals(pa.array([random.bytes(5 + n % 50) for n in range(_POOL)])).to_pylist(),
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
