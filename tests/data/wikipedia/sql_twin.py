"""A slow, literal reader of mysqldump files: one byte at a time, the whole file in memory.

It shares no code with `gramrun.data.wikipedia.sql_dump`, and is what that is held against.
"""

from __future__ import annotations

BLANKS = b" \t\n\r\v\f"
DIGITS = b"0123456789"
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
NAME_BYTES = LETTERS + DIGITS + b"_$" + bytes(range(128, 256))
PASSED_OVER = ["alter", "analyze", "begin", "change", "commit", "drop", "flush", "lock", "rollback"]
PASSED_OVER += ["set", "start", "unlock", "use"]
NO_COLUMN = ["primary", "key", "index", "unique", "fulltext", "spatial", "constraint", "foreign"]
NO_COLUMN += ["check", "period"]
INTEGERS = ["tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bool", "boolean", "serial"]
ESCAPES = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a"}


class Refused(Exception):
    pass


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.tables: dict[str, dict[str, str]] = {}

    def peek(self, count: int = 1) -> bytes:
        return self.data[self.at : self.at + count]

    def blanks(self) -> None:
        while self.peek() and self.peek() in BLANKS:
            self.at += 1

    def take(self, expected: bytes) -> None:
        if self.peek(len(expected)) != expected:
            raise Refused(f"{expected!r} expected at {self.at}, not {self.peek(20)!r}")
        self.at += len(expected)

    def run_of(self, allowed: bytes) -> bytes:
        start = self.at
        while self.peek() and self.peek() in allowed:
            self.at += 1
        return self.data[start : self.at]

    def word(self) -> str:
        start, word = self.at, self.run_of(LETTERS + b"_")
        self.at = start
        return word.decode().lower()

    def keyword(self, *words: str) -> bool:
        if self.word() not in words:
            return False
        self.run_of(LETTERS + b"_")
        self.blanks()
        return True

    def name(self) -> str:
        quote = self.peek()
        if quote in (b"`", b'"'):
            self.at += 1
            name = b""
            while True:
                if not self.peek():
                    raise Refused("a name without an end")
                if self.peek(2) == 2 * quote:
                    self.at += 2
                    name += quote
                elif self.peek() == quote:
                    self.at += 1
                    break
                else:
                    name += self.peek()
                    self.at += 1
        else:
            name = self.run_of(NAME_BYTES)
        if not name:
            raise Refused(f"no name at {self.at}")
        return name.decode("utf-8", "backslashreplace")

    def qualified_name(self) -> str:
        name = self.name()
        self.blanks()
        if self.peek() == b".":
            self.at += 1
            self.blanks()
            name = self.name()
            self.blanks()
        return name

    def string(self) -> bytes:
        quote = self.peek()
        self.at += 1
        value = b""
        while True:
            byte = self.peek()
            if not byte:
                raise Refused("a string without an end")
            self.at += 1
            if byte == quote:
                if self.peek() != quote:
                    if not self.peek():
                        raise Refused("the file ends behind a string")
                    return value
                self.at += 1
                value += quote
            elif byte == b"\\":
                escaped = self.peek()
                if not escaped:
                    raise Refused("a string without an end")
                self.at += 1
                value += b"\\" + escaped if escaped in b"%_" else ESCAPES.get(escaped, escaped)
            else:
                value += byte

    def number(self) -> bytes:
        start = self.at
        if self.peek() == b"-":
            self.at += 1
        digits = self.run_of(DIGITS)
        if self.peek() == b".":
            self.at += 1
            digits += self.run_of(DIGITS)
        if not digits:
            raise Refused(f"no number at {start}")
        if self.peek() in (b"e", b"E"):
            self.at += 1
            if self.peek() in (b"-", b"+"):
                self.at += 1
            if not self.run_of(DIGITS):
                raise Refused("no exponent")
        return self.data[start : self.at]

    def value(self, kind: str):
        if self.peek(4).lower() == b"null":
            self.at += 4
            return None
        if kind == "integer":
            start = self.at
            if self.peek() == b"-":
                self.at += 1
            if not self.run_of(DIGITS):
                raise Refused("no integer")
            value = int(self.data[start : self.at])
            if not -(2**63) <= value < 2**63:
                raise Refused("beyond 64 bits")
            return value
        if self.peek(7).lower() == b"_binary":
            self.at += 7
            self.blanks()
            if self.peek() != b"'":
                raise Refused("no string after _binary")
        if self.peek() in (b"'", b'"'):
            return self.string()
        if self.peek(2) == b"0x":
            self.at += 2
            digits = self.run_of(DIGITS + b"abcdefABCDEF")
            if not digits or len(digits) % 2:
                raise Refused("no whole bytes")
            return bytes.fromhex(digits.decode())
        return self.number()

    def row(self, kinds: list[str]) -> list:
        self.take(b"(")
        values = []
        for column, kind in enumerate(kinds):
            if column:
                self.take(b",")
            self.blanks()
            values.append(self.value(kind))
            self.blanks()
        self.take(b")")
        return values

    def comment(self) -> bytes | None:
        """Pass over a comment, if one stands here."""
        start = self.at
        after = self.data[self.at + 2 : self.at + 3]
        if self.peek() == b"#" or (self.peek(2) == b"--" and after <= b" "):
            while self.peek() not in (b"", b"\n"):
                self.at += 1
        elif self.peek(2) == b"/*":
            end = self.data.find(b"*/", self.at + 2)
            if end < 0:
                raise Refused("a comment without an end")
            self.at = end + 2
        else:
            return None
        return self.data[start : self.at]

    def end_of_statement(self) -> None:
        while self.peek() != b";":
            if not self.peek():
                raise Refused("a statement without an end")
            if self.comment() is not None:
                continue
            if self.peek() in (b"'", b'"'):
                self.string()
            elif self.peek() == b"`":
                self.at = self.data.find(b"`", self.at + 1) + 1
                if self.at == 0:
                    raise Refused("a name without an end")
            else:
                self.at += 1
        self.at += 1

    def create(self) -> str | None:
        start = self.at
        self.end_of_statement()
        behind = self.at
        inner = Reader(self.data[start:behind])
        table = inner.create_table()
        if table is not None and self.tables.setdefault(table, inner.tables[table]) != inner.tables[table]:
            raise Refused("created twice")
        self.at = behind
        return table

    def create_table(self) -> str | None:
        self.keyword("create")
        if self.keyword("or"):
            self.keyword("replace")
        self.keyword("temporary")
        if not self.keyword("table"):
            return None
        if self.keyword("if"):
            self.keyword("not")
            self.keyword("exists")
        try:
            table = self.qualified_name()
        except Refused:
            return None
        if self.peek() != b"(":
            return None
        self.at += 1
        columns: dict[str, str] = {}
        for definition in self.definitions():
            if definition and definition[0].lower().decode("latin-1") in NO_COLUMN:
                continue
            if len(definition) < 2:
                raise Refused("no column")
            name, sql_type = Reader(definition[0]).name(), definition[1].lower().decode("latin-1")
            if name in columns:
                raise Refused("two columns of one name")
            columns[name] = "integer" if sql_type in INTEGERS else "bytes"
        if not columns:
            raise Refused("no columns")
        self.tables[table] = columns
        return table

    def definitions(self) -> list[list[bytes]]:
        definitions: list[list[bytes]] = [[]]
        depth = 1
        while self.peek():
            self.blanks()
            if self.comment() is not None:
                continue
            start = self.at
            if self.peek() == b"'":
                self.string()
            elif self.peek() in (b"`", b'"') or (self.peek() and self.peek() in NAME_BYTES):
                self.name()
            else:
                self.at += 1
            token = self.data[start : self.at]
            depth += (token == b"(") - (token == b")")
            if depth == 0:
                return definitions
            if token == b"," and depth == 1:
                definitions.append([])
            else:
                definitions[-1].append(token)
        raise Refused("no end of the columns")

    def insert_head(self) -> tuple[str, list[str] | None]:
        self.keyword("insert", "replace")
        while self.keyword("low_priority", "delayed", "high_priority", "ignore"):
            pass
        self.keyword("into")
        table = self.qualified_name()
        listed = None
        if self.peek() == b"(":
            listed = []
            while self.peek() != b")":
                self.at += 1
                self.blanks()
                listed.append(self.name())
                self.blanks()
                if self.peek() not in (b",", b")"):
                    raise Refused("no list of columns")
            self.at += 1
            self.blanks()
        if self.run_of(LETTERS + b"_").lower() != b"values":
            raise Refused("no VALUES")
        if table not in self.tables:
            raise Refused("no CREATE TABLE")
        return table, listed


