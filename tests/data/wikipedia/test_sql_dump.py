"""The mysqldump reader against what was written, against its literal twin, and on real dumps."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import sql_twin
from hypothesis import given, settings
from hypothesis import strategies as st

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.sql_dump import Schema, read_schema, read_table

HEADER = b"-- MySQL dump 10.19  Distrib 10.3.38-MariaDB, for debian-linux-gnu (x86_64)\n--\n-- Host: h\n"
TRAILER = b"\n-- Dump completed on 2024-09-01 10:41:44\n"
SETTINGS = b"/*!40101 SET @OLD='a;b' */;\n/*M!999999\\- enable the sandbox mode */\nSET NAMES 'x;y';\n"
CREATE = b"CREATE TABLE `t` (\n  `a` int(8) NOT NULL,\n  `b` varbinary(255),\n  PRIMARY KEY (`a`)\n);\n"
HOSTILE = rb""" ),( ' " \ \' ; % \% _ NULL /* */ -- ( , ` 0x41 """.split()
HOSTILE += [b"\n", b"\0", b"\x1a", b"\xff\xfe", b"INSERT INTO `t` VALUES (1,2);", b"\n-- Dump completed"]
ESCAPES = dict(zip(b"\0\n\r\x1a\\\"'", b"0nrZ\\\"'", strict=True))


class Bare(bytes):
    """A value that is written without quotes."""


integers = st.one_of(st.integers(-12, 12), st.integers(-(2**63), 2**63 - 1))
floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: Bare(repr(number).encode()))
strings = st.one_of(
    st.lists(st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=9)), max_size=4).map(b"".join),
    st.binary(max_size=40),
)
TYPES = {
    "int(10) unsigned": ("integer", integers),
    "bigint(20)": ("integer", integers),
    "tinyint(1)": ("integer", integers),
    "double unsigned": ("bytes", floats),
    "decimal(10,2)": ("bytes", floats),
    "varbinary(255)": ("bytes", strings),
    "enum('a,b','c)','d''e')": ("bytes", strings),
    "mediumblob": ("bytes", strings),
}


@dataclass(frozen=True)
class Dump:
    """A written dump, and what is in it."""

    data: bytes
    columns: dict[str, str]
    rows: list[tuple]


def quoted(value: bytes, style: str) -> bytes:
    if style == "hex" and value:
        return b"0x" + value.hex().upper().encode()
    if style == "doubled":
        return b"'" + value.replace(b"\\", b"\\\\").replace(b"'", b"''") + b"'"
    if style == "double quotes":
        return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    escaped = b"".join(b"\\%c" % ESCAPES[byte] if byte in ESCAPES else b"%c" % byte for byte in value)
    return (b"_binary " if style == "binary" else b"") + b"'" + escaped + b"'"


