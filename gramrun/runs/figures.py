"""Figures of run directories: ``gramrun plot``. Reads the files of runs; opens no model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gramrun.base.errors import InputError
from gramrun.base.records import REMEDY, is_number
from gramrun.config import RunConfig
from gramrun.gramian import bounds
from gramrun.runs import plotting
from gramrun.runs.directory import EVALUATION, BaselineRun, Run, open_directory, open_run
from gramrun.runs.frames import corpora_of, labels, read_frame, stack

_MOST_STEPS = 10**8  # of a trajectory: the bound keeps three numbers for each step
_MAP_COLUMNS = {"validation": "map@10", "train": "train_map@10"}
# What a user can do about a missing frame.
_REMEDIES = {
    "metrics": "draw runs of `gramrun train` that have reached an evaluation",
    "inner_products": "train with --set evaluation.inner_products=10000",
    "gram_error": "`gramrun gram-error` makes one",
    "trajectory": "`gramrun gram-error` makes one, start it anew with --force",
}


def make(kind: str, paths: Sequence[Path]) -> Figure:
    """Draw one figure of run directories.

    Args:
        kind: one of `KINDS`: ``map``, ``inner-products`` or ``gravity`` for training runs; ``gram-error``,
            ``trade-off`` or ``theory`` for gram-error runs.
        paths: run directories; runs that differ only in their seed become one line with a band.

    Raises:
        InputError: when a run has no data for this figure, or its lines are of estimators and the runs are of
            several trainings.
    """
    return KINDS[kind](paths)


KINDS: Mapping[str, Callable[[Sequence[Path]], Figure]] = MappingProxyType(
    {
        "map": lambda paths: map_of(paths),
        "gram-error": lambda paths: plotting.gram_error_figure(gram_error_frame(_alike(paths))),
        "trade-off": lambda paths: plotting.trade_off_figure(gram_error_frame(_alike(paths)), "SOGram"),
        "theory": lambda paths: plotting.theory_figure(theory_frame(_alike(paths))),
        "inner-products": lambda paths: plotting.inner_products_figure(inner_products_frame(paths)),
        "gravity": lambda paths: plotting.gravity_figure(
            gravity_frame(paths), popularity([open_run(path) for path in paths])
        ),
    }
)


def map_of(paths: Sequence[Path], baselines: Mapping[str, float] | None = None) -> Figure:
    """MAP@10 along training runs, with popularity and baselines as lines.

    The row against training time is left out where the runs were made on several processors or devices.

    Args:
        paths: training runs, and baselines on the corpus of the first with as many candidates (others are
            left out).
        baselines: more lines: validation MAP@10 by label.

    Raises:
        InputError: when a run has no MAP@10 in its metrics.
    """
    opened = [open_directory(path) for path in paths]
    runs = [run for run in opened if isinstance(run, Run)] or [open_run(paths[0])]
    lines = popularity(runs)
    reached = [
        (run.config, float(rows["map@10"].iloc[0]))
        for run in opened
        if isinstance(run, BaselineRun)
        and run.manifest["data_hash"] == runs[0].manifest["data_hash"]
        and len(rows := _validation(run, runs[0].config))
    ]
    names = labels([config for config, _ in reached])
    lines |= pd.Series([x for _, x in reached], names, dtype=float).groupby(level=0, sort=False).mean()
    machines = {(run.manifest.get("processor"), run.config.device) for run in runs}
    return plotting.map_figure(map_frame(runs), {**lines, **(baselines or {})}, times=len(machines) == 1)


def _frames(runs: Sequence[Run], name: str) -> list[pd.DataFrame]:
    parts = stack(runs, name)
    for run, part in zip(runs, parts, strict=True):
        if part.empty:
            file = "MAP@10" if name == "metrics" else f"{name}.csv"
            raise InputError(f"{run.path}: no {file}; {_REMEDIES[name]}")
    return parts


def map_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """The MAP@10 of training runs: a row for each run, evaluation and split.

    Raises:
        InputError: when a run has no MAP@10 in its metrics.
    """
    curves = []
    for rows in _frames(runs, "metrics"):
        present = {split: column for split, column in _MAP_COLUMNS.items() if column in rows}
        if not present:
            raise InputError(f"{rows['run'].iloc[0]}: no MAP@10 in its metrics yet; {_REMEDIES['metrics']}")
        curves += [rows.assign(split=split, **{"map@10": rows[name]}) for split, name in present.items()]
    return pd.concat(curves, ignore_index=True)


def gravity_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The validation MAP@10 of training runs, with λ in a column ``gravity`` instead of in the label.

    Raises:
        InputError: when a run has no validation MAP@10 in its metrics.
    """
    runs = [open_run(path) for path in paths]
    curves = []
    methods = labels([_without_gravity(run.config) for run in runs], corpora_of(runs))
    for run, method in zip(runs, methods, strict=True):
        curve = map_frame([run])
        curve = curve[curve["split"] == "validation"]
        if curve.empty:
            raise InputError(f"{run.path}: no validation MAP@10; its evaluation.splits leave validation out")
        curves.append(curve.assign(method=method, gravity=run.config.train.gravity))
    return pd.concat(curves, ignore_index=True)


def _without_gravity(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={"gravity": 1.0})})


