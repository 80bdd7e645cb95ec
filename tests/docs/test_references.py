"""No documented ghost: what the pages name is there. Links and anchors, options, keys, configs, tests, modules."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from pathlib import Path

import pages
import pytest
import typer
from test_commands import PLACEHOLDER, check_make

from gramrun.cli import app
from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config.loading import keys_of

CLI = typer.main.get_command(app)
KEYS = {key for kind in (RunConfig, BaselineConfig, PrepareConfig) for key in keys_of(kind)}
SECTIONS = {key.partition(".")[0] for key in KEYS if "." in key}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


@functools.cache
def anchors(path: Path) -> set[str]:
    """The anchors that a Markdown page's headings have where it is shown."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def links(page: str) -> list[tuple[str, Path, str]]:
    """(text, file, anchor) of each link of a page that stays in the repository."""
    found = []
    for text, target in LINK.findall(pages.read(page)):
        if not re.match(r"https?:", target):
            file, _, anchor = target.partition("#")
            path = (pages.ROOT / page).parent / file if file else pages.ROOT / page
            found.append((text, path.resolve(), anchor))
    return found


@pytest.mark.parametrize("page", pages.NAMES)
def test_links_lead_somewhere(page):
    for text, path, anchor in links(page):
        assert path.exists(), f"{page}: [{text}] leads to {path}"
        assert path.is_relative_to(pages.ROOT)
        if anchor:
            assert anchor in anchors(path), f"{page}: [{text}] leads to {path.name}#{anchor}"


@functools.cache
def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_tests_that_are_named_exist():
    cited = [
        (text, path) for page in pages.NAMES for text, path, _ in links(page) if text.startswith("test_")
    ]
    for name, path in cited:
        assert name in functions_of(path), f"{path.name} has no {name}"
    assert len(cited) > 40, "the mathematics names a test for each claim"


def test_every_proposition_of_the_paper_names_its_test():
    text = pages.read("docs/mathematics.md")
    rows = [row for row in text.split("\n") if row.startswith("|") and "](../tests/" in row]
    for number in (1, 2, 3, 5, 6):
        assert any(re.search(rf"Propositions? (\d and )?{number}\b", row) for row in rows), number


def test_every_estimator_has_a_section_with_tests():
    """A section a file of gramrun/gramian that holds an estimator, linked by its name."""
    text = pages.read("docs/mathematics.md")
    for path in (pages.ROOT / "gramrun" / "gramian").glob("*.py"):
        if re.search(r"^class \w+\(GramianEstimator\)", path.read_text(), flags=re.M):
            section = next(
                part for part in text.split("\n## ") if f"(../gramrun/gramian/{path.name})" in part
            )
            assert "](../tests/gramian/" in section, path.name


@pytest.mark.parametrize("page", pages.NAMES)
def test_commands_and_options_in_running_text_exist(page):
    """`gramrun …` and `--option` between backticks."""
    everywhere = {option for command in CLI.commands.values() for p in command.params for option in p.opts}
    everywhere |= {option for parameter in CLI.params for option in parameter.opts} | {"--help"}
    for span in pages.spans(page):
        words = span.split()
        if words[0] == "gramrun" and len(words) > 1 and not words[1].startswith("-"):
            assert words[1] in CLI.commands, f"{page}: `{span}`"
            known = {option for parameter in CLI.commands[words[1]].params for option in parameter.opts}
            options = {word for word in words if word.startswith("--")}
            assert options <= known | {"--help"}, f"{page}: `{span}`"
        elif re.fullmatch(r"--[a-z-]+", words[0]):
            assert words[0] in everywhere | OTHERS, f"{page}: `{span}`"
        elif words[0] == "make" and not PLACEHOLDER.search(span):
            check_make(words[1:])


# Options of `python -m experiments.reproduce` that the pages name by themselves; the test below finds them there.
OTHERS = {"--finished", "--retry", "--items"}


def test_options_of_experiments_exist():
    source = (pages.ROOT / "experiments" / "reproduce.py").read_text()
    for option in ("--finished", "--retry", "--items", "--profile", "--dry-run"):
        assert f'"{option}"' in source


@pytest.mark.parametrize("page", pages.NAMES)
def test_config_keys_that_are_named_exist(page):
    """`section.key`, `section.key=value`, `section.key: value`, and what stands after --set."""
    text = pages.read(page)
    named = set(re.findall(r"--set '?([a-z_.0-9]+)=", text)) - {"section.key"}
    for span in pages.spans(page):
        match = re.fullmatch(r"([a-z_]+)\.([a-z_]+)((=|:).*)?", span)
        if match and match[1] in SECTIONS and match[2] not in ("csv", "json"):  # gram_error.csv is a file
            named.add(f"{match[1]}.{match[2]}")
    for key in named:
        # dump.date and train.prior=… name a key, gram_error.estimators.0.alpha one of an entry.
        whole = key in KEYS or any(known.startswith(f"{key}.") for known in KEYS)
        assert whole or re.sub(r"\.\d+\..*", "", key) in KEYS, f"{page}: {key}"


@pytest.mark.parametrize("page", pages.NAMES)
def test_configs_modules_and_files_that_are_named_exist(page):
    for name in re.findall(r"configs/[a-z0-9-]+/[a-z-]+\.yaml", pages.read(page)):
        assert (pages.ROOT / name).is_file(), f"{page}: {name}"
    for span in pages.spans(page):
        if re.fullmatch(r"gramrun(\.\w+)+", span):
            assert exists(span), f"{page}: `{span}`"
        elif re.fullmatch(r"(gramrun|experiments|tests|configs|docs)/[\w./-]+\.\w+", span):
            assert (pages.ROOT / span).exists(), f"{page}: `{span}`"


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module, _, name = dotted.rpartition(".")
    try:
        importlib.import_module(dotted)
        return True
    except ModuleNotFoundError:
        return bool(module) and hasattr(importlib.import_module(module), name)


def test_readme_and_pages_do_not_say_the_same_twice():
    """No sentence of a dozen words stands on two pages."""
    seen: dict[str, str] = {}
    for page in pages.NAMES:
        text = re.sub(r"^(```.*?^```|\|.*)$", "", pages.read(page), flags=re.M | re.S)
        for sentence in re.split(r"(?<=[.:;!?])\s+|\n\n", text):
            words = " ".join(sentence.split())
            if len(words.split()) >= 12 and not words.startswith(("    ", "gramrun ")):
                assert seen.setdefault(words, page) == page, f"on {seen[words]} and {page}: {words}"
