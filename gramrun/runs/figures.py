"""Run directories → frames → figures. Reads what runs wrote; never opens a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gramrun.base.errors import InputError
from gramrun.base.files import read_json
from gramrun.base.records import REMEDY, is_number, read_table
from gramrun.config import RunConfig
from gramrun.gramian import bounds
from gramrun.runs import directory, plotting
from gramrun.runs.directory import open_run
from gramrun.runs.frames import labels

# The columns of runs' tables that figures read, of numbers.
_INNER_PRODUCTS = (
    "step",
    "epoch",
    "count",
    "mean",
    "sd",
    "q0.01",
    "q0.05",
    "q0.25",
    "q0.5",
    "q0.75",
    "q0.95",
    "q0.99",
)
_ERRORS = ("step", "epoch", "batch_size", "alpha", "error")
_TRAJECTORY = ("step", "gramian_norm", "variance", "drift", "reference_error")

_MOST_STEPS = 10**8  # of a trajectory; the bound keeps three numbers a step

KINDS = ("map", "gram-error", "trade-off", "theory", "inner-products", "gravity")


def draw(kind: str, paths: Sequence[Path], output: Path) -> Path:
    """Write one figure of run directories, as `make` draws it, to a .png, .svg or .pdf file.

    Raises:
        InputError: when a run holds nothing for this figure, or the suffix is another.
    """
    plotting.save(make(kind, paths), output)
    return output


def make(kind: str, paths: Sequence[Path]) -> Figure:
    """Draw one figure from run directories.

    Args:
        kind: ``map``, ``inner-products`` or ``gravity`` (of training runs), ``gram-error``, ``trade-off`` or
            ``theory`` (of gram-error runs).
        paths: run directories; runs that differ only in their seed become one line with a band.

    Raises:
        InputError: when a run holds nothing for this figure, or there is no such kind.
    """
    match kind:
        case "map":
            return plotting.map_figure(map_frame(paths), popularity(paths))
        case "gram-error":
            return plotting.gram_error_figure(gram_error_frame(paths))
        case "trade-off":
            return plotting.trade_off_figure(gram_error_frame(paths), estimator="SOGram")
        case "theory":
            return plotting.theory_figure(theory_frame(paths))
        case "inner-products":
            return plotting.inner_products_figure(inner_products_frame(paths))
        case "gravity":
            return plotting.gravity_figure(gravity_frame(paths), popularity(paths))
        case _:
            raise InputError(f"no figure is called {kind}; there are {', '.join(KINDS)}")


def map_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The MAP@10 curves of training runs: a row for each run, evaluation and split.

    Runs that share an estimator but differ in another setting get that setting in their label.

    Raises:
        InputError: when a run has no MAP@10 in its metrics.
    """
    opened = [open_run(path) for path in paths]
    frames = []
    for run, label in zip(opened, labels([run.config for run in opened]), strict=True):
        metrics = pd.DataFrame(run.metrics())
        columns = {"validation": "map@10", "train": "train_map@10"}
        present = {split: column for split, column in columns.items() if column in metrics}
        if not present and run.manifest["kind"] == "gram-error":
            raise InputError(
                f"{run.path}: was made by `gramrun gram-error`, which ranks nothing; draw `gramrun plot "
                f"gram-error {run.path}`, or name runs of `gramrun train`"
            )
        if not present:
            raise InputError(
                f"{run.path}: no MAP@10 in its {directory.METRICS} yet; let it reach an evaluation"
            )
        for column in ("step", "epoch", "train_seconds", *present.values()):
            if column not in metrics or metrics[column].dtype.kind not in "iuf":
                raise InputError(f"{run.path / directory.METRICS}: damaged ({column} holds no numbers)")
        for split, column in present.items():
            curve = metrics[["step", "epoch", "train_seconds"]].assign(
                method=label, seed=run.config.train.seed, split=split
            )
            frames.append(curve.assign(**{"map@10": metrics[column]}))
    return pd.concat(frames, ignore_index=True)


def inner_products_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of every training run's ``inner_products.csv``, with the run's label and seed.

    Raises:
        InputError: when a run has none.
    """
    opened = [open_run(path) for path in paths]
    frames = []
    for run, label in zip(opened, labels([run.config for run in opened]), strict=True):
        file = run.file(directory.INNER_PRODUCTS)
        if not file.exists():
            raise InputError(f"{run.path}: no {file.name}; train with --set evaluation.inner_products=10000")
        frames.append(
            read_table(file, _INNER_PRODUCTS, ["pairs"]).assign(method=label, seed=run.config.train.seed)
        )
    return pd.concat(frames, ignore_index=True)


def gravity_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The validation MAP@10 curves of training runs, with λ in a column instead of in the label.

    Raises:
        InputError: when a run has no validation MAP@10 in its metrics.
    """
    configs = [open_run(path).config for path in paths]
    methods = labels([_with_gravity(config, 1.0) for config in configs])
    frames = []
    for path, config, method in zip(paths, configs, methods, strict=True):
        curve = map_frame([path])
        curve = curve[curve["split"] == "validation"]
        if curve.empty:
            raise InputError(f"{path}: no validation MAP@10; its evaluation.splits leave validation out")
        frames.append(curve.assign(method=method, gravity=config.train.gravity))
    return pd.concat(frames, ignore_index=True)


