"""Comparison of methods: their runs, measurements and tables.

A method is a label, a config in configs/<dataset>, and ``--set`` settings. The claims use the labels.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from experiments.report import keys
from experiments.report.keys import EXACT, SAMPLING, Ranking
from experiments.report.sections import REACHED, Seeds, Table, lift, of_common_seeds, spread
from experiments.reproduce.corpora import configs
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan, run_task, settings
from gramrun import runs
from gramrun.base.files import read_json
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.evaluation.trained import evaluate_run
from gramrun.runs import directory

EXACT_ALS = "exact ALS of the same objective"
LONG_ALS = (  # with one seed
    "simple-scale", "fr-scale", "enwik8-titles-split1", "enwik8-titles-split2",
    "miwiki-split1", "miwiki-split2",
)  # fmt: skip
RESAMPLES = 2000  # of left items
SECONDS, STEPS, MAP = range(3)  # columns of a curve
SIDE_BY_SIDE = "(of runs side by side, maybe on different machines)"  # times are poor evidence then
TENTH = 0.1  # of the steps: the first is "early", the last shows whether MAP still rises
PLATEAU = 0.01  # a run that rises by no more of itself in that part has reached its plateau
SETTLED = 1 / 3  # the last part of the steps before η falls, which stands for a constant η
WORTH_PROCESSES = 5  # runs to evaluate; starting a process takes seconds
UNSEEDED = ("popularity", "ease")  # configs of baselines that draw nothing
PACKAGES = {"implicit-als": "implicit"}  # configs of baselines that need a package


@dataclass(frozen=True)
class Method:
    """A row of a table.

    Attributes:
        label: its name; empty for the estimator's own.
        config: the name of its YAML file.
        settings: ``--set`` settings.
        command: ``train`` or ``baseline``.
        seeds: of the plan's; None for all.
    """

    label: str
    config: str
    settings: tuple[str, ...] = ()
    command: str = "train"
    seeds: tuple[int, ...] | None = None


def paper_methods(
    alphas: Sequence[float], exact: bool = True, sagram: Literal["pair", "item"] = "pair"
) -> tuple[Method, ...]:
    """The methods of the paper's Section 4.3 and Appendix E, under its own objective.

    Args:
        alphas: of SOGram.
        exact: with the exact Gramian, the ceiling, whose runs take as long as two others.
        sagram: with SAGram whose caches are per pair, as in the paper, or per item.
    """
    cached = ("estimator.cache=item",) if sagram == "item" else ()  # a config may say so too
    return (
        Method(SAMPLING, "paper-sampling"),
        *(Method(f"SOGram α={alpha:g}", "paper-sogram", (f"estimator.alpha={alpha:g}",)) for alpha in alphas),
        Method("", "paper-sagram", cached),
        *((Method(EXACT, "paper-exact"),) if exact else ()),
    )


def own_optimum(dataset: str, changed: Sequence[str] = ()) -> Method:
    """Exact ALS of the paper's objective and k, as changed: what trained towers can be measured by."""
    run = load_config(RunConfig, configs(dataset) / "paper-sampling.yaml", changed)
    train = run.train
    values = {
        "embedding_dim": run.model.embedding_dim,
        "gravity": train.gravity,
        "gamma_left": train.gamma_left,
        "gamma_right": train.gamma_right,
        "target": train.target,
    }
    own = settings({f"baseline.{key}": value for key, value in values.items()})
    return Method(EXACT_ALS, "exact-als", own, "baseline")


def optimum_tasks(plan: Plan, dataset: str) -> list[Task]:
    """Exact ALS of the paper's objective, one a seed; none where it has no config (too large a corpus)."""
    if not (configs(dataset) / "exact-als.yaml").exists():
        return []
    runs = runs_of(plan, dataset, own_optimum(dataset, plan.option("settings", dataset) or ()))
    return runs[:1] if dataset in LONG_ALS else runs


