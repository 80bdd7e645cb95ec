"""A literal reader of mysqldump text, one byte at a time, for tests of what writes and reads it fast."""

import gzip
from pathlib import Path

UNESCAPED = {ord("0"): 0, ord("n"): 10, ord("r"): 13, ord("Z"): 26}


def parse_line(line: bytes) -> list[tuple[int | bytes | None, ...]]:
    """The rows of one INSERT line, byte by byte."""
    head = line.index(b" VALUES ") + len(b" VALUES ")
    rows, p = [], head
    while True:
        assert line[p : p + 1] == b"(", line[p : p + 20]
        row: list[int | bytes | None] = []
        while line[p : p + 1] != b")":
            p += 1
            if line[p : p + 1] == b"'":
                value = bytearray()
                p += 1
                while line[p : p + 1] != b"'":
                    if line[p : p + 1] == b"\\":
                        p += 1
                        value.append(UNESCAPED.get(line[p], line[p]))
                    else:
                        value.append(line[p])
                    p += 1
                row.append(bytes(value))
                p += 1
            else:
                end = p
                while line[end : end + 1] not in (b",", b")"):
                    end += 1
                text = line[p:end]
                row.append(None if text == b"NULL" else float(text) if set(text) & set(b".e") else int(text))
                p = end
            assert line[p : p + 1] in (b",", b")")
        rows.append(tuple(row))
        p += 1
        if line[p:] == b";\n":
            return rows
        assert line[p : p + 1] == b","
        p += 1


def inserts(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n") if line.startswith(b"INSERT")]


def read_table(path: Path) -> list[dict[str, int | float | bytes | None]]:
    """All rows of a plain or gzipped dump, by the column names of its CREATE TABLE."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    create = data[data.index(b"CREATE TABLE") : data.index(b"\n)")]
    names = [line.split(b"`")[1].decode() for line in create.splitlines()[1:] if line.startswith(b"  `")]
    return [dict(zip(names, row, strict=True)) for line in inserts(data) for row in parse_line(line)]
