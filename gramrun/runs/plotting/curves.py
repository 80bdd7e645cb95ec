r"""MAP@10 and Gramian error along training (paper, Sections 4.2 and 4.3 and Appendix E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from gramrun.base.errors import InputError
from gramrun.runs.plotting.panels import (
    FONT_SIZE,
    draw_lines,
    empty_panels,
    error_panels,
    line_style,
    put_legend,
    require,
)

SPLIT_TITLES = {"train": "training set", "validation": "validation set"}


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
    require(frame, ("method", "seed", "step", "epoch", "train_seconds", "split", "map@10"))
    unknown = set(frame["split"]) - set(SPLIT_TITLES)
    if unknown:
        raise InputError(f'cannot plot: split is "{min(unknown)}", not one of {", ".join(SPLIT_TITLES)}')
    splits = [split for split in SPLIT_TITLES if split in set(frame["split"])]
    methods = list(dict.fromkeys(frame["method"]))
    seconds, unit = _time_unit(frame["train_seconds"].max())
    frame = frame.assign(time=frame["train_seconds"] / seconds)
    x_axes = {"step": "training steps", "epoch": "epochs", "time": f"training time ({unit})"}

    figure, axes = empty_panels(len(x_axes), len(splits), share_y="col")
    styles = {name: line_style(i) for i, name in enumerate(methods)}
    baseline_styles = {name: _baseline_style(i) for i, name in enumerate(baselines or {})}
    for column, split in enumerate(splits):
        in_split = frame[frame["split"] == split]
        for row, (x, label) in enumerate(x_axes.items()):
            panel = axes[row][column]
            draw_lines(panel, in_split, "method", styles, x, "map@10")
            if split == "validation":
                for name, style in baseline_styles.items():
                    panel.axhline((baselines or {})[name], **style)
            panel.set_xlabel(label, fontsize=FONT_SIZE)
            panel.set_ylabel("MAP@10 (0 to 1)", fontsize=FONT_SIZE)
            panel.set_ylim(bottom=0)
        axes[0][column].set_title(SPLIT_TITLES[split], fontsize=FONT_SIZE)
    put_legend(figure, styles | baseline_styles, frame.groupby("method")["seed"].nunique(), len(splits))
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
    require(frame, ("step", "estimator", "batch_size", "alpha", "side", "error"))
    alphas = frame.groupby("estimator")["alpha"].nunique()
    label = frame["estimator"].astype(str)
    is_ambiguous = (frame["estimator"].map(alphas) > 1) & frame["alpha"].notna()
    label = label.where(~is_ambiguous, label + frame["alpha"].map(", α = {:g}".format))
    return _error_figure(frame.assign(label=label), list(dict.fromkeys(label)), sides)


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
    require(frame, ("step", "estimator", "batch_size", "alpha", "side", "error"))
    frame = frame[frame["estimator"] == estimator].dropna(subset="alpha").sort_values("alpha")
    if frame.empty:
        raise InputError(f'cannot plot: no row has the estimator "{estimator}" with an alpha')
    label = frame["alpha"].map("α = {:g}".format)
    return _error_figure(frame.assign(label=label), list(dict.fromkeys(label)), sides)


def _error_figure(frame: pd.DataFrame, labels: list[str], sides: Sequence[str]) -> Figure:
    """One line for each label in the panels of each side and batch size."""
    figure, panels, frame = error_panels(frame, sides)
    styles = {label: line_style(i) for i, label in enumerate(labels)}
    for panel, shown in panels:
        draw_lines(panel, shown, "label", styles, "step", "error")
    positive = frame["error"][frame["error"] > 0]
    if len(positive):
        panels[0][0].set_ylim(bottom=max(0.8 * positive.min(), positive.quantile(0.02) / 3))
    put_legend(figure, styles, frame.groupby("label")["seed"].nunique(), frame["batch_size"].nunique())
    return figure


def _time_unit(seconds: float) -> tuple[float, str]:
    """Seconds in the unit, and its name, that give a run of this length numbers of two or three digits."""
    if seconds >= 3 * 3600:
        return 3600, "hours"
    return (60, "minutes") if seconds >= 3 * 60 else (1, "seconds")


def _baseline_style(index: int) -> dict[str, Any]:
    return {"color": "0.35", "linestyle": (0, (8 - 3 * (index % 3), 3)), "linewidth": 1.0}
