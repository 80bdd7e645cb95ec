r"""What gravity does to inner products and to ranking (paper, Appendix B)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from gramrun.base.errors import InputError
from gramrun.runs.plotting.panels import (
    COLOURS,
    FONT_SIZE,
    draw_lines,
    empty_panels,
    line_style,
    over_seeds,
    put_legend,
    require,
)

# Quantiles that bound each band, from the widest, and how much of the band's colour shows.
BANDS = (("q0.01", "q0.99", 0.15), ("q0.05", "q0.95", 0.25), ("q0.25", "q0.75", 0.4))
MEDIAN = "q0.5"
_COLOURS = {"train": COLOURS[1], "random": COLOURS[0]}
_NAMES = {"train": "observed pairs", "random": "random pairs"}
_HELD_OUT: dict[str, Any] = {"color": COLOURS[3], "linestyle": (0, (5, 1.5)), "linewidth": 1.0}
_TARGET: dict[str, Any] = {"color": "0.35", "linestyle": (0, (1, 1.5)), "linewidth": 0.9}


def inner_products_figure(frame: pd.DataFrame) -> Figure:
    r"""Distributions of :math:`\langle u, v \rangle` over training: observed pairs left, random pairs right.

    A row of panels for each method, all on one y axis. A line is the median, and three bands of its colour
    hold 50 %, 90 % and 98 % of the pairs. Of observed pairs that were not trained on, and of the other
    panel's pairs, the median alone is drawn. Quantiles are means over seeds.

    Args:
        frame: ``inner_products.csv`` of one or more runs, with the columns ``method`` (label) and ``seed``,
            ``step``, ``epoch``, ``pairs`` ("train", "validation" or "random") and the quantiles ``q0.01``,
            ``q0.05``, ``q0.25``, ``q0.5``, ``q0.75``, ``q0.95`` and ``q0.99``.

    Raises:
        InputError: if the frame is empty or lacks a column.
    """
    quantiles = [column for low, high, _ in BANDS for column in (low, high)]
    require(frame, ("method", "seed", "step", "epoch", "pairs", MEDIAN, *quantiles))
    methods = list(dict.fromkeys(frame["method"]))
    figure, axes = empty_panels(len(methods), 2, share_y="all")
    for method, row in zip(methods, axes, strict=True):
        of_method = frame[frame["method"] == method]
        for panel, (shown, other) in zip(row, (("train", "random"), ("random", "train")), strict=True):
            _draw_bands(panel, of_method[of_method["pairs"] == shown], _COLOURS[shown])
            _draw_median(panel, of_method[of_method["pairs"] == other], {"color": _COLOURS[other]})
            if shown == "train":
                _draw_median(panel, of_method[of_method["pairs"] == "validation"], _HELD_OUT)
            panel.axhline(1.0, **_TARGET)
            panel.set_title(f"{method}: {_NAMES[shown]}", fontsize=FONT_SIZE)
            panel.set_xlabel("epochs", fontsize=FONT_SIZE)
            panel.set_ylabel(r"inner product $\langle u, v \rangle$", fontsize=FONT_SIZE)
    key: dict[str, dict[str, Any]] = {
        f"{name}: median; 50, 90, 98 %": {"color": _COLOURS[kind], "linewidth": 3}
        for kind, name in _NAMES.items()
    }
    if "validation" in set(frame["pairs"]):
        key["observed in validation: median"] = _HELD_OUT
    key["target of observed pairs"] = _TARGET
    put_legend(figure, key, pd.Series([1]), 2)  # one: the bands are of pairs, so no words on those of seeds
    return figure


def _draw_median(panel: Axes, frame: pd.DataFrame, style: Mapping[str, Any]) -> None:
    curve = over_seeds(frame, "epoch", MEDIAN)
    panel.plot(curve["x"], curve["mean"], **{"linewidth": 1.0, **style})


def _draw_bands(panel: Axes, frame: pd.DataFrame, colour: str) -> None:
    for low, high, strength in BANDS:
        below, above = (over_seeds(frame, "epoch", end) for end in (low, high))
        panel.fill_between(
            below["x"], below["mean"], above["mean"], color=colour, alpha=strength, linewidth=0
        )
    _draw_median(panel, frame, {"color": colour, "linewidth": 1.6})


def gravity_figure(frame: pd.DataFrame, baselines: Mapping[str, float] | None = None) -> Figure:
    r"""Validation MAP@10 against :math:`\lambda`: along training on the left, at its end on the right.

    The right panel's axes are both logarithmic: the paper's claims there are about orders of magnitude.

    Args:
        frame: one row for each evaluation, with the columns ``method`` (label, without :math:`\lambda`),
            ``gravity`` (:math:`\lambda`), ``seed``, ``step``, ``epoch`` and ``map@10`` (validation).
        baselines: label -> validation MAP@10 of what has no gravity, such as popularity: horizontal lines.

    Raises:
        InputError: if the frame is empty, lacks a column, or has no positive :math:`\lambda`.
    """
    require(frame, ("method", "gravity", "seed", "step", "epoch", "map@10"))
    frame = frame[frame["gravity"] > 0].sort_values(["gravity", "step"])
    if frame.empty:
        raise InputError("cannot plot: no run has a λ above 0, as a logarithmic axis needs")
    several = frame["method"].nunique() > 1
    label = frame["gravity"].map("λ = {:g}".format)
    frame = frame.assign(label=label + ", " + frame["method"] if several else label)
    figure, ((over_time, at_end),) = empty_panels(1, 2, share_y="col", share_x="none")
    styles = {name: line_style(i) for i, name in enumerate(dict.fromkeys(frame["label"]))}
    draw_lines(over_time, frame, "label", styles, "epoch", "map@10")
    over_time.set_xlabel("epochs", fontsize=FONT_SIZE)
    over_time.set_title("while training", fontsize=FONT_SIZE)

    final = frame[frame["step"] == frame.groupby(["label", "seed"])["step"].transform("max")]
    # `over_seeds` groups by step: here the place on the x axis is λ.
    final = final.assign(step=final["gravity"])
    methods = list(dict.fromkeys(final["method"]))
    for index, method in enumerate(methods):
        rows = final[final["method"] == method]
        style = {**line_style(index), "color": "0.2"} if not several else line_style(index)
        curve = over_seeds(rows, "gravity", "map@10")
        at_end.plot(curve["x"], curve["mean"], label=method, **style)
        at_end.plot(rows["gravity"], rows["map@10"], linestyle="none", marker="_", color=style["color"])
    at_end.set_xscale("log")
    at_end.set_yscale("log", nonpositive="mask")
    values = sorted(final["gravity"].unique())
    at_end.set_xticks(values, [f"{value:g}" for value in values])
    at_end.xaxis.set_minor_locator(NullLocator())
    at_end.set_xlabel(r"$\lambda$, the weight of gravity", fontsize=FONT_SIZE)
    at_end.set_title("at the end (a dash for each seed)", fontsize=FONT_SIZE)
    baseline_style: dict[str, Any] = {"color": "0.35", "linestyle": (0, (8, 3)), "linewidth": 1.0}
    for panel in (over_time, at_end):
        for value in (baselines or {}).values():
            panel.axhline(value, **baseline_style)
        panel.set_ylabel("validation MAP@10 (0 to 1)", fontsize=FONT_SIZE)
    over_time.set_ylim(bottom=0)
    key = styles | dict.fromkeys(baselines or {}, baseline_style)
    put_legend(figure, key, frame.groupby("label")["seed"].nunique(), 2)
    return figure