def optimum(plan: Plan, dataset: str) -> Seeds:
    """The validation MAP@10 of finished `optimum_tasks`."""
    done = [read_json(task.output / directory.EVALUATION) for task in optimum_tasks(plan, dataset)]
    return tuple(float(found["validation"]["map@10"]) for found in done)


def tasks(plan: Plan, methods: Sequence[Method]) -> list[Task]:
    """The runs of some methods, on every data set of the plan that has their configs."""
    return [
        task
        for dataset in plan.datasets
        for method in present(dataset, methods)
        for task in runs_of(plan, dataset, method)
    ]


def present(dataset: str, methods: Sequence[Method]) -> list[Method]:
    """The methods with a config for the data set and an installed package, each with a label."""
    found = []
    missing = missing_packages(methods)
    for method in methods:
        file = configs(dataset) / f"{method.config}.yaml"
        if file.exists() and PACKAGES.get(method.config) not in missing:
            label = method.label or load_config(RunConfig, file, method.settings).estimator.label
            found.append(replace(method, label=label))
    return found


def missing_packages(methods: Sequence[Method]) -> list[str]:
    """The packages that some of these methods need, and that are not installed."""
    needed = dict.fromkeys(PACKAGES[m.config] for m in methods if m.config in PACKAGES)
    return [package for package in needed if importlib.util.find_spec(package) is None]


def runs_of(plan: Plan, dataset: str, method: Method) -> list[Task]:
    """The runs of a method, one a seed, with the plan's option ``settings``."""
    own = () if method.command == "baseline" else plan.option("settings", dataset) or ()
    return [
        run_task(method.command, dataset, method.config, *own, *method.settings, seed=seed)
        for seed in _seeds(plan, method)
    ]


def _seeds(plan: Plan, method: Method) -> tuple[int, ...]:
    if method.config in UNSEEDED:
        return plan.seeds[:1]
    return plan.seeds if method.seeds is None else method.seeds


def paths(plan: Plan, dataset: str, methods: Sequence[Method]) -> list[Path]:
    """The run directories of some methods."""
    return [task.output for method in present(dataset, methods) for task in runs_of(plan, dataset, method)]


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
    if not newest and known:  # a published run has no checkpoint, and both splits
        return []
    return [
        split
        for split in ("validation", "train")
        if split not in known
        or not (path / directory.per_item(split)).exists()
        or [run.checkpoint_path(known[split]["step"])] != newest
    ]


def _evaluate(path: Path) -> None:
    run = runs.open_run(path)
    corpus = open_corpus(run.config.data.path)
    for split in _missing_splits(path):
        runs.record_evaluation(run, evaluate_run(run, corpus, split))


def measure(plan: Plan, dataset: str, methods: Sequence[Method]) -> pd.DataFrame:
    """The final results of finished runs: a row for each method and seed.

    Returns:
        Columns ``label``, ``seed``, ``validation`` and ``train`` (MAP@10), ``seconds``, ``interval`` (of the
        validation MAP@10, over left items), ``rank_left`` and ``rank_right``; of training runs also ``best``
        (of the validation curve), ``best_step``, ``steps``, ``curve`` (`SECONDS`, `STEPS`, `MAP`),
        ``popularity``, ``constant`` (the mean validation MAP@10 over the last `SETTLED` of the steps at a
        constant η; NaN where η never falls), ``error_left`` and ``error_right`` (of the estimates that train,
        over the same steps; NaN where they were not logged).
    """
    rows = []
    asked = {method: runs_of(plan, dataset, method) for method in present(dataset, methods)}
    trained = [task.output for method, own in asked.items() for task in own if method.command == "train"]
    evaluations = dict(zip(trained, evaluate(trained), strict=True))
    for method, own in asked.items():
        for seed, task in zip(_seeds(plan, method), own, strict=True):
            found = evaluations.get(task.output) or read_json(task.output / directory.EVALUATION)
            rank = found["validation"]["effective_rank"] or (float("nan"),) * 2  # EASE has no embeddings
            row = {
                "label": method.label,
                "seed": seed,
                "validation": found["validation"]["map@10"],
                "train": found["train"]["map@10"],
                "interval": found["validation"]["ci95"],
                "rank_left": rank[0],
                "rank_right": rank[1],
            }
            if method.command == "baseline":
                row["seconds"] = read_json(task.output / directory.MANIFEST)["seconds"]
            else:
                row |= _along(task.output) | {"popularity": found["validation"]["popularity"]["map@10"]}
            rows.append(row)
    return pd.DataFrame(rows)


