"""The documentation says what the code does: every key, every command, every file that is named."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from gramrun.cli import app
from gramrun.config import BaselineConfig, PrepareConfig, RunConfig
from gramrun.config_loading import documented_keys

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGS = (ROOT / "configs" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [RunConfig, BaselineConfig, PrepareConfig])
def test_every_config_key_is_documented(kind):
    begin, end = f"<!-- keys: {kind.__name__} -->\n", "<!-- end -->"
    written = CONFIGS.split(begin)[1].split(end)[0]
    assert written == documented_keys(kind), "run: python tests/update_documentation.py"


def test_every_command_and_option_is_in_the_readme():
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"gramrun {name}" in README, name
        for parameter in command.params:
            for option in getattr(parameter, "opts", []):
                if option.startswith("--") and option not in (
                    "--help",
                    "--install-completion",
                    "--show-completion",
                ):
                    assert option in README, f"{name} {option}"


def test_files_that_are_named_exist():
    for text, folder in ((README, ROOT), (CONFIGS, ROOT)):
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (folder / link).exists() or (folder / "configs" / link).exists(), link


def test_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert set(re.findall(r"make ([a-z-]+)", README)) - {"reproduce"} <= targets | {"it", "up"}


def test_every_config_of_the_readme_exists():
    for name in re.findall(r"configs/[a-z0-9-]+/[a-z-]+\.yaml", README):
        assert (ROOT / name).exists(), name