def inner_products_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of every training run's ``inner_products.csv``, with the run's label and seed.

    Raises:
        InputError: when a run has none.
    """
    return pd.concat(_frames([open_run(path) for path in paths], "inner_products"), ignore_index=True)


def _alike(paths: Sequence[Path]) -> Sequence[Path]:
    """The paths, of runs that differ only in their seed; others would become one line for each estimator."""
    opened = [open_run(path) for path in paths]
    found = sorted(set(labels([run.config for run in opened], corpora_of(opened))))
    if len(found) > 1:
        told = "; ".join(found)
        raise InputError(f"cannot plot: the runs are of several trainings ({told}); draw each by itself")
    return paths


def gram_error_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of every run's ``gram_error.csv``, with the run's label and seed.

    Raises:
        InputError: when a run has none.
    """
    return pd.concat(_frames([open_run(path) for path in paths], "gram_error"), ignore_index=True)


def popularity(runs: Sequence[Run]) -> dict[str, float]:
    """Popularity's validation MAP@10 by label, on each corpus from the first run evaluated as it trained."""
    corpora, found = corpora_of(runs), {}
    for run, corpus in zip(runs, corpora, strict=True):
        label = f"popularity, corpus {corpus}" if len(set(corpora)) > 1 else "popularity"
        if label not in found and len(rows := _validation(run, run.config)):
            value = rows.get("popularity.map@10", pd.Series([None])).iloc[0]
            if not is_number(value):
                raise InputError(
                    f"{run.path / EVALUATION}: damaged (no MAP@10 of popularity); evaluate again"
                )
            found[label] = float(value)
    return found


def _validation(run: Run | BaselineRun, config: RunConfig) -> pd.DataFrame:
    """The validation row of a run's last evaluation, if among as many candidates as those of a curve."""
    rows = read_frame(run, "evaluation")
    if rows.empty:
        return rows
    numbers = [name for name in ("candidates", "map@10") if name in rows and rows[name].dtype.kind in "iuf"]
    if len(numbers) < 2 or not {"split", "full"} <= set(rows):
        raise InputError(f"{run.path / EVALUATION}: damaged (no MAP@10 or candidates); evaluate again")
    asked = config.evaluation.candidates
    alike = (rows["candidates"] == asked) | (rows["full"].astype(bool) & (rows["candidates"] < asked))
    among = rows["among"] if "among" in rows else pd.Series("all", rows.index)
    return rows[(rows["split"] == "validation") & alike & (among == "all")]


def theory_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The errors of SOGram and sampling in gram-error runs, with the prediction of theory.

    Returns:
        The columns of ``gram_error.csv`` and ``seed``, ``label``, ``reference_error`` and, as errors
        relative to ‖G‖: ``bound`` and ``stepwise`` (of SOGram), ``expected`` (of sampling); NaN otherwise.

    Raises:
        InputError: when a run has no trajectory, its drift was not measured, or it has neither estimator.
    """
    frames = []
    for path in paths:
        run = open_run(path)
        (errors,), trajectory = _frames([run], "gram_error"), _trajectory(run)
        errors = errors[errors["estimator"].isin(["SOGram", "sampling"])]
        keys = ["estimator", "batch_size", "alpha", "side"]
        for key, rows in errors.groupby(keys, dropna=False, sort=False):
            estimator, batch_size, alpha, side = cast("tuple[str, int, float, str]", key)
            measured = trajectory[trajectory["side"] == side]
            if measured.empty:  # a run under way
                raise InputError(f"{path}: no {side} side in its trajectory.csv yet; let it go on")
            theory = _theory(measured, alpha if estimator == "SOGram" else None, batch_size)
            label = f"SOGram α={alpha:g}" if estimator == "SOGram" else estimator
            frames.append(rows.merge(theory, on="step").assign(label=label))
    if not frames:
        raise InputError("cannot plot: Proposition 5 is about SOGram and sampling, and neither was watched")
    return pd.concat(frames, ignore_index=True)


def _trajectory(run: Run) -> pd.DataFrame:
    (frame,) = _frames([run], "trajectory")
    file = run.path / "trajectory.csv"
    for _, own in frame.groupby("side"):
        steps = own["step"].to_numpy()
        # The bound is a sum over all steps, including those between measurements.
        if steps[0] != 1 or (np.diff(steps) <= 0).any():
            raise InputError(f"{file}: damaged (step); {REMEDY}")
        if steps[-1] > _MOST_STEPS:
            raise InputError(f"{file}: ends at step {steps[-1]:,}; at most {_MOST_STEPS:,} can be drawn")
    if frame.loc[frame["step"] > 1, "drift"].isna().any():
        raise InputError(f"{run.path}: the drift was not measured; start it anew with gram_error.drift: true")
    return frame


def _theory(measured: pd.DataFrame, alpha: float | None, batch_size: int) -> pd.DataFrame:
    """Errors relative to ‖G‖ predicted along one side's trajectory, of SOGram or (no alpha) sampling."""
    norm, variance = measured["gramian_norm"].to_numpy(), measured["variance"].to_numpy()
    theory = measured[["step", "reference_error"]].assign(
        bound=math.nan, stepwise=math.nan, expected=math.nan
    )
    if alpha is None:
        return theory.assign(expected=bounds.sampling(variance, batch_size) / norm)
    steps, drift = measured["step"].to_numpy(), measured["drift"].to_numpy()
    return theory.assign(
        bound=bounds.proposition_5(steps, norm, variance, drift, alpha, batch_size) / norm,
        stepwise=bounds.stepwise(steps, norm, variance, drift, alpha, batch_size) / norm,
    )
