"""Writes tables the way mysqldump does: comments, CREATE TABLE, INSERT lines of about 1 MB, a trailer.

Rows come in batches of columns. A column is an array of integers, or `Literals`: SQL literals, each quoted
and escaped once however many rows show it. A batch is laid out in two passes over its columns: the lengths of
all rows first, then each column into its place, so that one small kernel for integers and one for literals
serve every table.

Reference: MySQL 8.0 Reference Manual, "mysqldump" and "String Literals" (escapes as in
mysql_real_escape_string).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from isal import igzip

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.base.files import new_file
from gramrun.data.byte_strings import ByteStrings, offsets_of

LINE_BYTES = 1 << 20  # mysqldump's net_buffer_length, less its header: where an INSERT line ends
# igzip's strongest: files a little larger than those of gzip -6, as the official dumps are, much sooner.
COMPRESSION_LEVEL = 3
_ROWS_AT_ONCE = 1 << 15  # a batch of rows of 20 to 100 bytes stays in the processor's cache

_HEADER = """\
-- MySQL dump 10.13  Distrib 5.5.44, for debian-linux-gnu (x86_64)
--
-- Host: localhost    Database: {database}
-- ------------------------------------------------------
-- Server version	5.5.5-10.0.22-MariaDB-log

/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!40101 SET @OLD_CHARACTER_SET_RESULTS=@@CHARACTER_SET_RESULTS */;
/*!40101 SET @OLD_COLLATION_CONNECTION=@@COLLATION_CONNECTION */;
/*!40101 SET NAMES utf8 */;
/*!40103 SET @OLD_TIME_ZONE=@@TIME_ZONE */;
/*!40103 SET TIME_ZONE='+00:00' */;
/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */;
/*!40014 SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0 */;
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;
/*!40111 SET @OLD_SQL_NOTES=@@SQL_NOTES, SQL_NOTES=0 */;

--
-- Table structure for table `{table}`
--

DROP TABLE IF EXISTS `{table}`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8 */;
{create}
/*!40101 SET character_set_client = @saved_cs_client */;

--
-- Dumping data for table `{table}`
--

LOCK TABLES `{table}` WRITE;
/*!40000 ALTER TABLE `{table}` DISABLE KEYS */;
"""
_TRAILER = """\
/*!40000 ALTER TABLE `{table}` ENABLE KEYS */;
UNLOCK TABLES;
/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;

/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;
/*!40014 SET FOREIGN_KEY_CHECKS=@OLD_FOREIGN_KEY_CHECKS */;
/*!40014 SET UNIQUE_CHECKS=@OLD_UNIQUE_CHECKS */;
/*!40101 SET CHARACTER_SET_CLIENT=@OLD_CHARACTER_SET_CLIENT */;
/*!40101 SET CHARACTER_SET_RESULTS=@OLD_CHARACTER_SET_RESULTS */;
/*!40101 SET COLLATION_CONNECTION=@OLD_COLLATION_CONNECTION */;
/*!40111 SET SQL_NOTES=@OLD_SQL_NOTES */;

-- Dump completed on {completed}
"""


@dataclass(frozen=True)
class Literals:
    """A column of SQL literals: row i shows ``texts[rows[i]]``, as it stands.

    Attributes:
        texts: the distinct literals: of `quoted`, or numbers and NULL as they are written.
        rows: integers, shape (n,).
    """

    texts: ByteStrings
    rows: np.ndarray


Column = np.ndarray | Literals


def constant(text: bytes, rows: int) -> Literals:
    """A column that shows the same literal in all `rows` rows."""
    return Literals(ByteStrings.of([text]), np.zeros(rows, dtype=np.int64))


def quoted(strings: ByteStrings) -> ByteStrings:
    """The strings as SQL literals: in single quotes, with MySQL's escapes."""
    lengths = np.empty(len(strings), dtype=np.int64)
    _quoted_lengths(strings.offsets, strings.data, _ESCAPES, lengths)
    offsets = offsets_of(lengths)
    data = np.empty(offsets[-1], dtype=np.uint8)
    _quote(strings.offsets, strings.data, _ESCAPES, data)
    return ByteStrings(offsets, data)