def _with_gravity(config: RunConfig, gravity: float) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={"gravity": gravity})})


def popularity(paths: Sequence[Path]) -> dict[str, float]:
    """Popularity's validation MAP@10, where one of the runs was evaluated."""
    for path in paths:
        file = path / directory.EVALUATION
        if file.exists() and "validation" in (results := read_json(file)):
            try:
                value = results["validation"]["popularity"]["map@10"]
            except (LookupError, TypeError):
                value = None
            if not is_number(value):
                raise InputError(f"{file}: damaged (no MAP@10 of popularity); evaluate the run again")
            return {"popularity": value}
    return {}


def gram_error_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """The rows of every run's ``gram_error.csv``, with the run's seed.

    Raises:
        InputError: when a run has none.
    """
    frames = []
    for path in paths:
        run = open_run(path)
        file = run.file("gram_error.csv")
        if not file.exists():
            raise InputError(f"{path}: no gram_error.csv; `gramrun gram-error` makes one")
        frames.append(read_table(file, _ERRORS, ["estimator", "side"]).assign(seed=run.config.train.seed))
    return pd.concat(frames, ignore_index=True)


def theory_frame(paths: Sequence[Path]) -> pd.DataFrame:
    """SOGram's and sampling's rows of every run's ``gram_error.csv``, and what theory says of each.

    Estimators that Proposition 5 does not speak of are left out.

    Returns:
        The columns of ``gram_error.csv`` and ``seed``, ``label``, ``reference_error`` and, as errors
        relative to ‖G‖: ``bound`` and ``stepwise`` (of SOGram), ``expected`` (of sampling); NaN elsewhere.

    Raises:
        InputError: when a run has no trajectory, its drift was not measured, or nothing is left to draw.
    """
    frames = []
    for path in paths:
        errors = gram_error_frame([path])
        trajectory = _trajectory(path)
        for keys, rows in errors.groupby(
            ["estimator", "batch_size", "alpha", "side"], dropna=False, sort=False
        ):
            estimator, batch_size, alpha, side = cast("tuple[str, int, float, str]", keys)
            if estimator not in ("SOGram", "sampling"):
                continue
            measured = trajectory[trajectory["side"] == side]
            if measured.empty:  # as in a run under way, or a damaged one
                raise InputError(
                    f"{path}: no {side} side in its trajectory.csv yet; let it go on, or start it anew with "
                    "--force"
                )
            theory = _theory(measured, alpha if estimator == "SOGram" else None, batch_size)
            label = f"SOGram α={alpha:g}" if estimator == "SOGram" else estimator
            frames.append(rows.merge(theory, on="step").assign(label=label))
    if not frames:
        raise InputError("cannot plot: Proposition 5 speaks of SOGram and sampling, and neither was watched")
    return pd.concat(frames, ignore_index=True)


def _trajectory(path: Path) -> pd.DataFrame:
    file = open_run(path).file("trajectory.csv")
    if not file.exists():
        raise InputError(
            f"{path}: no trajectory.csv; `gramrun gram-error` makes one, start it anew with --force"
        )
    frame = read_table(file, _TRAJECTORY, ["side"])
    for _, own in frame.groupby("side"):
        steps = own["step"].to_numpy()
        # The bound is summed over every step, also those between measured ones.
        whole = steps.dtype.kind in "iu" and steps[0] == 1 and (np.diff(steps) > 0).all()
        if not whole:
            raise InputError(f"{file}: damaged (step); {REMEDY}")
        if steps[-1] > _MOST_STEPS:
            raise InputError(f"{file}: ends at step {steps[-1]:,}; at most {_MOST_STEPS:,} can be drawn")
    if frame.loc[frame["step"] > 1, "drift"].isna().any():
        raise InputError(f"{path}: the drift was not measured; start it anew with gram_error.drift: true")
    return frame


def _theory(measured: pd.DataFrame, alpha: float | None, batch_size: int) -> pd.DataFrame:
    """One side's trajectory as the errors relative to ‖G‖ that theory gives one estimator."""
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
