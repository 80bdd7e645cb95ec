"""A mysqldump text file, statement by statement, in bounded memory; the rows of an INSERT are read elsewhere.

Source: ``client/mysqldump.cc`` of MySQL and MariaDB (the order of statements, the header and the line
"-- Dump completed"); MySQL 8.4 Reference Manual, section 11.7 "Comments".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gramrun.base.errors import InputError
from gramrun.data.wikipedia import sql_tokenizer as tokenizer
from gramrun.data.wikipedia.compressed import read_chunks
from gramrun.data.wikipedia.sql_statements import (
    InsertHead,
    Schema,
    StatementError,
    parse_create,
    parse_insert,
)
from gramrun.data.wikipedia.sql_values import GUARD, GUARD_BYTES

LARGEST_ELEMENT_BYTES = 64 << 20  # a row, a comment, a string; MySQL's packets are of 64 MB by default
_NO_PREFIX = np.zeros(0, dtype=np.uint8)
_LARGEST_HEAD_BYTES = 1 << 20  # of an INSERT or CREATE TABLE: 4096 columns with names of 64 letters fit

# mysqldump writes its last line since version 10 (MySQL 4.1); an older one's file ends with its last INSERT.
_HEADER = re.compile(rb"--\s+(?:(?:MySQL|MariaDB) dump (?!\d\.)|mysqldump)")
_COMPLETED = re.compile(rb"--\s+Dump completed")
_BLANKS = re.compile(rb"[ \t-\r]*")
_WORD = re.compile(rb"[A-Za-z]+")
_LINE = re.compile(rb"[^\n]*\n")
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_DELIMITER_BACK = re.compile(rb".*?\nDELIMITER[ \t]+;[ \t\r]*\n", re.IGNORECASE | re.DOTALL)
# What mysqldump and its kin write around rows. UPDATE or DELETE would change rows, and are refused.
_PASSED_OVER = {"alter", "analyze", "begin", "change", "commit", "drop", "flush", "lock", "rollback", "set"}
_PASSED_OVER |= {"start", "unlock", "use"}


class Scanner:
    """Where in a dump the reader stands.

    Attributes:
        path: the file.
        text: uint8. Some of the unpacked file; `GUARD_BYTES` guards follow `end`.
        position: where in `text` to go on.
        end: where the text ends.
        prefix: uint8. The last INSERT up to and with its VALUES.
        tables: those met so far, by name.
    """

    def __init__(self, path: Path, chunk_bytes: int, on_read: Callable[[int], object] | None) -> None:
        self.path = path
        self.text = np.full(GUARD_BYTES, GUARD, dtype=np.uint8)
        self.position = self.end = 0
        self.prefix = np.zeros(0, dtype=np.uint8)
        self.tables: dict[str, Schema] = {}
        self._chunks = read_chunks(path, chunk_bytes, on_read)
        self._chunk_bytes = chunk_bytes
        self._bytes_before = 0  # of the unpacked file, before `text`
        self._needs_completion = self._is_completed = False

    def close(self) -> None:
        """Stop reading the file."""
        self._chunks.close()

    def more(self) -> bool:
        """Append the next chunk to what stands at `position`, which moves; say whether there was one."""
        kept = self.end - self.position
        if kept > LARGEST_ELEMENT_BYTES:
            raise self.error(f"a single row or comment is larger than {LARGEST_ELEMENT_BYTES >> 20} MiB")
        chunks: list[bytes] = []
        size = 0
        # What did not fit is read again from its beginning: let it double, or the time is quadratic.
        while size == 0 or (kept > 4 * self._chunk_bytes and size < kept):
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            chunks.append(chunk)
            size += len(chunk)
        room = kept + size + GUARD_BYTES
        text = self.text if len(self.text) >= room else np.empty(room, dtype=np.uint8)
        text[:kept] = self.text[self.position : self.end]
        self._bytes_before += self.position
        self.text, self.position, self.end = text, 0, kept
        for chunk in chunks:
            text[self.end : self.end + len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
            self.end += len(chunk)
        text[self.end : self.end + GUARD_BYTES] = GUARD
        return size > 0

    def next_statement(self) -> Schema | InsertHead | None:
        """Read the next CREATE TABLE, or the next INSERT as far as its VALUES; None at the end of the file.

        Raises:
            InputError: what is there is no statement, or the file is cut off.
        """
        while self._pass_blanks():
            first = bytes(self._rest()[:3])
            if first.startswith(b"#") or (first.startswith(b"--") and first[2:] <= b" "):
                self._pass_line_comment()
            elif first.startswith(b"/*"):
                self._pass(_COMMENT)
            elif first.startswith(b";"):
                self.position += 1
            else:
                self._is_completed = False
                statement = self._statement()
                if statement is not None:
                    return statement
        if self._needs_completion and not self._is_completed:
            raise self.cut_off('it has no line "-- Dump completed" after the last statement')
        return None

    def pass_insert(self) -> None:
        """Go on behind the semicolon of an INSERT, and of all further ones that begin alike."""
        self._pass_statements(self.prefix)

    def _pass_statements(self, prefix: np.ndarray) -> None:
        """Go on behind the statement's semicolon, and behind further statements that begin with `prefix`.

        Raises:
            InputError: the file ends before.
        """
        while True:
            done, self.position = tokenizer.pass_statements(self.text, self.position, self.end, prefix)
            if done:
                return
            if not self.more():
                raise self.cut_off("it ends within a statement")

    def error(self, what: str) -> InputError:
        """Say what is wrong, and where in the unpacked file."""
        return InputError(f"{self.path}: byte {self._bytes_before + self.position:,}: {what}")

    def cut_off(self, what: str) -> InputError:
        """Say that the file is not whole."""
        return InputError(f"{self.path}: is cut off: {what}; download it again")

    def without(self, table: str | None) -> InputError:
        """Say that a table is not in the file, which has been read to its end."""
        if not self.tables and self._bytes_before + self.end == 0:
            return InputError(f"{self.path}: is empty; download it again")
        if not self.tables:
            return InputError(f"{self.path}: has no CREATE TABLE; is it a dump made by mysqldump?")
        return InputError(f"{self.path}: holds table {', '.join(self.tables)}, not {table}")

    def quoted(self) -> str:
        """Quote what stands at `position`, for a message."""
        return repr(bytes(self._rest()[:40]).decode("utf-8", "replace"))

    def _rest(self) -> memoryview:
        return memoryview(self.text.data)[self.position : self.end]

    def _pass_blanks(self) -> bool:
        """Go on to what is not blank, and three bytes of it at least if there are; False at the end."""
        while True:
            blanks = _BLANKS.match(self._rest())
            assert blanks is not None  # it matches nothing too
            self.position += blanks.end()
            if self.end - self.position >= 3 or not self.more():
                return self.position < self.end

    def _pass(self, pattern: re.Pattern[bytes]) -> None:
        while (found := pattern.match(self._rest())) is None:
            if not self.more():
                raise self.cut_off("it ends within a comment or statement")
        self.position += found.end()

    def _line(self) -> bytes:
        while (found := _LINE.match(self._rest())) is None and self.more():
            pass
        line = bytes(self._rest() if found is None else found[0])
        self.position += len(line)
        return line

    def _pass_line_comment(self) -> None:
        line = self._line()
        self._needs_completion |= _HEADER.match(line) is not None
        self._is_completed |= _COMPLETED.match(line) is not None

    def _statement(self) -> Schema | InsertHead | None:
        """Read what a statement begins with; None for one that is passed over."""
        while (found := _WORD.match(self._rest())) is not None and found.end() == self.end - self.position:
            if not self.more():
                raise self.cut_off("it ends within a statement")
        word = "" if found is None else bytes(found[0]).lower().decode("ascii")
        if word in ("insert", "replace"):
            return self._insert()
        if word == "create":
            return self._create()
        if word == "delimiter":
            if self._line().split()[1:] != [b";"]:  # a stored program, whose statements are no dump's
                self._pass(_DELIMITER_BACK)
        elif word in _PASSED_OVER:
            self._pass_statements(_NO_PREFIX)
        elif bytes(self._rest()[:1]) == b"<":
            raise self.error("is an HTML or XML page, not a dump; download it again")
        else:
            raise self.error(f"no statement of mysqldump: {self.quoted()}; the file is damaged")
        return None

    def _insert(self) -> InsertHead:
        while (head := parse_insert(self._rest()[:_LARGEST_HEAD_BYTES])) is None:
            if self.end - self.position > _LARGEST_HEAD_BYTES:
                raise self.error(f"an INSERT without VALUES: {self.quoted()}")
            if not self.more():
                raise self.cut_off("it ends within an INSERT")
        if head.table not in self.tables:
            raise self.error(f"an INSERT into {head.table}, of which no CREATE TABLE stands before it")
        self.prefix = self.text[self.position : self.position + head.length].copy()
        self.position += head.length
        return head

    def _create(self) -> Schema | None:
        while True:
            done, stop = tokenizer.pass_statements(self.text, self.position, self.end, _NO_PREFIX)
            if done:
                break
            if not self.more():
                raise self.cut_off("it ends within a CREATE statement")
        try:
            schema = parse_create(self._rest()[: min(stop - self.position, _LARGEST_HEAD_BYTES)])
        except StatementError as error:
            raise self.error(str(error)) from error
        if schema is not None and self.tables.setdefault(schema.table, schema) != schema:
            raise self.error(f"the table {schema.table} is created a second time, with other columns")
        self.position = stop
        return schema
