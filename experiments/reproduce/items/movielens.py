"""Appendix E: MAP@10 along training on MovieLens, with ratings as targets and gravity over pairs."""

from __future__ import annotations

from dataclasses import replace

from experiments.report.sections import Section
from experiments.reproduce.items import final_map, map_curves
from experiments.reproduce.items.map_curves import tasks
from experiments.reproduce.plans import Plan

__all__ = ["section", "tasks"]


def section(plan: Plan) -> Section:
    """The curves and the tables of `map_curves` and `final_map`, for MovieLens."""
    curves, final = map_curves.section(plan), final_map.section(plan)
    return replace(
        curves,
        title="MovieLens: MAP@10",
        source="Appendix E",
        tables=final.tables + curves.tables,
    )
