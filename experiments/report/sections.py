"""One section of the report as a plain record, and the files of its figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Drawing
from scipy import stats

from gramrun.base.files import write_text
from gramrun.runs import figures, plotting

Seeds = tuple[float, ...]  # one number a seed, in the order of the plan's seeds
Values = dict[str, Seeds]  # measurements by name
REACHED = 0.9  # trained towers rank above popularity and reach this share of exact ALS of their objective


@dataclass(frozen=True)
class Table:
    """One table of a section; also written as ``<section>/<name>.csv``.

    Attributes:
        name: of its file.
        caption: what its numbers are: units, seeds, what ± means.
        frame: one row a line; its columns are the heads.
    """

    name: str
    caption: str
    frame: pd.DataFrame


@dataclass(frozen=True)
class Figure:
    """One figure of a section, drawn as ``<section>/<name>.png``."""

    name: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One figure or table of the paper, or one question of ours.

    Attributes:
        name: of its item; its files are in a folder of this name.
        title: a heading.
        source: where the paper has it, as "Figure 2, Section 4.2"; empty for ours.
        summary: a paragraph, made from the numbers.
        tables, figures: in the order of reading.
        measured: measurements for the claims: one number a seed, by name (`keys`).
        runs: the run directories behind it.
    """

    name: str
    title: str
    source: str
    summary: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    measured: Mapping[str, Seeds] = field(default_factory=dict)
    runs: tuple[Path, ...] = ()


def joined(first: Section, second: Section) -> Section:
    """One section of two plans of an item, whose tables must differ in name: each becomes a file."""
    tables = first.tables + second.tables
    assert len({table.name for table in tables}) == len(tables), [table.name for table in tables]
    return replace(
        first,
        summary=first.summary
        if first.summary == second.summary
        else f"{first.summary} {second.summary}".strip(),
        tables=tables,
        figures=first.figures + second.figures,
        measured=gather([first, second]),
        runs=tuple(dict.fromkeys(first.runs + second.runs)),
    )


def gather(sections: Sequence[Section]) -> Values:
    """All sections' measurements by name.

    Raises:
        ValueError: two sections give different numbers under one name.
    """
    measured: Values = {}
    for section in sections:
        for name, values in section.measured.items():
            numbers = tuple(float(value) for value in values)
            if not np.array_equal(measured.setdefault(name, numbers), numbers, equal_nan=True):
                raise ValueError(f"{section.name}: {name} has other numbers in another section")
    return measured


def of_common_seeds(*values: Sequence[Any]) -> list[np.ndarray]:
    """Each cut to the seeds that all of them have, which are the first: one estimator can have fewer."""
    count = min(map(len, values))
    return [np.array(of_seeds[:count]) for of_seeds in values]


def write_figure(folder: Path, drawing: Drawing, name: str, caption: str) -> Figure:
    """Write one figure into a folder, which must exist."""
    plotting.save(drawing, folder / f"{name}.png")
    return Figure(name, caption)


def draw_runs(folder: Path, kind: str, paths: Sequence[Path], dataset: str, caption: str) -> Figure:
    """Draw what ``gramrun plot KIND RUN...`` would, as ``<kind>-<dataset>``."""
    return write_figure(folder, figures.make(kind, list(paths)), f"{kind}-{dataset}", f"{dataset}: {caption}")


def write_tables(folder: Path, tables: Sequence[Table]) -> None:
    """Write tables as CSV files."""
    for table in tables:
        write_text(folder / f"{table.name}.csv", table.frame.to_csv(index=False))


def spread(values: Seeds, digits: int = 4) -> str:
    """Mean ± standard deviation over seeds, or the one value."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def interval(values: Seeds, level: float = 0.95) -> tuple[float, float]:
    """The mean's interval at a confidence level by Student's t; NaN ends for fewer than two seeds."""
    if len(values) < 2:
        return float("nan"), float("nan")
    half = stats.t.ppf((1 + level) / 2, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def geometric(ratios: Seeds, level: float = 0.95) -> tuple[float, float, float]:
    """The geometric mean of ratios and its interval: a ratio and its inverse then say the same."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a ratio of 0 makes the mean 0, without an interval
        logs = np.log(ratios)
        return tuple(np.exp([logs.mean(), *interval(tuple(logs), level)]).tolist())


def lift(ratios: Seeds) -> str:
    """A mean ratio less 1 with its 95 % interval, as "+3.2% [-1.7%, +8.0%]"; the mean alone for one seed."""
    mean, low, high = (x - 1 for x in geometric(ratios))
    return f"{mean:+.1%}" if np.isnan(low) else f"{mean:+.1%} [{low:+.1%}, {high:+.1%}]"


def share_form(value: float, limit: float) -> str:
    """The format of a share with as many decimals as keep it on its side of a limit: 89.6 % is not 90 %."""
    decimals = next((x for x in range(9) if (round(value, x + 2) >= limit) == (value >= limit)), 9)
    return f".{decimals}%"


def with_interval(values: Seeds, form: str) -> str:
    """A mean with its 95 % interval, such as "+0.0123 [+0.0100, +0.0146]"; the mean alone for one seed."""
    low, high = interval(values)
    mean = format(float(np.mean(values)), form)
    return mean if np.isnan(low) else f"{mean} [{low:{form}}, {high:{form}}]"