@st.composite
def dumps(draw, complete=None):
    names = draw(
        st.lists(st.sampled_from(["a", "b", "key", "c d", "é", "x`y"]), min_size=1, max_size=4, unique=True)
    )
    types = [draw(st.sampled_from(sorted(TYPES))) for _ in names]
    values = [st.one_of(st.none(), TYPES[sql_type][1]) for sql_type in types]
    rows = draw(st.lists(st.tuples(*values), max_size=6))
    style = draw(st.sampled_from(["mysqldump", "doubled", "double quotes", "hex", "binary"]))
    newline = draw(st.sampled_from([b"\n", b"\r\n"]))
    between = draw(st.sampled_from([b",", b",\n  ", b" , "]))
    comma = draw(st.sampled_from([b",", b", "]))
    statements = draw(st.integers(1, 3))
    per_row = draw(st.booleans())
    verb = draw(st.sampled_from([b"INSERT INTO", b"INSERT IGNORE INTO", b"REPLACE INTO", b"insert into"]))
    marked = [b"`" + name.replace("`", "``").encode() + b"`" for name in names]
    order = draw(st.none() | st.permutations(range(len(names))))

    def literal(value) -> bytes:
        if value is None:
            return b"NULL"
        if isinstance(value, Bare):
            return bytes(value)
        return quoted(value, style) if isinstance(value, bytes) else repr(value).encode()

    def tuple_of(row) -> bytes:
        return b"(" + comma.join(literal(row[i]) for i in (order or range(len(names)))) + b")"

    listed = b" (" + b", ".join(marked[i] for i in order) + b")" if order is not None else b""
    head = verb + b" `t`" + listed + b" VALUES "
    groups = [[row] for row in rows] if per_row else [rows[i::statements] for i in range(statements)]
    written = [row for group in groups for row in group]
    definitions = [
        b"  " + name + b" " + sql_type.encode() for name, sql_type in zip(marked, types, strict=True)
    ]
    if complete is None:
        complete = draw(st.booleans())
    parts = [HEADER if complete else b"", SETTINGS if draw(st.booleans()) else b""]
    if draw(st.booleans()):
        parts += [
            b"CREATE TABLE other (z int);\nINSERT INTO other VALUES (1),(2);\nINSERT INTO other VALUES (3);\n"
        ]
    parts += [
        b"CREATE TABLE `t` (\n",
        b",\n".join(definitions),
        b",\n  KEY `k` (",
        marked[0],
        b")\n) ENGINE=x;\n",
    ]
    parts += [b"LOCK TABLES `t` WRITE;\n"] if draw(st.booleans()) else []
    parts += [head + between.join(map(tuple_of, group)) + b";" + newline for group in groups if group]
    parts += [b"UNLOCK TABLES;\n", TRAILER] if complete else []
    kinds = {name: TYPES[sql_type][0] for name, sql_type in zip(names, types, strict=True)}
    return Dump(b"".join(parts), kinds, written)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("dump") / "t.sql"


def read(path: Path, columns, table="t", chunk_bytes=4 << 20) -> list[tuple]:
    """All rows as tuples, with None for NULL; a NULL's value must be empty."""
    rows: list[tuple] = []
    for batch in read_table(path, columns, table, chunk_bytes=chunk_bytes):
        assert batch.rows > 0
        assert all(len(values) == batch.rows for values in batch.columns.values())
        lists = []
        for name in columns:
            column = batch.columns[name]
            values = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
            null = batch.nulls.get(name, np.zeros(batch.rows, dtype=bool))
            assert name not in batch.nulls or null.any()
            assert not any(value for value, is_null in zip(values, null, strict=True) if is_null)
            lists.append([None if is_null else value for value, is_null in zip(values, null, strict=True)])
        rows += zip(*lists, strict=True) if lists else [()] * batch.rows
    return rows


def outcome(reader, *arguments, **options):
    try:
        return reader(*arguments, **options)
    except (InputError, sql_twin.Refused):
        return "refused"


def same(left: list[tuple], right: list[tuple]) -> bool:
    return repr(left) == repr(right)  # tells 0 from 0.0 and -0.0, and 1 from True


chunk_sizes = st.one_of(st.integers(1, 64), st.just(4 << 20))


@settings(max_examples=40, deadline=None)
@given(dumps(), st.data(), chunk_sizes)
def test_every_dump_gives_its_rows(path, dump, data, chunk_bytes):
    path.write_bytes(dump.data)
    names = data.draw(st.lists(st.sampled_from(sorted(dump.columns)), unique=True))
    assert read_schema(path, "t") == Schema("t", dump.columns)
    expected = [tuple(dict(zip(dump.columns, row, strict=True))[name] for name in names) for row in dump.rows]
    assert list(map(tuple, sql_twin.read(dump.data, names, "t"))) == expected
    assert same(read(path, names, chunk_bytes=chunk_bytes), expected)


@settings(max_examples=40, deadline=None)
@given(dumps(complete=True), st.data(), chunk_sizes)
def test_a_cut_dump_is_refused(path, dump, data, chunk_bytes):
    whole = dump.data.rindex(b"-- Dump completed") + len(b"-- Dump completed")
    cut = data.draw(st.integers(len(HEADER), len(dump.data)))
    path.write_bytes(dump.data[:cut])
    found = outcome(read, path, list(dump.columns), chunk_bytes=chunk_bytes)
    assert (found == "refused") == (cut < whole)
    assert cut < whole or same(found, dump.rows)


