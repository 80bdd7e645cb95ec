"""Tables written like mysqldump's, read back by a literal parser of one byte at a time."""

import gzip
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from literal_sql import inserts, parse_line

from gramrun.base.errors import InputError, RunError
from gramrun.data import sql_writer
from gramrun.data.byte_strings import ByteStrings
from gramrun.data.sql_writer import Literals, constant, new_table, quoted

TABLE = "CREATE TABLE `t` (\n  `number` int(8) NOT NULL,\n  `text` varbinary(255),\n  KEY `k` (`text`)\n);"


def write(path, *batches):
    with new_table(path, TABLE, database="db", completed="2026-01-01 00:00:00") as table:
        for numbers, texts in batches:
            table.write([np.array(numbers, dtype=np.int64), texts])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(-(2**62), 2**62), st.binary(max_size=12) | st.sampled_from([b"),(", b"';--", b"\\'"])
        )
    )
)
def test_every_row_comes_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "t.sql"
    literals = quoted(ByteStrings.of(text for _, text in rows))
    write(path, ([number for number, _ in rows], Literals(literals, np.arange(len(rows)))))
    assert [row for line in inserts(path.read_bytes()) for row in parse_line(line)] == rows


def test_a_line_ends_at_a_megabyte_and_batches_join(tmp_path):
    numbers = np.arange(-100_000, 100_000)
    texts = Literals(quoted(ByteStrings.of([b"Foo_(a),(b)"])), np.zeros(50_000, dtype=np.int64))
    write(tmp_path / "t.sql", *[(part, texts) for part in np.split(numbers, 4)])
    lines = inserts((tmp_path / "t.sql").read_bytes())
    lengths = [len(line) for line in lines]
    assert all(sql_writer.LINE_BYTES - 100 < n <= sql_writer.LINE_BYTES + 2 for n in lengths[:-1])
    assert len(lengths) == 1 + sum(lengths) // sql_writer.LINE_BYTES
    assert [row for line in lines for row in parse_line(line)] == [(n, b"Foo_(a),(b)") for n in numbers]


def test_a_dump_opens_and_closes_as_mysqldump_does(tmp_path):
    write(tmp_path / "t.sql", ([1], constant(b"NULL", 1)))
    text = (tmp_path / "t.sql").read_text()
    assert text.startswith("-- MySQL dump 10.13  Distrib")
    assert TABLE in text
    assert (
        "LOCK TABLES `t` WRITE;\n/*!40000 ALTER TABLE `t` DISABLE KEYS */;\nINSERT INTO `t` VALUES (1,NULL);\n"
        in text
    )
    assert text.endswith("\n-- Dump completed on 2026-01-01 00:00:00\n")


def test_a_preamble_comes_first(tmp_path):
    with new_table(tmp_path / "t.sql", TABLE, database="db", completed="x", preamble="/*M!999999\\- x */ \n"):
        pass
    assert (tmp_path / "t.sql").read_text().startswith("/*M!999999\\- x */ \n-- MySQL dump 10.13")


def test_without_rows_there_is_no_insert(tmp_path):
    write(tmp_path / "t.sql", ([], constant(b"NULL", 0)))
    assert b"INSERT" not in (tmp_path / "t.sql").read_bytes()


def test_a_packed_table_is_the_plain_one_and_repeats_to_the_byte(tmp_path):
    numbers = np.random.default_rng(0).integers(0, 10**7, 50_000)
    batch = (numbers, constant(b"0", len(numbers)))
    for name in ("t.sql", "t.sql.gz", "again.sql.gz"):
        write(tmp_path / name, batch)
    plain, packed = (tmp_path / "t.sql").read_bytes(), (tmp_path / "t.sql.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    assert packed == (tmp_path / "again.sql.gz").read_bytes()
    # The official dumps are packed by gzip -6: a reader must meet as much input for as much text.
    assert len(packed) == pytest.approx(len(zlib.compress(plain, 6)), rel=0.1)


def test_an_error_leaves_nothing_behind(tmp_path):
    path = tmp_path / "t.sql.gz"
    with pytest.raises(KeyboardInterrupt), new_table(path, TABLE, database="db", completed="x") as table:
        table.write([np.arange(3), constant(b"NULL", 3)])
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_bad_places_are_named(tmp_path):
    with pytest.raises(InputError, match=r"t\.sql\.bz2: a table is written to \.sql or \.sql\.gz"):
        write(tmp_path / "t.sql.bz2")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write(tmp_path / "file" / "t.sql")
