r"""Figures of the paper: a pandas frame in, a matplotlib figure out.

=============================  ====================================================================
figure of the paper            function
=============================  ====================================================================
MAP@10 curves (4.3, app. E)    :func:`map_figure`
Gramian error (4.2)            :func:`gram_error_figure`
trade-off in alpha (4.2)       :func:`trade_off_figure`
inner products (appendix B)    :func:`inner_products_figure`
MAP against gravity (app. B)   :func:`gravity_figure`
error for several eta (app. D) :func:`learning_rates_figure`
none: Proposition 5, measured  :func:`theory_figure`
=============================  ====================================================================

Every function raises InputError if the frame is empty or lacks a column. In frames of Gramian errors, the
column ``seed`` may be missing; ``side`` is "left" (:math:`G_u`) or "right" (:math:`G_v`), each a row of
panels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from gramrun.base.errors import InputError
from gramrun.runs.panels import (
    BASELINE,
    COLOURS,
    draw_lines,
    empty_panels,
    error_panels,
    line_style,
    line_styles,
    over_seeds,
    put_legend,
    require,
    save,
    shade_reference,
    styled,
)

__all__ = [
    "gram_error_figure",
    "gravity_figure",
    "inner_products_figure",
    "learning_rates_figure",
    "map_figure",
    "save",
    "theory_figure",
    "trade_off_figure",
]

_SPLITS = {"train": "training set", "validation": "validation set"}
_DASHED: dict[str, Any] = {"linestyle": (0, (5, 1.5)), "linewidth": 0.9}
_DOTTED: dict[str, Any] = {"linestyle": (0, (1, 1.5)), "linewidth": 0.9}

# Column of the frame -> its name in the legend, and its line.
_THEORY = {
    "expected": (r"theory of sampling, $\sigma_t/(\sqrt{B}\|G\|_F)$", _DASHED),
    "stepwise": (r"bound (Prop. 5), each measured $\sigma_t, \delta_t$", _DASHED),
    "bound": (r"bound (Prop. 5), largest $\sigma_t, \delta_t$ so far", _DOTTED),
}

# The quantiles that bound each band, from the widest, and its opacity.
_BANDS = (("q0.01", "q0.99", 0.15), ("q0.05", "q0.95", 0.25), ("q0.25", "q0.75", 0.4))
_MEDIAN = "q0.5"
_PAIRS = {"train": ("observed pairs", COLOURS[1]), "random": ("random pairs", COLOURS[0])}
_HELD_OUT: dict[str, Any] = {"color": COLOURS[3], "linestyle": (0, (5, 1.5)), "linewidth": 1.0}
_TARGET: dict[str, Any] = {"color": "0.35", "linestyle": (0, (1, 1.5)), "linewidth": 0.9}


@styled
def map_figure(
    frame: pd.DataFrame, baselines: Mapping[str, float] | None = None, *, times: bool = True
) -> Figure:
    """MAP@10 against epochs and training time (rows), for the training and validation set (columns).

    Steps that a seed of the same method lacks are left out.

    Args:
        frame: one row for each evaluation, with the columns ``method`` (label), ``seed``, ``step``,
            ``epoch``, ``train_seconds``, ``split`` ("train" or "validation") and ``map@10``.
        baselines: label -> validation MAP@10, drawn as a horizontal line.
        times: with the row against training time.
    """
    require(frame, ("method", "seed", "step", "epoch", "train_seconds", "split", "map@10"))
    baselines = baselines or {}
    splits = [split for split in _SPLITS if split in set(frame["split"])]
    seconds, unit = _time_unit(frame["train_seconds"].max())
    frame = frame.assign(time=frame["train_seconds"] / seconds)
    x_axes = {"epoch": "epochs", **({"time": f"training time ({unit})"} if times else {})}
    figure, axes = empty_panels(len(x_axes), len(splits), share_y="col")
    styles = line_styles(frame["method"])
    baseline_styles = {
        name: {**BASELINE, "linestyle": (0, (8 - 3 * (i % 3), 3))} for i, name in enumerate(baselines)
    }
    for column, split in enumerate(splits):
        for row, (x, label) in enumerate(x_axes.items()):
            panel = axes[row][column]
            draw_lines(panel, frame[frame["split"] == split], "method", styles, x, "map@10")
            if split == "validation":
                for name, style in baseline_styles.items():
                    panel.axhline(baselines[name], **style)
            panel.set_xlabel(label)
            panel.set_ylabel("MAP@10 (0 to 1)")
            panel.set_ylim(bottom=0)
        axes[0][column].set_title(_SPLITS[split])
    put_legend(figure, styles | baseline_styles, frame.groupby("method")["seed"].nunique(), len(splits))
    return figure


def gram_error_figure(frame: pd.DataFrame) -> Figure:
    r"""Error of Gramian estimates along a trajectory: a line for each estimator.

    .. math:: \|\hat{G}^{(t)} - G^{(t)}\|_F \,/\, \|G^{(t)}\|_F

    The logarithmic y axis ends at a third of the second percentile of the errors: an estimator that starts
    from the exact Gramian has a first error near 0, which would flatten all other lines.

    Args:
        frame: ``gram_error.csv`` of one or more runs, with the columns ``step``, ``estimator``,
            ``batch_size``, ``alpha`` (NaN if an estimator has none), ``side`` and ``error``.
    """
    require(frame, ("step", "estimator", "batch_size", "alpha", "side", "error"))
    alphas = frame.groupby("estimator")["alpha"].nunique()
    label = frame["estimator"].astype(str)
    is_ambiguous = (frame["estimator"].map(alphas) > 1) & frame["alpha"].notna()
    label = label.where(~is_ambiguous, label + frame["alpha"].map(", α = {:g}".format))
    return _error_figure(frame.assign(label=label))


def trade_off_figure(frame: pd.DataFrame, estimator: str) -> Figure:
    r"""Error of one estimator for several Gramian learning rates: one line for each :math:`\alpha`.

    A small :math:`\alpha` averages over many batches (low variance) but lags behind the trajectory and
    forgets its start late (high bias), so the curves cross.

    Args:
        frame: as for :func:`gram_error_figure`; rows of other estimators are left out.
        estimator: the value of the column ``estimator`` to plot.
    """
    require(frame, ("step", "estimator", "batch_size", "alpha", "side", "error"))
    frame = frame[frame["estimator"] == estimator].dropna(subset="alpha").sort_values("alpha")
    if frame.empty:
        raise InputError(f'cannot plot: no row has the estimator "{estimator}" with an alpha')
    return _error_figure(frame.assign(label=frame["alpha"].map("α = {:g}".format)))


@styled
def _error_figure(frame: pd.DataFrame) -> Figure:
    figure, panels = error_panels(frame, "batch_size", "B = {}")
    styles = line_styles(frame["label"])
    for panel, shown in panels:
        draw_lines(panel, shown, "label", styles, "step", "error")
    positive = frame["error"][frame["error"] > 0]
    if len(positive):
        panels[0][0].set_ylim(bottom=max(0.8 * positive.min(), positive.quantile(0.02) / 3))
    put_legend(figure, styles, frame.groupby("label")["seed"].nunique(), frame["batch_size"].nunique())
    return figure


@styled
def theory_figure(frame: pd.DataFrame) -> Figure:
    r"""Measured errors of SOGram and sampling and, in the same colours, what theory predicts.

    Args:
        frame: one row for each measurement, with the columns ``step``, ``label``, ``batch_size``, ``side``
            and ``error``; theory in ``bound``, ``stepwise`` and ``expected`` (NaN if one does not apply); and
            ``reference_error``, the standard error of a sampled reference. All relative to :math:`\|G\|`.
            Theory is drawn as its mean over seeds.
    """
    require(frame, ("step", "label", "batch_size", "side", "error", "reference_error", *_THEORY))
    figure, panels = error_panels(frame, "batch_size", "B = {}")
    # Solid, because dashes mean theory; colour and marker distinguish the lines.
    styles = {label: {**style, "linestyle": "-"} for label, style in line_styles(frame["label"]).items()}
    key: dict[str, dict[str, Any]] = {}
    for panel, shown in panels:
        draw_lines(panel, shown, "label", styles, "step", "error")
        for label, rows in shown.groupby("label"):
            colour = styles[str(label)]["color"]
            for column, (name, style) in _THEORY.items():
                curve = over_seeds(rows, "step", column)
                if not curve.empty:
                    panel.plot(curve["x"], curve["mean"], color=colour, **style)
                    # Bounds have the colours of several lines, so that their key is grey.
                    key[name] = {"color": colour if column == "expected" else "0.35", **style}
    key |= shade_reference(panels)
    seeds = frame.groupby("label")["seed"].nunique()
    put_legend(figure, styles | key, seeds, frame["batch_size"].nunique())
    return figure


@styled
def learning_rates_figure(frame: pd.DataFrame) -> Figure:
    r"""Gramian errors for several learning rates :math:`\eta` of the model: a column for each, largest first.

    Args:
        frame: rows of ``gram_error.csv`` with the columns ``step``, ``label``, ``seed``, ``side``, ``error``,
            ``learning_rate`` (:math:`\eta`) and ``reference_error`` (0 if the reference is exact).
    """
    require(frame, ("step", "label", "seed", "side", "error", "learning_rate", "reference_error"))
    figure, panels = error_panels(frame, "learning_rate", r"$\eta$ = {:g}", descending=True)
    styles = line_styles(frame["label"])
    for panel, shown in panels:
        draw_lines(panel, shown, "label", styles, "step", "error")
    key = styles | shade_reference(panels)
    put_legend(figure, key, frame.groupby("label")["seed"].nunique(), frame["learning_rate"].nunique())
    return figure


@styled
def inner_products_figure(frame: pd.DataFrame) -> Figure:
    r"""Distributions of :math:`\langle u, v \rangle` over training: observed pairs left, random pairs right.

    A row of panels for each method, all on one y axis. A line is the median; bands hold 50 %, 90 % and 98 %
    of the pairs. Of validation pairs, and of the pairs of the other panel, only the median is drawn.
    Quantiles are means over seeds.

    Args:
        frame: ``inner_products.csv`` of one or more runs, with the columns ``method`` (label), ``seed``,
            ``step``, ``epoch``, ``pairs`` ("train", "validation" or "random") and the quantiles ``q0.01``,
            ``q0.05``, ``q0.25``, ``q0.5``, ``q0.75``, ``q0.95`` and ``q0.99``.
    """
    quantiles = [column for low, high, _ in _BANDS for column in (low, high)]
    require(frame, ("method", "seed", "step", "epoch", "pairs", _MEDIAN, *quantiles))
    methods = list(dict.fromkeys(frame["method"]))
    figure, axes = empty_panels(len(methods), 2, share_y="all")
    for method, row in zip(methods, axes, strict=True):
        of_method = frame[frame["method"] == method]
        for panel, (shown, other) in zip(row, (("train", "random"), ("random", "train")), strict=True):
            name, colour = _PAIRS[shown]
            _draw_bands(panel, of_method[of_method["pairs"] == shown], colour)
            _draw_median(panel, of_method[of_method["pairs"] == other], {"color": _PAIRS[other][1]})
            if shown == "train":
                _draw_median(panel, of_method[of_method["pairs"] == "validation"], _HELD_OUT)
            panel.axhline(1.0, **_TARGET)
            panel.set_title(f"{method}: {name}")
            panel.set_xlabel("epochs")
            panel.set_ylabel(r"inner product $\langle u, v \rangle$")
    key: dict[str, dict[str, Any]] = {
        f"{name}: median; 50, 90, 98 %": {"color": colour, "linewidth": 3} for name, colour in _PAIRS.values()
    }
    if "validation" in set(frame["pairs"]):
        key["observed in validation: median"] = _HELD_OUT
    key["target of observed pairs"] = _TARGET
    put_legend(figure, key, pd.Series([1]), 2)  # 1: the bands are not those of seeds
    return figure


@styled
def gravity_figure(frame: pd.DataFrame, baselines: Mapping[str, float] | None = None) -> Figure:
    r"""Validation MAP@10 for several :math:`\lambda`: during training on the left, at its end on the right.

    Args:
        frame: one row for each evaluation, with the columns ``method`` (label without :math:`\lambda`),
            ``gravity`` (:math:`\lambda`; only positive ones are drawn), ``seed``, ``step``, ``epoch`` and
            ``map@10`` (validation).
        baselines: label -> validation MAP@10, drawn as a horizontal line.
    """
    require(frame, ("method", "gravity", "seed", "step", "epoch", "map@10"))
    frame = frame[frame["gravity"] > 0].sort_values(["gravity", "step"])
    if frame.empty:
        raise InputError("cannot plot: no run has a λ above 0, as a logarithmic axis needs")
    several = frame["method"].nunique() > 1
    label = frame["gravity"].map("λ = {:g}".format)
    frame = frame.assign(label=label + ", " + frame["method"] if several else label)
    figure, ((over_time, at_end),) = empty_panels(1, 2, share_y="col", share_x="none")
    styles = line_styles(frame["label"])
    draw_lines(over_time, frame, "label", styles, "epoch", "map@10")
    over_time.set_xlabel("epochs")
    over_time.set_title("while training")
    _draw_final(at_end, frame, several=several)
    for panel in (over_time, at_end):
        for value in (baselines or {}).values():
            panel.axhline(value, **BASELINE)
        panel.set_ylabel("validation MAP@10 (0 to 1)")
    over_time.set_ylim(bottom=0)
    key = styles | dict.fromkeys(baselines or {}, BASELINE)
    put_legend(figure, key, frame.groupby("label")["seed"].nunique(), 2)
    return figure


def _draw_final(panel: Axes, frame: pd.DataFrame, *, several: bool) -> None:
    """The last evaluation of each run against λ, on logarithmic axes."""
    final = frame[frame["step"] == frame.groupby(["label", "seed"])["step"].transform("max")]
    final = final.assign(step=final["gravity"])  # `over_seeds` groups by step
    for index, (method, rows) in enumerate(final.groupby("method", sort=False)):
        style = line_style(index) if several else {**line_style(index), "color": "0.2"}
        curve = over_seeds(rows, "gravity", "map@10")
        panel.plot(curve["x"], curve["mean"], label=method, **style)
        panel.plot(rows["gravity"], rows["map@10"], linestyle="none", marker="_", color=style["color"])
    panel.set_xscale("log")
    panel.set_yscale("log", nonpositive="mask")
    values = sorted(final["gravity"].unique())
    panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_xlabel(r"$\lambda$, the weight of gravity")
    panel.set_title("at the end (a dash for each seed)")


def _draw_median(panel: Axes, frame: pd.DataFrame, style: Mapping[str, Any]) -> None:
    curve = over_seeds(frame, "epoch", _MEDIAN)
    panel.plot(curve["x"], curve["mean"], **{"linewidth": 1.0, **style})


def _draw_bands(panel: Axes, frame: pd.DataFrame, colour: str) -> None:
    for low, high, opacity in _BANDS:
        below, above = (over_seeds(frame, "epoch", end) for end in (low, high))
        panel.fill_between(below["x"], below["mean"], above["mean"], color=colour, alpha=opacity, linewidth=0)
    _draw_median(panel, frame, {"color": colour, "linewidth": 1.6})


def _time_unit(seconds: float) -> tuple[float, str]:
    """The length and name of the unit in which `seconds` is a number of two or three digits."""
    if seconds >= 3 * 3600:
        return 3600, "hours"
    return (60, "minutes") if seconds >= 3 * 60 else (1, "seconds")
