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

    name: Literal["sampling", "sogram", "sagram", "exact"] = Field(
        description="the method; exact recomputes the Gramians at every step"
    )
    alpha: float = Field(0.01, gt=0, le=1, description="SOGram's Gramian learning rate")
    beta: Annotated[Literal["1/n", "1"], BeforeValidator(_beta)] = Field(
        "1", description="SAGram's form: 1/n (SAG, biased, PSD) or 1 (SAGA, unbiased)"
    )
    project: bool = Field(True, description="project SAGA estimates onto the PSD cone")
    gramian_batch_size: int = Field(1024, ge=1, description="size of B, which updates the Gramians")

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
    weighting: Literal["frequency", "uniform"] = Field(
        "frequency", description="Gramians over pairs (the paper) or over distinct items (its footnote 4)"
    )
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
