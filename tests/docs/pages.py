"""The code blocks of the documentation's pages."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from helpers import ROOT

from experiments.reproduce import published

PAGES = ["README.md", "configs/README.md", "data/README.md", "experiments/README.md"]
PAGES += [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))]

# An indented block that begins with one of these holds commands.
PROGRAMS = {"gramrun", "make", "pip", "python", "torchrun"}


@dataclass(frozen=True)
class Block:
    """A code block: the line of its page where it starts, its language, and its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def file_name(self) -> str:
        """The file that the first line names, as in ``# mine.py``, or an empty string."""
        named = re.match(r"# (\S+\.(py|yaml))\n", self.text)
        return named[1] if named else ""

    def commands(self) -> Iterator[list[str]]:
        """The commands of a shell block, without comments and assignments of variables."""
        for line in self.text.replace("\\\n", " ").split("\n"):
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                del words[0]
            if words:
                yield words


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def published_files() -> dict[str, bytes]:
    """The measurements of results/reference by path."""
    return published.read(ROOT / published.FILE)


@cache
def verdicts() -> list[dict[str, Any]]:
    """The verdicts of the published report."""
    return json.loads(read("results/reference/claims.json"))["verdicts"]


def number(value: float, digits: int) -> str:
    """As the pages write it: 0.0616 as .0616."""
    return f"{value:.{digits}f}".removeprefix("0")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def line(page: str, start: str) -> list[str]:
    """The cells of the one row of the page's tables that begins with these."""
    (row,) = [text for text in page.splitlines() if text.startswith(start)]
    return cells(row)


def blocks(page: str) -> Iterator[Block]:
    """The fenced and the indented blocks of a page, in order."""
    lines = read(page).split("\n")
    at = 0
    while at < len(lines):
        if fence := re.fullmatch(r"```(\w*)", lines[at]):
            end = lines.index("```", at + 1)
            yield Block(page, at + 2, fence[1], "\n".join(lines[at + 1 : end]) + "\n")
            at = end
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            end = next(
                (i for i in range(at, len(lines)) if lines[i] and not lines[i].startswith(" ")), len(lines)
            )
            text = "\n".join(line[4:] for line in lines[at:end]).rstrip() + "\n"
            first = next((line for line in text.split("\n") if not line.startswith("#")), "")
            yield Block(page, at + 1, "sh" if first.split(" ")[0] in PROGRAMS else "text", text)
            at = end
        at += 1
