"""Shared parts of all figures: the style, the grid of panels, lines with bands, the legend, saving.

A panel is as wide as one column of a two-column page. A line is the mean over seeds and its band spans the
minimum to the maximum. Lines differ in colour (Okabe and Ito's palette, https://jfly.uni-koeln.de/color/,
safe for colour-blind readers), dash pattern and marker.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from gramrun.base.errors import InputError, RunError
from gramrun.base.files import new_file

PANEL_WIDTH = 3.3  # inches: one column of a two-column page
PANEL_HEIGHT = 2.2
FONT_SIZE, SMALL_FONT_SIZE = 8.0, 7.0  # points

# Okabe and Ito's palette, with grey instead of yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Places in the palette by label, without "SOGram", "bfloat16", blanks and commas.
OWN = {"sampling": 0, "α=0.1": 1, "α=0.01": 2, "α=0.005": 15, "α=0.001": 3, "exactGramian": 4, "SAGram": 5,
       "SAGramβ=1peritem": 5, "SAGramβ=1perpair": 6, "SAGramβ=1/nperpair": 7}  # fmt: skip
MARKERS_PER_LINE = 6
SHADE = "0.85"
BASELINE: dict[str, Any] = {"color": "0.35", "linestyle": (0, (8, 3)), "linewidth": 1.0}
ERROR_LABEL = r"$\|\hat{G} - G\|_F \,/\, \|G\|_F$ (relative)"

STYLE: dict[Any, Any] = {
    "axes.labelsize": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "legend.fontsize": SMALL_FONT_SIZE,
    "legend.title_fontsize": SMALL_FONT_SIZE,
    "legend.frameon": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
}
styled = mpl.rc_context(STYLE)  # decorates every function that draws a figure

# Metadata without the date, so that equal figures are equal files.
_METADATA: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save(figure: Figure, path: Path) -> None:
    """Write a figure, complete or not at all; equal figures give equal files.

    Args:
        figure: the figure.
        path: ``.png`` (300 dots per inch), ``.svg`` or ``.pdf``. Missing folders are created.

    Raises:
        InputError: if the suffix is another, or the file cannot be written.
    """
    file_format = path.suffix.lower().removeprefix(".")
    if file_format not in _METADATA:
        raise InputError(f'cannot plot to {path}: end its name in .png, .svg or .pdf, not "{path.suffix}"')
    # The salt makes the ids inside an SVG deterministic.
    options = mpl.rc_context({"svg.hashsalt": "gramrun", "pdf.fonttype": 42})
    try:
        with new_file(path) as unfinished, options:
            figure.savefig(unfinished, format=file_format, dpi=300, metadata=_METADATA[file_format])
    except RunError as error:  # an output that cannot be written is an input error
        raise InputError(str(error)) from error


def require(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Check that the frame has these columns, and a row.

    Raises:
        InputError: if it does not.
    """
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(f"cannot plot: the data lacks the column {', '.join(missing)}")
    if frame.empty:
        raise InputError("cannot plot: the data has no rows")


def empty_panels(
    rows: int, columns: int, share_y: Literal["all", "col"], share_x: Literal["row", "none"] = "row"
) -> tuple[Figure, list[list[Axes]]]:
    """An empty grid of panels. `Figure` without pyplot needs no display and no global state."""
    layout = ConstrainedLayoutEngine(h_pad=0.06)  # inches: keeps an x label clear of the next row
    figure = Figure(figsize=(PANEL_WIDTH * columns, PANEL_HEIGHT * rows), layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y, sharex=share_x)
    for panel in grid.flat:
        panel.tick_params(which="both", labelleft=True, labelsize=SMALL_FONT_SIZE)
        panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    return figure, [list(row) for row in grid]


