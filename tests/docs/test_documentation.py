"""Nothing is undocumented: every command, option and config key. (tests/docs holds the other way round: no ghosts.)"""

import re
from pathlib import Path

import pytest
import typer

from gramrun.cli import app
from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config.loading import documented_keys

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGS = (ROOT / "configs" / "README.md").read_text(encoding="utf-8")
CLI = typer.main.get_command(app)
LEFT_OUT = {"--help", "--show-completion"}


def options(command) -> set[str]:
    found = {option for parameter in command.params for option in getattr(parameter, "opts", [])}
    return {option for option in found if option.startswith("-")} - LEFT_OUT


@pytest.mark.parametrize("kind", [RunConfig, BaselineConfig, PrepareConfig])
def test_every_config_key_is_documented(kind):
    begin, end = f"<!-- keys: {kind.__name__} -->\n", "<!-- end -->"
    written = CONFIGS.split(begin)[1].split(end)[0]
    assert written == documented_keys(kind), "run: python tests/update_documentation.py"


@pytest.mark.parametrize("name", CLI.commands)
def test_every_command_has_a_row_with_every_option(name):
    [row] = re.findall(rf"^\| `gramrun {name}(?: [A-Z.]+)*` \|.*$", README, flags=re.M)
    assert options(CLI.commands[name]) <= set(re.findall(r"--[a-z-]+", row.rpartition(" | ")[2]))


def test_every_option_before_a_command_is_in_the_readme():
    assert {"--debug", "--version", "--install-completion"} == options(CLI)
    assert all(f"`gramrun {option}" in README for option in options(CLI))


@pytest.mark.parametrize("name", CLI.commands)
def test_every_command_helps_with_an_example(name):
    """The example parses as that command: it is no ghost either."""
    text = CLI.commands[name].callback.__doc__
    [example] = re.findall(r"^ *Example: gramrun (.+)$", text, flags=re.M)
    words = re.findall(r'"[^"]*"|\S+', example)
    assert words[0] == name
    CLI.commands[name].make_context(name, [word.strip('"') for word in words[1:]])
