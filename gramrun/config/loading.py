"""Configurations from YAML files and dotted overrides, validated in one place.

An unknown key is an error that names the key's path, the file and line, and the nearest valid key. An
override (``--set estimator.alpha=0.01``) is parsed as YAML and goes through the same validation.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gramrun.base.errors import ConfigError
from gramrun.config import Interval, Section, TimedInterval
from gramrun.config.shipped import find_config
from gramrun.config.yaml_text import LARGEST_TEXT, YamlError, parse_yaml

Config = TypeVar("Config", bound=Section)


def load_config(kind: type[Config], file: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read, override and validate a configuration.

    Args:
        kind: `RunConfig`, `BaselineConfig` or `PrepareConfig`.
        file: a YAML file or the name of a shipped one (`find_config`), or None for the defaults.
        overrides: ``dotted.key=value`` settings, applied in order; values are parsed as YAML.

    Raises:
        ConfigError: one line that names the key, the place and the remedy.

    Example:
        >>> from gramrun.config import PrepareConfig
        >>> load_config(PrepareConfig, None, ["split.seed=3"]).split.seed
        3
        >>> load_config(PrepareConfig, None, ["split.sed=3"])
        Traceback (most recent call last):
        gramrun.base.errors.ConfigError: --set split.sed=3: unknown key split.sed; did you mean split.seed?
    """
    values: Any = {}
    lines: dict[tuple[str, ...], int] = {}
    if file is not None:
        file = find_config(file)
        values, lines = _read_yaml(file)
    sources: dict[tuple[str, ...], str] = {path: f"{file} line {line}" for path, line in lines.items()}
    for override in overrides:
        path = _apply_override(values, override)
        for key in [key for key in sources if key[: len(path)] == path]:
            del sources[key]  # what the file said below this key is no more
        sources[path] = f"--set {override}"
        for depth in range(1, len(path)):
            sources.setdefault(path[:depth], f"--set {override}")  # a section that the override opened
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_describe(error, kind, sources, file)) from None


def config_hash(config: Section) -> str:
    """The first 16 hex digits of the SHA-256 of the resolved configuration, but for `log`.

    What a run tells of itself changes nothing of its result, so neither makes it another run.
    """
    text = json.dumps(config.model_dump(mode="json", exclude={"log"}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dump_config(config: Section) -> str:
    """The resolved configuration as YAML; `load_config` reads it back to an equal one."""
    return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    """A value as YAML writes it."""
    if isinstance(value, Interval):
        return str(value)
    if isinstance(value, Section):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _read_yaml(file: Path) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LARGEST_TEXT + 1)  # no device or dump is read to its end
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as UTF-8 text: {error}") from None
    try:
        node, values = parse_yaml(text)
    except YamlError as error:
        where = f" line {error.line}" if error.line else ""
        raise ConfigError(f"{file}{where}: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: must hold sections such as 'data:' and 'train:', and holds none")
    lines: dict[tuple[str, ...], int] = {}
    _collect_lines(node, (), lines, file)
    return values, lines


def _collect_lines(
    node: yaml.Node | None, path: tuple[str, ...], lines: dict[tuple[str, ...], int], file: Path
) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child = (*path, str(key.value))
            if child in lines:
                raise ConfigError(
                    f"{file} line {key.start_mark.line + 1}: {'.'.join(child)} is given twice "
                    f"(first on line {lines[child]}); keep one"
                )
            lines[child] = key.start_mark.line + 1
            _collect_lines(value, child, lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            lines[(*path, str(position))] = value.start_mark.line + 1
            _collect_lines(value, (*path, str(position)), lines, file)


def _apply_override(values: dict[str, Any], override: str) -> tuple[str, ...]:
    """Write one ``dotted.key=value`` into `values` in place; return the key's path."""
    key, equals, text = override.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"--set {override}: must look like section.key=value")
    try:
        _, value = parse_yaml(text)
    except YamlError as error:
        raise ConfigError(f"--set {override}: the value is {error}") from None
    target: Any = values
    for depth, name in enumerate(path[:-1]):
        if isinstance(target, list):
            if not name.isdigit() or int(name) >= len(target):
                raise ConfigError(f"--set {override}: {'.'.join(path[:depth])} has no entry {name}")
            target = target[int(name)]
            continue
        if not isinstance(target.get(name), dict | list):
            target[name] = {}
        target = target[name]
    if isinstance(target, list):
        raise ConfigError(f"--set {override}: give the whole list, or an entry's key")
    if value is not None and (alternative := _ALTERNATIVES.get(path)):
        target.pop(alternative, None)  # the override replaces the file's choice instead of contradicting it
    target[path[-1]] = value
    return path


# Keys of which exactly one is given.
_ALTERNATIVES: dict[tuple[str, ...], str] = {("train", "steps"): "epochs", ("train", "epochs"): "steps"}


def _describe(
    error: ValidationError, kind: type[Section], sources: dict[tuple[str, ...], str], file: Path | None
) -> str:
    """One line for the first problem, and how many more there are."""
    # A mistyped section is also a missing one; the typo is what the user can see.
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    path = tuple(str(part) for part in first["loc"])
    dotted = ".".join(path)
    where = next(
        (sources[path[:depth]] for depth in range(len(path), 0, -1) if path[:depth] in sources),
        str(file) if file else "the configuration",
    )
    if first["type"] == "extra_forbidden":
        message = f"{where}: unknown key {dotted}{_nearest(kind, path)}"
    elif first["type"] in ("model_type", "model_attributes_type"):
        message = f"{where}: {dotted} must be a section with keys of its own, not {first['input']!r}"
    elif first["type"] == "missing":
        message = f"{where}: {dotted} is missing"
    elif first["type"] in _PLAIN_TYPES:
        message = f"{where}: {dotted} must be {_PLAIN_TYPES[first['type']]}, not {first['input']!r}"
    else:
        reason = str(first["msg"]).removeprefix("Value error, ")
        given = first.get("input")
        shown = "" if isinstance(given, dict | BaseModel) else f" (given: {given!r})"
        key = f"{dotted}: " if dotted else ""  # none where whole sections contradict each other
        message = f"{where}: {key}{reason[0].lower() + reason[1:]}{shown}"
    more = len(problems) - 1
    return message + (f" (and {more} more problem{'s' if more > 1 else ''})" if more else "")


# Where pydantic's own words speak of Python.
_PLAIN_TYPES = {"path_type": "a path", "tuple_type": "a list, such as [128]", "invalid_key": "a key of text"}


def keys_of(kind: type[Section]) -> dict[str, FieldInfo]:
    """Every dotted key of a configuration, with its pydantic field; lists count as one key."""
    keys: dict[str, FieldInfo] = {}
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section) and not issubclass(inner, Interval):
            keys.update({f"{name}.{key}": value for key, value in keys_of(inner).items()})
        else:
            keys[name] = field
    return keys


