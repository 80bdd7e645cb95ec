"""A dot plot: a panel for each data set, a row for each method, a point for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from gramrun.runs.panels import FONT_SIZE, PANEL_WIDTH, SMALL_FONT_SIZE, line_style, require

_WIDTH = 1.6 * PANEL_WIDTH
_ROW_HEIGHT = 0.2  # inches
_PANEL_REST = 0.65  # inches of a panel that are not rows: title and x axis
_NEVER = 1.05  # x position of infinite values, as a multiple of the limit


def points_figure(
    frame: pd.DataFrame, value_label: str, *, limit: float | None = None, beyond: str = "never"
) -> Figure:
    """A row for each method, with a point for each seed and a line over their range.

    Args:
        frame: one row for each number, with the columns ``panel``, ``label``, ``series`` and ``value``;
            panels and rows keep the order of first mention, from the top. Infinite values are hollow
            points beyond `limit`.
        value_label: the label of the x axis.
        limit: the end of the axis; required if a value is not finite.
        beyond: the name of hollow points in the legend.

    Raises:
        InputError: if the frame is empty or lacks a column.
    """
    require(frame, ("panel", "label", "series", "value"))
    assert limit is not None or np.isfinite(frame["value"]).all()
    panels = frame["panel"].unique()
    rows = [frame.loc[frame["panel"] == name, "label"].nunique() for name in panels]
    styles = {str(name): _style(i) for i, name in enumerate(frame["series"].unique())}
    figure = Figure(
        figsize=(_WIDTH, sum(_PANEL_REST + _ROW_HEIGHT * n for n in rows)),
        layout=ConstrainedLayoutEngine(h_pad=0.06),
    )
    axes = figure.subplots(
        len(panels), 1, squeeze=False, height_ratios=[_PANEL_REST + _ROW_HEIGHT * n for n in rows]
    )
    for axis, name in zip(axes.flat, panels, strict=True):
        _draw_panel(axis, frame[frame["panel"] == name], styles, limit)
        axis.set_title(str(name), fontsize=FONT_SIZE)
        axis.set_xlabel(value_label, fontsize=FONT_SIZE)
    if limit is not None and not np.isfinite(frame["value"]).all():
        styles[beyond] = {"color": "0.35", "marker": "o", "markersize": 4, "mfc": "none", "linestyle": "none"}
    _put_legend(figure, styles)
    return figure


def _style(index: int) -> dict[str, Any]:
    return {**line_style(index), "linestyle": "none", "markersize": 4}


def _draw_panel(
    axis: Axes, frame: pd.DataFrame, styles: Mapping[str, dict[str, Any]], limit: float | None
) -> None:
    labels = list(frame["label"].unique())
    present = [name for name in styles if name in set(frame["series"])]
    for (row, name), values in frame.groupby(["label", "series"], sort=False)["value"]:
        # Series of one row are drawn a little apart.
        shared = [s for s in present if s in set(frame.loc[frame["label"] == row, "series"])]
        y = labels.index(row) + 0.3 * (shared.index(str(name)) - (len(shared) - 1) / 2)
        _draw_points(axis, list(values), y, styles[str(name)], limit)
    axis.grid(visible=True, axis="x", color="0.9", linewidth=0.5)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=SMALL_FONT_SIZE, width=0.5)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.4, -0.6)
    axis.set_xlim(0, None if limit is None else 1.1 * limit)


def _draw_points(
    axis: Axes, values: Sequence[float], y: float, style: Mapping[str, Any], limit: float | None
) -> None:
    shown = [value if np.isfinite(value) else _NEVER * (limit or 0) for value in values]
    axis.plot([min(shown), max(shown)], [y, y], color=style["color"], linewidth=1, alpha=0.4)
    for value, x in zip(values, shown, strict=True):
        hollow = {} if np.isfinite(value) else {"mfc": "white", "markeredgewidth": 0.8}
        axis.plot([x], [y], **{**style, **hollow})


def _put_legend(figure: Figure, styles: Mapping[str, dict[str, Any]]) -> None:
    """Put the legend above the panels and increase the figure's height by its own."""
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    figure.legend(
        handles=handles if len(handles) > 1 else [],
        loc="outside upper center",
        ncols=len(handles),
        fontsize=SMALL_FONT_SIZE,
        frameon=False,
        title="a point for each seed, a line over their range",
        title_fontsize=SMALL_FONT_SIZE,
    )
    figure.set_figheight(figure.get_figheight() + 0.35)
