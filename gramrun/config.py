"""Configuration: frozen, typed, strict. A YAML file plus dotted overrides, validated in one place.

An unknown key is an error that names the key's path, the file and line, and the nearest valid key. An
override (``--set estimator.alpha=0.01``) is parsed as YAML and goes through the same validation.
`docs/config.md` lists every key; where the paper is silent, the default is argued there.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gramrun.errors import ConfigError


class Section(BaseModel):
    """Base of all sections: frozen, and no key beyond the declared ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _beta(value: object) -> object:
    return "1" if value == 1 else value  # YAML reads an unquoted 1 as a number


class Interval(Section):
    """How often something happens: ``500`` (steps) or ``1 epoch``; 0 for never before the end."""

    count: float = Field(ge=0)
    unit: Literal["steps", "epochs"]

    PATTERN: ClassVar[re.Pattern[str]] = re.compile(r"(\d+(?:\.\d+)?)\s*(steps?|epochs?)?")

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return value
        match = cls.PATTERN.fullmatch(str(value).strip())
        if not match:
            raise ValueError(f"{value!r} is neither a number of steps nor like '1 epoch' or '500 steps'")
        return {"count": float(match[1]), "unit": (match[2] or "steps").rstrip("s") + "s"}

    def steps(self, pairs: int, batch_size: int) -> int:
        """The interval in steps, at least 1 where it is not 0."""
        if not self.count:
            return 0
        return max(1, round(self.count * (pairs / batch_size if self.unit == "epochs" else 1)))

    def __str__(self) -> str:
        return f"{self.count:g} {self.unit}"


class DataSection(Section):
    """Where the prepared corpus lies."""

    path: Path


class ModelSection(Section):
    """The two towers (`gramrun.model.towers`)."""

    embedding_dim: int = Field(35, ge=1, description="k, the width of the embeddings")
    input_dim: int = Field(64, ge=1, description="width of each feature's input embedding (hidden towers)")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((), description="hidden widths; [] is linear")
    output: Literal["linear", "relu"] = Field("linear", description="activation of the output layer")
    skip: bool = Field(False, description="add a linear map of the inputs to the output")
    bag: Literal["sum", "mean"] = Field("sum", description="how the values of one bag are combined")
    table_scale: float = Field(0.1, gt=0, description="standard deviation of the initial table entries")

    @model_validator(mode="after")
    def _skip_needs_hidden(self) -> ModelSection:
        if self.skip and not self.hidden:
            raise ValueError("skip: true needs hidden layers to skip; set model.hidden or drop skip")
        return self


class EstimatorSection(Section):
    """The Gramian estimator (`gramrun.gramian`)."""

    name: Literal["sampling", "sogram", "sagram", "exact"]
    alpha: float = Field(0.01, gt=0, le=1, description="SOGram's Gramian learning rate")
    beta: Annotated[Literal["1/n", "1"], BeforeValidator(_beta)] = Field(
        "1", description="SAGram's form: 1/n (SAG, biased, PSD) or 1 (SAGA, unbiased)"
    )
    project: bool = Field(True, description="project SAGA estimates onto the PSD cone")
    gramian_batch_size: int = Field(1024, ge=1, description="|B|, the batch that updates the Gramians")

    @property
    def family(self) -> str:
        """The estimator's name as figures show it, without α, such as ``SOGram``."""
        if self.name == "sagram":
            return f"SAGram β={self.beta}"
        return {"sampling": "sampling", "sogram": "SOGram", "exact": "exact Gramian"}[self.name]

    @property
    def label(self) -> str:
        """The method's name as figures and tables show it, such as ``SOGram α=0.01``."""
        return f"{self.family} α={self.alpha:g}" if self.name == "sogram" else self.family


class TrainSection(Section):
    """The objective and its optimisation."""

    epochs: float | None = Field(None, gt=0, description="passes over the training pairs; or steps")
    steps: int | None = Field(None, ge=1, description="gradient steps; or epochs")
    batch_size: int = Field(1024, ge=1, description="|B'|, the batch that carries the gradient")
    gravity: float = Field(1.0, ge=0, description="λ, the weight of the gravity term")
    weighting: Literal["frequency", "uniform"] = Field(
        "frequency", description="Gramians over pairs (the paper) or over distinct items (its footnote 4)"
    )
    target: Literal["one", "value"] = Field("one", description="s_i: 1, or the corpus's own (a rating)")
    optimizer: Literal["adagrad", "adam", "sgd"] = "adagrad"
    learning_rate: float = Field(0.05, gt=0, description="η of the feature tables")
    dense_learning_rate: float | None = Field(None, gt=0, description="η of dense layers; null: the same")
    checkpoint_every: Interval = Interval(count=0, unit="steps")
    seed: int = Field(0, ge=0, lt=2**32, description="parameters and batches follow from it")

    @model_validator(mode="after")
    def _one_duration(self) -> TrainSection:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of train.epochs and train.steps")
        return self

    def total_steps(self, pairs: int) -> int:
        """Gradient steps of the whole run over `pairs` training pairs."""
        return self.steps or max(1, round((self.epochs or 0) * pairs / self.batch_size))