def read(data: bytes, columns: list[str], table: str | None = None) -> list[tuple]:
    """All rows, with None for NULL.

    Raises:
        Refused: the file is not whole, or not a dump.
    """
    reader = Reader(data)
    rows: list[tuple] = []
    has_header = is_completed = False
    while True:
        reader.blanks()
        if not reader.peek():
            break
        comment = reader.comment()
        if comment is not None:
            text = comment[2:].lstrip(BLANKS)
            if comment.startswith(b"--") and text != comment[2:]:
                for maker in (b"MySQL dump ", b"MariaDB dump "):
                    version = text[len(maker) :]
                    old = version[:1] in [b"%d" % digit for digit in range(10)] and version[1:2] == b"."
                    has_header |= text.startswith(maker) and not old
                has_header |= text.startswith(b"mysqldump")
                is_completed |= text.startswith(b"Dump completed")
            continue
        if reader.peek() == b";":
            reader.at += 1
            continue
        is_completed = False
        word = reader.word().partition("_")[0]
        if word in ("insert", "replace"):
            into, listed = reader.insert_head()
            wanted = table if table is not None else next(iter(reader.tables))
            schema = reader.tables[into]
            names = list(schema) if listed is None else listed
            asked = columns if into == wanted else []
            if len(set(names)) < len(names) or not set(asked) <= set(names) <= set(schema):
                raise Refused("other columns")
            kinds = [schema[name] if name in asked else "any" for name in names]
            while True:
                reader.blanks()
                values = reader.row(kinds)
                if into == wanted:
                    rows.append(tuple(values[names.index(name)] for name in columns))
                reader.blanks()
                if reader.peek() == b";":
                    reader.at += 1
                    break
                reader.take(b",")
        elif word == "create":
            reader.create()
        elif word in PASSED_OVER:
            reader.end_of_statement()
        else:
            raise Refused(f"no statement at {reader.at}: {reader.peek(20)!r}")
    if has_header and not is_completed:
        raise Refused("cut off")
    if not reader.tables or (table is not None and table not in reader.tables):
        raise Refused("no such table")
    if not set(columns) <= set(reader.tables[table or next(iter(reader.tables))]):
        raise Refused("no such column")
    return rows
