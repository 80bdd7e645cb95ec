"""report.html: the whole report in one file that asks nothing of the network.

Figures are inlined as SVG, tables are sorted by their heads, and a Content-Security-Policy forbids all that
the file does not bring along; of scripts it allows one, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
import urllib.parse
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from experiments.report import claim_tables, rendering
from experiments.report.rendering import Report
from experiments.report.run_records import RunRecord, common_lines
from experiments.report.sections import Figure, Section, Table
from experiments.report.verdicts import Outcome
from gramrun.base.errors import InputError
from gramrun.base.files import write_text

HERE = Path(__file__).parent
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
POINT = 1.25 * 4 / 3  # CSS pixels, and a quarter more: figures are drawn for a printed column
DECIMALS = re.compile(r"(\.\d\d)\d+")  # of a path, in points: what is left of them is a third of the file
REFERENCE = re.compile(r"url\((['\"]?)#")


@dataclass(frozen=True)
class _Figure:
    name: str
    number: str
    caption: str
    svg: Markup


@dataclass(frozen=True)
class _Table:
    name: str
    number: str
    caption: str
    heads: list[tuple[str, bool]]  # and whether the column is of numbers
    rows: list[list[str]]
    csv: str  # a data: address


@dataclass(frozen=True)
class _Part:
    id: str
    section: Section
    paragraphs: list[Markup]
    figures: list[_Figure]
    tables: list[_Table]
    lines: list[tuple[str, str]]
    records: list[RunRecord]


def html(report: Report) -> str:
    """The whole of report.html.

    Raises:
        InputError: when a figure's SVG is missing or damaged, or a run has no manifest.
    """
    parts = _parts(report)
    style, script = (_source(name) for name in ("report.css", "report.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("report_template.html")
        .render(
            report=report,
            parts=parts,
            ids={part.section.name: part.id for part in parts},
            summary=claim_tables.summary(report.verdicts),
            tally=claim_tables.tally(report.verdicts),
            rule=claim_tables.rule(report.verdicts),
            claims=claim_tables.claim_lines(report.verdicts),
            comparisons=claim_tables.comparisons(report.verdicts),
            untested=claim_tables.untested(report.verdicts),
            origin=rendering.origin_lines(report),
            style=Markup(style),  # ours, and no HTML in it: a test holds that
            script=Markup(script),
            script_hash=f"sha256-{digest}",
        )
    )


def write_html(report: Report) -> Path:
    """Write ``report.html`` into the report's folder; return its path.

    Raises:
        InputError: when a figure's SVG is missing or damaged, or a run has no manifest.
    """
    path = report.folder / "report.html"
    write_text(path, html(report))
    return path


def inline_svg(path: Path, prefix: str, label: str) -> Markup:
    """A drawing to stand inside HTML: its ids made unique, no size but its shape, nothing that runs.

    Args:
        path: an SVG file, as matplotlib writes it.
        prefix: what ids begin with; drawings of one page share ids otherwise.
        label: for those who do not see it.

    Raises:
        InputError: when the file is missing or is no SVG.
    """
    try:
        root = ET.parse(path).getroot()
    except (OSError, ET.ParseError) as error:
        raise InputError(f"{path}: cannot be read as SVG: {error}; draw the figure again") from None
    if root.tag != f"{{{SVG}}}svg":
        raise InputError(f"{path}: is no SVG (its root is {root.tag}); draw the figure again")
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}script", f"{{{SVG}}}foreignObject"):
                parent.remove(child)
    for element in root.iter():
        for name, value in list(element.attrib.items()):
            if name.startswith("on"):
                del element.attrib[name]
            elif name == "d":
                element.set(name, DECIMALS.sub(r"\1", value))
            else:
                element.set(name, _renamed(name, value, prefix))
        if element.tag == f"{{{SVG}}}style" and element.text:
            element.text = REFERENCE.sub(rf"url(\1#{prefix}", element.text)
    width = _points(root.attrib.pop("width", ""))
    root.attrib.pop("height", None)
    if width:
        root.set("style", f"max-width: {POINT * width:.0f}px")
    root.set("role", "img")
    root.set("aria-label", label)
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return Markup(ET.tostring(root, encoding="unicode"))


def _renamed(name: str, value: str, prefix: str) -> str:
    """An attribute's value, its id or its references to ids prefixed."""
    if name == "id":
        return prefix + value
    if name in ("href", f"{{{XLINK}}}href"):
        return f"#{prefix}{value[1:]}" if value.startswith("#") else value
    return REFERENCE.sub(rf"url(\1#{prefix}", value)


def _points(length: str) -> float | None:
    found = re.fullmatch(r"([\d.]+)(pt)?", length)
    return float(found[1]) if found else None


def _parts(report: Report) -> list[_Part]:
    parts = []
    figures = tables = 0
    for section in report.sections:
        name = re.sub(r"[^a-z0-9]+", "-", section.name.lower()).strip("-")
        records = rendering.records(section)
        drawn = [
            _figure(report.folder / section.name, f"{name}-{place}-", figure, figures + place)
            for place, figure in enumerate(section.figures, start=1)
        ]
        told = [_table(table, tables + place) for place, table in enumerate(section.tables, start=1)]
        lines = [("Command", report.command), *common_lines(records)]
        paragraphs = [_prose(text) for text in re.split(r"\n\s*\n", section.verdict.strip())]
        parts.append(_Part(f"section-{name}", section, paragraphs, drawn, told, lines, records))
        figures, tables = figures + len(drawn), tables + len(told)
    return parts


def _figure(folder: Path, prefix: str, figure: Figure, number: int) -> _Figure:
    svg = inline_svg(folder / f"{figure.name}.svg", prefix, figure.caption)
    return _Figure(figure.name, f"Figure {number}", figure.caption, svg)


def _table(table: Table, number: int) -> _Table:
    frame = table.frame
    numeric = [rendering.numeric_column(frame.iloc[:, place]) for place in range(frame.shape[1])]
    text = urllib.parse.quote(frame.to_csv(index=False))
    return _Table(
        name=table.name,
        number=f"Table {number}",
        caption=table.caption,
        heads=list(zip(map(str, frame.columns), numeric, strict=True)),
        rows=[[rendering.cell(value) for value in row] for row in frame.itertuples(index=False, name=None)],
        csv=f"data:text/csv;charset=utf-8,{text}",
    )


def _prose(text: str) -> Markup:
    """A paragraph, escaped; what stands between backticks is code."""
    pieces = re.split(r"`([^`]+)`", text)
    return Markup().join(
        Markup("<code>{}</code>").format(piece) if place % 2 else escape(piece)
        for place, piece in enumerate(pieces)
    )


def _sort_key(value: Any) -> Markup:
    """The attribute that sorting reads, for a cell that begins with a number."""
    number = rendering.leading_number(rendering.cell(value))
    return Markup("") if number is None else Markup(' data-number="{}"').format(repr(number))


def _outcome_class(outcome: Outcome) -> str:
    return outcome.value.lower().replace(" ", "-")


def _source(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _environment() -> Environment:
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"sort_key": _sort_key, "outcome_class": _outcome_class}
    return environment
