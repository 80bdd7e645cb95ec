"""What ruff does not look at: a class's Args are its constructor's, its Attributes are attributes that it has."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLASSES = [
    pytest.param(node, id=f"{path.relative_to(ROOT)}:{node.name}")
    for path in sorted((ROOT / "gramrun").rglob("*.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ClassDef)
    and not node.name.startswith("_")
    and re.search(r"^(Args|Attributes):$", ast.get_docstring(node) or "", re.M)
]


def named(node: ast.ClassDef, section: str) -> list[str]:
    """The names that a section of the class's docstring describes, in its order."""
    found = re.search(rf"^{section}:\n((?: +.*\n?|\n)*)", ast.get_docstring(node) or "", re.M)
    entries = re.findall(r"^ {4}(\w+(?:, \w+)*): ", found[1], re.M) if found else []
    return [name for entry in entries for name in entry.split(", ")]


def fields(node: ast.ClassDef) -> list[str]:
    """The public annotated names of the class's body: those of a dataclass, and of buffers and constants."""
    declared = [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]
    return [name for name in declared if not name.startswith("_")]


def assigned(node: ast.ClassDef) -> set[str]:
    """What its methods assign to self, and its properties."""
    inside = list(ast.walk(node))
    own = {
        item.attr for item in inside if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)
    }
    return own | {item.name for item in inside if isinstance(item, ast.FunctionDef)}


def parameters(node: ast.ClassDef) -> list[str]:
    """Those of `__init__`, or the fields where a dataclass makes it."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            return [a.arg for a in [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs]][1:]
    return fields(node)


def is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


def test_there_are_classes_to_look_at():
    assert len(CLASSES) > 40


@pytest.mark.parametrize("node", CLASSES)
def test_args_are_the_constructor_s(node):
    if written := named(node, "Args"):
        assert written == parameters(node)


@pytest.mark.parametrize("node", CLASSES)
def test_attributes_are_there_and_all_fields_of_a_dataclass_are_named(node):
    written = named(node, "Attributes")
    assert set(written) <= set(fields(node)) | assigned(node)
    if written and is_dataclass(node):
        assert written == fields(node)
