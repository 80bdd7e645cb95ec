"""Configurations from YAML files and dotted overrides, validated by pydantic.

An unknown key is an error that names the key, the file and line, and the nearest valid key. An override
(``--set estimator.alpha=0.01``) is parsed as YAML and validated like the file.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
from collections.abc import Container, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gramrun.base.errors import ConfigError
from gramrun.config.base import Interval, Section
from gramrun.config.baseline import BaselineConfig
from gramrun.config.prepare import PrepareConfig
from gramrun.config.run import RunConfig, TrainSection
from gramrun.config.shipped import find_config

Config = TypeVar("Config", bound=Section)
KeyPath = tuple[str, ...]  # the parts of a dotted key

LARGEST_TEXT = 1 << 18  # characters; PyYAML without its loader in C reads about 100,000 a second
_DEEPEST = 100  # levels of YAML
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML has it
ADDED = (  # keys of `train` that came after 0.1.0, the newest first
    ("momentum",),
    ("start",),
    ("tables",),
    ("id_dropout_left", "id_dropout_right"),
    ("l2", "l2_exponent", "dense_l2"),
    ("initial_accumulator", "reduction", "decay_from"),
)

# Keys of which exactly one is given: an override replaces the file's choice.
_STEPS, _EPOCHS = ("train", "steps"), ("train", "epochs")
_ALTERNATIVES: dict[KeyPath, KeyPath] = {_STEPS: _EPOCHS, _EPOCHS: _STEPS}

# The commands that read them.
_COMMANDS: dict[type[Section], str] = {
    RunConfig: "train",
    BaselineConfig: "baseline",
    PrepareConfig: "prepare",
}

# Messages by pydantic's type of error, where its own would speak of Python.
_MESSAGES = {
    "missing": "{key} is missing",
    "model_type": "{key} must be a section with keys of its own, not {value!r}",
    "model_attributes_type": "{key} must be a section with keys of its own, not {value!r}",
    "path_type": "{key} must be a path, not {value!r}",
    "tuple_type": "{key} must be a list, such as [128], not {value!r}",
    "invalid_key": "{key} must be a key of text, not {value!r}",
}


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
    values: dict[str, Any] = {}
    places: dict[KeyPath, str] = {}  # of each key: the line or the override that gave it
    if file is not None:
        file = find_config(file)
        values, places = _read_file(file)
    paths = {key.rpartition(".")[2] for key, field in keys_of(kind).items() if _is_path(field.annotation)}
    for override in overrides:
        _apply_override(values, places, override, paths)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # A mistyped section is also a missing one; report the typo.
        problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        message = _describe(kind, problems[0], places, str(file or "the configuration"))
        more = f" (error 1 of {len(problems)})" if len(problems) > 1 else ""
        raise ConfigError(message + more) from None


def config_hash(config: Section) -> str:
    """The first 16 hex digits of the SHA-256 of the resolved configuration without `log`.

    `log` changes no result, so runs that differ only there are equal.
    """
    return _hash(config.model_dump(mode="json", exclude={"log"}))


def config_hashes(config: RunConfig) -> list[str]:
    """`config_hash`, and what earlier versions gave it if the keys that they lacked have their defaults."""
    values = config.model_dump(mode="json", exclude={"log"})
    hashes = [_hash(values)]
    for keys in ADDED:
        if any(values["train"].pop(key) != TrainSection.model_fields[key].default for key in keys):
            break
        hashes.append(_hash(values))
    return hashes


def _hash(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def dump_config(config: Section) -> str:
    """The resolved configuration as YAML; `load_config` reads it back to an equal one."""
    return yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)


def plain(value: Any) -> Any:
    """A configuration's value in the types that YAML has."""
    if isinstance(value, Interval):
        return str(value)
    if isinstance(value, Section):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _read_file(file: Path) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """The values of a YAML file, and the line of each key."""
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(LARGEST_TEXT + 1)  # bounded, as it may be a device or a dump
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as UTF-8 text: {error}") from None
    lines, values = _parse_yaml(text, str(file))
    if not isinstance(values, dict):
        raise ConfigError(f"{file}: must hold sections such as 'data:' and 'train:', and holds none")
    return values, {path: f"{file} line {line}" for path, line in lines.items()}