class TableWriter:
    """The rows of one table, written through `new_table`."""

    def __init__(self, file: BinaryIO, create_table: str) -> None:
        self._file = file
        self._columns = len(re.findall(r"^\s*`", create_table, flags=re.MULTILINE))
        self._head = np.frombuffer(f"INSERT INTO `{_table_name(create_table)}` VALUES ".encode(), np.uint8)
        self._line = 0  # bytes of the INSERT line that is open; 0 for none

    def write(self, columns: Sequence[Column]) -> None:
        """Write rows.

        Args:
            columns: one for each column of CREATE TABLE, in its order, all of the same length.
        """
        assert len(columns) == self._columns, f"{len(columns)} columns for {self._columns}"
        rows = {len(column.rows if isinstance(column, Literals) else column) for column in columns}
        assert len(rows) == 1, f"columns of {rows} rows"
        for start in range(0, rows.pop(), _ROWS_AT_ONCE):
            self._write([_part(column, start) for column in columns])

    def _write(self, columns: Sequence[Column]) -> None:
        first = columns[0]
        count = len(first.rows if isinstance(first, Literals) else first)
        lengths = np.full(count, len(columns) + 1, dtype=np.int64)  # parentheses and commas
        for column in columns:
            if isinstance(column, Literals):
                _add_literal_lengths(column.texts.offsets, column.rows, lengths)
            else:
                _add_integer_lengths(column, lengths)
        text = np.empty(int(lengths.sum()) + count * (len(self._head) + 2), dtype=np.uint8)
        positions = np.empty(count, dtype=np.int64)
        used, self._line = _lay_out(lengths, self._line, self._head, text, positions)
        for column in columns:
            mark = ord(")") if column is columns[-1] else ord(",")
            if isinstance(column, Literals):
                _put_literals(column.texts.offsets, column.texts.data, column.rows, text, positions, mark)
            else:
                _put_integers(column, text, positions, mark)
        self._file.write(text[:used].data)

    def close(self) -> None:
        """End the open INSERT line."""
        if self._line:
            self._file.write(b";\n")
            self._line = 0


@contextlib.contextmanager
def new_table(
    path: Path, create_table: str, *, database: str, completed: str, preamble: str = ""
) -> Iterator[TableWriter]:
    """Write a dump of one table, whole or not at all; compressed where the name ends in ``.gz``.

    Args:
        path: the file.
        create_table: the CREATE TABLE statement, with a column a line.
        database: named in the header.
        completed: the date in the last line; given, so that the same rows make the same bytes.
        preamble: what stands before the header.

    Raises:
        InputError: the file's name asks for another compression.
        RunError: the disk is full or the folder cannot be written.
    """
    if path.suffix not in (".sql", ".gz"):
        raise InputError(f"{path}: a table is written to .sql or .sql.gz; choose one of these names")
    names = {"database": database, "table": _table_name(create_table), "create": create_table.strip()}
    with new_file(path) as temporary, temporary.open("wb") as raw, _packed(raw, path) as file:
        file.write((preamble + _HEADER.format(**names)).encode())
        writer = TableWriter(file, create_table)
        yield writer
        writer.close()
        file.write(_TRAILER.format(table=names["table"], completed=completed).encode())


