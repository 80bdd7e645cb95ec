"""Tables of a mysqldump text file, of any size, as batches of typed columns in bounded memory.

Columns are found by the names in CREATE TABLE (or in the INSERT, if it lists them), never by position.
Statements other than CREATE TABLE and INSERT are skipped. A file that is cut off, damaged or not a dump is
refused.

Sources: ``client/mysqldump.cc`` of MySQL and MariaDB; MySQL 8.4 Reference Manual, sections 11.2 "Schema
Object Names", 11.7 "Comments", 13 "Data Types", 15.1.20 "CREATE TABLE" and 15.2.7 "INSERT".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gramrun.base.errors import InputError
from gramrun.data.wikipedia import sql_rows
from gramrun.data.wikipedia import sql_statements as sql
from gramrun.data.wikipedia.byte_strings import byte_strings
from gramrun.data.wikipedia.compressed import CHUNK_BYTES, read_chunks
from gramrun.data.wikipedia.sql_statements import Insert, Schema, parse_create, parse_insert

LARGEST_ROW_BYTES = 64 << 20  # MySQL's largest packet by default
_LARGEST_HEAD_BYTES = 1 << 20  # of any other statement or comment: 4096 columns with names of 64 letters fit

# mysqldump writes its last line since version 10 (MySQL 4.1); an older file ends with its last INSERT.
_HEADER = re.compile(rb"--\s+(?:(?:MySQL|MariaDB) dump (?!\d\.)|mysqldump)")
_COMPLETED = re.compile(rb"--\s+Dump completed")

_BLANKS = re.compile(rb"[\s;]*+")
_COMMENT_START = re.compile(rb"#|/\*|--(?:[\x00-\x20]|\Z)")
_COMMENT = re.compile(rb"/\*.*?\*/|(?!/)[^\n]*", re.DOTALL)
_WORD = re.compile(rb"[A-Za-z]*+")
_KINDS = {"integer": sql_rows.INTEGER, "bytes": sql_rows.BYTES}
_EXPECTED = {"integer": "a 64-bit integer", "bytes": "a string or number"}
_FAULTS = {
    sql_rows.NO_ROW: "expected a row, found",
    sql_rows.TOO_FEW_VALUES: "too few values in the row: it ends with",
    sql_rows.TOO_MANY_VALUES: "too many values in the row: it goes on with",
    sql_rows.NO_SEPARATOR: "expected a comma or semicolon after the row, found",
}


@dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    Attributes:
        rows: how many.
        columns: by name, for each requested column: int64, shape (rows,), for integers; `large_binary` arrays
            without the dump's escapes for all other types. NULL is 0 or empty.
        nulls: by name, bool, shape (rows,): which values are NULL; only for columns with a NULL in the batch.
    """

    rows: int
    columns: Mapping[str, Any]
    nulls: Mapping[str, np.ndarray]


def read_schema(path: Path, table: str | None = None) -> Schema:
    """Read the CREATE TABLE of `table`, or the first one of the file.

    Raises:
        InputError: as `read_table`; damage that comes later in the file is not noticed.
    """
    with closing(_Dump(path, CHUNK_BYTES, None)) as dump:
        skipped = _Rows(dump, {})
        while (statement := dump.next_statement()) is not None:
            if isinstance(statement, Insert):
                for _ in skipped.read(statement):
                    pass
            elif table in (None, statement.table):
                return statement
        raise dump.without(table)


def read_table(
    path: Path,
    columns: Sequence[str],
    table: str | None = None,
    on_read: Callable[[int], object] | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Batch]:
    """Read columns of a table, in batches of about the rows of a chunk.

    Args:
        path: a dump; plain, gzip, bzip2 or Zstandard.
        columns: the names of the columns to read. The types of the others are not checked.
        table: the name of the table; by default the first one of the file.
        on_read: called with the number of bytes of the file read since its last call.
        chunk_bytes: how much unpacked text to read at once.

    Raises:
        InputError: the file cannot be read, is cut off, damaged or not a dump; it lacks the table or a
            column; or a row does not fit the table. The error may come after batches have been yielded.
    """
    with closing(_Dump(path, chunk_bytes, on_read)) as dump:
        skipped, chosen = _Rows(dump, {}), None
        while (statement := dump.next_statement()) is not None:
            if isinstance(statement, Insert):
                if chosen is not None and statement.schema.table == chosen.table:
                    yield from chosen.read(statement)
                else:
                    for _ in skipped.read(statement):
                        pass
            elif chosen is None and table in (None, statement.table):
                missing = [name for name in columns if name not in statement.columns]
                if missing:
                    has = ", ".join(statement.columns)
                    raise InputError(
                        f"{path}: table {statement.table} has no column {missing[0]}; it has {has}"
                    )
                chosen = _Rows(dump, {name: statement.columns[name] for name in columns}, statement.table)
        if chosen is None:
            raise dump.without(table)
        yield from chosen.flush()