def _parse_yaml(text: str, place: str) -> tuple[dict[KeyPath, int], Any]:
    """The lines of the keys and the values of one YAML document of bounded size."""
    try:
        if len(text) > LARGEST_TEXT:
            raise ValueError(f"it is longer than {LARGEST_TEXT:,} characters")
        lines, values = _parse_once(text)
        return lines, copy.deepcopy(values)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark and "\n" in text else ""
        raise ConfigError(f"{place}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, LookupError, OverflowError, TypeError, AttributeError) as error:
        # PyYAML raises plain exceptions for an impossible date or a tag on a value of another type.
        raise ConfigError(f"{place}: not valid YAML: {str(error).splitlines()[0]}") from None


@lru_cache(maxsize=4096)  # a report reads each run's config several times, and parsing is most of its time
def _parse_once(text: str) -> tuple[dict[KeyPath, int], Any]:
    _check_form(text)
    loader = _LOADER(text)
    node = loader.get_single_node()
    lines: dict[KeyPath, int] = {}
    if node is None:
        return lines, None
    _collect_lines(node, (), lines)  # before the values, of which merged keys (<<) are written into the node
    return lines, loader.construct_document(node)


def _check_form(text: str) -> None:
    """Refuse deep nesting, on which the loader in C crashes, and aliases.

    A short text with aliases can unfold to billions of values, and one --set would change two.
    """
    depth = 0
    for event in yaml.parse(text, _LOADER):
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="it has an alias; write the value out", problem_mark=mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem="it is nested too deeply", problem_mark=mark)


def _collect_lines(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    """Note the line of every key and list entry; refuse keys that are given twice."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            child, line = (*path, str(key.value)), key.start_mark.line + 1
            if child in lines:
                problem = f"{'.'.join(child)} is given twice (first on line {lines[child]}); keep one"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            lines[child] = line
            _collect_lines(value, child, lines)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            lines[(*path, str(position))] = value.start_mark.line + 1
            _collect_lines(value, (*path, str(position)), lines)


def _is_path(annotation: Any) -> bool:
    return Path in (annotation, *get_args(annotation))


def _apply_override(
    values: dict[str, Any], places: dict[KeyPath, str], override: str, paths: Container[str]
) -> None:
    """Write one ``dotted.key=value`` into `values` and `places`; `paths` are last parts of keys."""
    place = f"--set {override}"
    key, equals, text = override.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"{place}: must look like section.key=value")
    is_text = path[-1] in paths and text.strip() not in ("", "~", "null") and text.lstrip()[0] not in "'\""
    value = text if is_text else _parse_yaml(text, place)[1]  # YAML takes " #1" for a comment
    target: Any = values
    for depth, name in enumerate(path[:-1]):
        if isinstance(target, list) and name in map(str, range(len(target))):
            target = target[int(name)]
        elif isinstance(target, dict):
            if not isinstance(target.get(name), dict | list):
                target[name] = {}
            target = target[name]
        else:
            raise ConfigError(f"{place}: {'.'.join(path[:depth])} has no entry {name}")
    if not isinstance(target, dict):
        raise ConfigError(f"{place}: give the whole list, or an entry's key")
    if value is not None and (other := _ALTERNATIVES.get(path)):
        if places.get(other, "").startswith("--set") and target.get(other[-1]) is not None:
            raise ConfigError(f"{place}: give it or {places[other]}, not both")
        target.pop(other[-1], None)
    target[path[-1]] = value
    for replaced in [known for known in places if known[: len(path)] == path]:
        del places[replaced]
    places[path] = place
    for depth in range(1, len(path)):
        places.setdefault(path[:depth], place)  # sections that the override opened


def _describe(kind: type[Section], problem: Any, places: dict[KeyPath, str], default: str) -> str:
    """One line for one of pydantic's errors, with the nearest known place of its key."""
    path = tuple(map(str, problem["loc"]))
    known = (places[path[:depth]] for depth in range(len(path), 0, -1) if path[:depth] in places)
    place, key, value = next(known, default), ".".join(path), problem.get("input")
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key {key}; {_suggest(kind, path)}"
    if problem["type"] in _MESSAGES:
        return f"{place}: {_MESSAGES[problem['type']].format(key=key, value=value)}"
    reason = str(problem["msg"]).removeprefix("Value error, ")
    given = "" if isinstance(value, dict | BaseModel) else f" (given: {value!r})"
    key = f"{key}: " if key else ""  # empty where whole sections contradict each other
    return f"{place}: {key}{reason[0].lower() + reason[1:]}{given}"


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


def _suggest(kind: type[Section], path: KeyPath) -> str:
    """The nearest valid key in the same section, else anywhere, else the valid sections."""
    section: type[Section] | None = kind
    for part in path[:-1]:
        if section is not None and not part.isdigit():
            field = section.model_fields.get(part)
            section = _section_in(field.annotation) if field else None
    siblings = [".".join([*path[:-1], name]) for name in section.model_fields] if section else []
    sections, keys = list(kind.model_fields), list(keys_of(kind))
    anywhere = [*sections, *keys] if len(path) == 1 else [*keys, *sections]
    if path[0] not in sections and (owners := [x for x in _COMMANDS if path[0] in x.model_fields]):
        return f"it is a section of configurations of `gramrun {_COMMANDS[owners[0]]}`"
    close = (
        difflib.get_close_matches(".".join(path), siblings, n=1)
        or difflib.get_close_matches(".".join(path), anywhere, n=1)
        or [key for key in keys if key.rpartition(".")[2] == path[-1]]
    )
    return f"did you mean {close[0]}?" if close else f"valid sections are {', '.join(sections)}"


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that an annotation is, or is a list of; None for plain values."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate
    return None
