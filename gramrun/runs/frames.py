"""Run directories as pandas frames, without torch and matplotlib.

    from gramrun import runs

    run = runs.load("runs/sogram")
    run.metrics.plot(x="step", y="map@10")

    runs.table("runs/movielens-100k/*", "metrics")     # of many runs, with columns run, method and seed

`FRAMES` lists the frames. Numbers are float64 (NaN if missing), except for `INTEGERS`. A last line that is
not complete, as in a run under way, is left out.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from gramrun.base.errors import InputError
from gramrun.base.files import read_json
from gramrun.base.records import REMEDY, read_table
from gramrun.config import BaselineConfig, RunConfig
from gramrun.config.loading import plain
from gramrun.runs.directory import CONFIG, EVALUATION, METRICS, BaselineRun, Run, flatten, open_directory

FRAMES: Mapping[str, str] = MappingProxyType(
    {
        "metrics": "an evaluation while training (of a baseline: a sweep), as in metrics.jsonl",
        "evaluation": "a split that `gramrun evaluate` measured; ci95 is ci95.low and ci95.high, and "
        "popularity's are popularity.map@10 and so on",
        "gram_error": "a measured step, estimator and side of `gramrun gram-error`",
        "trajectory": "a measured step and side of `gramrun gram-error`",
        "inner_products": "an evaluation and kind of pairs, if evaluation.inner_products is not 0",
    }
)
INTEGERS = frozenset(("step", "batch_size", "count", "left_items", "candidates"))
# The required columns of each CSV file: numbers, then texts.
_QUANTILES = tuple(f"q{q}" for q in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99))
_COLUMNS = {
    "gram_error": (("step", "epoch", "batch_size", "alpha", "error"), ("estimator", "side")),
    "trajectory": (("step", "gramian_norm", "variance", "drift", "reference_error"), ("side",)),
    "inner_products": (("step", "epoch", "count", "mean", "sd", *_QUANTILES), ("pairs",)),
}
# What pandas raises for unexpected values; its own errors are ValueErrors.
_DAMAGE = (OSError, ValueError, TypeError, AttributeError, LookupError, OverflowError)


@dataclass(frozen=True)
class RunResults:
    """The content of one run directory.

    Attributes:
        path: the directory.
        config: its resolved configuration.
        manifest: ``manifest.json``: command, versions, hashes, seed, status, times.
        metrics, evaluation, gram_error, trajectory, inner_products: see `FRAMES`. A frame without rows has no
            columns.
    """

    path: Path
    config: RunConfig | BaselineConfig
    manifest: Mapping[str, Any]
    metrics: pd.DataFrame
    evaluation: pd.DataFrame
    gram_error: pd.DataFrame
    trajectory: pd.DataFrame
    inner_products: pd.DataFrame

    @property
    def seed(self) -> int:
        """The seed of training, or of the baseline."""
        return self.config.train.seed if isinstance(self.config, RunConfig) else self.config.baseline.seed


def load(path: Path | str) -> RunResults:
    """Load a run directory, finished or under way.

    Args:
        path: the directory of `gramrun train`, `gram-error` or `baseline`.

    Raises:
        InputError: when it is no run directory, or a file in it is damaged.
        ConfigError: when this version cannot read its configuration.
    """
    run = open_directory(Path(path))
    frames = {name: read_frame(run, name) for name in FRAMES}
    return RunResults(run.path, run.config, MappingProxyType(run.manifest), **frames)


def table(paths: str | Path | Iterable[str | Path], frame: str) -> pd.DataFrame:
    """Concatenate one frame of several runs.

    Args:
        paths: run directories, or a pattern such as ``runs/movielens-100k/*``, which skips everything that is
            no run directory.
        frame: one of `FRAMES`.

    Returns:
        The columns ``run`` (the directory), ``method`` (the estimator, and the settings and the corpus where
        these runs differ in them, but not the seed) and ``seed`` (int64), then those of the frame. Runs
        without such rows have none.

    Raises:
        InputError: when there is no run directory, no such frame, or a file is damaged.
        ConfigError: when this version cannot read a configuration.
    """
    if frame not in FRAMES:
        raise InputError(f"no frame is called {frame}; there are {', '.join(FRAMES)}")
    parts = [part for part in stack([open_directory(path) for path in _found(paths)], frame) if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["run", "method", "seed"])


def stack(opened: Sequence[Run | BaselineRun], name: str) -> list[pd.DataFrame]:
    """One frame of each run, with the columns ``run``, ``method`` and ``seed`` in front if it has rows."""
    parts = []
    for run, method in zip(opened, labels([run.config for run in opened], corpora_of(opened)), strict=True):
        rows = read_frame(run, name)
        if len(rows):
            keys = {"run": str(run.path), "method": method, "seed": run.seed}
            own = rows.drop(columns=list(keys), errors="ignore")  # evaluations have a shorter method
            rows = pd.concat([pd.DataFrame(keys, index=rows.index), own], axis=1)
        parts.append(rows)
    return parts


def read_frame(run: Run | BaselineRun, name: str) -> pd.DataFrame:
    """One of the `FRAMES` of a run; empty if the run has no such file or rows.

    Raises:
        InputError: when the file is damaged.
    """
    path = run.path / {"metrics": METRICS, "evaluation": EVALUATION}.get(name, f"{name}.csv")
    try:
        if name == "metrics":
            frame = pd.DataFrame(run.metrics()).apply(pd.to_numeric)
        elif name == "evaluation":
            results = read_json(path) if path.exists() else {}
            frame = pd.DataFrame([_evaluation_row(result) for result in results.values()])
        else:
            frame = read_table(path, *_COLUMNS[name]) if run.file(path.name).exists() else pd.DataFrame()
        return _typed(frame)
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: damaged ({reason}); {REMEDY}") from None


def _evaluation_row(result: Mapping[str, Any]) -> dict[str, Any]:
    flat = flatten(result)
    for name in [name for name, value in flat.items() if isinstance(value, list)]:
        low, high = ("left", "right") if name == "effective_rank" else ("low", "high")
        flat[f"{name}.{low}"], flat[f"{name}.{high}"] = flat.pop(name)
    return flat


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Give each column its documented type, independent of the values in its rows."""
    for name in frame.columns:
        if name in INTEGERS:
            whole = frame[name].astype("int64")
            if (whole != frame[name]).any():
                raise ValueError(f"{name} holds no integers")
            frame[name] = whole
        elif frame[name].isna().all() or pd.api.types.is_integer_dtype(frame[name]):
            frame[name] = frame[name].astype("float64")
    return frame


def _found(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(paths, str | Path):
        return [Path(path) for path in paths]
    if Path(paths).exists():
        return [Path(paths)]
    found = [Path(path) for path in sorted(glob.glob(str(paths))) if Path(path, CONFIG).is_file()]
    if not found:
        raise InputError(f"{paths}: no run directory there")
    return found


def corpora_of(opened: Sequence[Run | BaselineRun]) -> list[str]:
    """The corpus of each run: its folder's name, or its hash where that does not tell two apart."""
    names = [run.config.data.path.name for run in opened]
    hashes = [str(run.manifest["data_hash"]) for run in opened]
    one_to_one = len(set(names)) == len(set(hashes)) == len(set(zip(names, hashes, strict=True)))
    return names if one_to_one else [found[:8] for found in hashes]


def labels(configs: Sequence[RunConfig | BaselineConfig], corpora: Sequence[str] = ()) -> list[str]:
    """Name each run by its method and the settings in which the runs differ.

    Args:
        configs: of the runs.
        corpora: their corpora, if they may differ.

    Returns:
        One label for each run. Runs that differ only in their seed, or in what is measured and saved, have
        the same label. The device and the engine are named only where nothing else tells two methods apart.
    """
    all_settings = [_settings(config) for config in configs]
    for settings, corpus in zip(all_settings, corpora or [""] * len(configs), strict=True):
        settings["corpus"] = corpus
    values: dict[str, set[str]] = {}
    for settings in all_settings:
        for key, value in settings.items():
            values.setdefault(key, set()).add(json.dumps(value))
    differing = [key for key, found in values.items() if len(found) > 1]

    def label(config: RunConfig | BaselineConfig, settings: Mapping[str, Any], keys: list[str]) -> str:
        method = config.estimator.label if isinstance(config, RunConfig) else config.baseline.label
        shown = {key.rsplit(".", 1)[-1]: settings[key] for key in keys if settings.get(key) is not None}
        told = [f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items()]
        return ", ".join([method, *told])

    def named(keys: list[str]) -> list[str]:
        return [label(config, own, keys) for config, own in zip(configs, all_settings, strict=True)]

    full, short = named(differing), named([key for key in differing if key not in _MACHINE])
    return short if len(set(short)) == len(set(full)) else full


def _settings(config: RunConfig | BaselineConfig) -> dict[str, Any]:
    """The settings that may appear in a label, by dotted key."""
    flat = flatten(plain(config))
    return {
        k: v
        for k, v in flat.items()
        if not k.startswith(("data.", "gram_error.", "log.")) and ".".join(k.split(".")[:2]) not in _HIDDEN
    }


_MACHINE = ("device", "train.engine")  # where it runs, not what

# Seeds, what is measured and saved, and what a method's own label says or its method ignores.
_HIDDEN = frozenset(
    f"{section}.{key}"
    for section, keys in {
        "train": "seed checkpoint_every checkpoints_kept",
        "evaluation": "every seed splits inner_products",
        "estimator": "name alpha alpha_schedule beta debias start cache cache_dtype batch project",
        "baseline": "seed name l2 gravity gamma_left gamma_right",
    }.items()
    for key in keys.split()
)
