"""The Gramian estimator's configuration, and its names in figures and tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator

from gramrun.config.base import Interval, Section

EstimatorName = Literal["sampling", "sogram", "sagram", "control-variate", "exact", "none"]
_CUSTOM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")  # module:name


def _name(value: object) -> object:
    """Validate a name; pydantic's message for a union would list its branches."""
    names = get_args(EstimatorName)
    if value not in names and not (isinstance(value, str) and _CUSTOM.fullmatch(value)):
        quoted = ", ".join(f"'{name}'" for name in names)
        raise ValueError(f"input should be {quoted} or your own 'module:class'")
    return value


def _beta(value: object) -> object:
    return "1" if value == 1 else value  # YAML reads an unquoted 1 as a number


def _alpha_schedule(value: object) -> object:
    """Validate a schedule; pydantic's message for a union would list its branches."""
    if value in ("constant", "decaying"):
        return value
    if not isinstance(value, dict):
        raise ValueError("give constant, decaying, or a table of steps and rates such as {1: 1, 100: 0.1}")
    try:
        table = {int(step): float(rate) for step, rate in value.items()}
    except (TypeError, ValueError, OverflowError):
        table = {}
    whole = len(table) == len(value) and all(
        str(s) == str(given) for s, given in zip(table, value, strict=True)
    )
    if not table or not whole or any(isinstance(rate, bool) for rate in value.values()):
        raise ValueError("a table has whole numbers of steps and rates, such as {1: 1, 100: 0.1}")
    if min(table) != 1:
        raise ValueError("a table must begin at step 1, such as {1: 1, 100: 0.1}")
    for step, rate in table.items():
        if not 0 < rate <= 1:
            raise ValueError(f"alpha must lie in (0, 1], but at step {step} it is {rate:g}")
    return table


class EstimatorSection(Section):
    """The Gramian estimator (`gramrun.gramian`)."""

    name: Annotated[EstimatorName | str, BeforeValidator(_name)] = Field(
        description="the method; exact recomputes the Gramians at every step, none leaves gravity out; "
        "text is `module:class`, your own ([how](../docs/how-to.md#your-own-estimator))"
    )
    alpha: float = Field(
        0.01, gt=0, le=1, description="Gramian learning rate of sogram, control-variate and your own"
    )
    alpha_schedule: Annotated[
        Literal["constant", "decaying"] | dict[int, float], BeforeValidator(_alpha_schedule)
    ] = Field("constant", description="constant; decaying: max(1/t, alpha); or a table of steps and alphas")
    debias: bool = Field(False, description="divide sogram's estimate by the sum of its weights")
    start: Literal["zero", "exact"] = Field("zero", description="sogram's first estimate")
    beta: Annotated[Literal["1/n", "1"], BeforeValidator(_beta)] = Field(
        "1", description="SAGram's form: 1/n (SAG, biased, PSD) or 1 (SAGA, unbiased)"
    )
    project: bool = Field(True, description="project estimates onto the PSD cone")
    cache: Literal["item", "pair"] | None = Field(
        None,
        description="cache entries per item or pair; null: item for sagram, no cache for the others",
    )
    cache_dtype: Literal["float32", "bfloat16"] = Field("float32", description="of the cached embeddings")
    cache_folder: Path | None = Field(None, description="memory-map the caches here; null: in memory")
    rebuild_every: Interval = Field(
        Interval(count=1, unit="epochs"), description="how often Ŝ is recomputed from the caches; 0: never"
    )
    batch: Literal["drawn", "shared", "previous", "gradient"] = Field(
        "drawn",
        description="B: drawn for each side; drawn once for both sides (Algorithms 1 and 2); the previous "
        "gradient batch, without a forward pass; or, for sampling, the gradient batch itself (equation 15)",
    )
    gramian_batch_size: int = Field(1024, ge=1, description="size of B, which updates the Gramians")

    @model_validator(mode="after")
    def _fits_together(self) -> EstimatorSection:
        corrections = (self.debias, self.start == "exact", self.alpha_schedule == "decaying")
        if self.name == "sogram" and sum(corrections) > 1:
            raise ValueError(
                "debias, start: exact and alpha_schedule: decaying all correct the zero start; choose one"
            )
        if self.batch == "previous" and self.name == "control-variate":
            # The gradient step moved the rows of that batch most: their drift is not that of the corpus.
            raise ValueError("control-variate needs a batch independent of the last step; set batch: drawn")
        if self.batch == "previous" and self.cache_entry and not (self.name, self.beta) == ("sagram", "1/n"):
            # A shuffled epoch draws the stalest cache entries, and SAGA needs a uniform sample of them.
            raise ValueError("caches of SAGA need a batch drawn independently of them; set batch: drawn")
        if self.batch in ("previous", "shared") and self.name == "exact":
            raise ValueError(f"exact observes the whole corpus; drop batch: {self.batch}")
        if self.batch == "gradient" and self.name != "sampling":
            # What an average or a cache adds to such a batch depends on the pairs whose gradient is taken.
            raise ValueError("batch: gradient is equation 15, a form of sampling; set name: sampling")
        return self

    @property
    def cache_entry(self) -> Literal["item", "pair"] | None:
        """What has a cache entry of its own; None without caches."""
        default: Literal["item"] | None = "item" if self.name == "sagram" else None
        return (self.cache or default) if self.name in ("sagram", "sogram", "control-variate") else None

    @property
    def family(self) -> str:
        """The estimator's name in figures, without α, such as ``SOGram``."""
        caches = {None: "", "item": " + SAGA caches", "pair": " + SAGA caches per pair"}[self.cache_entry]
        parts = [
            {
                "sogram": f"SOGram{caches}",
                "sagram": f"SAGram β={self.beta}, per {self.cache_entry}",
                "control-variate": f"control variate{caches}",
                "exact": "exact Gramian",
                "none": "no gravity",
            }.get(self.name, self.name)
        ]
        if self.name == "sogram" and (self.debias or self.start == "exact"):
            parts.append("debiased" if self.debias else "exact start")
        if self._averages and self.alpha_schedule != "constant":
            parts.append("decaying" if self.alpha_schedule == "decaying" else f"α {self._table()}")
        if self.cache_entry and self.cache_dtype != "float32":
            parts.append(self.cache_dtype)
        if self.batch != "drawn":
            parts.append({"previous": "free"}.get(self.batch, self.batch) + " batch")
        if not self.project and (self.cache_entry or self.name == "control-variate"):
            parts.append("unprojected")
        return ", ".join(parts)

    def _table(self) -> str:
        """A short form of a table of α, such as ``1→1 100→0.1``."""
        assert isinstance(self.alpha_schedule, dict)
        return " ".join(f"{step}→{rate:g}" for step, rate in sorted(self.alpha_schedule.items()))

    @property
    def label(self) -> str:
        """The method's name as figures and tables show it, such as ``SOGram α=0.01``."""
        return f"{self.family} α={self.alpha:g}" if self.has_alpha else self.family

    @property
    def has_alpha(self) -> bool:
        """Whether α has an effect."""
        return self._averages and not isinstance(self.alpha_schedule, dict)

    @property
    def _averages(self) -> bool:
        """Whether the estimator is given α_t; one from outside always is."""
        return self.name in ("sogram", "control-variate") or ":" in self.name