def _along(path: Path) -> dict[str, Any]:
    """The curve of a training run."""
    run = runs.open_run(path)
    curve = pd.DataFrame(run.metrics())
    best = curve["map@10"].idxmax()
    falls = run.config.train.decay_from * curve["step"].iloc[-1]
    settled = curve["step"].between((1 - SETTLED) * falls, falls, inclusive="right")
    errors = {f"error_{side}": f"gramian_error_{side}" for side in ("left", "right")}
    return {
        **{name: curve[key][settled].mean() if key in curve else np.nan for name, key in errors.items()},
        "best": curve["map@10"][best],
        "best_step": curve["step"][best],
        "steps": curve["step"].iloc[-1],
        "machine": f"{run.manifest.get('processor')}, {run.config.device}",
        "seconds": curve["train_seconds"].iloc[-1],
        "constant": curve["map@10"][settled].mean() if run.config.train.decay_from < 1 else float("nan"),
        "curve": np.array(curve[["train_seconds", "step", "map@10"]], dtype=float),
    }


def column(frame: pd.DataFrame, label: str, name: str) -> Seeds:
    """One method's numbers, in the order of seeds."""
    return tuple(float(x) for x in frame.loc[frame["label"] == label, name])


def ratios(frame: pd.DataFrame, label: str, other: str = SAMPLING, name: str = "validation") -> Seeds:
    """A method's validation MAP@10 over another's, by the seeds of both; infinite or NaN over 0."""
    sides = of_common_seeds(column(frame, label, name), column(frame, other, name))
    with np.errstate(divide="ignore", invalid="ignore"):
        return tuple(np.divide(*sides).tolist())


def lift_at_constant_rate(frame: pd.DataFrame, label: str, other: str = SAMPLING) -> str:
    """A method's lift before η falls (`measure`'s ``constant``); empty where η never does."""
    found = ratios(frame, label, other, "constant")
    return "" if np.isnan(found).any() else lift(found)


def speed_ups(frame: pd.DataFrame, label: str, axis: int = SECONDS) -> Seeds:
    """The speed-up of a method over sampling to reach, and keep, the final MAP@10 of sampling.

    Sampling's time is measured by the same rule. Times between two evaluations are interpolated. 0 where a
    method does not reach the level.

    Args:
        frame: `measure`'s.
        label: the method.
        axis: `SECONDS` of training or `STEPS`, which other load on the machine does not change.
    """
    return tuple(
        _arrival(reference, level, axis) / when if np.isfinite(when := _arrival(curve, level, axis)) else 0.0
        for curve, reference, level in _beside_sampling(frame, label)
    )


def one_machine(frame: pd.DataFrame) -> bool:
    """Whether one kind of machine made all trainings of `measure`'s frame, so that their times compare."""
    return frame["machine"].nunique() == 1


def largest_speed_ups(frame: pd.DataFrame, label: str) -> Seeds:
    """The upper bound of `speed_ups`: the method reaches the level by its first evaluation."""
    return tuple(
        float(_arrival(reference, level, SECONDS) / curve[0, SECONDS])
        for curve, reference, level in _beside_sampling(frame, label)
    )


def _beside_sampling(frame: pd.DataFrame, label: str) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """A method's curve, sampling's curve and its final level, by the seeds of both."""
    own, references = (frame.loc[frame["label"] == name, "curve"] for name in (label, SAMPLING))
    for curve, reference in zip(own, references, strict=False):
        yield curve, reference, float(reference[-1, MAP])


