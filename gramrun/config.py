"""Every configuration key: its type, range and default, in frozen sections that refuse unknown keys.

`gramrun.config_loading` reads them from YAML and overrides. `configs/README.md` lists the keys and argues
the values where the paper is silent.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


class Section(BaseModel):
    """Base of all sections: frozen, and no key beyond the declared ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _beta(value: object) -> object:
    return "1" if value == 1 else value  # YAML reads an unquoted 1 as a number


def _alpha_schedule(value: object) -> object:
    """Check a schedule by hand: pydantic's words for a union speak of its branches."""
    if value in ("constant", "decaying"):
        return value
    if not isinstance(value, dict):
        raise ValueError("give constant, decaying, or a table of steps and rates such as {1: 1, 100: 0.1}")
    try:
        table = {int(step): float(rate) for step, rate in value.items()}
    except (TypeError, ValueError):
        raise ValueError("a table has whole numbers of steps and rates, such as {1: 1, 100: 0.1}") from None
    if min(table, default=0) != 1:
        raise ValueError("a table must begin at step 1, such as {1: 1, 100: 0.1}")
    for step, rate in table.items():
        if not 0 < rate <= 1:
            raise ValueError(f"alpha must lie in (0, 1], but at step {step} it is {rate:g}")
    return table


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

    name: Literal["sampling", "sogram", "sagram", "control-variate", "exact", "none"] = Field(
        description="the method; exact recomputes the Gramians at every step, none leaves gravity out"
    )
    alpha: float = Field(0.01, gt=0, le=1, description="Gramian learning rate of sogram and control-variate")
    alpha_schedule: Annotated[
        Literal["constant", "decaying"] | dict[int, float], BeforeValidator(_alpha_schedule)
    ] = Field("constant", description="constant; decaying: max(1/t, alpha); or a table of steps and alphas")
    debias: bool = Field(False, description="divide sogram's estimate by the sum of its weights")
    start: Literal["zero", "exact"] = Field("zero", description="sogram's first estimate")
    beta: Annotated[Literal["1/n", "1"], BeforeValidator(_beta)] = Field(
        "1", description="SAGram's form: 1/n (SAG, biased, PSD) or 1 (SAGA, unbiased)"
    )
    project: bool = Field(True, description="project SAGA and control-variate estimates onto the PSD cone")
    cache: Literal["item", "pair"] | None = Field(
        None,
        description="a cache entry for each item or pair; null: item for sagram, none for control-variate",
    )
    cache_dtype: Literal["float32", "bfloat16"] = Field("float32", description="of the cached embeddings")
    cache_folder: Path | None = Field(None, description="memory-map the caches here; null: in memory")
    rebuild_every: Interval = Field(
        Interval(count=1, unit="epochs"), description="how often Ŝ is summed anew from the caches; 0: never"
    )
    batch: Literal["drawn", "previous"] = Field(
        "drawn", description="B: drawn and embedded, or the previous step's gradient batch, for free"
    )
    gramian_batch_size: int = Field(1024, ge=1, description="size of B, which updates the Gramians")

    @model_validator(mode="after")
    def _fits_together(self) -> EstimatorSection:
        if self.debias and self.start == "exact":
            raise ValueError("debias and start: exact both mend the zero start; choose one")
        if self.batch == "previous" and self.name == "control-variate":
            # The gradient step moved that batch's own rows most: their drift is not the corpus's.
            raise ValueError("control-variate needs a batch independent of the last step; set batch: drawn")
        if self.batch == "previous" and self.name == "exact":
            raise ValueError("exact observes the whole corpus; drop batch: previous")
        return self

    @property
    def cache_entry(self) -> Literal["item", "pair"] | None:
        """What has a cache entry of its own, or None where nothing is cached."""
        default: Literal["item"] | None = "item" if self.name == "sagram" else None
        return (self.cache or default) if self.name in ("sagram", "control-variate") else None

    @property
    def family(self) -> str:
        """The estimator's name as figures show it, without α, such as ``SOGram``."""
        parts = [
            {
                "sampling": "sampling",
                "sogram": "SOGram",
                "sagram": f"SAGram β={self.beta}, per {self.cache_entry}",
                "control-variate": "control variate" + (" + SAGA caches" if self.cache_entry else ""),
                "exact": "exact Gramian",
                "none": "no gravity",
            }[self.name]
        ]
        if self.name == "sogram" and (self.debias or self.start == "exact"):
            parts.append("debiased" if self.debias else "exact start")
        if self.name in ("sogram", "control-variate") and self.alpha_schedule != "constant":
            parts.append("decaying" if self.alpha_schedule == "decaying" else "scheduled")
        if self.cache_entry and self.cache_dtype != "float32":
            parts.append(self.cache_dtype)
        if self.batch == "previous":
            parts.append("free batch")
        return ", ".join(parts)

    @property
    def label(self) -> str:
        """The method's name as figures and tables show it, such as ``SOGram α=0.01``."""
        return f"{self.family} α={self.alpha:g}" if self.has_alpha else self.family

    @property
    def has_alpha(self) -> bool:
        """Whether α has an effect."""
        return self.name in ("sogram", "control-variate") and not isinstance(self.alpha_schedule, dict)