class _Dump:
    """The position in a dump, with the text around it.

    Attributes:
        text: uint8. Part of the unpacked file, then guard bytes.
        position, end: where in `text` to go on, and where the file's bytes end.
        tables: the schemas met so far, by name.
    """

    def __init__(self, path: Path, chunk_bytes: int, on_read: Callable[[int], object] | None) -> None:
        self.path, self.chunk_bytes = path, chunk_bytes
        self.text = np.full(sql_rows.GUARD_BYTES, sql_rows.GUARD, dtype=np.uint8)
        self._guard = self.text
        self.position = self.end = 0
        self.tables: dict[str, Schema] = {}
        self._chunks = read_chunks(path, chunk_bytes, on_read)
        self._bytes_before = 0  # of the unpacked file, before `text`
        self._needs_completion = self._is_completed = False

    def close(self) -> None:
        """Stop reading the file."""
        self._chunks.close()

    def more(self) -> bool:
        """Drop the text before `position` and append a chunk; return False at the end of the file."""
        kept = self.text[self.position : self.end]
        if len(kept) > LARGEST_ROW_BYTES:
            raise self.error(f"a single row is larger than {LARGEST_ROW_BYTES >> 20} MiB")
        chunks: list[np.ndarray] = []
        size = 0
        # A row longer than a chunk is read again from its start: the text doubles to keep the time linear.
        while size <= len(kept) and (chunk := next(self._chunks, None)) is not None:
            chunks.append(np.frombuffer(chunk, dtype=np.uint8))
            size += len(chunk)
        self._bytes_before += self.position
        self.position, self.end = 0, len(kept) + size
        self.text = np.concatenate([kept, *chunks, self._guard])
        return size > 0

    def next_statement(self) -> Schema | Insert | None:
        """Read the next CREATE TABLE, or the next INSERT as far as VALUES; None at the end of the file."""
        while True:
            self._take(_BLANKS)
            while self.end - self.position < 3 and self.more():
                pass
            if self.position == self.end:
                break
            if _COMMENT_START.match(self._rest()):
                comment = self._take(_COMMENT)[0]
                self._needs_completion |= _HEADER.match(comment) is not None
                self._is_completed |= _COMPLETED.match(comment) is not None
                continue
            self._is_completed = False
            if (statement := self._statement()) is not None:
                return statement
        if self._needs_completion and not self._is_completed:
            raise self.cut_off('it has no line "-- Dump completed" after the last statement')
        return None

    def error(self, what: str) -> InputError:
        """Say what is wrong, and where in the unpacked file."""
        return InputError(f"{self.path}: byte {self._bytes_before + self.position:,}: {what}")

    def cut_off(self, what: str) -> InputError:
        """Say that the file is not whole."""
        return InputError(f"{self.path}: is cut off: {what}; download it again")

    def without(self, table: str | None) -> InputError:
        """Say that the file, read to its end, has no such table."""
        if not self.tables:
            return InputError(f"{self.path}: has no CREATE TABLE; is it a dump made by mysqldump?")
        return InputError(f"{self.path}: holds table {', '.join(self.tables)}, not {table}")

    def quoted(self) -> str:
        """Quote the text at `position`, for a message."""
        return repr(bytes(self._rest()[:40]).decode("utf-8", "replace"))

    def _rest(self) -> memoryview:
        return memoryview(self.text.data)[self.position : self.end]

    def _take(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        """Match at the position and move after the match; read on while there is none, or it may grow."""
        while True:
            rest = self._rest()
            found = pattern.match(rest)
            if found is None and len(rest) > _LARGEST_HEAD_BYTES:
                raise self.error(f"no statement of mysqldump: {self.quoted()}; the file is damaged")
            if (found is None or found.end() == len(rest)) and self.more():
                continue
            if found is None:
                raise self.cut_off("it ends within a comment or statement")
            self.position += found.end()
            return found

    def _statement(self) -> Schema | Insert | None:
        """Read a CREATE TABLE, or an INSERT as far as VALUES; None for a statement that is skipped."""
        start = self._bytes_before + self.position
        word = bytes(self._take(_WORD)[0]).lower().decode("ascii")
        self.position = start - self._bytes_before
        if word in ("insert", "replace"):
            return self._insert(self._take(sql.INSERT))
        if word == "create":
            return self._create(self._take(sql.STATEMENT)[0])
        if word == "delimiter":  # around a stored program
            self._take(sql.DELIMITER)
        elif word in sql.SKIPPED:
            self._take(sql.STATEMENT)
        elif bytes(self._rest()[:1]) == b"<":
            raise self.error("is an HTML or XML page, not a dump; download it again")
        else:
            raise self.error(f"no statement of mysqldump: {self.quoted()}; the file is damaged")
        return None

    def _insert(self, found: re.Match[bytes]) -> Insert:
        try:
            return parse_insert(found, self.tables)
        except ValueError as error:
            raise self.error(str(error)) from error

    def _create(self, statement: bytes) -> Schema | None:
        try:
            schema = parse_create(statement)
        except ValueError as error:
            raise self.error(str(error)) from error
        if schema is not None and self.tables.setdefault(schema.table, schema) != schema:
            raise self.error(f"the table {schema.table} is created a second time, with other columns")
        return schema


class _Rows:
    """Reads the rows of a table's INSERT statements into batches.

    Args:
        dump: the file.
        columns: "integer" or "bytes" by name: the columns to read.
        table: the name of the table.
    """

    def __init__(self, dump: _Dump, columns: Mapping[str, str], table: str = "") -> None:
        self.table = table
        self._dump, self._columns = dump, columns
        self._slots = {name: slot for slot, name in enumerate(columns)}
        self._rows = self._rows_before = 0
        self._capacity = max(dump.chunk_bytes // 32, 1)
        self._allocate(dump.chunk_bytes)

    def read(self, insert: Insert) -> Iterator[Batch]:
        """Read the rows that follow."""
        dump = self._dump
        missing = [name for name in self._columns if name not in insert.columns]
        if missing:
            raise dump.error(f"an INSERT into table {self.table} has no values of column {missing[0]}")
        unused = len(self._columns)
        slots = np.array([self._slots.get(name, unused) for name in insert.columns], dtype=np.int64)
        kinds = [_KINDS[self._columns.get(name, "bytes")] for name in insert.columns]
        plan = np.array(kinds, dtype=np.int64), slots
        state = sql_rows.BEFORE_ROW
        while True:
            yield from self._make_room(dump.end - dump.position)
            why, dump.position, state, self._rows, column = sql_rows.read_rows(
                dump.text, dump.position, dump.end, state, *plan, self._rows, *self._arrays
            )
            if why == sql_rows.END_OF_STATEMENT:
                return
            if why not in (sql_rows.NEEDS_TEXT, sql_rows.IS_FULL):
                raise self._error(why, insert, insert.columns[column])
            yield from self.flush()
            if why == sql_rows.NEEDS_TEXT and not dump.more():
                raise dump.cut_off(f"it ends within the rows of table {insert.schema.table}")

    def flush(self) -> Iterator[Batch]:
        """Yield the rows read so far, if there are any."""
        if not (rows := self._rows):
            return
        integers, offsets, strings, nulls = self._arrays
        columns: dict[str, Any] = {}
        found: dict[str, np.ndarray] = {}
        for slot, (name, kind) in enumerate(self._columns.items()):
            if kind == "integer":
                columns[name] = integers[slot, :rows].copy()
            else:
                start = slot * self._width
                ends = offsets[slot, : rows + 1].copy()
                columns[name] = byte_strings(ends, strings[start : start + ends[-1]].copy())
            if nulls[slot, :rows].any():
                found[name] = nulls[slot, :rows].copy()
        self._rows_before += rows
        self._rows = 0
        yield Batch(rows, columns, found)

    def _make_room(self, size: int) -> Iterator[Batch]:
        """Make room for the strings in `size` bytes of text, which are no longer than the text."""
        used = int(self._arrays[1][:-1, self._rows].max(initial=0))
        if used + size > self._width:
            yield from self.flush()
            if size > self._width:
                self._allocate(size)

    def _allocate(self, width: int) -> None:
        slots, rows = len(self._columns) + 1, self._capacity
        self._width = width
        self._arrays = (
            np.empty((slots, rows), dtype=np.int64),
            np.zeros((slots, rows + 1), dtype=np.int64),
            np.empty(slots * width, dtype=np.uint8),
            np.empty((slots, rows), dtype=bool),
        )

    def _error(self, why: int, insert: Insert, column: str) -> InputError:
        dump = self._dump
        row = self._rows_before + self._rows + 1
        place = f"table {insert.schema.table}, row {row:,}: "
        if why in _FAULTS:
            return dump.error(f"{place}{_FAULTS[why]} {dump.quoted()}; the file is damaged")
        expected = _EXPECTED[self._columns.get(column, "bytes")]
        return dump.error(
            f"{place}column {column} needs {expected}, not {dump.quoted()}; the file is damaged"
        )