def _arrival(curve: np.ndarray, level: float, axis: int) -> float:
    """When a curve reaches a level and stays there; infinite where it ends below."""
    below = np.flatnonzero(curve[:, MAP] < level)
    if not len(below):
        return float(curve[0, axis])
    i = int(below[-1])
    if i == len(curve) - 1:
        return float("inf")
    (x0, m0), (x1, m1) = curve[i : i + 2, [axis, MAP]]
    return float(x0 + (x1 - x0) * (level - m0) / (m1 - m0))


def early(frame: pd.DataFrame, label: str) -> Seeds:
    """A method's validation MAP@10 after the first tenth of its steps, by seed, interpolated."""
    curves = frame.loc[frame["label"] == label, "curve"]
    return tuple(float(np.interp(TENTH * c[-1, STEPS], c[:, STEPS], c[:, MAP])) for c in curves)


def late_rise(frame: pd.DataFrame, label: str) -> float:
    """By how much of itself a method's validation MAP@10 rose in the last tenth of its steps; seeds' mean.

    NaN where a seed's MAP@10 is 0 before it.
    """
    curves = frame.loc[frame["label"] == label, "curve"]
    ends = np.array([curve[-1, MAP] for curve in curves])
    before = np.array([np.interp((1 - TENTH) * c[-1, STEPS], c[:, STEPS], c[:, MAP]) for c in curves])
    return float(np.mean(ends / np.where(before > 0, before, np.nan) - 1))


def judged(labels: Collection[str]) -> str:
    """The method that says whether towers are trained: that with the nearest Gramian, exact or per item.

    The best of several methods would pass by luck. Sampling, where there is no other, can fall short for the
    noise of its Gramian.
    """
    return next((label for label in keys.NEAREST if label in labels), SAMPLING)


def required_map(popularity: float, optimum: Seeds) -> float:
    """What trained towers must reach: popularity, and `REACHED` of exact ALS where that is known; above 0."""
    return max(popularity, REACHED * float(np.mean(optimum or [0.0])), float(np.finfo(float).tiny))


def measured(dataset: str, frame: pd.DataFrame, optimum: Seeds = ()) -> dict[str, Seeds]:
    """The measurements of `measure`'s frame for claims, by name.

    Args:
        dataset: the corpus.
        frame: `measure`'s.
        optimum: `optimum`'s, by which towers are judged as trained or not; empty where it is not known.
    """
    required = required_map(frame["popularity"].iloc[0], optimum)
    nearest = column(frame, judged(frame["label"].unique()), "validation")
    found: dict[str, Seeds] = {keys.trained(dataset): tuple(x / required for x in nearest)}
    for label in frame["label"].unique():
        validation = column(frame, label, "validation")
        values = {
            Ranking.VALIDATION: validation,
            Ranking.TRAINING: column(frame, label, "train"),
            Ranking.OVER_POPULARITY: tuple(np.divide(validation, column(frame, label, "popularity"))),
            Ranking.EARLY: early(frame, label),
            Ranking.STEPS: column(frame, label, "steps"),
        }
        if one_machine(frame):
            values[Ranking.SPEED_UP] = speed_ups(frame, label)
            values[Ranking.LARGEST_SPEED_UP] = largest_speed_ups(frame, label)
        found |= {keys.ranking(dataset, label, name): value for name, value in values.items()}
    return found


@cache  # 16 kB an item: a gigabyte for the dozen splits of the largest report
def _resamples(items: int) -> np.ndarray:
    """How often each resample draws each item: float64 of shape (`RESAMPLES`, items)."""
    random = np.random.default_rng(0)
    return random.multinomial(items, np.full(items, 1 / items), size=RESAMPLES).astype(np.float64)


