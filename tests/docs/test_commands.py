"""Every command of the documentation runs, at toy size (`toys.py` says what is exchanged), or is parsed at least.

The blocks of a page run in their order and in one folder, as a reader types them. In-process: a command of its
own takes seconds for importing torch. The tutorial runs verbatim in `test_tutorial.py`.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pages
import pytest
import toys
import typer
from pages import Block, Command

from gramrun.cli import app
from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config.loading import keys_of, load_config
from gramrun.data.registry import CORPORA

CLI = typer.main.get_command(app)
PROJECT = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())["project"]
PLACEHOLDER = re.compile(r"\b(DIR|FILE|RUN|CORPUS|CONFIG|COMMAND)\b")
FAR = re.compile(r"wikipedia-(simple|fr|en)|enwik8|movielens-(10m|25m|32m|small|latest)|(fr|en)-scale")
# Programs that a search of embeddings may use, and pip may install; none is needed by gramrun.
OPTIONAL = {"faiss": "faiss-cpu", "usearch": "usearch"}
FROM_NOTHING = {"README.md", "docs/tutorial.md"}  # the other pages are for readers with MovieLens at hand
SHELL = {"mkdir", "mv", "cp", "ls", "head"}


def arguments(command: Command) -> list[str]:
    """The arguments of gramrun, without what is written before it."""
    return list(command.words[command.words.index("gramrun") + 1 :])


def parse(words: list[str]) -> dict[str, object]:
    """Parse as gramrun would, without running: an unknown command, option or key is an error."""
    command = CLI.commands[words[0]]
    given = command.make_context(words[0], words[1:], resilient_parsing=False).params
    if given.get("corpus") and not PLACEHOLDER.search(str(given["corpus"])):
        assert given["corpus"] in CORPORA, words
    kind = {"prepare": PrepareConfig, "baseline": BaselineConfig}.get(words[0], RunConfig)
    keys = keys_of(kind)
    for setting in given.get("settings") or []:
        key = setting.partition("=")[0]
        assert key in keys or any(known.startswith(f"{key}.") for known in keys), setting
    config = given.get("config")
    if config and not PLACEHOLDER.search(str(config)):
        load_config(kind, pages.ROOT / str(config), given.get("settings") or [])
    return given


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (pages.ROOT / "Makefile").read_text(), flags=re.M)
    assert words[0] in targets
    assert all(re.fullmatch("[A-Z]+=.+", word) for word in words[1:])


def check_pip(words: list[str]) -> None:
    assert words[0] == "install"
    for word in words[1:]:
        extras = re.fullmatch(r"\.\[([a-z,]+)\]", word)
        if extras:
            assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])
        elif word not in (".", "-c"):
            assert word in OPTIONAL.values() or (pages.ROOT / word).is_file(), word


def check_python(words: list[str]) -> None:
    assert words[0] == "-m"
    if words[1].startswith("experiments"):
        assert importlib.util.find_spec(words[1]), words[1]
        sources = "".join(path.read_text() for path in (pages.ROOT / "experiments").rglob("*.py"))
        assert all(f'"{word}"' in sources for word in words[2:] if word.startswith("--")), words
    else:
        assert words[1] in ("pytest", "venv"), words


def check_torchrun(words: list[str]) -> None:
    assert words[-1 - words[::-1].index("-m") :][:2] == ["-m", "gramrun"]
    parse(words[words.index("gramrun") + 1 :])


CHECKED: dict[str, Callable[[list[str]], None]] = {
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "torchrun": check_torchrun,
    "tensorboard": lambda words: None,
}


def toy(words: list[str], raw: Path) -> list[str]:
    """The same command at toy size."""
    given = parse(words)
    name, own = words[0], " ".join(words)
    if name == "prepare":
        return [*words, *toys.prepare_settings(str(given["corpus"]), raw)]
    small = []
    if name in ("train", "gram-error") and "movielens" in str(given.get("config")):
        small = ["train.epochs=1"] if name == "train" else ["train.steps=20", "gram_error.every=10"]
    elif given.get("resume"):
        small = ["train.epochs=2"]
    for setting in small:
        key = setting.partition("=")[0]
        if key not in own:
            words += ["--set", setting]
        elif key == "train.epochs":
            words = [re.sub(r"train\.epochs=\d+", setting, word) for word in words]
    return words


class Reader:
    """Types the blocks of a page, in a folder of his own.

    Attributes:
        ran, parsed, waiting: how many commands were run, were only parsed, and need a program that is not installed.
    """

    def __init__(
        self, page: str, gramrun: Callable[..., tuple[int, str, str]], folder: Path, raw: Path
    ) -> None:
        self.gramrun, self.folder, self.raw = gramrun, folder, raw
        self.ran = self.parsed = self.waiting = 0
        (folder / "configs").symlink_to(pages.ROOT / "configs")
        (folder / "mine").symlink_to(raw / "mine")
        if page not in FROM_NOTHING:
            (folder / "data").mkdir()
            for name in ("movielens-100k", "movielens-1m"):
                assert gramrun("prepare", name, "--output", f"data/{name}", "--source", raw / name)[0] == 0

    def read(self, block: Block) -> None:
        if block.file_name and block.language == "python":
            (self.folder / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self.execute(block)
        elif block.language == "sh":
            for command in pages.commands(block):
                self.type(command)

    def type(self, command: Command) -> None:
        words = list(command.words)
        while re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        program, rest = words[0], words[1:]
        if program in CHECKED:
            CHECKED[program](rest)
            self.parsed += 1
        elif program in SHELL:
            subprocess.run([program, *rest], cwd=self.folder, check=True, capture_output=True)
            self.ran += 1
        else:
            assert program == "gramrun", f"{command.place}: nobody knows how to run {program}"
            self.run_gramrun(command, rest)

    def run_gramrun(self, command: Command, words: list[str]) -> None:
        if words[0].startswith("-"):
            assert self.gramrun(*words)[0] == 0, command.place
            self.ran += 1
        elif PLACEHOLDER.search(command.line) or FAR.search(command.line):
            parse(words)
            self.parsed += 1
        else:
            code, _, err = self.gramrun(*toy(words, self.raw))
            assert code == 0, f"{command.place}: {command.line}\n{err}"
            self.ran += 1

    def execute(self, block: Block) -> None:
        needed = [
            name for name in OPTIONAL if f"import {name}\n" in block.text or f"from {name}." in block.text
        ]
        if not all(importlib.util.find_spec(name) for name in needed):
            self.waiting += 1
            return
        code = compile(block.text, f"{block.page}:{block.line}", "exec")
        exec(code, {"__name__": "documentation"})
        self.ran += 1


@pytest.fixture(scope="session")
def raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    toys.write_raw_files(folder)
    return folder


# How many commands and pieces of Python each page has at least: a page that is read wrongly would pass as empty.
LEAST = {
    "README.md": 12,
    "configs/README.md": 0,
    "data/README.md": 0,
    "docs/how-to.md": 30,
    "docs/tutorial.md": 10,
}


@pytest.mark.parametrize("page", pages.NAMES)
def test_commands_of(page, gramrun, raw, tmp_path, monkeypatch, caplog):
    monkeypatch.syspath_prepend(tmp_path)
    reader = Reader(page, gramrun, tmp_path, raw)
    for block in pages.blocks(page):
        reader.read(block)
    total = reader.ran + reader.parsed + reader.waiting
    assert total >= LEAST.get(page, 0)
    print(f"{page}: {reader.ran} ran, {reader.parsed} parsed, {reader.waiting} wait")


@pytest.mark.parametrize("page", pages.NAMES)
def test_every_language_is_known(page):
    """A fence of another name would be read past."""
    assert {block.language for block in pages.blocks(page)} <= {"sh", "python", "text", "yaml", "json"}
