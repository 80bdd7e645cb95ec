"""The statements of a dump: names and types of columns in CREATE TABLE, names of values in INSERT.

Source: MySQL 8.4 Reference Manual, sections 11.2 "Schema Object Names", 13 "Data Types", 15.1.20 "CREATE
TABLE Statement" and 15.2.7 "INSERT Statement".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Possessive quantifiers, and no byte is scanned twice: an end that never comes costs linear time.
STATEMENT = re.compile(
    rb"(?:[^'\"`#/;-]++|'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.|\"\")*+\"|`[^`]*+`|/\*.*?\*/|/(?!\*)"
    rb"|--(?=[\x00-\x20])[^\n]*+|-(?!-[\x00-\x20])|\#[^\n]*+)*+;",
    re.DOTALL,
)
DELIMITER = re.compile(
    rb"DELIMITER[ \t]+(?:;[ \t\r]*\n|.*?\nDELIMITER[ \t]+;[ \t\r]*\n)", re.IGNORECASE | re.DOTALL
)
# UPDATE and DELETE would change rows, and are refused.
SKIPPED = {"alter", "analyze", "begin", "change", "commit", "drop", "flush", "lock", "rollback", "set"}
SKIPPED |= {"start", "unlock", "use"}

_NAME = rb'(?:`(?:[^`]|``)++`|"(?:[^"]|"")++"|[\w$\x80-\xff]++)'
_TABLE = rb"(?:" + _NAME + rb"\s*\.\s*)?(?P<table>" + _NAME + rb")\s*"
_NAMES = _NAME + rb"(?:\s*,\s*" + _NAME + rb")*"
INSERT = re.compile(
    rb"(?:INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE)\s+)*(?:INTO\s+)?"
    + _TABLE
    + rb"(?:\(\s*(?P<columns>"
    + _NAMES
    + rb")\s*\)\s*)?VALUES(?=[\s(])",
    re.IGNORECASE,
)
_CREATE = re.compile(
    rb"CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMPORARY\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?" + _TABLE + rb"\(",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    rb"(?P<blank>\s+|/\*.*?(?:\*/|\Z)|--(?=[\x00-\x20])[^\n]*|\#[^\n]*)|'(?:[^'\\]|\\.|'')*+'|"
    + _NAME
    + rb"|.",
    re.DOTALL,
)
_INTEGER = {"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bool", "boolean", "serial"}
_NO_COLUMN = {"primary", "key", "index", "unique", "fulltext", "spatial", "constraint", "foreign"}
_NO_COLUMN |= {"check", "period"}


@dataclass(frozen=True)
class Schema:
    """A table as CREATE TABLE defines it: its name, and "integer" or "bytes" by column name, in order."""

    table: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Insert:
    """An INSERT as far as VALUES: its table, and the names of the values in a row."""

    schema: Schema
    columns: tuple[str, ...]


def parse_insert(head: re.Match[bytes], tables: Mapping[str, Schema]) -> Insert:
    """Read a match of `INSERT`.

    Raises:
        ValueError: the table is not among `tables`, or lacks a column that the INSERT lists.
    """
    table = _unquoted(head["table"])
    if table not in tables:
        raise ValueError(f"an INSERT into {table} before its CREATE TABLE; the file is damaged")
    schema = tables[table]
    if head["columns"] is None:
        return Insert(schema, tuple(schema.columns))
    listed = tuple(_unquoted(name) for name in re.findall(_NAME, head["columns"]))
    if len(set(listed)) < len(listed) or not set(listed) <= schema.columns.keys():
        raise ValueError(
            f"an INSERT into table {table} lists the columns {', '.join(listed)}, but the table has "
            f"{', '.join(schema.columns)}; the file is damaged"
        )
    return Insert(schema, listed)


def parse_create(statement: bytes) -> Schema | None:
    """Read a whole CREATE statement; None if it creates no table.

    Raises:
        ValueError: no columns, two of one name, one without a name or a type, or no end of them.
    """
    head = _CREATE.match(statement)
    if head is None:
        return None
    table = _unquoted(head["table"])
    columns: dict[str, str] = {}
    for definition in _definitions(statement[head.end() :], table):
        if definition and definition[0].lower().decode("latin-1") in _NO_COLUMN:
            continue
        if len(definition) < 2 or re.fullmatch(_NAME, definition[0]) is None:
            raise ValueError(f"the table {table} has a column without a name or a type")
        name, sql_type = _unquoted(definition[0]), definition[1].lower().decode("latin-1")
        if name in columns:
            raise ValueError(f"the table {table} has two columns {name}")
        columns[name] = "integer" if sql_type in _INTEGER else "bytes"
    if not columns:
        raise ValueError(f"the table {table} has no columns")
    return Schema(table, columns)


def _definitions(text: bytes, table: str) -> list[list[bytes]]:
    """Split the parenthesis of CREATE TABLE at its commas, into tokens."""
    definitions: list[list[bytes]] = [[]]
    depth = 1
    for token in _TOKEN.finditer(text):
        if token["blank"] is not None:
            continue
        part = token[0]
        depth += (part == b"(") - (part == b")")
        if depth == 0:
            return definitions
        if part in (b"'", b'"', b"`"):
            break
        if part == b"," and depth == 1:
            definitions.append([])
        else:
            definitions[-1].append(part)
    raise ValueError(f"the table {table} has a quote or parenthesis that is never closed")


def _unquoted(name: bytes) -> str:
    text = name.decode("utf-8", "backslashreplace")
    quote = text[0]
    return text[1:-1].replace(2 * quote, quote) if quote in '`"' else text
