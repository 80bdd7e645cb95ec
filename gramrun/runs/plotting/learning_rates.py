r"""Gramian errors of one estimator under several learning rates of the model (paper, Appendix D)."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from gramrun.runs.plotting.panels import (
    ERROR_LABEL,
    FONT_SIZE,
    SHADE,
    draw_lines,
    empty_panels,
    line_style,
    put_legend,
    require,
    shade_reference,
)


def learning_rates_figure(frame: pd.DataFrame) -> Figure:
    r"""Error along a trajectory for each :math:`\eta`, side by side on one y axis.

    A line for each label, a column of panels for each :math:`\eta`, the largest first as in the paper, and a
    row for each side. Below the sampled reference's own standard error, which is greyed out, its noise hides
    the estimate's.

    Args:
        frame: rows of ``gram_error.csv`` with the columns ``step``, ``label``, ``seed``, ``side``, ``error``,
            ``learning_rate`` (:math:`\eta`) and ``reference_error`` (0 where the reference is exact).

    Raises:
        InputError: if the frame is empty or lacks a column.
    """
    require(frame, ("step", "label", "seed", "side", "error", "learning_rate", "reference_error"))
    sides = [side for side in ("left", "right") if side in set(frame["side"])]
    rates = sorted(frame["learning_rate"].unique(), reverse=True)
    figure, axes = empty_panels(len(sides), len(rates), share_y="all")
    styles = {label: line_style(i) for i, label in enumerate(dict.fromkeys(frame["label"]))}
    panels = []
    for side, row in zip(sides, axes, strict=True):
        for rate, panel in zip(rates, row, strict=True):
            shown = frame[(frame["side"] == side) & (frame["learning_rate"] == rate)]
            draw_lines(panel, shown, "label", styles, "step", "error")
            panel.set_yscale("log", nonpositive="mask")
            name = "G_u" if side == "left" else "G_v"
            panel.set_title(rf"{side} Gramian ${name}$, $\eta$ = {rate:g}", fontsize=FONT_SIZE)
            panel.set_xlabel("training steps", fontsize=FONT_SIZE)
            panel.set_ylabel(ERROR_LABEL, fontsize=FONT_SIZE)
            panels.append((panel, shown))
    key = dict(styles)
    if (frame["reference_error"] > 0).any():
        shade_reference(panels)
        key["the sampled reference's own standard error"] = {"color": SHADE, "linewidth": 5}
    put_legend(figure, key, frame.groupby("label")["seed"].nunique(), len(rates))
    return figure