class EvaluationSection(Section):
    """The ranking protocol (`gramrun.evaluation`)."""

    every: Interval = Interval(count=1, unit="epochs")
    candidates: int = Field(50_000, ge=1, description="right items drawn uniformly; all if there are fewer")
    left_items: int | None = Field(None, ge=1, description="left items drawn for scoring; null for all")
    splits: tuple[Literal["validation", "train"], ...] = Field(("validation", "train"), min_length=1)
    seed: int = Field(0, ge=0, lt=2**32, description="draws candidates, left items and the bootstrap")


class GramErrorSection(Section):
    """What ``gramrun gram-error`` watches along the trajectory."""

    every: Interval = Interval(count=100, unit="steps")
    estimators: tuple[EstimatorSection, ...] = Field((), description="estimators that watch the trajectory")


class RunConfig(Section):
    """One training run."""

    data: DataSection
    model: ModelSection = ModelSection()
    estimator: EstimatorSection
    train: TrainSection
    evaluation: EvaluationSection = EvaluationSection()
    gram_error: GramErrorSection = GramErrorSection()


class SplitSection(Section):
    """The train/validation split (`gramrun.data.split`)."""

    validation_fraction: float = Field(0.2, gt=0, lt=1)
    seed: int = Field(0, ge=0, lt=2**32)


class SyntheticSection(Section):
    """The planted corpus (`gramrun.data.synthetic`)."""

    left_items: int = Field(600, ge=2)
    right_items: int = Field(400, ge=2)
    pairs_per_left_item: int = Field(20, ge=1)
    rank: int = Field(8, ge=1)
    popularity_exponent: float = Field(0.8, ge=0, description="Zipf exponent of the right items")
    seed: int = Field(0, ge=0, lt=2**32)

    @model_validator(mode="after")
    def _enough_right_items(self) -> SyntheticSection:
        if self.pairs_per_left_item > self.right_items:
            raise ValueError("pairs_per_left_item cannot exceed right_items")
        return self


class PrepareConfig(Section):
    """What ``gramrun prepare`` accepts through ``--set``."""

    split: SplitSection = SplitSection()
    synthetic: SyntheticSection = SyntheticSection()


Config = TypeVar("Config", bound=Section)


def load_config(kind: type[Config], file: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read, override and validate a configuration.

    Args:
        kind: `RunConfig` or `PrepareConfig`.
        file: a YAML file, or None for the defaults.
        overrides: ``dotted.key=value`` settings, applied in order; values are parsed as YAML.

    Raises:
        ConfigError: one line that names the key, the place and the remedy.
    """
    values: Any = {}
    lines: dict[tuple[str, ...], int] = {}
    if file is not None:
        values, lines = _read_yaml(file)
    sources: dict[tuple[str, ...], str] = {path: f"{file} line {line}" for path, line in lines.items()}
    for override in overrides:
        path = _apply_override(values, override)
        sources[path] = f"--set {override}"
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_describe(error, kind, sources, file)) from None


def config_hash(config: Section) -> str:
    """The first 16 hex digits of the SHA-256 of the resolved configuration."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def dump_config(config: Section) -> str:
    """The resolved configuration as YAML; `load_config` reads it back to an equal one."""

    def plain(value: Any) -> Any:
        if isinstance(value, Interval):
            return str(value)
        if isinstance(value, Section):
            return {name: plain(getattr(value, name)) for name in type(value).model_fields}
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        return str(value) if isinstance(value, Path) else value

    return yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True)


def _read_yaml(file: Path) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file; configs shipped with gramrun lie in configs/") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read as UTF-8 text: {error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{file}{where}: not valid YAML: {problem}") from None
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
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {override}: the value is not valid YAML") from None
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
    problems = error.errors()
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
    else:
        reason = str(first["msg"]).removeprefix("Value error, ")
        given = first.get("input")
        shown = "" if isinstance(given, dict | BaseModel) else f" (given: {given!r})"
        message = f"{where}: {dotted}: {reason[0].lower() + reason[1:]}{shown}"
    more = len(problems) - 1
    return message + (f" (and {more} more problem{'s' if more > 1 else ''})" if more else "")


def keys_of(kind: type[Section]) -> dict[str, Any]:
    """Every dotted key of a configuration, with its pydantic field; lists count as one key."""
    keys: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section) and inner is not Interval:
            keys.update({f"{name}.{key}": value for key, value in keys_of(inner).items()})
        else:
            keys[name] = field
    return keys


def _nearest(kind: type[Section], path: tuple[str, ...]) -> str:
    """Name the most similar valid key: first by its last part, so that a wrong section is found too."""
    valid = list(keys_of(kind))
    sections = list(kind.model_fields)
    dotted = ".".join(path)
    same_name = [key for key in valid if key.rsplit(".", 1)[-1] == path[-1]]
    candidates = valid + sections if len(path) > 1 else sections + valid
    close = difflib.get_close_matches(dotted, candidates, n=1, cutoff=0.6) or same_name
    return f"; did you mean {close[0]}?" if close else f"; valid sections are {', '.join(sections)}"
