r"""The paper's curves: a pandas frame in, a matplotlib figure out. No model and no torch.

=============================  ====================================================================
figure of the paper            function
=============================  ====================================================================
MAP@10 curves (4.3, app. E)    :func:`map_figure`
Gramian error (4.2)            :func:`gram_error_figure`
trade-off in alpha (4.2)       :func:`trade_off_figure`
=============================  ====================================================================

Panels are as wide as one column of a two-column page. A line is the mean over seeds and its band spans
their minimum and maximum; the legend says so. Lines differ in colour (Okabe and Ito's palette,
https://jfly.uni-koeln.de/color/, safe for colour-blind readers), dash pattern and marker.
"""

from __future__ import annotations

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

from gramrun.errors import InputError

PANEL_WIDTH = 3.3  # inches: one column of a two-column page
PANEL_HEIGHT = 2.2
FONT_SIZE = 8.0  # points, in a figure that is printed at its own size
SMALL_FONT_SIZE = 7.0

# Okabe and Ito's palette; grey stands in for their yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#E69F00", "#56B4E9", "#999999")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MARKERS_PER_LINE = 6

SPLIT_TITLES = {"train": "training set", "validation": "validation set"}
ERROR_LABEL = r"$\|\hat{G} - G\|_F \,/\, \|G\|_F$ (relative)"