def _nearest(kind: type[Section], path: tuple[str, ...]) -> str:
    """Name the most similar valid key: in the section where it stands, or by its last part in any other."""
    section: type[Section] | None = kind
    for part in path[:-1]:
        if section is not None and not part.isdigit():
            field = section.model_fields.get(part)
            section = _section_in(field.annotation) if field else None
    sections = list(kind.model_fields)
    here = [".".join([*path[:-1], name]) for name in section.model_fields] if section else []
    valid = list(keys_of(kind))
    same_name = [key for key in valid if key.rsplit(".", 1)[-1] == path[-1]]
    elsewhere = valid + sections if len(path) > 1 else sections + valid
    close = (
        difflib.get_close_matches(".".join(path), here, n=1, cutoff=0.6)
        or difflib.get_close_matches(".".join(path), elsewhere, n=1, cutoff=0.6)
        or same_name
    )
    return f"; did you mean {close[0]}?" if close else f"; valid sections are {', '.join(sections)}"


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that an annotation is, or is a list of; None for plain values."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate
    return None


def documented_keys(kind: type[Section]) -> str:
    """A Markdown table of every key: its type and range, its default, what it is."""
    lines = ["| key | values | default | what it is |", "|---|---|---|---|"]
    for key, field in keys_of(kind).items():
        default = "**required**" if field.is_required() else f"`{_plain(field.default)}`"
        lines.append(f"| `{key}` | {_values(field)} | {default} | {field.description or ''} |")
    return "\n".join(lines) + "\n"


def _values(field: FieldInfo) -> str:
    """The type of a field, its choices or its range, in words."""
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    limits = [
        f"{sign} {getattr(item, name)}"
        for item in field.metadata
        for name, sign in signs.items()
        if getattr(item, name, None) is not None
    ]
    return ", ".join([_type_name(field.annotation), *limits])


def _type_name(annotation: Any) -> str:
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if get_origin(annotation) is Annotated:
        return _type_name(arguments[0])
    if get_origin(annotation) is tuple:
        return f"list of {_type_name(arguments[0])}"
    if get_origin(annotation) is dict:
        return "table of steps and numbers"
    if arguments:
        return " or ".join("null" if part is type(None) else _type_name(part) for part in arguments)
    names = {
        Interval: "steps, or like `1 epoch`",
        TimedInterval: "steps, or like `1 epoch`, `5 minutes`",
        Path: "path",
        int: "whole number",
        float: "number",
        bool: "true, false",
        str: "text",
    }
    return names.get(annotation, f"{annotation.__name__.removesuffix('Section').lower()} sections")
