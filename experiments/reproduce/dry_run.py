"""Predict time, memory and disk of every run of a profile, before anything is downloaded or trained.

Times come from similar finished runs. Without one they are estimates, within a factor of about two:

    step        = operations / RATE + NUMBER · numbers that pass through the towers for B and B'
    evaluation  = CELL · left items · candidates
    memory      = process + tables, optimizer and caches + pairs, features and items + what is ranked
    checkpoint  = tables, optimizer and caches

``gramrun train --dry-run`` predicts the memory of one run on a prepared corpus more exactly.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from experiments.reproduce.jobs import Job, Script, manifest_of, state_of
from experiments.reproduce.pipeline import item_of
from experiments.reproduce.plans import Plan
from experiments.reproduce.scheduler import Forecast
from gramrun.base.capacity import available_disk, size_text, time_text
from gramrun.base.errors import InputError
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.shards import MANIFEST
from gramrun.training.memory import STATE_FLOATS

# Seconds on one thread: bare products and the rest of a step of results/reference/bench/step_time.md,
# ranking of evaluation_speed.md at k = 64.
RATE, NUMBER, CELL = 9.6e10, 2.5e-9, 4e-9
SLOWER = {"sagram": 1.2, "control-variate": 1.4}  # than sampling, by estimator_cost.md
PROCESS = 6e8  # bytes of Python, PyTorch and compiled code
HEADER = 128  # bytes of a .npy file before its numbers
ITEM = 100  # bytes of an item's weights and places
RANKED = 40  # bytes of a pair while metrics are computed


@dataclass(frozen=True)
class Sizes:
    """The sizes of a corpus that decide the cost of a run. `values`: feature values of an item, by side."""

    left: int
    right: int
    pairs: int
    validation: int
    rows: int
    values: tuple[float, float]
    features: tuple[int, int]
    download: float = 0.0


def _wiki(pages: int, links: int, ngrams: int, categories: int, download: float) -> Sizes:
    """A corpus of Table 1; 10 n-grams and 4 categories a page are assumed."""
    held_out = links // 10
    rows = pages + ngrams + categories
    return Sizes(pages, pages, links - held_out, held_out, rows, (15, 15), (3, 3), download)


PAPER = {  # Table 1 and Appendix E, and rough bytes to download
    "wikipedia-simple": _wiki(85_000, 4_600_000, 8_300, 6_100, 0.3e9),
    "wikipedia-fr": _wiki(1_800_000, 142_000_000, 167_400, 125_300, 4e9),
    "wikipedia-en": _wiki(5_300_000, 490_000_000, 501_000, 403_400, 20e9),
    "movielens-10m": Sizes(72_000, 10_000, 8_000_000, 2_000_000, 82_120, (1, 4), (1, 3), 66e6),
}


@dataclass(frozen=True)
class Cost:
    """The cost of one run.

    Attributes:
        steps: gradient steps.
        seconds: on one thread.
        memory: bytes at the peak.
        disk: bytes of its checkpoints while it runs.
        kept: bytes of its checkpoints when it has finished.
    """

    steps: int = 0
    seconds: float | None = None
    memory: float = 0.0
    disk: float = 0.0
    kept: float = 0.0


def sizes_of(name: str) -> Sizes | None:
    """The sizes of a corpus that is or was prepared, or those of the paper's; None where neither is known."""
    try:
        manifest = manifest_of(Path("data") / name)
    except InputError:
        return PAPER.get(name)
    corpus, files = manifest["corpus"], manifest["files"]
    sides = {side: manifest["sides"][side]["features"] for side in ("left", "right")}
    left, right = (
        sum(files[f"{side}/{feature['name']}.indices.npy"]["bytes"] - HEADER for feature in features)
        / (4 * corpus[f"{side}_items"])
        for side, features in sides.items()
    )
    return Sizes(
        corpus["left_items"],
        corpus["right_items"],
        corpus["train_pairs"],
        corpus["validation_pairs"],
        sum(manifest["vocabularies"].values()),
        (left, right),
        (len(sides["left"]), len(sides["right"])),
        PAPER[name].download if name in PAPER else 0.0,
    )


