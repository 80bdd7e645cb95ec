"""RESULTS.md: the report, from one template."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.report import summary
from experiments.report.runs import RunRecord, common_lines, environment, hours, read_record, time_table
from experiments.report.sections import Section, Table
from experiments.report.verdicts import Verdict, write_verdicts
from gramrun.base.files import write_text

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Report:
    """The results of one call of `experiments.reproduce`.

    Attributes:
        title: the heading.
        command: the command that makes the whole report.
        folder: where it is written; each section's files are in a folder of its name there.
        sections: in the order of reading.
        verdicts: of `verdicts.judge`.
        provenance: of the machine that writes the report.
        created: when.
        note: what a reader has to know of this profile's measurements.
        absent: corpora and items that are left out, and why.
    """

    title: str
    command: str
    folder: Path
    sections: Sequence[Section]
    verdicts: Sequence[Verdict]
    provenance: Mapping[str, Any]
    created: str
    note: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Grid:
    """A table as the template shows it: heads with whether a column is numeric, and cells as text."""

    name: str
    caption: str
    heads: list[tuple[str, bool]]
    rows: list[list[str]]


@dataclass(frozen=True)
class _Part:
    section: Section
    grids: list[_Grid]
    lines: list[tuple[str, str]]


def write_report(report: Report) -> Path:
    """Write RESULTS.md, whose path is returned, claims.json and runs.csv.

    Raises:
        InputError: a run has no manifest.
    """
    records = {path: read_record(path) for section in report.sections for path in section.runs}
    parts = [_part(report, section, records) for section in report.sections]
    times = time_table(list(records.values()))
    write_verdicts(report.verdicts, report.folder / "claims.json")
    write_text(report.folder / "runs.csv", times.to_csv(index=False))
    path = report.folder / "RESULTS.md"
    write_text(path, render(report, parts, hours(times)))
    return path


def render(report: Report, parts: Sequence[_Part], spent: str) -> str:
    """RESULTS.md; `spent` says how long the runs took."""
    comparisons = pd.DataFrame(summary.comparisons(report.verdicts), dtype=str)
    return (
        _environment()
        .get_template("RESULTS.md.jinja")
        .render(
            report=report,
            parts=parts,
            summary=summary.summary(report.verdicts),
            tally=summary.tally(report.verdicts),
            rule=f"{summary.RULE} {report.note}".strip(),
            details=summary.DETAILS,
            claims=summary.claim_rows(report.verdicts),
            comparisons=_grid(Table("comparisons", "", comparisons)),
            untested=summary.untested(report.verdicts),
            origin=_origin(report),
            spent=spent,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "line": lambda text: " ".join(str(text).split()).replace("|", "\\|"),  # a bar would end a cell
        "anchor": lambda title: re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"),
    }
    return environment


def _part(report: Report, section: Section, records: Mapping[Path, RunRecord]) -> _Part:
    return _Part(
        section,
        [_grid(table) for table in section.tables],
        [("Command", report.command), *common_lines([records[path] for path in section.runs])],
    )


def _grid(table: Table) -> _Grid:
    frame = table.frame
    numeric = [numeric_column(frame.iloc[:, place]) for place in range(frame.shape[1])]
    return _Grid(
        table.name,
        table.caption,
        list(zip(map(str, frame.columns), numeric, strict=True)),
        [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)],
    )


def _origin(report: Report) -> list[tuple[str, str]]:
    """What the report itself came from, as (what, value) lines."""
    made = dict(report.provenance)
    return [
        ("Command", report.command),
        ("Written", report.created),
        ("Code", str(made.get("git_commit") or "unknown")),
        ("Environment", environment(made)),
        *(("Left out", f"{name}: {reason}") for name, reason in report.absent.items()),
    ]


def cell(value: Any) -> str:
    """One cell of a table as text: a dash for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_NUMBER = re.compile(r"[\[(≈~<>≤≥ ]*[+−-]?(\d[\d,]*(\.\d*)?|\.\d+)([eE][+−-]?\d+)?\s?[KMG%]?(?![\w-])")


def numeric_column(column: pd.Series) -> bool:
    """Whether all cells that are not empty begin with a number, as "0.12 ± 0.05", "−4.0 %" or "4.6M"."""
    texts = [text for text in map(cell, column) if text.strip(" –-")]
    return bool(texts) and all(map(_NUMBER.match, texts))