@settings(max_examples=80, deadline=None)
@given(dumps(), st.data(), chunk_sizes)
def test_damage_is_read_as_the_twin_reads_it(path, dump, data, chunk_bytes):
    damaged = bytearray(dump.data)
    start = damaged.index(b"CREATE TABLE `t`")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(start, len(damaged) - 1))
        damaged[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b"'\"\\(),;`-/*0")))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(start, len(damaged))) :]
    path.write_bytes(damaged)
    for names in (list(dump.columns), list(dump.columns)[:1]):
        expected = outcome(sql_twin.read, bytes(damaged), names, "t")
        found = outcome(read, path, names, chunk_bytes=chunk_bytes)
        assert same(found, expected)


def write(path: Path, rows: bytes, create: bytes = CREATE) -> Path:
    path.write_bytes(create + rows)
    return path


def values(path: Path, rows: bytes) -> list:
    return [value for (value,) in read(write(path, rows), ["b"])]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (rb"'\0\'\"\b\n\r\t\Z\\'", b"\0'\"\b\n\r\t\x1a\\"),
        (b"'\\x\\B\\N\\\xff'", b"xBN\xff"),
        (rb"'100\% \_a'", rb"100\% \_a"),  # "they evaluate to the strings \% and \_", says the manual
        (b"''''", b"'"),
        (b'"a\'b""c"', b"a'b\"c"),
        (b"''", b""),
        (b"0x41fF", b"A\xff"),
        (b"_binary 'a'", b"a"),
        (b"20051019013733", b"20051019013733"),  # timestamps of MySQL 4.0 had no quotes
        (b"NULL", None),
    ],
)
def test_literals(path, literal, value):
    assert values(path, b"INSERT INTO t VALUES (1," + literal + b");") == [value]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (b"(1),(2,'b');", "table t, row 1: too few values in the row: it ends with \"),(2,'b"),
        (b"(1,'b',3);", "table t, row 1: too many values in the row: it goes on with ',3);"),
        (b"(1,'b')(2,'c');", ": expected a comma or semicolon after the row, found \"(2,'c');"),
        (b"(1,'b'), ... ;", "row 2: expected a row, found '... ;'"),
        (b"(1.5,'b');", "column a needs a 64-bit integer, not"),
        (b"(,'b');", "column a needs"),
        (b"(9223372036854775808,'b');", "column a needs"),
        (b"(1,'b'c);", "column b needs a string"),
        (b"(1,0x414);", "column b needs a string"),
        (b"(1,'b')", "is cut off: it ends within the rows of table t"),
        (b"(1,'b),(2,\\'c\\');", "is cut off"),
        (b"(1,'b'); UPDATE t SET a = 2;", "no statement of mysqldump: 'UPDATE"),
        (b"(1,'b'); INSERT INTO u VALUES (1);", "an INSERT into u before its CREATE TABLE"),
        (
            b"(1,'b'); INSERT INTO t (a,c) VALUES (1,2);",
            "an INSERT into table t lists the columns a, c, but the table has a, b",
        ),
        (b"(1,'b'); INSERT INTO t (a) VALUES (1);", "an INSERT into table t has no values of column b"),
        (b"(1,'b'); CREATE TABLE t (a int);", "a second time, with other columns"),
        (b"(1,'b'); SET NAMES 'x", "is cut off"),
    ],
)
def test_what_is_no_row_is_refused(path, rows, complaint):
    assert complaint in refusal(path, CREATE + b"INSERT INTO `t` VALUES " + rows)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is empty; download it again"),
        (b"<!DOCTYPE html>\n<html><title>404</title></html>", "is an HTML or XML page"),
        (b"INSERT INTO t VALUES (1);", "an INSERT into t before its CREATE TABLE"),
        (b"CREATE TABLE t (a int, a int);", "the table t has two columns a"),
        (b"CREATE TABLE u (a int); CREATE TABLE v (b int);", "holds table u, v, not t"),
        (CREATE[:40], "is cut off"),
        (HEADER + CREATE, 'is cut off: it has no line "-- Dump completed"'),
        (HEADER + CREATE + TRAILER + b"INSERT INTO t VALUES (1,'-- Dump completed');", "is cut off"),
        (b"/*M!999999\\- sandbox */\n-- MariaDB dump 10.19\n" + CREATE, "is cut off"),
    ],
)
def test_what_is_no_dump_is_refused(path, data, complaint):
    assert complaint in refusal(path, data)