def _packed(file: BinaryIO, path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    if path.suffix != ".gz":
        return contextlib.nullcontext(file)
    pack: Any = igzip.IGzipFile
    # No name and no time in the header: the same rows make the same bytes.
    packed = pack(filename="", mode="wb", compresslevel=COMPRESSION_LEVEL, fileobj=file, mtime=0)
    return cast(contextlib.AbstractContextManager[BinaryIO], packed)


def _table_name(create_table: str) -> str:
    found = re.search(r"CREATE TABLE `([^`]+)`", create_table)
    assert found, f"no CREATE TABLE: {create_table[:80]}"
    return found[1]


def _part(column: Column, start: int) -> Column:
    if isinstance(column, Literals):
        return Literals(column.texts, column.rows[start : start + _ROWS_AT_ONCE])
    return column[start : start + _ROWS_AT_ONCE]


def _escapes() -> np.ndarray:
    """What follows the backslash for each byte; 0 where a byte stands as it is."""
    table = np.zeros(256, dtype=np.uint8)
    for byte, letter in {0: "0", 10: "n", 13: "r", 26: "Z", 34: '"', 39: "'", 92: "\\"}.items():
        table[byte] = ord(letter)
    return table


_ESCAPES = _escapes()


@compiled
def _quoted_lengths(offsets: np.ndarray, data: np.ndarray, escapes: np.ndarray, lengths: np.ndarray) -> None:
    for i in range(len(lengths)):
        lengths[i] = 2 + offsets[i + 1] - offsets[i]
        for p in range(offsets[i], offsets[i + 1]):
            lengths[i] += escapes[data[p]] != 0


@compiled
def _quote(offsets: np.ndarray, data: np.ndarray, escapes: np.ndarray, out: np.ndarray) -> None:
    q = 0
    for i in range(len(offsets) - 1):
        out[q] = 39  # '
        q += 1
        for p in range(offsets[i], offsets[i + 1]):
            if escapes[data[p]] != 0:
                out[q] = 92  # backslash
                out[q + 1] = escapes[data[p]]
                q += 2
            else:
                out[q] = data[p]
                q += 1
        out[q] = 39
        q += 1


@compiled
def _add_literal_lengths(offsets: np.ndarray, rows: np.ndarray, lengths: np.ndarray) -> None:
    for i in range(len(rows)):
        lengths[i] += offsets[rows[i] + 1] - offsets[rows[i]]


@compiled
def _add_integer_lengths(values: np.ndarray, lengths: np.ndarray) -> None:
    for i in range(len(values)):
        rest = values[i]
        if rest < 0:
            lengths[i] += 1
            rest = -rest
        lengths[i] += 1
        while rest >= 10:
            rest //= 10
            lengths[i] += 1


@compiled
def _lay_out(
    lengths: np.ndarray, line: int, head: np.ndarray, text: np.ndarray, positions: np.ndarray
) -> tuple[int, int]:
    """Write what stands between rows; give the bytes used and the bytes of the line that stays open."""
    p = 0
    for i in range(len(lengths)):
        if line and line + lengths[i] + 1 > LINE_BYTES:
            text[p] = 59  # ;
            text[p + 1] = 10
            p += 2
            line = 0
        if line:
            text[p] = 44  # ,
            p += 1
            line += 1
        else:
            text[p : p + len(head)] = head
            p += len(head)
            line = len(head)
        text[p] = 40  # (
        positions[i] = p + 1
        p += lengths[i]
        line += lengths[i]
    return p, line


@compiled
def _put_literals(
    offsets: np.ndarray,
    data: np.ndarray,
    rows: np.ndarray,
    text: np.ndarray,
    positions: np.ndarray,
    mark: int,
) -> None:
    for i in range(len(rows)):
        p = positions[i]
        for source in range(offsets[rows[i]], offsets[rows[i] + 1]):
            text[p] = data[source]
            p += 1
        text[p] = mark
        positions[i] = p + 1


@compiled
def _put_integers(values: np.ndarray, text: np.ndarray, positions: np.ndarray, mark: int) -> None:
    digits = np.empty(20, dtype=np.uint8)
    for i in range(len(values)):
        p = positions[i]
        rest = values[i]
        if rest < 0:
            text[p] = 45  # -
            p += 1
            rest = -rest
        count = 0
        while True:
            digits[count] = 48 + rest % 10
            count += 1
            rest //= 10
            if rest == 0:
                break
        while count > 0:
            count -= 1
            text[p] = digits[count]
            p += 1
        text[p] = mark
        positions[i] = p + 1
