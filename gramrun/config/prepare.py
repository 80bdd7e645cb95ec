"""What ``gramrun prepare`` accepts through ``--set``."""

from __future__ import annotations

from pydantic import Field, model_validator

from gramrun.config.base import Section


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
