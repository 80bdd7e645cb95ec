"""The base class of sections, intervals, and the sections that several configurations share."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

LARGEST_WHOLE_NUMBER = 2**32 - 1  # of seeds; numbers of items and pairs are int32


class Section(BaseModel):
    """Base of all sections: frozen, without undeclared keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _is_usable(cls, value: object) -> object:
        """Refuse numbers beyond every key's range, and paths that no system accepts."""
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE_NUMBER:
            raise ValueError(f"whole numbers go up to {LARGEST_WHOLE_NUMBER:,}")
        if isinstance(value, Path) and "\0" in str(value):
            raise ValueError("a path cannot hold the character NUL")
        return value


class Interval(Section):
    """How often something happens: ``500`` (steps) or ``1 epoch``; 0 for only at the end.

    Intervals that change the training itself are not in minutes, as results would depend on the machine's
    speed. Evaluation and checkpoints take a `TimedInterval`.
    """

    count: float = Field(ge=0, le=1e12)
    unit: Literal["steps", "epochs", "minutes"]

    PATTERN: ClassVar[re.Pattern[str]] = re.compile(r"(\d+) *(steps?)?|(\d+(?:\.\d+)?) *(epochs?|minutes?)")
    EXAMPLES: ClassVar[str] = "'1 epoch' or '500 steps'"

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if isinstance(value, dict | Interval):
            return value
        match = cls.PATTERN.fullmatch(str(value).strip())
        if not match:
            raise ValueError(f"{value!r} is neither a number of steps nor like {cls.EXAMPLES}")
        steps, _, count, unit = match.groups()
        return {"count": float(steps or count), "unit": "steps" if steps else f"{unit.rstrip('s')}s"}

    @model_validator(mode="after")
    def _has_valid_unit(self) -> Interval:
        if self.unit == "minutes":
            raise ValueError(
                "minutes would let the machine's speed change the result; give steps or epochs, such as "
                f"{self.EXAMPLES}"
            )
        return self

    @model_validator(mode="after")
    def _has_whole_steps(self) -> Interval:
        if self.unit == "steps" and not self.count.is_integer():
            raise ValueError(f"{self.count:g} steps is no whole number of steps")
        return self

    def steps(self, pairs: int, batch_size: int) -> int:
        """The interval in steps; at least 1 unless it is 0."""
        if not self.count:
            return 0
        return max(1, round(self.count * (pairs / batch_size if self.unit == "epochs" else 1)))

    def __str__(self) -> str:
        return f"{Decimal(str(abs(self.count))).normalize():f} {self.unit}"  # every digit, and no exponent


class TimedInterval(Interval):
    """How often a run is evaluated or saved: as `Interval`, or ``5 minutes`` of training time.

    Training time excludes evaluation and checkpoints (`StepRecord.train_seconds`). The paper evaluates
    every 5 minutes (Section 4.3).
    """

    EXAMPLES: ClassVar[str] = "'1 epoch', '500 steps' or '5 minutes'"

    @model_validator(mode="after")
    def _has_valid_unit(self) -> TimedInterval:
        return self


class DataSection(Section):
    """The prepared corpus."""

    path: Path = Field(description="a folder that `gramrun prepare` wrote")


class EvaluationSection(Section):
    """The ranking protocol (`gramrun.evaluation.protocol`)."""

    every: TimedInterval = Field(
        TimedInterval(count=1, unit="epochs"), description="0: only at the end; minutes are of training time"
    )
    candidates: int = Field(50_000, ge=1, description="right items drawn uniformly; all if there are fewer")
    left_items: int | None = Field(None, ge=1, description="left items drawn for scoring; null for all")
    splits: tuple[Literal["validation", "train"], ...] = Field(
        ("validation", "train"), min_length=1, description="splits evaluated while training"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of candidates, left items and the bootstrap")
