"""What run directories hold, as pandas frames. Opens no model, and imports neither torch nor matplotlib.

    from gramrun import runs

    run = runs.load("runs/sogram")
    run.metrics.plot(x="step", y="map@10")

    runs.table("runs/movielens-100k/*", "metrics")     # of many runs, with columns run, method and seed

`FRAMES` says what each frame's rows are. Numbers are float64 (missing: NaN), but for `INTEGERS`; texts are
text. A last line that is not whole yet, as of a run that is under way, is left out.
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
import yaml

from gramrun.base.errors import InputError
from gramrun.base.files import read_json
from gramrun.base.records import REMEDY, read_table
from gramrun.config import BaselineConfig, RunConfig
from gramrun.config.loading import dump_config
from gramrun.runs.directory import CONFIG, EVALUATION, RunDirectory, flatten, open_directory

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
_CSV = ("gram_error", "trajectory", "inner_products")
# What pandas raises where a file is not what it should be; its own errors are ValueErrors.
_DAMAGE = (OSError, ValueError, TypeError, AttributeError, LookupError, OverflowError)


@dataclass(frozen=True)
class RunResults:
    """What one run directory holds.

    Attributes:
        path: the directory.
        config: its resolved configuration.
        manifest: the parsed ``manifest.json``: command, versions, hashes, seed, status, times.
        metrics, evaluation, gram_error, trajectory, inner_products: what `FRAMES` says; without a row and a
            column where the run holds nothing of the kind.
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
        """Of training, or of the baseline."""
        return self.config.train.seed if isinstance(self.config, RunConfig) else self.config.baseline.seed


def load(path: Path | str) -> RunResults:
    """Load what a run directory holds.

    Args:
        path: of `gramrun train`, `gram-error` or `baseline`; it may be under way.

    Raises:
        InputError: when it is no run directory, or a file in it is damaged.
        ConfigError: when its config cannot be read by this version.
    """
    path = Path(path)
    run = open_directory(path)
    return RunResults(
        path=path,
        config=run.config,
        manifest=MappingProxyType(run.manifest),
        metrics=_metrics(run),
        evaluation=_evaluation(path / EVALUATION),
        **{name: _csv(run.file(f"{name}.csv")) for name in _CSV},
    )


def table(paths: str | Path | Iterable[str | Path], frame: str) -> pd.DataFrame:
    """One frame of several runs, their rows below one another.

    Args:
        paths: run directories, or a pattern such as ``runs/movielens-100k/*``; what a pattern finds and is
            no run directory is passed over.
        frame: one of `FRAMES`.

    Returns:
        The columns ``run`` (the directory), ``method`` (the estimator, and every other setting that tells
        these runs apart; equal for runs that differ in their seed alone) and ``seed`` (int64), then those
        of the frame. Runs that hold nothing of the kind have no row.

    Raises:
        InputError: when there is no run directory, no such frame, or a file is damaged.
        ConfigError: when a config cannot be read by this version.
    """
    if frame not in FRAMES:
        raise InputError(f"no frame is called {frame}; there are {', '.join(FRAMES)}")
    loaded = [load(path) for path in _found(paths)]
    methods = labels([run.config for run in loaded])
    parts = []
    for run, method in zip(loaded, methods, strict=True):
        rows: pd.DataFrame = getattr(run, frame)
        keys = {"run": str(run.path), "method": method, "seed": run.seed}
        if len(rows):
            own = rows.drop(columns=list(keys), errors="ignore")  # an evaluation has its method, without more
            parts.append(pd.concat([pd.DataFrame(keys, index=rows.index), own], axis=1))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["run", "method", "seed"])


def _found(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    if not isinstance(paths, str | Path):
        return [Path(path) for path in paths]
    if Path(paths).exists():
        return [Path(paths)]
    found = [Path(path) for path in sorted(glob.glob(str(paths))) if Path(path, CONFIG).is_file()]
    if not found:
        raise InputError(f"{paths}: no run directory there")
    return found


def _csv(path: Path) -> pd.DataFrame:
    """One of a run's tables; without a row and a column where there is none."""
    try:
        return _typed(read_table(path)) if path.exists() else pd.DataFrame()
    except _DAMAGE as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: damaged ({reason}); {REMEDY}") from None


def _metrics(run: RunDirectory) -> pd.DataFrame:
    try:
        return _typed(pd.DataFrame(run.metrics()))
    except _DAMAGE:
        raise InputError(f"{run.path}: its metrics are damaged; {REMEDY}") from None


def _evaluation(path: Path) -> pd.DataFrame:
    def row(result: Mapping[str, Any]) -> dict[str, Any]:
        flat = flatten(result)
        intervals = [name for name, value in flat.items() if isinstance(value, list)]
        for name in intervals:
            flat[f"{name}.low"], flat[f"{name}.high"] = flat.pop(name)
        return flat

    if not path.exists():
        return pd.DataFrame()
    try:
        return _typed(pd.DataFrame([row(result) for result in read_json(path).values()]))
    except _DAMAGE:
        raise InputError(f"{path}: damaged; measure again with `gramrun evaluate`") from None


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Give each column its documented type, whatever the rows that there are happen to hold."""
    for name in frame.columns:
        if name in INTEGERS:
            frame[name] = frame[name].astype("int64")
        elif frame[name].isna().all() or pd.api.types.is_integer_dtype(frame[name]):
            frame[name] = frame[name].astype("float64")
    return frame


def labels(configs: Sequence[RunConfig | BaselineConfig]) -> list[str]:
    """Name each run by its method, and by every setting other than the seed that tells them apart.

    Returns:
        One label a run; runs that differ in nothing but their seed share theirs.
    """
    all_settings = [_told(config) for config in configs]
    values: dict[str, set[str]] = {}
    for settings in all_settings:
        for key, value in settings.items():
            values.setdefault(key, set()).add(json.dumps(value))
    differing = [key for key, found in values.items() if len(found) > 1]

    def label(config: RunConfig | BaselineConfig, settings: Mapping[str, Any]) -> str:
        method = config.estimator.label if isinstance(config, RunConfig) else config.baseline.label
        told = [f"{k.rsplit('.', 1)[-1]} {_shown(settings[k])}" for k in differing if k in settings]
        return ", ".join([method, *told])

    return [label(config, settings) for config, settings in zip(configs, all_settings, strict=True)]


def _told(config: RunConfig | BaselineConfig) -> dict[str, Any]:
    """The settings that may stand in a label, by dotted key; intervals as they are written."""
    flat = flatten(yaml.safe_load(dump_config(config)))
    watching = ("data.", "gram_error.", "log.")
    return {k: v for k, v in flat.items() if not k.startswith(watching) and k not in _NOT_TOLD | _IN_LABEL}


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Seeds, and what only watches or saves: runs that differ in these are runs of one method.
_NOT_TOLD = frozenset(
    (
        "train.seed",
        "baseline.seed",
        "train.checkpoint_every",
        "train.checkpoints_kept",
        *(f"evaluation.{key}" for key in ("every", "seed", "splits", "inner_products")),
    )
)

# The method's label says these, or they have no effect under another method.
_IN_LABEL = frozenset(
    (
        *(
            f"estimator.{key}"
            for key in (
                "name",
                "alpha",
                "alpha_schedule",
                "beta",
                "debias",
                "start",
                "cache",
                "cache_dtype",
                "batch",
                "project",
            )
        ),
        *(f"baseline.{key}" for key in ("name", "gravity", "gamma_left", "gamma_right")),
    )
)
