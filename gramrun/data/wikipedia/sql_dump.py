"""Tables of a mysqldump text file, of any size, as batches of typed columns.

Columns are found by the names in CREATE TABLE (or in the INSERT, where it lists them), never by position.
The file is read in chunks; a compiled tokenizer reads the rows of INSERT statements, of which only whole
ones are taken from a chunk, so that memory does not grow with the length of a statement. What is neither
CREATE TABLE nor INSERT is passed over. A file that is cut off or not a dump is refused, never guessed at.

Source: those that `sql_scanner`, `sql_statements` and `sql_tokenizer` name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gramrun.base.errors import InputError
from gramrun.data.byte_strings import ByteStrings
from gramrun.data.wikipedia import sql_tokenizer as tokenizer
from gramrun.data.wikipedia.compressed import CHUNK_BYTES
from gramrun.data.wikipedia.sql_scanner import Scanner
from gramrun.data.wikipedia.sql_statements import InsertHead, Schema
from gramrun.data.wikipedia.sql_values import GUARD_BYTES

__all__ = ["Batch", "Schema", "read_schema", "read_table"]

_KINDS = {"integer": tokenizer.INTEGER, "float": tokenizer.NUMBER, "bytes": tokenizer.BYTES}
_EXPECTED = {"integer": "a 64-bit integer", "float": "a number", "bytes": "a string"}
_WRONG = {
    tokenizer.NO_ROW: "expected a row, found",
    tokenizer.TOO_FEW_VALUES: "too few values in the row: it ends with",
    tokenizer.TOO_MANY_VALUES: "too many values in the row: it goes on with",
    tokenizer.NO_SEPARATOR: "expected a comma or semicolon after the row, found",
}


@dataclass(frozen=True)
class Batch:
    """Some rows of a table.

    Attributes:
        rows: how many.
        columns: by name, for each column asked for: int64, shape (rows,), for integers; float64, shape
            (rows,); or `ByteStrings`, without the dump's escapes. NULL is 0, 0.0 or empty.
        nulls: by name, bool, shape (rows,): which values are NULL; only for columns with a NULL in the batch.
    """

    rows: int
    columns: Mapping[str, np.ndarray | ByteStrings]
    nulls: Mapping[str, np.ndarray]


def read_schema(path: Path, table: str | None = None) -> Schema:
    """Read a file as far as the CREATE TABLE of `table`, or of the first table where None is given.

    Raises:
        InputError: as `read_table`; a file that is cut off later is not noticed.
    """
    with closing(Scanner(path, CHUNK_BYTES, None)) as dump:
        while (statement := dump.next_statement()) is not None:
            if isinstance(statement, Schema) and table in (None, statement.table):
                return statement
            if isinstance(statement, InsertHead):
                dump.pass_insert()
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
        columns: the names of the columns to read. The others cost less, and their values' types are not
            looked at.
        table: the name of the table; the first one of the file where None is given.
        on_read: gets how many bytes of the file have been read since it was last called.
        chunk_bytes: of unpacked text that are read at once.

    Raises:
        InputError: the file cannot be read, is cut off, damaged or not a dump; it lacks the table or a
            column; or a row does not fit the table. The batches before it have been given by then: what is
            made of them holds only once the last one has come.
    """
    with closing(Scanner(path, chunk_bytes, on_read)) as dump:
        schema: Schema | None = None
        rows: _Rows | None = None
        while (statement := dump.next_statement()) is not None:
            if isinstance(statement, Schema):
                if schema is None and table in (None, statement.table):
                    schema = statement
                    rows = _Rows(dump, schema, columns)
            elif schema is None or rows is None or statement.table != schema.table:
                dump.pass_insert()
            else:
                yield from rows.read(statement)
        if rows is None:
            raise dump.without(table)
        yield from rows.flush()


