"""What every fuzz test needs: how many inputs, the command line in this process, and what it may answer."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from gramrun import cli
from gramrun.base.errors import LONGEST_LINE, GramrunError, one_line
from gramrun.base.files import read_json

# A hang fails an example after this long; the slowest honest one, the first of a compiled loop, takes ten.
SECONDS = 60


def budgets(fast: int, slow: int) -> pytest.MarkDecorator:
    """How many inputs the argument `examples` asks for: a few always, thousands where slow tests run."""
    return pytest.mark.parametrize("examples", [fast, pytest.param(slow, marks=pytest.mark.slow)])


def inputs(examples: int) -> settings:
    """The same `examples` inputs on every machine, none of them kept on the disk."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=1_000 * SECONDS,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )


class Refused(Exception):
    """One clear line instead of a result; its text is the line."""


def outcome(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The result, or the `Refused` of a user's error; what is neither is a bug and is raised."""
    try:
        return function(*arguments, **options)
    except GramrunError as error:
        check_line(one_line(error))
        return Refused(str(error))


def command(*arguments: object) -> tuple[int, str, str]:
    """Run one command: exit code, stdout, stderr. Whatever is no answer to a user fails the test."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["gramrun", *map(str, arguments)]
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # warnings are lines of their own before the last
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
        check_line(lines[-1].removeprefix("gramrun: "))
        assert "Traceback" not in err.getvalue()
        assert len(lines) == 1, lines
    return code, out.getvalue(), err.getvalue()


def unseal(folder: Path) -> None:
    """Take the checksums from a folder's JSON files and run manifests, as versions before these wrote them.

    Else each change would be refused for its checksum, and nothing behind that would be tried.
    """
    for file in folder.rglob("*.json"):
        content = read_json(file)
        if "kind" in content:  # a run's
            content["files"] = {}
        file.write_text(json.dumps(content), encoding="utf-8")


def check_line(message: str) -> None:
    """What is wrong, where and what to do, in one line that can be shown."""
    assert message.strip(), "an empty message"
    assert len(message) <= LONGEST_LINE + 3, f"{len(message)} characters: {message[:200]}…"
    assert not re.search(r"[\n\r\x1b]", message), message
    assert "Traceback" not in message
    # Words of Python's, which tell a user nothing.
    assert not re.search(r"<class '|object at 0x|NoneType|KeyError|\bexpected str\b", message), message


def leaves_nothing(folder: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    """The outcome; where it is a refusal, `folder` holds what it held before."""
    before = sorted(path.name for path in folder.iterdir())
    result = outcome(function, *arguments)
    if isinstance(result, Refused):
        assert sorted(path.name for path in folder.iterdir()) == before
    return result