class PriorSection(Section):
    """What gravity pulls inner products towards (`gramrun.gramian.low_rank_prior`, Appendix C)."""

    name: Literal["none", "popularity", "svd", "file"] = Field(
        "none", description="none is 0; popularity is f_x f_y / n; svd approximates the observed matrix"
    )
    rank: int | None = Field(None, ge=1, description="for svd: its rank")
    path: Path | None = Field(None, description="for file: an .npz with the arrays left and right")

    @model_validator(mode="after")
    def _its_own_keys(self) -> PriorSection:
        for key, name, value in (("rank", "svd", self.rank), ("path", "file", self.path)):
            if self.name == name and value is None:
                raise ValueError(f"name: {name} needs a {key}; set train.prior.{key}")
            if self.name != name and value is not None:
                raise ValueError(f"{key} is for name: {name} only; drop it, or set train.prior.name: {name}")
        return self


class TrainSection(Section):
    """The objective and its optimisation."""

    epochs: float | None = Field(None, gt=0, description="passes over the training pairs; or steps")
    steps: int | None = Field(None, ge=1, description="gradient steps; or epochs")
    batch_size: int = Field(1024, ge=1, description="size of B', which carries the gradient")
    gravity: float = Field(1.0, ge=0, description="λ, the weight of the gravity term")
    objective: Literal["gravity", "taylor-softmax", "batch-softmax"] = Field(
        "gravity", description="f + λg of the paper; or another loss over all right items"
    )
    gamma_left: float = Field(
        1.0, ge=0, le=1, description="left items weigh frequency^γ in their Gramian: 1 the paper, 0 uniform"
    )
    gamma_right: float = Field(1.0, ge=0, le=1, description="the same for right items")
    target: Literal["one", "value"] = Field("one", description="s_i: 1, or the corpus's own (a rating)")
    prior: PriorSection = PriorSection()
    optimizer: Literal["adagrad", "adam", "sgd"] = Field("adagrad", description="torch's own")
    learning_rate: float = Field(0.05, gt=0, description="η of the feature tables")
    dense_learning_rate: float | None = Field(None, gt=0, description="η of dense layers; null: the same")
    checkpoint_every: Interval = Field(
        Interval(count=1, unit="epochs"), description="0: only at the end, and when interrupted"
    )
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

    every: Interval = Field(Interval(count=1, unit="epochs"), description="0: only at the end")
    candidates: int = Field(50_000, ge=1, description="right items drawn uniformly; all if there are fewer")
    left_items: int | None = Field(None, ge=1, description="left items drawn for scoring; null for all")
    splits: tuple[Literal["validation", "train"], ...] = Field(
        ("validation", "train"), min_length=1, description="measured while training"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="draws candidates, left items and the bootstrap")


class GramErrorSection(Section):
    """What ``gramrun gram-error`` watches along the trajectory."""

    every: Interval = Field(
        Interval(count=100, unit="steps"),
        description="how often errors are measured; step 1 and the last too",
    )
    estimators: tuple[EstimatorSection, ...] = Field((), description="estimators that watch the trajectory")
    reference: Literal["exact", "sampled"] = Field(
        "exact", description="the true Gramian: over the whole corpus, or over a large sample (Appendix D)"
    )
    reference_samples: int = Field(
        1_000_000, ge=2, description="members drawn for a sampled reference, afresh each time"
    )
    drift: bool = Field(
        True, description="measure ‖G(t) − G(t−1)‖ too, for `plot theory`: a second Gramian each time"
    )


