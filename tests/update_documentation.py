"""Rewrite the tables of config keys in configs/README.md: python tests/update_documentation.py."""

import re
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

from gramrun.config import BaselineConfig, Interval, PrepareConfig, RunConfig, TimedInterval
from gramrun.config.loading import keys_of, plain

PATH = Path(__file__).parents[1] / "configs" / "README.md"

TYPE_NAMES = {
    Interval: "steps, or like `1 epoch`",
    TimedInterval: "steps, or like `1 epoch`, `5 minutes`",
    Path: "path",
    int: "whole number",
    float: "number",
    bool: "true, false",
    str: "text",
}
SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def documented_keys(kind):
    """A Markdown table of every key: its type and range, its default, its description."""
    lines = ["| key | values | default | what it is |", "|---|---|---|---|"]
    for key, field in keys_of(kind).items():
        default = "**required**" if field.is_required() else f"`{plain(field.default)}`"
        limits = [
            f"{sign} {getattr(item, name)}"
            for item in field.metadata
            for name, sign in SIGNS.items()
            if getattr(item, name, None) is not None
        ]
        values = ", ".join([type_name(field.annotation), *limits])
        lines.append(f"| `{key}` | {values} | {default} | {field.description or ''} |")
    return "\n".join(lines) + "\n"


def type_name(annotation):
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if get_origin(annotation) is Annotated:
        return type_name(arguments[0])
    if get_origin(annotation) is tuple:
        return f"list of {type_name(arguments[0])}"
    if get_origin(annotation) is dict:
        return "table of steps and numbers"
    if arguments:
        return " or ".join("null" if part is type(None) else type_name(part) for part in arguments)
    return TYPE_NAMES.get(annotation, f"{annotation.__name__.removesuffix('Section').lower()} sections")


if __name__ == "__main__":
    text = PATH.read_text(encoding="utf-8")
    for kind in (RunConfig, BaselineConfig, PrepareConfig):
        begin = f"<!-- keys: {kind.__name__} -->\n"
        pattern = re.escape(begin) + r".*?(?=<!-- end -->)"
        text = re.sub(pattern, lambda _: begin + documented_keys(kind), text, flags=re.S)  # noqa: B023
    PATH.write_text(text, encoding="utf-8")
