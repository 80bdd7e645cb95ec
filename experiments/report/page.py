"""RESULTS.md and report.html: two templates of one structure.

report.html is one file that loads nothing from the network: figures are data addresses, and a
Content-Security-Policy allows one script, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from experiments.report import summary
from experiments.report.runs import RunRecord, common_lines, environment, read_record
from experiments.report.sections import Figure, Section, Table
from experiments.report.verdicts import Verdict, write_verdicts
from gramrun.base.errors import InputError
from gramrun.base.files import write_json, write_text

HERE = Path(__file__).parent
POINT = 1.25 * 4 / 3  # CSS pixels, and a quarter more: figures are drawn for a printed column
PATHS = re.compile(r'\bd="[^"]*"')
DECIMALS = re.compile(r"(\.\d\d)\d+")  # without these a drawing is a third of its size


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
        absent: corpora and items that are left out, and why.
    """

    title: str
    command: str
    folder: Path
    sections: Sequence[Section]
    verdicts: Sequence[Verdict]
    provenance: Mapping[str, Any]
    created: str
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Grid:
    """A table as both templates show it: heads with whether a column is numeric, and cells as text."""

    name: str
    caption: str
    heads: list[tuple[str, bool]]
    rows: list[list[str]]
    csv: str


@dataclass(frozen=True)
class _Drawing:
    figure: Figure
    address: str  # of the SVG, as data
    width: int  # in CSS pixels


@dataclass(frozen=True)
class _Part:
    section: Section
    paragraphs: list[str]
    drawings: list[_Drawing]
    grids: list[_Grid]
    lines: list[tuple[str, str]]
    records: list[RunRecord]


def write_report(report: Report) -> Path:
    """Write RESULTS.md (whose path is returned), report.html, claims.json and runs.json.

    Raises:
        InputError: a figure's drawing is missing, or a run has no manifest.
    """
    parts = [_part(report, section) for section in report.sections]
    markdown, html = render(report, parts)
    write_verdicts(report.verdicts, report.folder / "claims.json")
    runs = {part.section.name: [asdict(record) for record in part.records] for part in parts}
    write_json(report.folder / "runs.json", runs)
    write_text(report.folder / "report.html", html)
    path = report.folder / "RESULTS.md"
    write_text(path, markdown)
    return path


def render(report: Report, parts: Sequence[_Part]) -> tuple[str, str]:
    """RESULTS.md and report.html."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    shown = {
        "report": report,
        "parts": parts,
        "summary": summary.summary(report.verdicts),
        "tally": summary.tally(report.verdicts),
        "rule": summary.RULE,
        "claims": summary.claim_rows(report.verdicts),
        "comparisons": _grid(
            Table("comparisons", "", pd.DataFrame(summary.comparisons(report.verdicts), dtype=str))
        ),
        "untested": summary.untested(report.verdicts),
        "origin": _origin(report),
        "style": Markup(style),  # files of this package, without markup in them
        "script": Markup(script),
        "script_hash": f"sha256-{digest}",
    }
    markdown, html = (
        _environment(escape=name.endswith("html.jinja")).get_template(name).render(shown)
        for name in ("RESULTS.md.jinja", "report.html.jinja")
    )
    return markdown, html


def _environment(*, escape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "line": lambda text: " ".join(str(text).split()).replace("|", "\\|"),  # a bar would end a cell
        "anchor": lambda title: re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"),
        "outcome_class": lambda outcome: outcome.lower().replace(" ", "-"),
        "sort_key": _sort_key,
    }
    return environment


def _part(report: Report, section: Section) -> _Part:
    records = [read_record(path) for path in section.runs]
    return _Part(
        section,
        re.split(r"\n\s*\n", section.summary.strip()),
        [_drawing(report.folder / section.name, figure) for figure in section.figures],
        [_grid(table) for table in section.tables],
        [("Command", report.command), *common_lines(records)],
        records,
    )


def _drawing(folder: Path, figure: Figure) -> _Drawing:
    """A figure as a data address; a browser runs no script in an image."""
    path = folder / f"{figure.name}.svg"
    try:
        svg = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; draw the figure again") from None
    small = PATHS.sub(lambda found: DECIMALS.sub(r"\1", found[0]), svg)
    width = re.search(r'<svg[^>]*? width="([\d.]+)pt"', small)
    data = base64.b64encode(small.encode()).decode()
    return _Drawing(
        figure, f"data:image/svg+xml;base64,{data}", round(POINT * float(width[1])) if width else 800
    )


def _grid(table: Table) -> _Grid:
    frame = table.frame
    numeric = [numeric_column(frame.iloc[:, place]) for place in range(frame.shape[1])]
    return _Grid(
        table.name,
        table.caption,
        list(zip(map(str, frame.columns), numeric, strict=True)),
        [[cell(value) for value in row] for row in frame.itertuples(index=False, name=None)],
        f"data:text/csv;charset=utf-8,{urllib.parse.quote(frame.to_csv(index=False))}",
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


_NUMBER = re.compile(
    r"[\[(≈~<>≤≥ ]*([+−-]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][+−-]?\d+)?)\s?([KMG%]?)(?![\w-])"
)


def leading_number(text: str) -> float | None:
    """The number that a cell begins with, as "0.1254 ± 0.0005", "−4.0 %" or "4.6M"; None without one."""
    found = _NUMBER.match(text)
    if not found:
        return None
    value = float(found[1].replace(",", "").replace("−", "-"))
    return value * {"K": 1e3, "M": 1e6, "G": 1e9}.get(found[2], 1.0)


def numeric_column(column: pd.Series) -> bool:
    """Whether all cells of a column that are not empty begin with a number."""
    texts = [text for text in map(cell, column) if text.strip(" –-")]
    return bool(texts) and all(leading_number(text) is not None for text in texts)


def _sort_key(value: Any) -> Markup:
    """The attribute that sorting reads, for a cell that begins with a number."""
    found = leading_number(cell(value))
    return Markup("") if found is None else Markup(' data-number="{}"').format(repr(found))