class RunConfig(Section):
    """One training run."""

    data: DataSection
    model: ModelSection = ModelSection()
    estimator: EstimatorSection
    train: TrainSection
    evaluation: EvaluationSection = EvaluationSection()
    gram_error: GramErrorSection = GramErrorSection()

    @model_validator(mode="after")
    def _sections_agree(self) -> RunConfig:
        estimator, train = self.estimator, self.train
        if (train.objective == "batch-softmax") != (estimator.name == "none" and train.gravity > 0):
            raise ValueError(
                "estimator.name: none goes with train.objective: batch-softmax, or with train.gravity: 0"
            )
        if train.objective != "gravity" and train.target != "one":
            raise ValueError(f"train.objective: {train.objective} has no targets; set train.target: one")
        if train.objective != "gravity" and train.prior.name != "none":
            raise ValueError(f"train.objective: {train.objective} has no prior; drop train.prior")
        if train.objective == "taylor-softmax" and train.gamma_left != 1:
            raise ValueError("train.objective: taylor-softmax is a mean over pairs; set train.gamma_left: 1")
        for section in (estimator, *self.gram_error.estimators):
            if section.cache_entry == "pair" and (train.gamma_left, train.gamma_right) != (1, 1):
                raise ValueError("cache: pair needs train.gamma_left and gamma_right of 1; set cache: item")
            if section.batch == "previous" and section.gramian_batch_size != train.batch_size:
                raise ValueError(
                    "batch: previous reuses the gradient batch, so gramian_batch_size must be "
                    f"train.batch_size, {train.batch_size}, not {section.gramian_batch_size}"
                )
        return self


class BaselineSection(Section):
    """A model that is fitted without two-tower training (`gramrun.baselines`)."""

    name: Literal["popularity", "implicit-als", "exact-als"] = Field(description="the method")
    embedding_dim: int = Field(35, ge=1, description="k, of both kinds of ALS")
    sweeps: int = Field(30, ge=1, description="passes over both sides: implicit ALS's, exact ALS's at most")
    seed: int = Field(0, ge=0, lt=2**32, description="of the random start")
    gravity: float = Field(30.0, ge=0, description="exact ALS: λ, the weight of the gravity term")
    gamma_left: float = Field(0.0, ge=0, le=1, description="exact ALS: left items weigh (training pairs)^γ")
    gamma_right: float = Field(0.0, ge=0, le=1, description="exact ALS: the same for right items")
    target: Literal["one", "value"] = Field("one", description="exact ALS: s_i: 1, or the corpus's own")
    tolerance: float = Field(1e-8, ge=0, description="exact ALS: stops where a sweep lowers F by less of it")
    regularization: float = Field(0.01, ge=0, description="implicit ALS: ρ, the weight of ‖u‖² and ‖v‖²")
    confidence: float = Field(1.0, gt=0, description="implicit ALS: weight of a training pair; others have 1")

    @property
    def label(self) -> str:
        """The method's name as tables show it, such as ``exact ALS λ=30 γ=0,0``."""
        if self.name == "exact-als":
            return f"exact ALS λ={self.gravity:g} γ={self.gamma_left:g},{self.gamma_right:g}"
        return {"popularity": "popularity", "implicit-als": "implicit ALS"}[self.name]


class BaselineConfig(Section):
    """One fit of a baseline."""

    data: DataSection
    baseline: BaselineSection
    evaluation: EvaluationSection = EvaluationSection()


class SplitSection(Section):
    """The train/validation split (`gramrun.data.split`)."""

    validation_fraction: float = Field(0.2, gt=0, lt=1, description="expected share of validation pairs")
    seed: int = Field(0, ge=0, lt=2**32, description="another seed gives an independent split")
    tuning_fraction: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="a corpus to choose hyper-parameters on: the validation pairs are dropped, and this "
        "share of the training pairs takes their place",
    )


class SyntheticSection(Section):
    """The planted corpus (`gramrun.data.synthetic`)."""

    left_items: int = Field(600, ge=2, description="how many left items")
    right_items: int = Field(400, ge=2, description="how many right items")
    pairs_per_left_item: int = Field(20, ge=1, description="links of each left item")
    rank: int = Field(8, ge=1, description="planted dimension, and number of tags")
    popularity_exponent: float = Field(0.8, ge=0, description="Zipf exponent of the right items")
    seed: int = Field(0, ge=0, lt=2**32, description="of everything drawn")

    @model_validator(mode="after")
    def _enough_right_items(self) -> SyntheticSection:
        if self.pairs_per_left_item > self.right_items:
            raise ValueError("pairs_per_left_item cannot exceed right_items")
        return self


class PrepareConfig(Section):
    """What ``gramrun prepare`` accepts through ``--set``."""

    split: SplitSection = SplitSection()
    synthetic: SyntheticSection = SyntheticSection()
