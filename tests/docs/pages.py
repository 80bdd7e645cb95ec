"""The pages of documentation as the tests of this folder read them: their blocks, and the commands in these."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "configs/README.md", "data/README.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]

# What an indented block must begin with to be one of commands: README's blocks name no language.
PROGRAMS = {"gramrun", "make", "pip", "python", "torchrun", "OMP_NUM_THREADS=1"}


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: the page's path from the root.
        line: the number of its first line of code.
        language: of its fence, such as ``sh``, ``python`` or ``text``.
        text: what stands in it.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        """The file that the block is, where its first line names one."""
        named = re.match(r"# (\S+\.(py|yaml))\n", self.text)
        return named[1] if named else None


@dataclass(frozen=True)
class Command:
    """One command of a block.

    Attributes:
        place: where it stands.
        words: the program and its arguments.
    """

    place: str
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        return shlex.join(self.words)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, fenced or indented by four blanks, in order."""
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


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block of shell: one a line, but for lines that a backslash continues."""
    whole = ""
    for number, line in enumerate(block.text.split("\n"), block.line):
        whole += line
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        if words := shlex.split(whole, comments=True):
            yield Command(f"{block.page}:{number}", tuple(words))
        whole = ""


def spans(page: str) -> Iterator[str]:
    """What stands in single backticks, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S)
    yield from re.findall(r"`([^`\n]+)`", text)
