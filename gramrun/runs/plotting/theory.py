r"""Proposition 5 beside what was measured: no figure of the paper, but the theory behind its Section 4.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gramrun.runs.plotting.panels import (
    SHADE,
    draw_lines,
    error_panels,
    line_style,
    over_seeds,
    put_legend,
    require,
    shade_reference,
)

_DASHED: dict[str, Any] = {"linestyle": (0, (5, 1.5)), "linewidth": 0.9}
_DOTTED: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 0.9}
# Column of the frame -> what the legend calls it, and its line. Drift is known at the measured steps only.
THEORY = {
    "expected": (r"theory of sampling, $\sigma_t/(\sqrt{B}\|G\|_F)$", _DASHED),
    "stepwise": (r"bound (Prop. 5), each measured $\sigma_t, \delta_t$", _DASHED),
    "bound": (r"bound (Prop. 5), largest $\sigma_t, \delta_t$ so far", _DOTTED),
}
_KEY_COLOUR = "0.35"  # of legend entries that stand for lines of several colours


def theory_figure(frame: pd.DataFrame, sides: Sequence[str] = ("left", "right")) -> Figure:
    r"""Measured errors of SOGram and sampling, and in the same colours what theory says of them.

    Args:
        frame: one row for each measurement, with the columns ``step``, ``label``, ``batch_size``, ``side``
            and ``error``; what theory says of it in the columns ``bound``, ``stepwise`` and ``expected``
            (NaN where one does not apply); and ``reference_error``, the standard error of the reference
            itself, where that was a sample. All relative to :math:`\|G\|`. A column ``seed`` gives the
            measured lines bands; theory is drawn as its mean.
        sides: rows of panels, of "left" (:math:`G_u`) and "right" (:math:`G_v`).

    Raises:
        InputError: if the frame is empty, lacks a column, or has no row for one of ``sides``.
    """
    require(frame, ("step", "label", "batch_size", "side", "error", "reference_error", *THEORY))
    figure, panels, frame = error_panels(frame, sides)
    # Solid, as dashes are for theory: colour and marker tell the lines apart.
    styles = {label: {**line_style(i), "linestyle": "-"} for i, label in enumerate(frame["label"].unique())}
    key: dict[str, dict[str, Any]] = {}
    for panel, shown in panels:
        draw_lines(panel, shown, "label", styles, "step", "error")
        for label, rows in shown.groupby("label"):
            colour = styles[str(label)]["color"]
            for column, (name, style) in THEORY.items():
                curve = over_seeds(rows, "step", column)
                if not curve.empty:
                    panel.plot(curve["x"], curve["mean"], color=colour, **style)
                    key[name] = {"color": colour if column == "expected" else _KEY_COLOUR, **style}
    if (frame["reference_error"] > 0).any():
        shade_reference(panels)
        key["the sampled reference's own standard error"] = {"color": SHADE, "linewidth": 5}
    seeds = frame.groupby("label")["seed"].nunique()
    put_legend(figure, styles | key, seeds, frame["batch_size"].nunique())
    return figure
