r"""Loss of MAP@10 by noise in the Gramians, for several corpus sizes, which Section 4.3 leaves open."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gramrun.runs.panels import (
    ERROR_LABEL,
    draw_lines,
    empty_panels,
    line_style,
    put_legend,
    require,
    styled,
)

X_LABELS = {"ratio": "Gramian batch B / embedding dimension k", "error": ERROR_LABEL}
TOLERANCE = 0.01  # the loss that counts as none
_LINE: dict[str, Any] = {"color": "0.35", "linestyle": (0, (8, 3)), "linewidth": 0.8}


@styled
def scaling_figure(frame: pd.DataFrame, x: Literal["ratio", "error"]) -> Figure:
    r"""Loss of MAP@10 against B/k or against the measured Gramian error: a panel for each size, epochs and k.

    The y axis is linear between plus and minus `TOLERANCE`, whose line is drawn, and logarithmic beyond.

    Args:
        frame: a row for each run, with the columns ``items`` (of each side), ``epochs``, ``dim``
            (k), ``estimator`` (label), ``batch`` (B), ``seed``, ``loss`` (fraction of the reference's MAP@10)
            and ``error`` (relative error of its Gramians).
        x: what the x axis is, ``ratio`` (B/k) or ``error``.

    Raises:
        InputError: if the frame is empty or lacks a column.
    """
    require(frame, ("items", "epochs", "dim", "estimator", "batch", "seed", "loss", "error"))
    frame = frame.assign(
        step=frame["batch"], ratio=frame["batch"] / frame["dim"], percent=100 * frame["loss"]
    )
    corpora = sorted(set(zip(frame["items"], frame["epochs"], strict=True)))
    dims = sorted(frame["dim"].unique())
    figure, axes = empty_panels(len(dims), len(corpora), share_y="all")
    styles = {label: line_style(i) for i, label in enumerate(dict.fromkeys(frame["estimator"]))}
    for row, dim in enumerate(dims):
        for column, (size, epochs) in enumerate(corpora):
            panel = axes[row][column]
            own = (frame["items"] == size) & (frame["epochs"] == epochs) & (frame["dim"] == dim)
            shown = frame[own]
            panel.set_visible(not shown.empty)
            panel.set_xscale("log", base=4 if x == "ratio" else 10)
            panel.set_yscale("symlog", linthresh=100 * TOLERANCE)
            panel.axhline(100 * TOLERANCE, **_LINE)
            panel.axhline(0, color="0.35", linewidth=0.8)
            draw_lines(panel, shown, "estimator", styles, x, "percent")
            trained = f"{epochs} epoch{'s' * (epochs != 1)}"
            panel.set_title(f"{size:,} × {size:,} items, {trained}, k = {dim}")
            panel.set_xlabel(X_LABELS[x])
            panel.set_ylabel("loss of MAP@10 (%)")
            for axis in (panel.yaxis, panel.xaxis)[: 1 + (x == "ratio")]:
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    key = {f"a loss of {TOLERANCE:.0%}": _LINE}
    seeds = frame.groupby(["items", "epochs", "dim", "estimator", "batch"])["seed"].nunique()
    put_legend(figure, styles | key, seeds, len(corpora))
    return figure