def cost(command: str, config: RunConfig, sizes: Sizes) -> Cost:
    """The estimate of one ``gramrun train`` or ``gramrun gram-error``."""
    model, train, estimator = config.model, config.train, config.estimator
    k, hidden = model.embedding_dim, list(model.hidden)
    width = model.input_dim if hidden else k
    towers = [[width * count, *hidden, k] if hidden else [] for count in sizes.features]
    dense = sum(a * b for widths in towers for a, b in itertools.pairwise(widths))
    through = sum(map(sum, towers)) if hidden else k * sum(sizes.features)
    steps, rows = train.total_steps(sizes.pairs), train.batch_size

    def products(batch: int) -> float:
        return 2 * batch * (dense + 2 * k * k) / RATE

    def moved(batch: int) -> float:
        return NUMBER * batch * through

    drawn = (sizes.left + sizes.right) // 2 if estimator.name == "exact" else estimator.gramian_batch_size
    gradients = 3 * products(rows) + 2 * moved(rows)
    step = SLOWER.get(estimator.name, 1.0) * (gradients + products(drawn) + moved(drawn))
    estimators = [estimator]
    if command == "gram-error":
        estimators += config.gram_error.estimators
        batches = [each.gramian_batch_size for each in config.gram_error.estimators]
        step += sum(products(batch) + moved(batch) for batch in batches)
        whole, ranking = steps * step, 0.0
    else:
        settings = config.evaluation
        ranked = min(sizes.left, settings.left_items or sizes.left)
        each = len(settings.splits) * CELL * ranked * min(sizes.right, settings.candidates)
        every = settings.every.count
        if settings.every.unit == "minutes":
            count = steps * step / (60 * every) if every else 0
        else:
            count = steps / settings.every.steps(sizes.pairs, rows) if every else 0
        whole = steps * step + max(1.0, count) * each
        evaluated = sizes.validation + (sizes.pairs if "train" in settings.splits else 0)
        relevant = evaluated * ranked / sizes.left
        embedded = ranked + min(sizes.right, settings.candidates + relevant)
        ranking = 4.0 * k * embedded + RANKED * relevant
    state = 4.0 * ((1 + STATE_FLOATS[train.optimizer]) * (sizes.rows * width + dense))
    state += sum(_cache(e, sizes, k) for e in estimators)
    values = sizes.left * sizes.values[0] + sizes.right * sizes.values[1]
    mapped = 8.0 * (sizes.pairs + sizes.validation) + 4.0 * values + ITEM * (sizes.left + sizes.right)
    kept = 0.0 if command == "gram-error" else state * train.checkpoints_kept
    disk = state * (1 + train.checkpoints_kept)
    return Cost(steps, whole, PROCESS + state + mapped + ranking, disk, kept)


def _cache(section: EstimatorSection, sizes: Sizes, k: int) -> float:
    """Bytes of an estimator's caches of both sides."""
    items = sizes.left + sizes.right
    return 4.0 * k * {"pair": 2 * sizes.pairs, "item": items, None: 0}[section.cache_entry]


def dry_run(plans: Sequence[Plan]) -> str:
    """Tables and totals of the runs that the plans need now, as Markdown.

    Runs that depend on other runs, for example the final runs of a search, are not included.
    """
    jobs = list(dict.fromkeys(job for plan in plans for job in item_of(plan).tasks(plan)))
    names = dict.fromkeys([*(name for plan in plans for name in plan.datasets), *map(_dataset, jobs)])
    sizes = {name: sizes_of(name) for name in names if name}
    forecast = Forecast(jobs)
    rows = []
    for job in jobs:
        found = _estimate(job, sizes.get(_dataset(job)))
        known = forecast.seconds(job)
        seconds = found.seconds if known is None else known
        basis = "like runs" if known is not None else "estimate" if seconds is not None else ""
        rows.append(
            {
                "corpus": _dataset(job) or "scripts",
                "run": _name(job),
                "state": state_of(job),
                "steps": found.steps,
                "seconds": seconds,
                "from": basis,
                "memory": found.memory,
                "disk": found.disk,
                "kept": found.kept,
            }
        )
    frame = pd.DataFrame(rows)
    return "\n".join([*_tables(frame), *_unprepared(sizes), *_totals(frame, sizes)]) + "\n"