def error_panels(
    frame: pd.DataFrame, column: str, title: str, *, descending: bool = False
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Log-scale panels of Gramian errors: a row for each side, a column for each value of `column`.

    Args:
        frame: the errors.
        column: such as ``batch_size``.
        title: of a panel, formatted with the value of `column`.
        descending: the order of the columns.

    Returns:
        The figure, and each panel with its rows of `frame`.
    """
    sides = [side for side in ("left", "right") if side in set(frame["side"])]
    if not sides:
        raise InputError("cannot plot: no row has the side left or right")
    values = sorted(frame[column].unique(), reverse=descending)
    figure, axes = empty_panels(len(sides), len(values), share_y="all")
    panels = []
    for side, row in zip(sides, axes, strict=True):
        for value, panel in zip(values, row, strict=True):
            panel.set_yscale("log", nonpositive="mask")
            name = {"left": "left Gramian $G_u$", "right": "right Gramian $G_v$"}[side]
            panel.set_title(f"{name}, {title.format(value)}")
            panel.set_xlabel("training steps")
            panel.set_ylabel(ERROR_LABEL)
            panels.append((panel, frame[(frame["side"] == side) & (frame[column] == value)]))
    return figure, panels


def draw_lines(
    panel: Axes, frame: pd.DataFrame, by: str, styles: Mapping[str, dict[str, Any]], x: str, y: str
) -> None:
    """Draw one line for each label that the frame has, with a band if there are several seeds."""
    for index, (label, style) in enumerate(styles.items()):
        curve = over_seeds(frame[frame[by] == label], x, y)
        if curve.empty:
            continue
        every = max(1, len(curve) // MARKERS_PER_LINE)
        # Staggered, so that markers of lines that run together do not hide one another.
        first = index * every // len(styles)
        panel.plot(curve["x"], curve["mean"], label=label, markevery=(first, every), **style)
        if curve["seeds"].iloc[0] > 1:
            panel.fill_between(
                curve["x"], curve["low"], curve["high"], color=style["color"], alpha=0.2, linewidth=0
            )
    if x == "step":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def shade_reference(panels: Sequence[tuple[Axes, pd.DataFrame]]) -> dict[str, dict[str, Any]]:
    """Shade errors below the standard error of a sampled reference, which its noise hides.

    Returns:
        The entry for the legend; nothing if the reference is exact.
    """
    if not any((shown["reference_error"] > 0).any() for _, shown in panels):
        return {}
    curves = [over_seeds(shown, "step", "reference_error") for _, shown in panels]
    low, _ = panels[0][0].get_ylim()
    floor = min([low, *(curve["mean"].min() / 2 for curve in curves)])
    for (panel, _), curve in zip(panels, curves, strict=True):
        panel.fill_between(curve["x"], floor, curve["mean"], color=SHADE, linewidth=0, zorder=0)
    panels[0][0].set_ylim(bottom=floor)  # of all panels; ends autoscaling, so after all lines
    return {"the sampled reference's own standard error": {"color": SHADE, "linewidth": 5}}


def over_seeds(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean, minimum and maximum of ``y`` at the steps that every seed has: a mean over fewer would jump."""
    frame = frame.dropna(subset=[x, y])
    groups = frame.assign(x=frame[x]).groupby("step")
    curve = groups.agg(
        x=("x", "mean"), mean=(y, "mean"), low=(y, "min"), high=(y, "max"), seeds=("seed", "nunique")
    )
    return curve[curve["seeds"] == frame["seed"].nunique()]


def line_styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A style for each distinct label: estimators in `OWN` have one for all figures, others what is left."""
    distinct = list(dict.fromkeys(labels))
    own = {
        label: OWN[name] for label in distinct if (name := re.sub("SOGram|bfloat16|[ ,]", "", label)) in OWN
    }
    left = (index for index in itertools.count() if index not in own.values())
    return {label: line_style(own[label] if label in own else next(left)) for label in distinct}


def line_style(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of one line; 32 consecutive lines differ."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        # Shifted at each turn of the palette.
        "linestyle": DASHES[(index + index // len(COLOURS)) % len(DASHES)],
        "linewidth": 1.1,
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 3.5,
        "markeredgewidth": 0,
    }


def put_legend(
    figure: Figure, styles: Mapping[str, dict[str, Any]], seeds: pd.Series[int], panel_columns: int
) -> None:
    """Put the legend above the panels, where it covers no data, and increase the figure's height by its own.

    Args:
        figure: the figure.
        styles: label -> line style.
        seeds: the number of seeds of each line.
        panel_columns: the number of columns of panels.
    """
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    # DejaVu Sans' mean letter width is 0.55 em; a handle with its spacing takes about 5 em.
    entry = SMALL_FONT_SIZE * (5 + 0.55 * max(map(len, styles))) / 72
    columns = max(1, min(len(styles), int(PANEL_WIDTH * panel_columns / entry)))
    fewest, most = seeds.min(), seeds.max()
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        handlelength=3.2,
        title=f"line: mean of {count} seeds, band: minimum to maximum" if most > 1 else None,
    )
    lines = math.ceil(len(styles) / columns) + int(most > 1)
    figure.set_figheight(figure.get_figheight() + 1.6 * SMALL_FONT_SIZE * lines / 72)
