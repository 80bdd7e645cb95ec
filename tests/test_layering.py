"""The arrows between rooms, read from the imports themselves."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gramrun"
MODULES = sorted(PACKAGE.rglob("*.py"))
FREE = {
    "gramrun.errors",
    "gramrun.files",
    "gramrun.compiled",
    "gramrun.processes",
    "gramrun.schema",
    "gramrun.locks",
}  # what every room may use


def imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def gramrun_imports(path: Path) -> set[str]:
    return {name for name in imports(path) if name.startswith("gramrun") and name not in FREE | {"gramrun"}}


@pytest.mark.parametrize("room", ["data", "model", "gramian"])
def test_rooms_import_only_themselves(room):
    for path in (PACKAGE / room).glob("*.py"):
        outside = {n for n in gramrun_imports(path) if not n.startswith(f"gramrun.{room}")}
        outside = {n for n in outside if not n.startswith(tuple(FREE))}
        assert not outside, f"{path.name} imports {outside}"


@pytest.mark.parametrize("module", ["metrics.py", "ranking.py", "negatives.py", "bounds.py"])
def test_measures_import_no_room(module):
    free = (*FREE, "gramrun.negatives")  # the part of ranking that does the arithmetic
    assert not {n for n in gramrun_imports(PACKAGE / module) if not n.startswith(free)}


@pytest.mark.parametrize(
    "pattern", ["plotting/*.py", "figures.py", "bounds.py", "runs.py", "results.py", "config/*.py"]
)
def test_no_torch_where_no_model_is(pattern):
    paths = list(PACKAGE.glob(pattern))
    assert paths
    for path in paths:
        assert not {n for n in imports(path) if n.split(".")[0] == "torch"}, path


def test_the_command_line_is_on_top():
    for path in MODULES:
        if path.parent.name != "cli" and path.name != "__main__.py":
            assert not {n for n in imports(path) if n.startswith("gramrun.cli")}, path
        assert not {n for n in imports(path) if n.startswith("experiments")}, path


def test_files_are_short_enough_to_read():
    long = {
        path.name: n for path in MODULES if (n := len(path.read_text(encoding="utf-8").splitlines())) > 340
    }
    assert not long
