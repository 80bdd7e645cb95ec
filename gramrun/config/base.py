"""What every configuration is made of: the strict section, intervals, and the sections that kinds share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """Base of all sections: frozen, and no key beyond the declared ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Interval(Section):
    """How often something happens: ``500`` (steps) or ``1 epoch``; 0 for never before the end."""

    count: float = Field(ge=0)
    unit: Literal["steps", "epochs"]

    PATTERN: ClassVar[re.Pattern[str]] = re.compile(r"(\d+) *(steps?)?|(\d+(?:\.\d+)?) *(epochs?)")

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if isinstance(value, dict | Interval):
            return value
        match = cls.PATTERN.fullmatch(str(value).strip())
        if not match:
            raise ValueError(f"{value!r} is neither a number of steps nor like '1 epoch' or '500 steps'")
        steps, _, epochs, _ = match.groups()
        return {"count": float(steps or epochs), "unit": "steps" if steps else "epochs"}

    def steps(self, pairs: int, batch_size: int) -> int:
        """The interval in steps, at least 1 where it is not 0."""
        if not self.count:
            return 0
        return max(1, round(self.count * (pairs / batch_size if self.unit == "epochs" else 1)))

    def __str__(self) -> str:
        return f"{self.count:g} {self.unit}"


class DataSection(Section):
    """Where the prepared corpus lies."""

    path: Path = Field(description="a folder that `gramrun prepare` wrote")


class EvaluationSection(Section):
    """The ranking protocol (`gramrun.evaluation`)."""

    every: Interval = Field(Interval(count=1, unit="epochs"), description="0: only at the end")
    candidates: int = Field(50_000, ge=1, description="right items drawn uniformly; all if there are fewer")
    left_items: int | None = Field(None, ge=1, description="left items drawn for scoring; null for all")
    splits: tuple[Literal["validation", "train"], ...] = Field(
        ("validation", "train"), min_length=1, description="measured while training"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="draws candidates, left items and the bootstrap")
