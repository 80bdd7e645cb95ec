"""What ``gramrun prepare`` accepts through ``--set``."""

from __future__ import annotations

import datetime
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gramrun.config.base import Section

SplitBy = Literal["pairs", "right-items", "left-items"]


class SplitSection(Section):
    """The train/validation split (`gramrun.data.split`)."""

    validation_fraction: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="expected share of validation pairs (or items); null for the paper's, 0.1 of Wikipedia, "
        "else 0.2",
    )
    by: SplitBy = Field(
        "pairs", description="what is held out: pairs, or whole items, which then have no training pair"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="another seed gives an independent split")
    tuning_fraction: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="a corpus to choose hyper-parameters on: the validation pairs are dropped, and this "
        "share of the training pairs (or items) takes their place",
    )


class SyntheticSection(Section):
    """The synthetic corpus (`gramrun.data.synthetic`)."""

    left_items: int = Field(600, ge=2, description="number of left items")
    right_items: int = Field(400, ge=2, description="number of right items")
    pairs_per_left_item: int = Field(20, ge=1, description="links of each left item")
    rank: int = Field(8, ge=1, description="planted dimension, and number of tags")
    popularity_exponent: float = Field(0.8, ge=0, le=10, description="Zipf exponent of the right items")
    seed: int = Field(0, ge=0, lt=2**32, description="of the random draws")

    @model_validator(mode="after")
    def _enough_right_items(self) -> SyntheticSection:
        if self.pairs_per_left_item > self.right_items:
            raise ValueError("pairs_per_left_item cannot exceed right_items")
        return self


class WikipediaSection(Section):
    """Which pages, links and features of a wiki are taken (`gramrun.data.wikipedia.features`)."""

    graph: Literal["pages", "titles"] = Field(
        "pages",
        description="pages: links between articles; titles: from articles to linked titles, pages or not",
    )
    min_links: int = Field(
        1, ge=0, description="pages with fewer links, in and out together, are dropped until none is left"
    )
    min_ngram_count: int = Field(10, ge=1, description="least number of titles with a word or pair of words")
    min_category_count: int = Field(10, ge=1, description="least number of pages of a visible category")
    categories: bool = Field(True, description="false: no categories; reads no categorylinks and page_props")
    cut_off: bool = Field(
        False, description="wikipedia-xml: accept a dump that ends in the middle of a page, such as enwik9"
    )


class DumpSection(Section):
    """Which dump of a Wikipedia is taken (`gramrun.data.wikipedia.dump_download`)."""

    date: str | None = Field(
        None, pattern=r"^\d{8}$|^latest$", description="such as 20260101; null for the newest complete one"
    )
    contact: str | None = Field(
        None, description="your address or page, sent to Wikimedia's servers, which ask for one"
    )

    @field_validator("date", mode="before")
    @classmethod
    def _digits(cls, value: object) -> object:
        """YAML takes 20260101 for a number, and 2026-01-01 for a date."""
        if isinstance(value, datetime.date):
            return f"{value:%Y%m%d}"
        return str(value) if isinstance(value, int) else value


class ExpansionSection(Section):
    """An expansion of a real corpus (`gramrun.data.expansion`); null for the value of the chosen corpus."""

    base: str | None = Field(None, description="corpus to expand, unless --source is a prepared one")
    left_blocks: int | None = Field(None, ge=1, le=4096, description="rows of the reduced matrix")
    right_blocks: int | None = Field(
        None, ge=1, le=4096, description="its columns; left_blocks if only that is given"
    )
    levels: int | None = Field(
        None, ge=1, le=16, description="Kronecker factors: left_blocks^levels copies of a left item"
    )
    pairs: int | None = Field(None, ge=1, description="expected number of pairs")
    seed: int = Field(0, ge=0, lt=2**32, description="of the random draws")


class PrepareConfig(Section):
    """What ``gramrun prepare`` accepts through ``--set``."""

    split: SplitSection = SplitSection()
    synthetic: SyntheticSection = SyntheticSection()
    wikipedia: WikipediaSection = WikipediaSection()
    dump: DumpSection = DumpSection()
    expansion: ExpansionSection = ExpansionSection()
