"""What an experiment tells: one section of the report, as a plain record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

Seeds = tuple[float, ...]  # one number a seed, in the order of the plan's seeds


@dataclass(frozen=True)
class Table:
    """One table of a section; also written as ``<section>/<name>.csv``.

    Attributes:
        name: of its file.
        caption: what its numbers are: units, seeds, what ± means.
        frame: one row a line, cells as they are to be read; its columns are the heads.
    """

    name: str
    caption: str
    frame: pd.DataFrame


@dataclass(frozen=True)
class Figure:
    """One figure of a section, drawn as ``<section>/<name>.png`` and ``.svg``."""

    name: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One figure or table of the paper, or one question of ours, as it came out.

    Attributes:
        name: of its item (`experiments.reproduce.items`); its files are in a folder of this name.
        title: a heading.
        source: where the paper has it, as "Figure 2, Section 4.2"; empty for ours.
        verdict: a paragraph in words, made from the numbers.
        tables: in the order of reading.
        figures: in the order of reading.
        measured: for the claims (`experiments/report/claims.yaml`): a name as "enwik8/SOGram α=0.1/error"
        to one
            number a seed.
        runs: the run directories behind it.
    """

    name: str
    title: str
    source: str
    verdict: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    measured: Mapping[str, Seeds] = field(default_factory=dict)
    runs: tuple[Path, ...] = ()


def spread(values: Seeds, digits: int = 4) -> str:
    """Mean ± standard deviation over seeds, or the one value."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def interval(values: Seeds) -> tuple[float, float]:
    """The mean's 95 % interval by Student's t; both ends are NaN where there are fewer than two seeds."""
    if len(values) < 2:
        return (float("nan"), float("nan"))
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)