SAVE_METADATA: dict[str, dict[str, None]] = {  # without the date, equal figures are equal files
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def map_figure(frame: pd.DataFrame, baselines: Mapping[str, float] | None = None) -> Figure:
    """MAP@10 against training steps, epochs and training time, for the training and the validation set.

    As in the paper, the training set is on the left and the validation set on the right; there is a row
    of panels for each of the three x axes. Steps that a seed of the same method lacks are left out.

    Args:
        frame: one row for each evaluation, with the columns ``method`` (label), ``seed``, ``step``,
            ``epoch``, ``train_seconds``, ``split`` ("train" or "validation") and ``map@10``.
        baselines: label -> validation MAP@10 of what does not train in steps, such as popularity; a
            horizontal line across the validation panels.

    Raises:
        InputError: if the frame is empty, lacks a column, or has a split of another name.
    """
    _require(frame, ("method", "seed", "step", "epoch", "train_seconds", "split", "map@10"))
    unknown = set(frame["split"]) - set(SPLIT_TITLES)
    if unknown:
        raise InputError(f'cannot plot: split is "{min(unknown)}", not one of {", ".join(SPLIT_TITLES)}')
    splits = [split for split in SPLIT_TITLES if split in set(frame["split"])]
    methods = list(dict.fromkeys(frame["method"]))
    seconds, unit = _time_unit(frame["train_seconds"].max())
    frame = frame.assign(time=frame["train_seconds"] / seconds)
    x_axes = {"step": "training steps", "epoch": "epochs", "time": f"training time ({unit})"}

    figure, axes = _panels(len(x_axes), len(splits), share_y="col")
    baseline_styles = {name: _baseline_style(i) for i, name in enumerate(baselines or {})}
    for column, split in enumerate(splits):
        in_split = frame[frame["split"] == split]
        for row, (x, label) in enumerate(x_axes.items()):
            panel = axes[row][column]
            _draw(panel, in_split, "method", methods, x, "map@10")
            if split == "validation":
                for name, style in baseline_styles.items():
                    panel.axhline((baselines or {})[name], **style)
            panel.set_xlabel(label, fontsize=FONT_SIZE)
            panel.set_ylabel("MAP@10 (0 to 1)", fontsize=FONT_SIZE)
            panel.set_ylim(bottom=0)
        axes[0][column].set_title(SPLIT_TITLES[split], fontsize=FONT_SIZE)
    styles = {name: _style(i) for i, name in enumerate(methods)} | baseline_styles
    _legend(figure, styles, frame.groupby("method")["seed"].nunique(), len(splits))
    return figure


def gram_error_figure(frame: pd.DataFrame, sides: Sequence[str] = ("left", "right")) -> Figure:
    r"""Error of Gramian estimates along a trajectory: a line for each estimator, a panel for each batch size.

    .. math:: \|\hat{G}^{(t)} - G^{(t)}\|_F \,/\, \|G^{(t)}\|_F

    The logarithmic y axis goes no lower than a third of the second percentile of the errors: an estimator
    that starts from the exact Gramian has a first error near 0, which would flatten all the others.

    Args:
        frame: ``gram_error.csv`` of one or more runs, with the columns ``step``, ``estimator``,
            ``batch_size``, ``alpha`` (NaN where an estimator has none), ``side`` and ``error``; a column
            ``seed`` gives the lines bands.
        sides: rows of panels, of "left" (:math:`G_u`) and "right" (:math:`G_v`).

    Raises:
        InputError: if the frame is empty, lacks a column, or has no row for one of ``sides``.
    """
    _require(frame, ("step", "estimator", "batch_size", "alpha", "side", "error"))
    alphas = frame.groupby("estimator")["alpha"].nunique()
    label = frame["estimator"].astype(str)
    is_ambiguous = (frame["estimator"].map(alphas) > 1) & frame["alpha"].notna()
    label = label.where(~is_ambiguous, label + frame["alpha"].map(", α = {:g}".format))
    return _error_panels(frame.assign(label=label), list(dict.fromkeys(label)), sides)


def trade_off_figure(
    frame: pd.DataFrame, sides: Sequence[str] = ("left", "right"), estimator: str = "sogram"
) -> Figure:
    r"""Error of one estimator for several Gramian learning rates: one line for each :math:`\alpha`.

    A small :math:`\alpha` averages over many batches (low variance) but lags behind the trajectory and
    forgets its start late (high bias), so the curves cross.

    Args:
        frame: as for :func:`gram_error_figure`; other estimators' rows are left out.
        sides: rows of panels, of "left" (:math:`G_u`) and "right" (:math:`G_v`).
        estimator: the value of the column ``estimator`` to plot.

    Raises:
        InputError: if the frame is empty, lacks a column, or has no row of the estimator or a side.
    """
    _require(frame, ("step", "estimator", "batch_size", "alpha", "side", "error"))
    frame = frame[frame["estimator"] == estimator].dropna(subset="alpha").sort_values("alpha")
    if frame.empty:
        raise InputError(f'cannot plot: no row has the estimator "{estimator}" with an alpha')
    label = frame["alpha"].map("α = {:g}".format)
    return _error_panels(frame.assign(label=label), list(dict.fromkeys(label)), sides)


def save(figure: Figure, path: Path) -> None:
    """Write a figure whole or not at all; equal figures give equal files.

    Args:
        figure: what to write.
        path: its suffix chooses the format: ``.png`` (300 dots per inch), ``.svg`` or ``.pdf``.

    Raises:
        InputError: if the suffix is another one, or the file cannot be written.
    """
    file_format = path.suffix.lower().removeprefix(".")
    if file_format not in SAVE_METADATA:
        raise InputError(f'cannot plot to {path}: end its name in .png, .svg or .pdf, not "{path.suffix}"')
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # A salt makes the ids inside an SVG a function of the drawing; without it they are random.
    settings: dict[Any, Any] = {"svg.hashsalt": "gramrun", "pdf.fonttype": 42}
    try:
        with mpl.rc_context(settings):
            metadata = SAVE_METADATA[file_format]
            figure.savefig(unfinished, format=file_format, dpi=300, metadata=metadata)
        os.replace(unfinished, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _require(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(f"cannot plot: the data lacks the column {', '.join(missing)}")
    if frame.empty:
        raise InputError("cannot plot: the data has no rows")


def _error_panels(frame: pd.DataFrame, labels: list[str], sides: Sequence[str]) -> Figure:
    """One row of panels for each side, one column for each batch size, one line for each label."""
    missing = [side for side in sides if side not in set(frame["side"])]
    if missing or not sides:
        raise InputError(f"cannot plot: no row has the side {', '.join(missing) or 'asked for'}")
    frame = frame[frame["side"].isin(list(sides))]
    if "seed" not in frame.columns:
        frame = frame.assign(seed=0)
    batch_sizes = sorted(frame["batch_size"].unique())
    figure, axes = _panels(len(sides), len(batch_sizes), share_y="all")
    names = {"left": "left Gramian $G_u$", "right": "right Gramian $G_v$"}
    for row, side in enumerate(sides):
        for column, batch_size in enumerate(batch_sizes):
            panel = axes[row][column]
            shown = frame[(frame["side"] == side) & (frame["batch_size"] == batch_size)]
            panel.set_yscale("log", nonpositive="mask")
            _draw(panel, shown, "label", labels, "step", "error")
            panel.set_title(f"{names.get(side, side)}, B = {batch_size}", fontsize=FONT_SIZE)
            panel.set_xlabel("training steps", fontsize=FONT_SIZE)
            panel.set_ylabel(ERROR_LABEL, fontsize=FONT_SIZE)
    positive = frame["error"][frame["error"] > 0]
    if len(positive):
        axes[0][0].set_ylim(bottom=max(0.8 * positive.min(), positive.quantile(0.02) / 3))
    styles = {label: _style(i) for i, label in enumerate(labels)}
    _legend(figure, styles, frame.groupby("label")["seed"].nunique(), len(batch_sizes))
    return figure


def _panels(rows: int, columns: int, share_y: Literal["all", "col"]) -> tuple[Figure, list[list[Axes]]]:
    """Return an empty grid. `Figure` without pyplot needs no display and leaves no global state behind."""
    layout = ConstrainedLayoutEngine(h_pad=0.06)  # inches: a row's x label stays clear of the next row
    figure = Figure(figsize=(PANEL_WIDTH * columns, PANEL_HEIGHT * rows), layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=share_y, sharex="row")
    for panel in grid.flat:
        panel.grid(visible=True, color="0.9", linewidth=0.5)
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=SMALL_FONT_SIZE, labelleft=True, width=0.5)
        panel.spines[["top", "right"]].set_visible(False)
        panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    return figure, [list(row) for row in grid]


def _draw(panel: Axes, frame: pd.DataFrame, by: str, labels: list[str], x: str, y: str) -> None:
    """One line for each label that the frame has, with a band where there are several seeds."""
    for index, label in enumerate(labels):
        curve = _over_seeds(frame[frame[by] == label], x, y)
        if curve.empty:
            continue
        style = _style(index)
        every = max(1, len(curve) // MARKERS_PER_LINE)
        # Staggered, so that markers of lines that run together do not hide one another.
        first = index * every // len(labels)
        panel.plot(curve["x"], curve["mean"], label=label, markevery=(first, every), **style)
        if curve["seeds"].iloc[0] > 1:
            panel.fill_between(
                curve["x"], curve["low"], curve["high"], color=style["color"], alpha=0.2, linewidth=0
            )
    if x == "step":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def _over_seeds(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Mean, least and greatest ``y`` at the steps that every seed has: a mean over fewer would jump."""
    frame = frame.dropna(subset=[x, y])
    groups = frame.assign(x=frame[x]).groupby("step")
    curve = groups.agg(
        x=("x", "mean"), mean=(y, "mean"), low=(y, "min"), high=(y, "max"), seeds=("seed", "nunique")
    )
    return curve[curve["seeds"] == frame["seed"].nunique()]


def _style(index: int) -> dict[str, Any]:
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


def _baseline_style(index: int) -> dict[str, Any]:
    return {"color": "0.35", "linestyle": (0, (8 - 3 * (index % 3), 3)), "linewidth": 1.0}


def _time_unit(seconds: float) -> tuple[float, str]:
    """Seconds in the unit, and its name, that give a run of this length numbers of two or three digits."""
    if seconds >= 3 * 3600:
        return 3600, "hours"
    return (60, "minutes") if seconds >= 3 * 60 else (1, "seconds")


def _legend(
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
