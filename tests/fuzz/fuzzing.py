"""Helpers of the fuzz tests: seeded inputs, damage to bytes, commands in this process, and what they may answer.

For any input the answer is a correct result or one clear line with exit code 1 or 2; never a traceback, a hang or
memory beyond a bound.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gramrun import cli
from gramrun.base.errors import LONGEST_LINE, GramrunError, one_line
from gramrun.base.files import read_json

SECONDS = 60  # an example that takes longer fails; the first call of a compiled function takes ten


def budgets(fast: int, slow: int) -> pytest.MarkDecorator:
    """The argument `examples`: a few in the fast suite, thousands in the slow one."""
    return pytest.mark.parametrize("examples", [fast, pytest.param(slow, marks=pytest.mark.slow)])


def inputs(examples: int) -> settings:
    """The same inputs on every machine; no database."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=1_000 * SECONDS,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


class Refused(Exception):
    """A user's error in place of a result; its text is the line."""


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result, or `Refused` for a user's error; any other exception is raised."""
    try:
        return function(*arguments, **options)
    except GramrunError as error:
        check_line(one_line(error))
        return Refused(str(error))


def command(*arguments: object) -> tuple[int, str, str]:
    """Run one command: exit code, stdout, stderr. Anything but a result or one line fails the test."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["gramrun", *map(str, arguments)]
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # warnings are further lines
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                cli.main()
                code = 0
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 0
    finally:
        sys.argv = before
        logging.disable(level)
    assert code in (0, 1, 2), (code, err.getvalue())
    if code:
        lines = [line for line in err.getvalue().splitlines() if "\r" not in line and line.strip()]
        assert len(lines) == 1, lines
        check_line(lines[0].removeprefix("gramrun: "))
    return code, out.getvalue(), err.getvalue()


def check_line(message: str) -> None:
    """A line that can be shown, without words that only a Python programmer knows."""
    assert message.strip(), "an empty message"
    assert len(message) <= LONGEST_LINE + 3, f"{len(message)} characters: {message[:200]}…"
    assert not re.search(r"[\n\r\x1b]", message), message
    python = r"Traceback|<class '|object at 0x|NoneType|KeyError|\bexpected str\b"
    assert not re.search(python, message), message


def unseal(folder: Path) -> None:
    """Remove the checksums from JSON files and manifests, so that checks behind the checksum are reached."""
    for file in folder.rglob("*.json"):
        content = read_json(file)
        if "kind" in content:  # a run's manifest
            content["files"] = {}
        file.write_text(json.dumps(content), encoding="utf-8")


def leaves_of(value: object, path: tuple = ()) -> list[tuple]:
    """The path of every value of a document of dictionaries and lists, inner nodes included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, child in inner for found in leaves_of(child, (*path, key)))]


def replaced(document: Any, path: tuple, value: object) -> Any:
    """`document`, changed in place: the value at `path` replaced, or removed where `value` is "remove"."""
    if not path:
        return value
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    if isinstance(value, str) and value == "remove":
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return document


# Damage to bytes.

JSON_TOKENS = rb'" { } [ ] , : null -1 1e999 NaN'.split()
_NUMBERS = b"0 -1 1 7 2147483647 2147483648 4294967296 9223372036854775808 1.5 1e5 1e400 nan inf NULL".split()
_NUMBERS += [b"9" * 40, b"''", b""]
_BYTES = [b"\0", b"\xff", b"\xc3", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\t"]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_KINDS = ["replace", "insert", "cut", "truncate", "repeat", "drop line", "repeat line", "number", "number"]


@dataclass(frozen=True)
class Change:
    """One edit of bytes at a position modulo their length."""

    kind: str
    position: int
    length: int
    token: bytes
    number: bytes

    def __call__(self, data: bytes) -> bytes:
        at = self.position % (len(data) + 1)
        if self.kind in ("drop line", "repeat line"):
            lines = data.split(b"\n")
            line = self.position % len(lines)
            lines[line : line + 1] = [] if self.kind == "drop line" else [lines[line]] * 2
            return b"\n".join(lines)
        if self.kind == "number":
            found = list(_NUMBER.finditer(data))
            if not found:
                return data
            match = found[self.position % len(found)]
            return data[: match.start()] + self.number + data[match.end() :]
        middle, rest = {
            "replace": (self.token[:1], data[at + 1 :]),
            "insert": (self.token, data[at:]),
            "cut": (b"", data[at + self.length :]),
            "truncate": (b"", b""),
            "repeat": (data[at : at + self.length], data[at:]),
        }[self.kind]
        return data[:at] + middle + rest


def changes(tokens: Sequence[bytes], most: int = 3) -> st.SearchStrategy[list[Callable[[bytes], bytes]]]:
    """Up to `most` changes; `tokens` are pieces of the format."""
    token = st.one_of(st.sampled_from([*tokens, *_BYTES]), st.binary(min_size=1, max_size=1))
    change = st.builds(
        Change,
        st.sampled_from(_KINDS),
        st.integers(0, 1 << 20),
        st.integers(1, 100),
        token,
        st.sampled_from(_NUMBERS),
    )
    return st.lists(change, min_size=1, max_size=most)


def changed(data: bytes, made: Sequence[Callable[[bytes], bytes]]) -> bytes:
    """`data` with all changes made."""
    for change in made:
        data = change(data)
    return data
