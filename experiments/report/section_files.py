"""A section's files: each figure drawn once, as PNG for RESULTS.md and SVG for report.html; tables as CSV."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure as Drawing

from experiments.report.sections import Figure, Section
from experiments.reproduce.plans import Plan
from gramrun.base.files import write_text
from gramrun.runs import figures, plotting


def write_figure(plan: Plan, drawing: Drawing, name: str, caption: str) -> Figure:
    """Write one figure into the plan's folder, which must exist; return what the section says of it."""
    for suffix in (".png", ".svg"):
        plotting.save(drawing, plan.folder / f"{name}{suffix}")
    return Figure(name, caption)


def draw_runs(plan: Plan, kind: str, paths: list[Path], dataset: str, caption: str) -> Figure:
    """Draw what ``gramrun plot KIND RUN...`` would, as ``<kind>-<dataset>``."""
    return write_figure(plan, figures.make(kind, paths), f"{kind}-{dataset}", f"{dataset}: {caption}")


def write_tables(plan: Plan, section: Section) -> None:
    """Write a section's tables into the plan's folder."""
    for table in section.tables:
        write_text(plan.folder / f"{table.name}.csv", table.frame.to_csv(index=False))
