"""The commands, examples, links and cited tests of the documentation.

Each page's commands run in order and in one folder, on the small corpora of `toys.py`. What needs a network, a GPU or
several processes is parsed only. Commands run in this process, which saves the import of torch.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import importlib.util
import io
import re
import subprocess

import pages
import pytest
import toys
import typer
from update_documentation import documented_keys

from gramrun.cli import app
from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config.loading import load_config

CLI = typer.main.get_command(app)
KINDS = {"prepare": PrepareConfig, "baseline": BaselineConfig}
PLACEHOLDER = re.compile(r"\b(DIR|FILE|RUN|CORPUS|CONFIG|COMMAND)\b")
DOWNLOADED = re.compile(r"wikipedia-(simple|fr|en)|enwik8|movielens-(10m|25m|32m|small|latest)|(fr|en)-scale")
SHELL = {"mkdir", "mv", "cp", "ls", "head"}
RUN = ["README.md", "docs/tutorial.md", "docs/how-to.md", "docs/python.md"]
FROM_NOTHING = {"README.md", "docs/tutorial.md"}  # the other pages assume prepared MovieLens corpora
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)[^()\s]*\)")
OPTIONAL = {"faiss", "usearch"}  # imported by examples, not installed with gramrun


def parse(words: list[str]) -> dict[str, object]:
    """Parse a gramrun command without running it; return its parameters."""
    given = CLI.commands[words[0]].make_context(words[0], words[1:]).params
    config, settings = given.get("config"), given.get("settings") or []
    if config and not PLACEHOLDER.search(f"{config} {settings}"):
        load_config(KINDS.get(words[0], RunConfig), pages.ROOT / str(config), settings)
    return given


def shortened(words: list[str], raw) -> list[str]:
    """The command with settings that make it small; a page's own number of epochs is replaced."""
    given = parse(words)
    if words[0] == "prepare":
        return [*words, *toys.prepare_settings(str(given["corpus"]), raw)]
    if words[0] == "gram-error":
        return [*words, "--set", "train.steps=20", "--set", "gram_error.every=10"]
    if words[0] == "train" and (given.get("resume") or "movielens" in str(given.get("config"))):
        epochs = f"train.epochs={2 if given.get('resume') else 1}"
        words = [re.sub(r"train\.epochs=\d+", epochs, word) for word in words]
        return words if epochs in words else [*words, "--set", epochs]
    return words


def check(words: list[str]) -> None:
    """Check a command that is not run: its make target, module or options exist."""
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", pages.read("Makefile"), re.M), words
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]), words
    elif "gramrun" in words:
        parse(words[words.index("gramrun") + 1 :])


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    toys.write_raw_files(folder)
    return folder


@pytest.mark.parametrize("page", RUN)
def test_commands_run(page, gramrun, raw, tmp_path, monkeypatch, caplog):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "configs").symlink_to(pages.ROOT / "configs")
    (tmp_path / "mine").symlink_to(raw / "mine")
    if page not in FROM_NOTHING:
        for name in ("movielens-100k", "movielens-1m"):
            assert gramrun("prepare", name, "--output", f"data/{name}", "--source", raw / name)[0] == 0
    ran, names = 0, {"__name__": "documentation"}  # the blocks of a page share their names
    printed = ""  # by the block before, if it is Python
    for block in pages.blocks(page):
        if block.language == "text" and printed:
            assert printed == block.text, f"{page}:{block.line}"
        printed = ""
        if block.language == "python" and block.file_name:
            (tmp_path / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            imported = set(re.findall(r"^(?:import|from) (\w+)", block.text, re.M))
            if all(importlib.util.find_spec(name) for name in imported & OPTIONAL):
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(compile(block.text, f"{page}:{block.line}", "exec"), names)
                printed = output.getvalue()
                ran += 1
        for words in block.commands() if block.language == "sh" else ():
            line = " ".join(words)
            if words[0] in SHELL:
                subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
            elif words[0] != "gramrun" or PLACEHOLDER.search(line) or DOWNLOADED.search(line):
                check(words)
            else:
                arguments = words[1:] if words[1].startswith("-") else shortened(words[1:], raw)
                code, _, err = gramrun(*arguments)
                assert code == 0, f"{page}:{block.line}: {line}\n{err}"
                ran += 1
    assert ran >= 5, "the page has hardly any command: its blocks are not recognised"


@pytest.mark.parametrize("page", [page for page in pages.PAGES if page not in RUN])
def test_commands_parse(page):
    for block in pages.blocks(page):
        for words in block.commands() if block.language == "sh" else ():
            if not PLACEHOLDER.search(" ".join(words)):
                check(words)


MODULES = [
    ".".join(path.relative_to(pages.ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((pages.ROOT / "gramrun").rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    assert not doctest.testmod(importlib.import_module(name)).failed


def test_links_lead_to_files_and_cited_tests_exist():
    for page in pages.PAGES:
        for text, target in LINK.findall(pages.read(page)):
            if target.startswith(("http:", "https:")):
                continue
            path = (pages.ROOT / page).parent / target
            assert path.exists(), f"{page}: [{text}] leads to {target}"
            if text.startswith("test_") and path.suffix == ".py":
                functions = {getattr(node, "name", "") for node in ast.walk(ast.parse(path.read_text()))}
                assert text in functions, f"{page}: {target} has no {text}"


@pytest.mark.parametrize("kind", [RunConfig, BaselineConfig, PrepareConfig])
def test_the_table_of_keys_is_up_to_date(kind):
    written = pages.read("configs/README.md").split(f"<!-- keys: {kind.__name__} -->\n")[1]
    assert written.split("<!-- end -->")[0] == documented_keys(kind), (
        "run python tests/update_documentation.py"
    )
