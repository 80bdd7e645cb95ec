"""The table of faults says what the tests do."""

import ast
import re
from pathlib import Path

import test_damage
import test_kills

FOLDER = Path(__file__).parent
TABLE = [
    line for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")
][2:]


def cases_of(file: Path) -> set[str]:
    functions = ast.parse(file.read_text(encoding="utf-8")).body
    return {f.name for f in functions if isinstance(f, ast.FunctionDef) and f.name.startswith("test_")}


def named() -> set[tuple[Path, str]]:
    """Every test that the table names; a name without a file belongs to the file before it."""
    found = set()
    for row in TABLE:
        file = None
        for link, name in re.findall(r"\]\(([^)]+\.py)\)|`::(\w+)`", row):
            file = (FOLDER / link).resolve() if link else file
            if name:
                found.add((file, name))
    return found


def test_every_test_that_is_named_exists():
    assert len(named()) > 30
    assert not [(file.name, name) for file, name in named() if name not in cases_of(file)]


def test_every_test_of_this_folder_is_named():
    here = {(file.resolve(), name) for file in FOLDER.glob("test_*.py") for name in cases_of(file)}
    assert {(file.name, name) for file, name in here - named()} == {
        ("test_table.py", "test_every_test_that_is_named_exists"),
        ("test_table.py", "test_every_test_of_this_folder_is_named"),
        ("test_table.py", "test_the_numbers_are_the_tests_own"),
    }


def test_the_numbers_are_the_tests_own():
    def row(test: str) -> str:
        return next(row for row in TABLE if test in row)

    assert f"fast {test_kills.KILLS_IN_THE_FAST_SUITE}, all {test_kills.KILLS} of each;" in row(
        "](test_kills.py)"
    )
    bits = f"fast {test_damage.POSITIONS_IN_THE_FAST_SUITE}, all {test_damage.POSITIONS} of each of {len(test_damage.USED)} files"
    assert bits in row("test_no_byte_changes_what_is_read")
    assert f"4 damages of {len(test_damage.USED)} files" in row(
        "test_damage_is_named_by_whoever_uses_the_file"
    )
