"""How methods rank: their runs, evaluated; tables of them; and what their differences say.

A method is a label, a config in configs/<dataset> and ``--set`` settings. Labels are those of the claims.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from experiments.report.sections import Seeds, interval, spread
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan
from gramrun import runs
from gramrun.base.files import read_json
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.evaluation.trained import evaluate_run
from gramrun.runs import directory

SAMPLING = "sampling"
SECONDS, STEPS, MAP = range(3)  # columns of a curve
# What makes times of a report's runs poor witnesses, and steps better ones.
SIDE_BY_SIDE = "(of runs side by side, with whatever else the machine did)"
LAST = 0.1  # the part of training in which a curve that rises
RISING = 0.02  # by more than this of itself is said to be still rising
WORTH_PROCESSES = 5  # runs to evaluate; processes that import torch take seconds to start
FORGOTTEN = 0.05  # of the zero start, (1 − α)^steps, which is not spoken of below this: 3/α steps


@dataclass(frozen=True)
class Method:
    """A row of a table: its label (empty: the estimator's own), its config's name, and ``--set`` settings."""

    label: str
    config: str
    settings: tuple[str, ...] = ()


def paper_methods(alphas: Sequence[float]) -> tuple[Method, ...]:
    """The methods of the paper's Section 4.3 and Appendix E, under its own objective."""
    return (
        Method(SAMPLING, "paper-sampling"),
        *(Method(f"SOGram α={alpha:g}", "paper-sogram", (f"estimator.alpha={alpha:g}",)) for alpha in alphas),
        Method("", "paper-sagram"),  # per pair or, where pairs are too many to cache, per item
    )


def tasks(plan: Plan, methods: Sequence[Method]) -> list[Task]:
    """The training runs of some methods, on every data set of the plan that has their configs."""
    return [
        task
        for dataset in plan.datasets
        for method in present(dataset, methods)
        for task in plan.tasks("train", dataset, method.config, *settings(plan, dataset, method))
    ]


def present(dataset: str, methods: Sequence[Method]) -> list[Method]:
    """Those with a config for the data set, all of them with a label."""
    files = [(m, Path("configs") / dataset / f"{m.config}.yaml") for m in methods]
    return [
        m if m.label else replace(m, label=load_config(RunConfig, file, m.settings).estimator.label)
        for m, file in files
        if file.exists()
    ]


def settings(plan: Plan, dataset: str, method: Method) -> tuple[str, ...]:
    """A method's ``--set`` settings, and those of the plan's option ``settings``."""
    return (*(plan.option("settings", dataset) or ()), *method.settings)


def paths(plan: Plan, dataset: str, method: Method) -> list[Path]:
    """The run directories of a method, one a seed."""
    return [t.output for t in plan.tasks("train", dataset, method.config, *settings(plan, dataset, method))]


def evaluate(paths: Sequence[Path]) -> list[dict[str, dict[str, Any]]]:
    """Each run's evaluation of both splits, by its newest checkpoint; made where missing, one run a core."""
    missing = [path for path in paths if _missing_splits(path)]
    if len(missing) < WORTH_PROCESSES:
        for path in missing:
            _evaluate(path)
    else:
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(os.cpu_count(), spawned, torch.set_num_threads, (1,)) as pool:
            done = pool.map(_evaluate, missing)
            list(tqdm(done, "evaluating", len(missing), unit="run", disable=None, leave=False))
    return [read_json(path / directory.EVALUATION) for path in paths]


def _missing_splits(path: Path) -> list[str]:
    file = path / directory.EVALUATION
    known = read_json(file) if file.exists() else {}
    run = runs.open_run(path)
    newest = run.checkpoints()[-1:]
    return [
        split
        for split in ("validation", "train")
        if split not in known or [run.checkpoint_path(known[split]["step"])] != newest
    ]


def _evaluate(path: Path) -> None:
    run = runs.open_run(path)
    corpus = open_corpus(run.config.data.path)
    for split in _missing_splits(path):
        runs.record_evaluation(run, evaluate_run(run, corpus, split))


def measure(plan: Plan, dataset: str, methods: Sequence[Method]) -> pd.DataFrame:
    """Where finished runs ended: a row for each method and seed.

    Returns:
        Columns ``label``, ``seed``, ``validation`` and ``train`` (MAP@10), ``best`` (of the validation curve)
        and ``best_step``, ``steps``, ``seconds`` (of training), ``curve`` (`SECONDS`, `STEPS`, `MAP`),
        ``popularity`` and ``interval`` (of the validation MAP@10, over left items).
    """
    rows = []
    asked = {method.label: paths(plan, dataset, method) for method in present(dataset, methods)}
    results = iter(evaluate([path for own in asked.values() for path in own]))
    for label, own in asked.items():
        for seed, path in zip(plan.seeds, own, strict=True):
            found = next(results)
            curve = pd.DataFrame(runs.open_run(path).metrics())
            best = curve["map@10"].idxmax()
            rows.append(
                {
                    "label": label,
                    "seed": seed,
                    "validation": found["validation"]["map@10"],
                    "train": found["train"]["map@10"],
                    "best": curve["map@10"][best],
                    "best_step": curve["step"][best],
                    "steps": curve["step"].iloc[-1],
                    "seconds": curve["train_seconds"].iloc[-1],
                    "curve": np.array(curve[["train_seconds", "step", "map@10"]], dtype=float),
                    "popularity": found["validation"]["popularity"]["map@10"],
                    "interval": found["validation"]["ci95"],
                }
            )
    return pd.DataFrame(rows)


def column(frame: pd.DataFrame, label: str, name: str) -> Seeds:
    """One method's numbers, in the order of seeds."""
    return tuple(float(x) for x in frame.loc[frame["label"] == label, name])


def lifts(frame: pd.DataFrame, label: str, name: str = "validation") -> Seeds:
    """A method's relative lift over sampling, paired by seed: 0.01 is 1 %."""
    own, baseline = column(frame, label, name), column(frame, SAMPLING, name)
    return tuple(a / b - 1 for a, b in zip(own, baseline, strict=True))


def speed_ups(frame: pd.DataFrame, label: str, axis: int = SECONDS) -> Seeds:
    """How much sooner than sampling a method comes to rank as sampling does at its end, and stays there.

    Sampling's time is that of its own coming there, so that both are passages through one level by noisy
    curves. Times between two evaluations are interpolated. 0 where a method never gets there.

    Args:
        frame: `measure`'s.
        label: the method.
        axis: `SECONDS` of training or `STEPS`, which no other load on the machine changes.
    """
    return tuple(
        _arrival(reference, level, axis) / when if np.isfinite(when := _arrival(curve, level, axis)) else 0.0
        for curve, reference, level in _beside_sampling(frame, label)
    )


def largest_speed_ups(frame: pd.DataFrame, label: str, axis: int = SECONDS) -> Seeds:
    """The most that `speed_ups` could be: were the method there by its first evaluation."""
    return tuple(
        float(_arrival(reference, level, axis) / _first(curve, axis))
        for curve, reference, level in _beside_sampling(frame, label)
    )


def _beside_sampling(frame: pd.DataFrame, label: str) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """A method's curve, sampling's, and the level where that ends, by seed."""
    own, references = (frame.loc[frame["label"] == name, "curve"] for name in (label, SAMPLING))
    for curve, reference in zip(own, references, strict=True):
        yield curve, reference, float(reference[-1, MAP])


def _first(curve: np.ndarray, axis: int) -> float:
    """The first evaluation after the start."""
    return float(curve[curve[:, axis] > 0, axis][0])


def _arrival(curve: np.ndarray, level: float, axis: int) -> float:
    """When a curve is at a level or above for good; infinite where it ends below."""
    below = np.flatnonzero(curve[:, MAP] < level)
    if not len(below):
        return _first(curve, axis)
    i = int(below[-1])
    if i == len(curve) - 1:
        return float("inf")
    (x0, m0), (x1, m1) = curve[i : i + 2, [axis, MAP]]
    return float(x0 + (x1 - x0) * (level - m0) / (m1 - m0))


def late_rise(frame: pd.DataFrame, label: str = SAMPLING) -> float:
    """By how much of itself a method's validation MAP@10 rose in the last tenth of its steps; seeds' mean."""
    rises = [
        curve[-1, MAP] / np.interp((1 - LAST) * curve[-1, STEPS], curve[:, STEPS], curve[:, MAP]) - 1
        for curve in frame.loc[frame["label"] == label, "curve"]
    ]
    return float(np.mean(rises))


def measured(dataset: str, frame: pd.DataFrame, prefix: str = "") -> dict[str, Seeds]:
    """What claims may ask of `measure`'s frame, by name."""
    found: dict[str, Seeds] = {}
    for label in frame["label"].unique():
        name = f"{dataset}/{prefix}{label}"
        found[f"{name}/validation MAP"] = column(frame, label, "validation")
        found[f"{name}/training MAP"] = column(frame, label, "train")
        found[f"{name}/steps"] = column(frame, label, "steps")
        found[f"{name}/speed-up to sampling's final MAP"] = speed_ups(frame, label)
        found[f"{name}/speed-up in steps to sampling's final MAP"] = speed_ups(frame, label, STEPS)
        found[f"{name}/largest speed-up that its evaluations can show"] = largest_speed_ups(frame, label)
    return found


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """`measure`'s frame as it is to be read, popularity as its last row."""
    rows = []
    for label in frame["label"].unique():
        own = frame[frame["label"] == label]
        rows.append(
            {
                "method": label,
                "validation MAP@10": spread(column(frame, label, "validation")),
                "lift over sampling [95 %]": "" if label == SAMPLING else percent(lifts(frame, label)),
                "training MAP@10": spread(column(frame, label, "train")),
                "best validation (at step)": f"{own['best'].mean():.4f} ({own['best_step'].mean():,.0f} of "
                f"{own['steps'].mean():,.0f})",
                "training time, s": f"{own['seconds'].mean():.0f}",
            }
        )
    rows.append({"method": "popularity", "validation MAP@10": f"{frame['popularity'].iloc[0]:.4f}"})
    return pd.DataFrame(rows).fillna("")


def percent(values: Seeds) -> str:
    """A mean in per cent with its 95 % interval."""
    low, high = interval(values)
    return f"{100 * np.mean(values):+.1f} % [{100 * low:+.1f}, {100 * high:+.1f}]"


def judgement(frame: pd.DataFrame, dataset: str) -> str:
    """What a data set says of the claim that better Gramians rank better, in a sentence or two."""
    others = [label for label in frame["label"].unique() if label != SAMPLING]
    ahead = [label for label in others if interval(lifts(frame, label))[0] > 0]
    behind = [label for label in others if interval(lifts(frame, label))[1] < 0]
    parts = []
    if ahead:
        parts.append("ahead of sampling: " + "; ".join(f"{x}, {percent(lifts(frame, x))}" for x in ahead))
    if behind:
        parts.append("behind sampling: " + "; ".join(f"{x}, {percent(lifts(frame, x))}" for x in behind))
    if rest := [label for label in others if label not in ahead + behind]:
        widest = max(rest, key=lambda label: abs(np.mean(lifts(frame, label))))
        parts.append(
            f"not told apart from sampling: {', '.join(rest)} (at most {percent(lifts(frame, widest))}, "
            f"{widest})"
        )
    floor = frame["popularity"].iloc[0]
    best = max(float(np.mean(column(frame, label, "validation"))) for label in frame["label"].unique())
    beside = "below" if best < floor else "above"
    return (
        f"On {dataset}, {'; '.join(parts)}. The best is {beside} popularity ({best:.4f}, {floor:.4f})."
        f"{_cut_short(frame)}"
    )


def _cut_short(frame: pd.DataFrame) -> str:
    """What says that training ended early: a curve still rising, a zero start not yet forgotten."""
    text = ""
    if (rise := late_rise(frame)) > RISING:
        text += f" Sampling was still rising: by {rise:.1%} in the last tenth of its steps."
    left = []
    for label, rows in frame.groupby("label", sort=False):
        if found := re.fullmatch(r"SOGram α=([\d.]+)", str(label)):
            start = (1 - float(found[1])) ** rows["steps"].mean()
            left += [f"{start:.0%} with {label}"] if start > FORGOTTEN else []
    return text + (
        f" Of the Gramians' zero start there is left at the end {', '.join(left)}." if left else ""
    )


def caption(plan: Plan, dataset: str, methods: Sequence[Method]) -> str:
    """What the numbers of `table` are."""
    first = paths(plan, dataset, present(dataset, methods)[0])[0]
    example = evaluate([first])[0]["validation"]
    pool = "all right items" if example["full"] else f"{example['candidates']:,} sampled candidates"
    return (
        f"{dataset}: MAP@10, denominator min(10, relevant), ties against the model, {pool}. Validation: "
        f"{example['left_items']:,} left items, training positives excluded; training: none excluded. "
        f"± over {len(plan.seeds)} seeds; lifts are paired by seed. By resampling left items, the first "
        f"method's first seed lies in [{example['ci95'][0]:.4f}, {example['ci95'][1]:.4f}]."
    )
