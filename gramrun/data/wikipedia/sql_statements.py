"""What CREATE TABLE and INSERT say before the rows: names and types of columns.

Source: MySQL 8.4 Reference Manual, sections 15.1.20 "CREATE TABLE Statement", 15.2.7 "INSERT Statement",
11.2 "Schema Object Names" and 13 "Data Types".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


class StatementError(ValueError):
    """A statement that is none; says why, and the caller says where."""


@dataclass(frozen=True)
class Schema:
    """A table as its CREATE TABLE has it.

    Attributes:
        table: its name.
        columns: "integer", "float" or "bytes" by name, in order.
    """

    table: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class InsertHead:
    """An INSERT up to its first row.

    Attributes:
        table: the name of the table.
        columns: the names of the values of a row where the statement lists them.
        length: how many bytes it takes, VALUES included.
    """

    table: str
    columns: tuple[str, ...] | None
    length: int


_INTEGER = {"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bool", "boolean", "serial"}
_FLOAT = {"float", "double", "real", "decimal", "numeric", "dec", "fixed"}
_NO_COLUMN = {"primary", "key", "index", "unique", "fulltext", "spatial", "constraint", "foreign"}
_NO_COLUMN |= {"check", "period"}

_NAME = rb'(?:`(?:[^`]|``)++`|"(?:[^"]|"")++"|[\w$\x80-\xff]++)'
_TABLE = rb"(?:" + _NAME + rb"\s*\.\s*)?(?P<table>" + _NAME + rb")\s*"
_INSERT = re.compile(
    rb"(?:INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE)\s+)*(?:INTO\s+)?"
    + _TABLE
    + rb"(?:\(\s*(?P<columns>"
    + _NAME
    + rb"(?:\s*,\s*"
    + _NAME
    + rb")*)\s*\)\s*)?VALUES(?=[\s(])",
    re.IGNORECASE,
)
_CREATE = re.compile(
    rb"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?" + _TABLE + rb"\(",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    # Nothing here looks at a byte twice: an end that never comes must not cost the square of the length.
    rb"(?P<blank>\s+|/\*.*?(?:\*/|\Z)|--(?=[\x00-\x20])[^\n]*|\#[^\n]*)|'(?:[^'\\]|\\.|'')*+'|"
    + _NAME
    + rb"|.",
    re.DOTALL,
)


def parse_insert(text: memoryview) -> InsertHead | None:
    """Read the head of an INSERT or REPLACE; None where `text` does not (yet) hold a whole one."""
    found = _INSERT.match(text)
    if found is None:
        return None
    listed = found["columns"]
    columns = tuple(_plain(name) for name in re.findall(_NAME, listed)) if listed is not None else None
    return InsertHead(_plain(found["table"]), columns, found.end())


def parse_create(text: memoryview) -> Schema | None:
    """Read a whole CREATE statement; None where it makes no table.

    Raises:
        StatementError: no columns, two of one name, one without a name or a type, or no end of them.
    """
    found = _CREATE.match(text)
    if found is None:
        return None
    table = _plain(found["table"])
    columns: dict[str, str] = {}
    for definition in _definitions(text[found.end() :]):
        if definition and definition[0].lower().decode("latin-1") in _NO_COLUMN:
            continue
        if len(definition) < 2 or re.fullmatch(_NAME, definition[0]) is None:
            raise StatementError(f"the table {table} has a column without a name or a type")
        name = _plain(definition[0])
        if name in columns:
            raise StatementError(f"the table {table} has two columns {name}")
        columns[name] = _kind(definition[1])
    if not columns:
        raise StatementError(f"the table {table} has no columns")
    return Schema(table, columns)


def _definitions(text: memoryview) -> list[list[bytes]]:
    """Split what is in the parentheses of CREATE TABLE at its commas, into tokens."""
    definitions: list[list[bytes]] = [[]]
    depth = 1
    for token in _TOKEN.finditer(text):
        if token["blank"] is not None:
            continue
        part = bytes(token[0])
        depth += (part == b"(") - (part == b")")
        if depth == 0:
            return definitions
        if part in (b"'", b'"', b"`"):
            raise StatementError("a quote in CREATE TABLE that is never closed")
        if part == b"," and depth == 1:
            definitions.append([])
        else:
            definitions[-1].append(part)
    raise StatementError("a parenthesis in CREATE TABLE that is never closed")


def _kind(word: bytes) -> str:
    sql_type = word.lower().decode("latin-1")
    return "integer" if sql_type in _INTEGER else "float" if sql_type in _FLOAT else "bytes"


def _plain(name: bytes | memoryview) -> str:
    """Take the quotes off a name."""
    text = bytes(name).decode("utf-8", "backslashreplace")
    quote = text[0]
    return text[1:-1].replace(2 * quote, quote) if quote in '`"' else text
