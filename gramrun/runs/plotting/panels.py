"""What all figures share: the grid of panels, lines with bands, the legend, and writing to a file.

Panels are as wide as one column of a two-column page. A line is the mean over seeds and its band spans
their minimum and maximum; the legend says so. Lines differ in colour (Okabe and Ito's palette,
https://jfly.uni-koeln.de/color/, safe for colour-blind readers), dash pattern and marker.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from gramrun.base.errors import InputError
from gramrun.base.files import remove_orphans

PANEL_WIDTH = 3.3  # inches: one column of a two-column page
PANEL_HEIGHT = 2.2
FONT_SIZE = 8.0  # points, in a figure that is printed at its own size
SMALL_FONT_SIZE = 7.0

# Okabe and Ito's palette; grey stands in for their yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MARKERS_PER_LINE = 6

SHADE = "0.85"
ERROR_LABEL = r"$\|\hat{G} - G\|_F \,/\, \|G\|_F$ (relative)"

SAVE_METADATA: dict[str, dict[str, None]] = {  # without the date, equal figures are equal files
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all; equal figures give equal files.

    Args:
        figure: what to write.
        path: its suffix chooses the format: ``.png`` (300 dots per inch), ``.svg`` or ``.pdf``. Folders
            that are missing are made.

    Raises:
        InputError: if the suffix is another one, or the file cannot be written.
    """
    file_format = path.suffix.lower().removeprefix(".")
    if file_format not in SAVE_METADATA:
        raise InputError(f'cannot plot to {path}: end its name in .png, .svg or .pdf, not "{path.suffix}"')
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial{path.suffix}")
    # A salt makes the ids inside an SVG a function of the drawing; without it they are random.
    settings: dict[Any, Any] = {"svg.hashsalt": "gramrun", "pdf.fonttype": 42}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(path)
        with mpl.rc_context(settings):
            metadata = SAVE_METADATA[file_format]
            figure.savefig(unfinished, format=file_format, dpi=300, metadata=metadata)
        os.replace(unfinished, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # a read-only disk says so also of what is not there
            unfinished.unlink(missing_ok=True)


def require(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Check that the frame has these columns, and a row.

    Raises:
        InputError: if it has not.
    """
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(f"cannot plot: the data lacks the column {', '.join(missing)}")
    if frame.empty:
        raise InputError("cannot plot: the data has no rows")


def empty_panels(
    rows: int, columns: int, share_y: Literal["all", "col"], share_x: Literal["row", "none"] = "row"
) -> tuple[Figure, list[list[Axes]]]:
    """Return an empty grid. `Figure` without pyplot needs no display and leaves no global state behind."""
    layout = ConstrainedLayoutEngine(h_pad=0.06)  # inches: a row's x label stays clear of the next row
    figure = Figure(figsize=(PANEL_WIDTH * columns, PANEL_HEIGHT * rows), layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y, sharex=share_x)
    for panel in grid.flat:
        panel.grid(visible=True, color="0.9", linewidth=0.5)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=SMALL_FONT_SIZE, labelleft=True, width=0.5)
        panel.spines[["top", "right"]].set_visible(False)
        panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    return figure, [list(row) for row in grid]


def error_panels(
    frame: pd.DataFrame, sides: Sequence[str]
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]], pd.DataFrame]:
    """Empty panels of Gramian errors on a log scale: a row for each side, a column for each batch size.

    Returns:
        The figure, each panel with the rows of `frame` that belong in it, and all rows that are shown,
        with a column ``seed``.

    Raises:
        InputError: if the frame has no row for one of ``sides``.
    """
    missing = [side for side in sides if side not in set(frame["side"])]
    if missing or not sides:
        raise InputError(f"cannot plot: no row has the side {', '.join(missing) or 'asked for'}")
    frame = frame[frame["side"].isin(list(sides))]
    if "seed" not in frame.columns:
        frame = frame.assign(seed=0)
    batch_sizes = sorted(frame["batch_size"].unique())
    figure, axes = empty_panels(len(sides), len(batch_sizes), share_y="all")
    names = {"left": "left Gramian $G_u$", "right": "right Gramian $G_v$"}
    panels = []
    for row, side in enumerate(sides):
        for column, batch_size in enumerate(batch_sizes):
            panel = axes[row][column]
            panel.set_yscale("log", nonpositive="mask")
            panel.set_title(f"{names.get(side, side)}, B = {batch_size}", fontsize=FONT_SIZE)
            panel.set_xlabel("training steps", fontsize=FONT_SIZE)
            panel.set_ylabel(ERROR_LABEL, fontsize=FONT_SIZE)
            panels.append((panel, frame[(frame["side"] == side) & (frame["batch_size"] == batch_size)]))
    return figure, panels, frame


def draw_lines(
    panel: Axes, frame: pd.DataFrame, by: str, styles: Mapping[str, dict[str, Any]], x: str, y: str
) -> None:
    """One line for each label that the frame has, with a band where there are several seeds."""
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


def shade_reference(panels: Sequence[tuple[Axes, pd.DataFrame]]) -> None:
    """Grey out what lies below the reference's own standard error, where its noise hides the estimate's."""
    curves = [over_seeds(shown, "step", "reference_error") for _, shown in panels]
    low, _ = panels[0][0].get_ylim()
    floor = min([low, *(curve["mean"].min() / 2 for curve in curves)])
    for (panel, _), curve in zip(panels, curves, strict=True):
        panel.fill_between(curve["x"], floor, curve["mean"], color=SHADE, linewidth=0, zorder=0)
    panels[0][0].set_ylim(bottom=floor)  # of all panels, and after all lines: it ends autoscaling


def over_seeds(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean, least and greatest ``y`` at the steps that every seed has: a mean over fewer would jump."""
    frame = frame.dropna(subset=[x, y])
    groups = frame.assign(x=frame[x]).groupby("step")
    curve = groups.agg(
        x=("x", "mean"), mean=(y, "mean"), low=(y, "min"), high=(y, "max"), seeds=("seed", "nunique")
    )
    return curve[curve["seeds"] == frame["seed"].nunique()]


def line_style(index: int) -> dict[str, Any]:
    """Colour, dashes and marker of the line with this index; each differs between neighbours."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        # Shifted at each turn of the palette, so that 32 lines differ.
        "linestyle": DASHES[(index + index // len(COLOURS)) % len(DASHES)],
        "linewidth": 1.1,
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 3.5,
        "markeredgewidth": 0,
    }


def put_legend(
    figure: Figure, styles: Mapping[str, dict[str, Any]], seeds: pd.Series[int], panel_columns: int
) -> None:
    """Put the legend above the panels, where it covers no data, and make the figure taller by its height."""
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    # 0.55 em is DejaVu Sans' mean letter width; a handle and its spacing take about 5 em.
    entry = SMALL_FONT_SIZE * (5 + 0.55 * max(map(len, styles))) / 72
    columns = max(1, min(len(styles), int(PANEL_WIDTH * panel_columns / entry)))
    fewest, most = seeds.min(), seeds.max()
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=columns,
        fontsize=SMALL_FONT_SIZE,
        frameon=False,
        handlelength=3.2,
        title=f"line: mean of {count} seeds, band: minimum to maximum" if most > 1 else None,
        title_fontsize=SMALL_FONT_SIZE,
    )
    lines = math.ceil(len(styles) / columns) + int(most > 1)
    figure.set_figheight(figure.get_figheight() + 1.6 * SMALL_FONT_SIZE * lines / 72)
