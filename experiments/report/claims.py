"""The claims of the paper: typed records read from claims.yaml, and their checks."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gramrun.base.errors import InputError

CLAIMS = Path(__file__).with_name("claims.yaml")
Measure = Literal[
    "ratio",
    "difference",
    "ratio between corpora",
    "difference between corpora",
    "contrast",
    "value",
    "count",
    "interior peak",
]
TWO_SIDED = ("ratio", "difference", "ratio between corpora", "difference between corpora", "contrast")
Name = str | tuple[str, str]  # of a measurement, or of two whose quotient it is


class Need(BaseModel):
    """What must be so before a claim says anything: a measurement that is large enough in every seed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1)
    at_least: float | str = Field(union_mode="left_to_right")

    @model_validator(mode="after")
    def _is_a_number(self) -> Self:
        if isinstance(self.at_least, str) and not re.fullmatch(r"\d+(/\{\w+\})?", self.at_least):
            raise ValueError("at_least: is a number, or one over a placeholder, as 3/{α}")
        return self

    def least(self, case: Mapping[str, str]) -> float:
        """The number itself, of one case."""
        if not isinstance(self.at_least, str):
            return self.at_least
        top, _, bottom = self.at_least.format(**case).partition("/")
        return float(top) / float(bottom or 1)

    def unmet(self, case: Mapping[str, str], value: float) -> str:
        """That a value is too small, in words: "trajectory too short: 600 steps, 3,000 needed"."""
        what = self.name.format(**case).rpartition("/")[2]
        least = number(self.least(case))
        found = re.fullmatch(r"(.*trajectory )?(steps|passes)(?: B=(\d+))?", what)
        if not found:
            return f"{what}: {number(value)}, {least} needed"
        subject = "trajectory" if found[1] else "training"
        size = f" with B = {found[3]}" if found[3] else ""
        return f"{subject} too short: {number(value)} {found[2]}{size}, {least} needed"


class Claim(BaseModel):
    """One claim of the paper; claims.yaml says what each key is."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    says: str = Field(min_length=20)
    source: str = Field(min_length=3)
    paper: str = Field(min_length=1)
    item: str = Field(pattern=r"^[a-z_]+$")
    each: dict[str, tuple[str | int | float, ...]]
    measure: Measure
    left: Name
    right: Name | None = None
    expected: float | None = None
    between: tuple[float, float] | None = None
    above: float | None = None
    below: float | None = None
    why: str = Field(min_length=3)
    needs: tuple[Need, ...] = ()
    untested: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not self.each.get("dataset") or not all(self.each.values()):
            raise ValueError("each: needs a dataset, and a value for each placeholder")
        if (self.right is not None) != (self.measure in TWO_SIDED):
            raise ValueError(
                f"right: belongs to a ratio, a difference or a contrast, not to a {self.measure}"
            )
        if self.measure == "contrast" and isinstance(self.left, str) | isinstance(self.right, str):
            raise ValueError("left and right: are two names each in a contrast")
        if sum(limit is not None for limit in (self.between, self.above, self.below)) != 1:
            raise ValueError("needs one of between, above and below")
        if (self.between is None) != (self.expected is None):
            raise ValueError("expected and between go together")
        if self.between and not self.between[0] < (self.expected or 0.0) < self.between[1]:
            raise ValueError("between: needs room on both sides of the expected value")
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """Where the value should be: an end is infinite for a bound."""
        if self.between:
            return self.between
        return (
            -math.inf if self.above is None else self.above,
            math.inf if self.below is None else self.below,
        )

    @property
    def wanted(self) -> str:
        """The limits in words."""
        if self.between:
            return f"between {exactly(self.between[0])} and {exactly(self.between[1])}"
        return f"above {exactly(self.above)}" if self.above is not None else f"below {exactly(self.below)}"

    @property
    def compared(self) -> str:
        """What is measured, in words: the names without corpus and placeholders, what they share first."""
        left, right = (_labels(name) for name in (self.left, self.right))
        if self.measure == "count":
            return left[0][1]
        shared = {what for _, what in (*left, *right)}
        if self.measure == "contrast":
            own, other = (_told(side, whole=True) for side in (left, right))
            return f"the lesser of {own} and {own} ÷ {other}"
        prefix = f"{shared.pop()}: " if len(shared) == 1 else ""
        sides = [_told(side, whole=not prefix) for side in (left, right) if side]
        if self.measure == "interior peak":
            return f"{prefix}{sides[0]}, its best within the grid ÷ the better end of the grid"
        sign = {"ratio": " ÷ ", "difference": " − "}.get(self.measure.partition(" ")[0], "")
        return prefix + sign.join(sides)

    def names(self, case: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names on the left and on the right, of one case; two names are a quotient."""
        sides = ((side,) if isinstance(side, str) else side or () for side in (self.left, self.right))
        left, right = (tuple(name.format(**case) for name in side) for side in sides)
        return left, right

    def cases(self) -> list[dict[str, str]]:
        """What stands for the placeholders: every combination of their values."""
        values = itertools.product(*self.each.values())
        return [dict(zip(self.each, map(str, combination), strict=True)) for combination in values]


def _labels(name: Name | None) -> list[tuple[str, str]]:
    """Each part of a name as (of what, what), without placeholders."""
    parts = (name,) if isinstance(name, str) else name or ()
    plain = [re.sub(r" ?\w=\{\w+\}|\{\w+\}/?| ?\w=\*", "", part) for part in parts]
    splits = [part.rpartition("/") for part in plain]
    return [(" ".join(label.replace("/", " ").split()), what) for label, _, what in splits]


def _told(side: list[tuple[str, str]], *, whole: bool) -> str:
    told = [" ".join(filter(None, pair)) if whole else pair[0] for pair in side]
    return told[0] if len(told) == 1 else f"({' ÷ '.join(told)})"


class _ClaimsFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    corpora: dict[str, tuple[str, ...]]  # named once, for YAML's anchors
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        ids = [claim.id for claim in self.claims]
        if twice := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"two claims are called {', '.join(twice)}")
        return self


def load_claims(path: Path = CLAIMS) -> list[Claim]:
    """Read and check the claims.

    Raises:
        InputError: when a claim is not whole, with the first fault.
    """
    try:
        return list(_ClaimsFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))).claims)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {place}: {first['msg']}") from None


def number(value: float | None) -> str:
    """Four significant digits, a real minus sign, and no exponent where people would not write one."""
    if value is None or math.isnan(value):
        return "–"
    text = f"{value:,.4g}" if abs(value) < 1e4 or math.isinf(value) else f"{value:,.0f}"
    return text.replace("-", "−").replace("inf", "∞")


def exactly(value: float | None) -> str:
    """A limit with all the digits that claims.yaml gives it."""
    return "–" if value is None else f"{value:,.10g}".replace("-", "−")
