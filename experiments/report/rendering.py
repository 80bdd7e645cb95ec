"""RESULTS.md: the verdicts on the paper's claims first, then each section with its tables and figures.

`experiments.report.html_report` renders the same `Report` as one HTML file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.report import claim_tables
from experiments.report.claim_tables import Untested
from experiments.report.run_records import RunRecord, common_lines, read_record
from experiments.report.sections import Section
from experiments.report.verdicts import Verdict
from gramrun.base.files import write_json, write_text


@dataclass(frozen=True)
class Report:
    """All that one call of `experiments.reproduce.pipeline` has to tell.

    Attributes:
        title: the heading.
        command: what makes the whole report.
        folder: where it is written; each section's files are in a folder of its name there.
        sections: in the order of reading.
        verdicts: of `experiments.report.verdicts.judge`.
        provenance: of `gramrun.base.provenance.provenance`, of the machine that wrote the report.
        created: when, as `gramrun.base.provenance.now` tells it.
        absent: corpora that could not be had, and why.
    """

    title: str
    command: str
    folder: Path
    sections: Sequence[Section]
    verdicts: Sequence[Verdict]
    provenance: Mapping[str, Any]
    created: str
    absent: Mapping[str, str] = field(default_factory=dict)


def origin_lines(report: Report) -> list[tuple[str, str]]:
    """What the report itself came from, as (what, value) lines."""
    made = report.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made.get("versions", {}).items())
    return [
        ("Command", report.command),
        ("Written", report.created),
        ("Code", str(made.get("git_commit") or "unknown")),
        ("Versions", f"Python {made.get('python')}, {versions}"),
        ("Machine", f"{made.get('processor')}, {made.get('host_threads')} cores"),
        *(("Left out", f"{name}: {reason}") for name, reason in report.absent.items()),
    ]


def records(section: Section) -> list[RunRecord]:
    """The runs behind a section."""
    return [read_record(path) for path in section.runs]


def cell(value: Any) -> str:
    """One cell of a table as it is read: a dash for what is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def markdown(report: Report) -> str:
    """The whole of RESULTS.md; pictures are linked as ``<section>/<figure>.png``."""
    counts = ", ".join(f"{n} {outcome}" for outcome, n in claim_tables.tally(report.verdicts).items())
    parts = [
        f"# {report.title}",
        "\n".join(f"- {what}: {_code(what, value)}" for what, value in origin_lines(report)),
        "## The paper's claims",
        f"{claim_tables.summary(report.verdicts)} By comparison: {counts}.",
        _claims_table(report),
        claim_tables.rule(report.verdicts),
        "### Every comparison",
        _comparisons_table(report),
        "### Claims that were not tested here",
        "\n".join(_untested(group) for group in claim_tables.untested(report.verdicts)) or "None.",
        "## Contents",
        "Every run with its command and whole hashes: [runs.json](runs.json). Every verdict with the numbers "
        "that it was made from: [claims.json](claims.json). As one page: [report.html](report.html).",
        "\n".join(f"- [{section.title}](#{_anchor(section.title)})" for section in report.sections),
    ]
    for section in report.sections:
        parts += _section(section, report.command)
    return "\n\n".join(parts) + "\n"


def write_markdown(report: Report) -> Path:
    """Write ``RESULTS.md`` into the report's folder; return its path."""
    path = report.folder / "RESULTS.md"
    write_text(path, markdown(report))
    return path


def write_runs(report: Report) -> Path:
    """Write ``runs.json``, every run behind every section with its whole hashes; return its path."""
    path = report.folder / "runs.json"
    write_json(path, {section.name: [asdict(r) for r in records(section)] for section in report.sections})
    return path


def _claims_table(report: Report) -> str:
    rows = [
        {
            "the paper says": f"{line.claim.says} ({line.claim.source}: {line.claim.paper})",
            "here": ", ".join(f"**{outcome}** {count}" for outcome, count in line.counts.items()),
            "measured": f"{line.claim.compared}: {line.measured}",
            "where not": line.details or "–",
            "on": ", ".join(line.corpora),
            "not tested on": "; ".join(line.absent) or "–",
            "command": f"`{line.command}`",
        }
        for line in claim_tables.claim_lines(report.verdicts)
    ]
    return _table(pd.DataFrame(rows))


def _comparisons_table(report: Report) -> str:
    rows = [
        {
            "claim": f"`{row.claim.id}`",
            "corpus": row.dataset,
            "case": row.case or "–",
            "verdict": str(row.outcome),
            "measured": row.measured,
            "95 %": row.interval,
            "seeds": str(row.seeds),
            "wanted": row.wanted,
        }
        for row in claim_tables.comparisons(report.verdicts)
    ]
    return _table(pd.DataFrame(rows))


def _untested(group: Untested) -> str:
    claims = " ".join(f"{claim.says} ({claim.source})" for claim in group.claims)
    return f"- **{_line(group.reason)}** (`{group.command}`): {claims}"


def _section(section: Section, command: str) -> list[str]:
    origin = f"Paper: {section.source}." if section.source else "Not in the paper: a question of ours."
    parts = [f"## {section.title}", origin, section.verdict]
    for figure in section.figures:
        parts += [f"![{_line(figure.name)}]({section.name}/{figure.name}.png)", f"*{_line(figure.caption)}*"]
    for table in section.tables:
        parts += [f"*{_line(table.caption)}* ([CSV]({section.name}/{table.name}.csv))", _table(table.frame)]
    lines = [("Command", command), *common_lines(records(section))]
    parts.append("\n".join(f"- {what}: {_code(what, value)}" for what, value in lines))
    return parts


def _table(frame: pd.DataFrame) -> str:
    if frame.empty:
        return "None."
    numeric = [numeric_column(frame.iloc[:, place]) for place in range(frame.shape[1])]
    lines = [
        "| " + " | ".join(_line(str(head)) for head in frame.columns) + " |",
        "|" + "|".join("---:" if right else "---" for right in numeric) + "|",
    ]
    cells = frame.itertuples(index=False, name=None)
    lines += ["| " + " | ".join(_line(cell(value)) for value in row) + " |" for row in cells]
    return "\n".join(lines)


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
    """Whether all cells of a column that say something begin with a number."""
    texts = [text for text in map(cell, column) if text.strip(" –-")]
    return bool(texts) and all(leading_number(text) is not None for text in texts)


def _line(text: str) -> str:
    """Text for one line of Markdown, where a bar would end a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _code(what: str, value: str) -> str:
    return f"`{value}`" if what in ("Command", "Code") else value


def _anchor(title: str) -> str:
    """The id that GitHub and GitLab give a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