class _Rows:
    """The rows of one table that have been read and not yet given away."""

    def __init__(self, dump: Scanner, schema: Schema, columns: Sequence[str]) -> None:
        for name in columns:
            if name not in schema.columns:
                has = ", ".join(schema.columns)
                raise InputError(f"{dump.path}: table {schema.table} has no column {name}; it has {has}")
        self._dump = dump
        self._schema = schema
        self._columns = list(dict.fromkeys(columns))
        self._rows_before = 0
        self._rows = 0
        self._allocate(0, 0)

    def read(self, head: InsertHead) -> Iterator[Batch]:
        """Read the rows that follow, also of further INSERTs that begin alike."""
        dump = self._dump
        names = self._names(head)
        asked = [self._columns.index(name) if name in self._columns else -1 for name in names]
        kinds = [
            tokenizer.SKIPPED if slot < 0 else _KINDS[self._schema.columns[name]]
            for name, slot in zip(names, asked, strict=True)
        ]
        plan = np.array(kinds, dtype=np.int64), np.array(asked, dtype=np.int64)
        place = tokenizer.BEFORE_ROW
        while True:
            yield from self._make_room(smallest_row=2 * len(names) + 1)
            why, dump.position, place, self._rows, column = tokenizer.read_rows(
                dump.text, dump.position, dump.end, place, dump.prefix, *plan, self._rows, *self._arrays
            )
            if why == tokenizer.AT_STATEMENT:
                return
            if why != tokenizer.NEEDS_MORE:
                raise self._error(why, names[column])
            yield from self.flush()
            if not dump.more():
                if place == tokenizer.BEFORE_STATEMENT:
                    return
                raise dump.cut_off(f"it ends within the rows of table {self._schema.table}")

    def flush(self) -> Iterator[Batch]:
        """Give the rows away, if there are any."""
        if not (rows := self._rows):
            return
        integers, offsets, strings, nulls = self._arrays
        columns: dict[str, np.ndarray | ByteStrings] = {}
        for slot, name in enumerate(self._columns):
            if (kind := self._schema.columns[name]) == "integer":
                columns[name] = integers[slot, :rows].copy()
                continue
            ends = offsets[slot, : rows + 1].copy()
            texts = ByteStrings(ends, strings[slot, : ends[-1]].copy())
            columns[name] = texts if kind == "bytes" else _floats(texts)
        found = {name: nulls[slot, :rows].copy() for slot, name in enumerate(self._columns)}
        self._rows_before += rows
        self._rows = 0
        yield Batch(rows, columns, {name: where for name, where in found.items() if where.any()})

    def _names(self, head: InsertHead) -> tuple[str, ...]:
        """What the values of the INSERT's rows are."""
        if head.columns is None:
            return tuple(self._schema.columns)
        unknown = [name for name in head.columns if name not in self._schema.columns]
        lacking = [name for name in self._columns if name not in head.columns]
        if unknown or lacking or len(set(head.columns)) < len(head.columns):
            listed = ", ".join(head.columns)
            fault = (
                f"{unknown[0]} is unknown" if unknown else f"{lacking[0]} lacks" if lacking else "one twice"
            )
            table = self._schema.table
            raise self._dump.error(f"an INSERT into table {table} lists the columns {listed}: {fault}")
        return head.columns

    def _make_room(self, smallest_row: int) -> Iterator[Batch]:
        """See to it that all the text's rows fit in the arrays."""
        size = self._dump.end - self._dump.position
        rows = size // smallest_row + 1
        _, offsets, strings, nulls = self._arrays
        used = int(offsets[:, self._rows].max(initial=0))
        room = size + GUARD_BYTES
        if self._rows + rows > nulls.shape[1] or used + room > strings.shape[1]:
            yield from self.flush()
            if rows > nulls.shape[1] or room > strings.shape[1]:
                self._allocate(rows, room)

    def _allocate(self, rows: int, size: int) -> None:
        columns = len(self._columns)
        self._arrays = (
            np.empty((columns, rows), dtype=np.int64),
            np.zeros((columns, rows + 1), dtype=np.int64),
            np.empty((columns, size), dtype=np.uint8),
            np.empty((columns, rows), dtype=bool),
        )

    def _error(self, why: int, column: str) -> InputError:
        dump = self._dump
        place = f"table {self._schema.table}, row {self._rows_before + self._rows + 1:,}: "
        found = dump.quoted()
        if why != tokenizer.NO_VALUE:
            return dump.error(f"{place}{_WRONG[why]} {found}; the file is damaged")
        expected = _EXPECTED[self._schema.columns[column]] if column in self._columns else "a value"
        return dump.error(f"{place}column {column} needs {expected}, not {found}; the file is damaged")


def _floats(texts: ByteStrings) -> np.ndarray:
    """Python's own conversion: exact, and fast enough for columns that are hardly ever asked for."""
    return np.fromiter((float(text or b"0") for text in texts), dtype=np.float64, count=len(texts))