def refusal(path, data):
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read(path, ["a", "b"])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, 0])
def test_integers_to_the_last_bit(path, value):
    rows = b"INSERT INTO t VALUES (%d,''),(00%d,''),(NULL,'');" % (value, abs(value) // 2)
    assert read(write(path, rows), ["a"]) == [(value,), (abs(value) // 2,), (None,)]


def test_a_column_that_nobody_asked_for_needs_any_value_at_all(path):
    """Its type is not looked at, but that a value ends where it ends is."""
    write(path, b"INSERT INTO t VALUES (1,2),(3,'b'),(4,'b'c);")
    with pytest.raises(InputError, match="row 3: column b needs a string or number, not"):
        read(path, ["a"])


def test_a_dump_of_mysql_4_0_needs_no_last_line(path):
    path.write_bytes(b"-- MySQL dump 9.11\n" + CREATE + b"INSERT INTO t VALUES (1,'b');\n")
    assert read(path, ["a"]) == [(1,)]


def test_statements_around_the_rows_are_passed_over(path):
    around = (
        b"/*!50003 CREATE TRIGGER x INSERT INTO t VALUES (7,'') ; */;\n"
        b"ALTER TABLE t COMMENT 'INSERT INTO t VALUES (8,''\\';''); -- x' -- INSERT; '\n# INSERT;\n /* ; */ ;\n"
        b"DROP TABLE IF EXISTS `a;b`; ;\n"
        b"DELIMITER ;;\nCREATE PROCEDURE p() BEGIN INSERT INTO t VALUES (9,''); END ;;\nDELIMITER ;\n"
        b"CREATE VIEW v AS SELECT 1;\n"
    )
    for chunk_bytes in (1, 7, 4 << 20):
        path.write_bytes(around + CREATE + around + b"INSERT INTO db.`t` VALUES (1,'b');" + around)
        assert read(path, ["a"], chunk_bytes=chunk_bytes) == [(1,)]


def test_an_empty_comment_among_the_columns_hides_none_of_them(path):
    path.write_bytes(b"CREATE TABLE t (\n  a int,\n--\n  b blob\n);\nINSERT INTO t VALUES (1,'x');\n")
    assert read_schema(path) == Schema("t", {"a": "integer", "b": "bytes"})


def test_the_first_table_is_read_where_none_is_named(path):
    path.write_bytes(
        CREATE + b"CREATE TABLE u (c int);INSERT INTO u VALUES (5);INSERT INTO t VALUES (1,'b');"
    )
    assert read(path, ["a"], None) == [(1,)]
    assert read(path, ["c"], "u") == [(5,)]
    assert read_schema(path) == Schema("t", {"a": "integer", "b": "bytes"})
    with pytest.raises(InputError, match="holds table t, u, not v"):
        read_schema(path, "v")


def test_a_row_longer_than_all_chunks(path):
    long = b"x" * 100_000
    write(path, b"INSERT INTO t VALUES (1,'" + long + b"'),(2,'b');")
    assert read(path, ["a", "b"], chunk_bytes=1000) == [(1, long), (2, b"b")]


@pytest.mark.parametrize("columns", [1, 5])
def test_no_number_of_rows_overflows_the_columns(path, columns):
    """One digit a value: no other text has more rows per byte."""
    names = [f"c{i}" for i in range(columns)]
    create = b"CREATE TABLE t (" + b", ".join(b"%s int" % name.encode() for name in names) + b");\n"
    rows = [tuple((3 * i + 7 * j + i // 10) % 10 for j in range(columns)) for i in range(3000)]
    listed = b",".join(b"(" + b",".join(b"%d" % value for value in row) + b")" for row in rows)
    write(path, b"INSERT INTO t VALUES " + listed + b";\n", create)
    for chunk_bytes in (1 << 10, 4 << 20):
        assert read(path, names, chunk_bytes=chunk_bytes) == rows


@pytest.mark.parametrize(("length", "chunk_bytes"), [(0, 64), (40, 200), (40, 4 << 20)])
def test_strings_of_several_statements_and_chunks_do_not_overflow(path, length, chunk_bytes):
    rows = [(i, b"%d" % i + b"x" * length, b"y" * length + b"%d" % i, -i) for i in range(400)]
    between = b"/* " + b"-" * 150 + b" */\n"
    inserts = (b"INSERT INTO t VALUES (%d,'%b','%b',%d);\n" % row for row in rows)
    write(path, between.join(inserts), b"CREATE TABLE t (a int, b blob, c blob, d int);\n")
    for names in (["a", "d"], ["b", "c"], ["d", "c", "b", "a"]):
        expected = [tuple(dict(zip("abcd", row, strict=True))[name] for name in names) for row in rows]
        assert read(path, names, chunk_bytes=chunk_bytes) == expected


@pytest.mark.parametrize("chunk_bytes", [1 << 10, 4 << 20])
def test_a_fault_is_found_by_its_row_however_many_batches_came_before(path, chunk_bytes):
    rows = b",".join(b"(%d,'b')" % i for i in range(4000))
    write(path, b"INSERT INTO t VALUES " + rows + b",(1.5,'b');\n")
    with pytest.raises(InputError, match=r"table t, row 4,001: column a needs a 64-bit integer"):
        read(path, ["a"], chunk_bytes=chunk_bytes)


def test_memory_does_not_grow_with_the_statement(tmp_path):
    path = tmp_path / "t.sql.gz"
    rows = b",(1234567,'Some_title_of_a_page')" * 20_000
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(CREATE + b"INSERT INTO t VALUES (1,'a')")
        for _ in range(60):
            file.write(rows)
        file.write(b";\n")
    tracemalloc.start()
    try:
        count = sum(batch.rows for batch in read_table(path, ["a", "b"], chunk_bytes=1 << 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 1 + 60 * 20_000  # 40 MB in one statement
    assert peak < 24 << 20


# Real dumps, counted by a regular expression that knows nothing of the reader.
REFUSED = {
    "dewiki-20240901-linktarget-small.sql": "is cut off",
    "dewiki-20240901-pagelinks-small.sql": "is cut off",
}
REFUSED |= dict.fromkeys(
    ["simplewiki-20170901-page.sql", "simplewiki-20170901-pagelinks.sql"], "expected a row"
)
_STRING = rb"'(?:[^'\\]|\\.)*'"
_ROW = re.compile(rb"\((?:(?:" + _STRING + rb"|[-\w.]+)(?:,\s*|(?=\))))+\)", re.DOTALL)


def rows_by_regex(data: bytes) -> int:
    statements = re.findall(
        rb"^INSERT INTO `\w+` VALUES\s(.*?);\r?$(?=\n\S|\n*\Z|\n\n)", data, re.DOTALL | re.MULTILINE
    )
    return sum(len(_ROW.findall(statement)) for statement in statements)


def test_real_dumps(wiki_fixtures):
    counts = {}
    for path in sorted([*wiki_fixtures.rglob("*.sql"), *wiki_fixtures.rglob("*.sql.gz")]):
        schema = read_schema(path)
        if path.name in REFUSED:
            with pytest.raises(InputError, match=REFUSED[path.name]):
                read(path, list(schema.columns), None)
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        counts[path.name] = sum(batch.rows for batch in read_table(path, list(schema.columns)))
        assert counts[path.name] == rows_by_regex(data), path
        if len(data) < 300_000:
            found = read(path, list(schema.columns), None)
            assert same(found, sql_twin.read(data, list(schema.columns))), path
    assert counts["miwiki-20160111-page.sql.gz"] == 12_615
    assert counts["miwiki-20160111-pagelinks.sql.gz"] == 203_515
    assert counts["aawiki-20260101-pagelinks.sql.gz"] == 637
    assert counts["aawiki-20260101-categorylinks.sql.gz"] == 156
    assert counts["links_test.sql"] == 17