def resampled_lift(
    plan: Plan, dataset: str, methods: Sequence[Method], label: str, other: str = SAMPLING
) -> str:
    """The 95 % interval of a method's lift over another by a paired bootstrap over left items.

    Each resample draws left items with replacement, the same for both methods and every seed, and takes the
    mean over seeds of the lift. It says how the lift varies with the left items, not with the training.
    """
    own, base = of_common_seeds(
        *(
            [
                runs.average_precision(runs.open_run(path), "validation").astype(np.float64)
                for path in paths(plan, dataset, [_named(dataset, methods, name)])
            ]
            for name in (label, other)
        )
    )
    weights = _resamples(own.shape[1])
    with np.errstate(divide="ignore"):  # a MAP of 0 is a lift of −100 %
        sums = np.log(weights @ np.vstack([own, base]).T)
        drawn = np.exp((sums[:, : len(own)] - sums[:, len(own) :]).mean(axis=1)) - 1
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"[{low:+.1%}, {high:+.1%}]"


def _named(dataset: str, methods: Sequence[Method], label: str) -> Method:
    return next(method for method in present(dataset, methods) if method.label == label)


def table(
    plan: Plan, dataset: str, methods: Sequence[Method], frame: pd.DataFrame, optimum: Seeds = ()
) -> Table:
    """`measure`'s frame for display, with popularity and exact ALS of the same objective as the last rows."""
    rows = []
    for label in frame["label"].unique():
        own = frame[frame["label"] == label]
        alpha = re.fullmatch(r"SOGram α=([\d.]+)", label)
        start = (1 - float(alpha[1])) ** own["steps"].mean() if alpha else 0.0
        gain = "" if label == SAMPLING else lift(ratios(frame, label))
        rows.append(
            {
                "method": label,
                "validation MAP@10": spread(column(frame, label, "validation")),
                "lift over sampling [95 %]": gain,
                "by left items": resampled_lift(plan, dataset, methods, label) if gain else "",
                "lift at a constant η": lift_at_constant_rate(frame, label) if gain else "",
                "training MAP@10": spread(column(frame, label, "train")),
                "best validation (at step)": f"{own['best'].mean():.4f} ({own['best_step'].mean():,.0f} of "
                f"{own['steps'].mean():,.0f})",
                "effective rank": f"{own['rank_left'].mean():.0f} · {own['rank_right'].mean():.0f}",
                "rise in the last tenth": rise_text(frame, label),
                "zero start left": f"{start:.0%}" if start > 0.005 else "",
                "training time, s": f"{own['seconds'].mean():.0f}",
            }
        )  # fmt: skip
    rows = [{name: value for name, value in row.items() if any(r[name] for r in rows)} for row in rows]
    rows.append({"method": "popularity", "validation MAP@10": f"{frame['popularity'].iloc[0]:.4f}"})
    if optimum:
        rows.append({"method": EXACT_ALS, "validation MAP@10": spread(optimum)})
    return Table(plan.named(dataset), caption(plan, dataset, methods), pd.DataFrame(rows).fillna(""))


def rise_text(frame: pd.DataFrame, label: str) -> str:
    """`late_rise` as a table shows it, and whether that is more than on a plateau; empty at 0."""
    rise = late_rise(frame, label)
    return f"{rise:+.1%}" + " (no plateau)" * (rise > PLATEAU) if np.isfinite(rise) else ""


def caption(plan: Plan, dataset: str, methods: Sequence[Method]) -> str:
    """The caption of `table`."""
    example = evaluate(paths(plan, dataset, present(dataset, methods)[:1])[:1])[0]["validation"]
    pool = "all right items" if example["full"] else f"{example['candidates']:,} sampled candidates"
    return (
        f"{plan.named(dataset)}: MAP@10, denominator min(10, relevant), ties against the model, "
        f"{pool}. Validation: {example['left_items']:,} left items, training positives excluded; training: "
        "none excluded. "
        f"± over {plan.seed_count}; lifts are paired by seed. By resampling left items, the first "
        f"method's first seed lies in [{example['ci95'][0]:.4f}, {example['ci95'][1]:.4f}]."
    )
