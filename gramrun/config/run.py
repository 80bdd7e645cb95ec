"""The configuration of ``gramrun train`` and ``gramrun gram-error``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gramrun.config.base import DataSection, EvaluationSection, Interval, Section, TimedInterval
from gramrun.config.estimator import EstimatorSection


class ModelSection(Section):
    """The two towers (`gramrun.model.towers`)."""

    embedding_dim: int = Field(35, ge=1, description="k, the width of the embeddings")
    input_dim: int = Field(64, ge=1, description="width of each feature's input embedding (hidden towers)")
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((), description="hidden widths; [] is linear")
    output: Literal["linear", "relu"] = Field("linear", description="activation of the output layer")
    skip: bool = Field(False, description="add a linear map of the inputs to the output")
    bag: Literal["sum", "mean"] = Field("sum", description="how the values of one bag are combined")
    table_scale: float = Field(0.1, gt=0, description="standard deviation of the initial table entries")

    products: Literal["float32", "tf32", "bfloat16"] = Field(
        "float32",
        description="rounding of factors: bfloat16 in dense layers; tf32 in all, on a GPU only",
    )

    @model_validator(mode="after")
    def _skip_needs_hidden(self) -> ModelSection:
        if self.skip and not self.hidden:
            raise ValueError("skip: true needs hidden layers to skip; set model.hidden or drop skip")
        return self

    @property
    def table_dim(self) -> int:
        """The width of the feature tables."""
        return self.input_dim if self.hidden else self.embedding_dim


class PriorSection(Section):
    """The prior of inner products in the gravity term (`gramrun.gramian.low_rank_prior`, Appendix C)."""

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
    """The objective and its optimization."""

    epochs: float | None = Field(None, gt=0, le=1e9, description="passes over the training pairs; or steps")
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
    id_dropout_left: float = Field(
        0.0, ge=0, lt=1, description="share of a batch's left items that are embedded without their id"
    )
    id_dropout_right: float = Field(
        0.0, ge=0, lt=1, description="the same for right items; for recommending items never seen"
    )
    target: Literal["one", "value"] = Field("one", description="s_i: 1, or the corpus's own (a rating)")
    prior: PriorSection = PriorSection()
    temperature: float = Field(1.0, gt=0, description="batch-softmax: scores are ⟨u, v⟩ / temperature")
    optimizer: Literal["adagrad", "adam", "sgd", "sparse-adam"] = Field(
        "adagrad",
        description="torch's own; sparse-adam is Adam on the rows of a batch only: the moments of the others "
        "stay as they are, and no step is made there",
    )
    initial_accumulator: float = Field(0.0, ge=0, description="adagrad: where its sums of squares start")
    momentum: float = Field(0.9, ge=0, lt=1, description="adam and sparse-adam: β₁; 0: none, as in RMSprop")
    l2: float = Field(
        0.0, ge=0, description="μ, the weight of the L2 penalty of the tables, a mean over pairs"
    )
    l2_exponent: float = Field(
        1.0, ge=0, le=1, description="ν: rows weigh frequency^ν in it: 1 once a pair, 0 each row once"
    )
    dense_l2: float = Field(0.0, ge=0, description="weight of ‖W‖² of the dense layers and their biases")
    reduction: Literal["mean", "sum"] = Field(
        "mean", description="over B': a sum multiplies the gradient by batch_size, as η for sgd"
    )
    engine: Literal["compiled", "plain", "static"] = Field(
        "compiled",
        description="compiled loops for the tables (on a GPU: plain), torch's own, or "
        "CUDA graphs (not for sparse-adam)",
    )
    tables: Literal["replicated", "row-wise"] = Field(
        "replicated",
        description="each of several processes holds whole tables, or a part of their rows (for sgd and "
        "adagrad, on CPUs; needs TorchRec)",
    )
    start: Literal["random", "svd"] = Field(
        "random", description="svd: linear towers start at a decomposition of the pairs, not at table_scale"
    )
    learning_rate: float = Field(0.05, gt=0, description="η of the feature tables")
    dense_learning_rate: float | None = Field(None, gt=0, description="η of dense layers; null: the same")
    decay_from: float = Field(
        1.0, ge=0, le=1, description="part of the steps after which both η fall linearly to 0; 1: never"
    )
    checkpoint_every: TimedInterval = Field(
        TimedInterval(count=1, unit="epochs"), description="0: only at the end, and when interrupted"
    )
    checkpoints_kept: int = Field(
        2, ge=1, description="the newest ones are kept; older ones are a fallback if the last is damaged"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="determines parameters and batches")

    @model_validator(mode="after")
    def _keys_of_one_optimizer(self) -> TrainSection:
        if self.initial_accumulator and self.optimizer != "adagrad":
            raise ValueError("initial_accumulator is for optimizer: adagrad only; drop it")
        if self.momentum != 0.9 and self.optimizer not in ("adam", "sparse-adam"):
            raise ValueError("momentum is for optimizer: adam and sparse-adam only; drop it")
        if self.momentum > 0.998 and self.optimizer == "adam" and self.engine == "compiled":
            raise ValueError("momentum above 0.998 needs engine: plain with optimizer: adam")
        return self

    @model_validator(mode="after")
    def _what_split_tables_do(self) -> TrainSection:
        if self.tables == "replicated":
            return self
        if self.optimizer not in ("adagrad", "sgd"):
            why = (
                "it moves every row" if self.optimizer == "adam" else "fbgemm's is not compared with torch's"
            )
            raise ValueError(
                f"tables: row-wise has no {self.optimizer}: {why}; set optimizer: adagrad or sgd"
            )
        if self.engine != "compiled":
            raise ValueError(f"tables: row-wise is an engine of its own; drop engine: {self.engine}")
        return self

    @model_validator(mode="after")
    def _one_duration(self) -> TrainSection:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of train.epochs and train.steps")
        return self

    def rate_factor(self, step: int, total: int) -> float:
        """What both η are multiplied by in step `step` (from 0) of `total`."""
        if self.decay_from == 1:
            return 1.0
        return min(1.0, (1 - step / total) / (1 - self.decay_from))

    def total_steps(self, pairs: int) -> int:
        """Gradient steps of the whole run over `pairs` training pairs."""
        return self.steps or max(1, round((self.epochs or 0) * pairs / self.batch_size))


class TrainingEvaluationSection(EvaluationSection):
    """The ranking protocol, and further measurements of `gramrun train`."""

    inner_products: int = Field(
        0,
        ge=0,
        description="pairs of each kind whose ⟨u, v⟩ go into inner_products.csv (Appendix B); 0: none",
    )


class GramErrorSection(Section):
    """The measurements of ``gramrun gram-error`` along the trajectory."""

    every: Interval = Field(
        Interval(count=100, unit="steps"),
        description="how often errors are measured, besides the first and last step",
    )
    estimators: tuple[EstimatorSection, ...] = Field((), description="estimators that observe the trajectory")
    reference: Literal["exact", "sampled"] = Field(
        "exact", description="the true Gramian: over the whole corpus, or over a large sample (Appendix D)"
    )
    reference_samples: int = Field(
        1_000_000, ge=2, description="members drawn at each measurement for a sampled reference"
    )
    drift: bool = Field(
        True, description="measure ‖G(t) − G(t−1)‖ too, for `plot theory`: a second Gramian each time"
    )


class LogSection(Section):
    """Further logs of a run; nothing here changes a result (`gramrun.training.progress`)."""

    tensorboard: bool = Field(
        False, description="`train` writes RUN/tensorboard too; needs `pip install 'gramrun[tensorboard]'`"
    )
    gramian_samples: int = Field(
        0,
        ge=0,
        description="at each evaluation measure the error of both Gramian estimates against as many drawn "
        "members, or against all items where there are no more; 0: off",
    )


class RunConfig(Section):
    """One training run."""

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: the CPU")
    data: DataSection
    model: ModelSection = ModelSection()
    estimator: EstimatorSection
    train: TrainSection
    evaluation: TrainingEvaluationSection = TrainingEvaluationSection()
    gram_error: GramErrorSection = GramErrorSection()
    log: LogSection = LogSection()

    @model_validator(mode="after")
    def _sections_agree(self) -> RunConfig:
        estimator, train = self.estimator, self.train
        if train.objective == "batch-softmax" and estimator.name != "none":
            raise ValueError("train.objective: batch-softmax has no Gramians; set estimator.name: none")
        exact = estimator.name == "exact" or (estimator.name == "sogram" and estimator.start == "exact")
        if exact and (train.id_dropout_left or train.id_dropout_right):
            key = "name" if estimator.name == "exact" else "start"
            raise ValueError(
                f"estimator.{key}: exact embeds every item with its id; drop train.id_dropout_left and "
                f"id_dropout_right, or set another estimator.{key}"
            )
        if estimator.name == "none" and train.objective != "batch-softmax" and train.gravity > 0:
            raise ValueError(
                "estimator.name: none goes with train.objective: batch-softmax, or with train.gravity: 0"
            )
        if train.objective != "gravity" and train.target != "one":
            raise ValueError(f"train.objective: {train.objective} has no targets; set train.target: one")
        if train.objective != "gravity" and train.prior.name != "none":
            raise ValueError(f"train.objective: {train.objective} has no prior; drop train.prior")
        if train.objective == "taylor-softmax" and train.gamma_left != 1:
            raise ValueError("train.objective: taylor-softmax is a mean over pairs; set train.gamma_left: 1")
        observing = [(section.label, section.gramian_batch_size) for section in self.gram_error.estimators]
        for label, size in observing:
            if observing.count((label, size)) > 1:
                raise ValueError(f"gram_error.estimators holds {label} twice at gramian_batch_size {size}")
        for section in (estimator, *self.gram_error.estimators):
            if section.cache_entry == "pair" and (train.gamma_left, train.gamma_right) != (1, 1):
                raise ValueError("cache: pair needs train.gamma_left and gamma_right of 1; set cache: item")
            if section.batch == "shared" and (train.gamma_left, train.gamma_right) != (1, 1):
                raise ValueError(
                    "batch: shared draws pairs, which needs train.gamma_left and gamma_right of 1"
                )
            reuses = section.batch in ("previous", "gradient")
            if reuses and section.gramian_batch_size != train.batch_size:
                raise ValueError(
                    f"batch: {section.batch} reuses the gradient batch, so gramian_batch_size must be "
                    f"train.batch_size, {train.batch_size}, not {section.gramian_batch_size}"
                )
        for section in self.gram_error.estimators:
            if section.batch in ("shared", "gradient"):
                raise ValueError(
                    f"gram_error.estimators observe one drawn batch a side; drop batch: {section.batch}"
                )
        if estimator.batch == "gradient" and train.objective != "gravity":
            raise ValueError("batch: gradient is for gravity; set train.objective: gravity or batch: drawn")
        return self