def _estimate(job: Job, sizes: Sizes | None) -> Cost:
    config = None if isinstance(job, Script) else job.wanted()
    if sizes is None or not isinstance(config, RunConfig):
        return Cost()
    return cost(str(getattr(job, "command", "")), config, sizes)


def _dataset(job: Job) -> str:
    """The folder name of a job's corpus; empty for scripts, which make their own."""
    return "" if isinstance(job, Script) else job.wanted().data.path.name


def _is_prepared(name: str) -> bool:
    return (Path("data") / name / MANIFEST).exists()


def _name(job: Job) -> str:
    if isinstance(job, Script):
        return f"{job.module.rpartition('.')[2]}: {job.output.stem}"
    return f"{job.command} {job.output.name.rpartition('-seed')[0]}"


def _tables(frame: pd.DataFrame) -> list[str]:
    lines = []
    for corpus, rows in frame.groupby("corpus", sort=False):
        lines += ["", f"### {corpus}", ""]
        lines += ["| run | seeds | done | steps | each, one thread | from | memory | disk |"]
        lines += ["|---|" + "---:|" * 7]
        for name, same in rows.groupby("run", sort=False):
            first: Any = same.iloc[0]
            each = "not known" if pd.isna(first["seconds"]) else time_text(first["seconds"])
            done = int((same["state"] == "done").sum())
            sizes = " | ".join(
                size_text(int(first[what])) if first[what] else "" for what in ("memory", "disk")
            )
            lines.append(
                f"| {name} | {len(same)} | {done} | {first['steps']:,} | {each} | {first['from']} | {sizes} |"
            )
    return lines


def _unprepared(sizes: dict[str, Sizes | None]) -> list[str]:
    """What is to be downloaded and prepared before the first run."""
    absent = {
        name: found.download if found else 0.0 for name, found in sizes.items() if not _is_prepared(name)
    }
    lines = [
        f"- {name}: " + (f"about {size_text(int(download))} to download" if download else "not known")
        for name, download in absent.items()
    ]
    return ["", "### To be prepared", "", *lines] if lines else []


def _totals(frame: pd.DataFrame, sizes: dict[str, Sizes | None]) -> list[str]:
    cores = os.cpu_count() or 1
    left = frame[~frame["state"].isin(["done", "failed"])]
    failed, unknown = int((frame["state"] == "failed").sum()), int(left["seconds"].isna().sum())
    seconds = float(left["seconds"].sum())
    beside = float(left["memory"].nlargest(cores).sum())
    absent = (found for name, found in sizes.items() if found and not _is_prepared(name))
    under_way = float((left["disk"] - left["kept"]).nlargest(cores).sum())
    disk = float(left["kept"].sum()) + under_way + sum(found.download for found in absent)
    memory, room = psutil.virtual_memory().total, available_disk(Path("results"))
    largest = float(left["memory"].max()) if len(left) else 0.0
    lines = ["", "### In all", ""]
    lines.append(
        f"{len(frame)} runs, {int((frame['state'] == 'done').sum())} of them done"
        + (f", {failed} failed before (--retry tries them again)." if failed else ".")
    )
    lines.append(
        f"Time: {time_text(seconds)} on one core, at least {time_text(seconds / cores)} on these {cores}"
        + (f"; {unknown} runs of unknown length come on top." if unknown else ".")
    )
    lines.append(
        f"Memory: {size_text(int(largest))} for the largest run, {size_text(int(beside))} for the {cores} "
        f"largest side by side; this machine has {size_text(memory)}."
    )
    lines.append(f"Disk: {size_text(int(disk))} for checkpoints and raw files; {size_text(room)} are free.")
    too_large = [
        what
        for what, fits in (
            (", ".join(left[left["memory"] > memory]["run"].unique()), largest <= memory),
            ("the largest runs side by side", beside <= memory),
            ("all checkpoints (lower train.checkpoints_kept)", disk <= room),
        )
        if not fits
    ]
    unsized = ", ".join(name for name, found in sizes.items() if found is None)
    known = f"What is known fits here; not known: {unsized}." if unsized else "All of it fits here."
    lines.append(f"Does not fit here: {'; '.join(too_large)}." if too_large else known)
    return lines
