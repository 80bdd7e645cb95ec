"""What a profile would take, before anything is downloaded or trained: time, memory and disk of every run.

Corpora that are prepared are read; the paper's are known by their sizes
(`experiments.reproduce.paper_corpora`).
Time is that of like runs that have finished (`experiments.reproduce.forecast`), else of the model of
committed timings
(`experiments.reproduce.cost_model`). Memory is the peak of one process (`gramrun.training.memory`). Disk
is that of
checkpoints (parameters, optimizer, caches): of every run those that it keeps when it is finished, which is
none of ``gram-error``, and while it is under way also the others and the one being written; of shards; and
of the raw files of the paper's corpora.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from experiments.reproduce import cost_model
from experiments.reproduce.forecast import Forecast, together
from experiments.reproduce.jobs import Job, Script, Task, state_of
from experiments.reproduce.paper_corpora import PAPER, RAW_BYTES, stand_in
from experiments.reproduce.plans import Plan
from gramrun.base.capacity import available_disk, size_text, time_text
from gramrun.config import BaselineConfig, RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.data.shards import open_corpus
from gramrun.training.memory import STATE_FLOATS, cache_bytes, count_parameters, host_memory
from gramrun.training.objective import companion_dim

_DOWNLOAD = 5_000_000  # bytes a second over one connection, a guess


@dataclass(frozen=True)
class Prediction:
    """What one job takes.

    Attributes:
        job: which.
        state: as `experiments.reproduce.jobs.state_of` says, ``new`` where its corpus is not prepared.
        steps: gradient steps; 0 for what has none.
        seconds: on one thread; None where nothing is known.
        basis: ``like runs`` or ``timings``, where `seconds` come from.
        memory: bytes at the peak; 0 where not predicted.
        disk: bytes that it may occupy while it is under way.
        kept: of these, when it is finished.
    """

    job: Job
    state: str
    steps: int = 0
    seconds: float | None = None
    basis: str = ""
    memory: int = 0
    disk: int = 0
    kept: int = 0


def dry_run(plans: Sequence[Plan]) -> str:
    """The tables and totals of what the plans would run now, as Markdown.

    Jobs that an item asks for only after others are done (a search's final runs) are not among them.
    """
    jobs = list(dict.fromkeys(job for plan in plans for job in _tasks(plan)))
    names = [name for plan in plans for name in plan.datasets] + [
        name for job in jobs if (name := _dataset(job))
    ]
    corpora = {name: corpus_of(name) for name in dict.fromkeys(names)}
    found = list(predict(jobs, corpora))
    lines = []
    for name in dict.fromkeys(_dataset(p.job) for p in found):
        lines += _table(name, [p for p in found if _dataset(p.job) == name], corpora.get(name))
    return "\n".join([*lines, *_raw_files(corpora), *_totals(found, corpora)]) + "\n"


def _tasks(plan: Plan) -> Sequence[Job]:
    jobs: Sequence[Job] = importlib.import_module(f"experiments.reproduce.items.{plan.item}").tasks(plan)
    return jobs


def _dataset(job: Job) -> str:
    """The folder name of a job's corpus; empty for scripts, which make their own."""
    return "" if isinstance(job, Script) else job.wanted().data.path.name


def corpus_of(name: str) -> SplitCorpus | None:
    """A prepared corpus, or a stand-in of the paper's sizes, or None where neither is known."""
    folder = Path("data") / name
    if folder.is_dir():
        return open_corpus(folder)
    return stand_in(name, PAPER[name]) if name in PAPER else None


def predict(jobs: Iterable[Job], corpora: dict[str, SplitCorpus | None]) -> Iterator[Prediction]:
    """What each job takes.

    Args:
        jobs: the jobs.
        corpora: by data set, as `corpus_of` gives them.
    """
    jobs = list(jobs)
    prepared = [job for job in jobs if isinstance(job, Script) or (Path("data") / _dataset(job)).is_dir()]
    forecast, model = Forecast(prepared), cost_model.load()
    for job in jobs:
        known = job in prepared
        state = state_of(job) if known else "new"
        seconds = forecast.seconds(job) if known else None
        corpus = corpora.get(_dataset(job))
        if isinstance(job, Script) or corpus is None:
            yield Prediction(job, state, seconds=seconds, basis="like runs" if seconds else "")
        else:
            yield predict_run(job, state, seconds, corpus, model)


def predict_run(
    task: Task, state: str, seconds: float | None, corpus: SplitCorpus, model: cost_model.CostModel
) -> Prediction:
    """What one run takes on a corpus or its stand-in.

    Args:
        task: the run.
        state: of it.
        seconds: of like runs, or None.
        corpus: of the run.
        model: for the time where none is given.
    """
    config = task.wanted()
    if isinstance(config, BaselineConfig):
        return Prediction(task, state, seconds=seconds, basis="like runs" if seconds else "")
    basis = "like runs" if seconds else "timings"
    if not seconds:
        cost = model.gram_error if task.command == "gram-error" else model.train
        seconds = cost(config, corpus)
    companions = companion_dim(config, corpus)
    sections = [config.estimator]
    if task.command == "gram-error":
        sections += config.gram_error.estimators
        config = _without_ranking(config)
    peak = sum(host_memory(config, corpus).values())
    caches = [cache_bytes(config, section, corpus, companions) for section in sections]
    whole = 4 * count_parameters(config, corpus) * (1 + STATE_FLOATS[config.train.optimizer]) + sum(caches)
    kept = whole * config.train.checkpoints_kept
    return Prediction(
        task,
        state,
        config.train.total_steps(len(corpus.train)),
        seconds,
        basis,
        peak + sum(caches[1:]),
        kept + whole,
        0 if task.command == "gram-error" else kept,
    )


def _without_ranking(config: RunConfig) -> RunConfig:
    """The configuration as ``gramrun gram-error`` sees it, which evaluates nothing."""
    least = {"splits": ("validation",), "left_items": 1, "candidates": 1}
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update=least)})


def _table(name: str, found: Sequence[Prediction], corpus: SplitCorpus | None) -> list[str]:
    lines = ["", f"### {name or 'scripts'}", ""]
    if name:
        lines += [_describe(name, corpus), ""]
    lines += [
        "| run | seeds | done | steps | each, one thread | from | memory | disk |",
        "|---|" + "---:|" * 7,
    ]
    groups: dict[str, list[Prediction]] = {}
    for prediction in found:
        groups.setdefault(_name(prediction.job), []).append(prediction)
    for run, same in groups.items():
        first = same[0]
        each = time_text(first.seconds) if first.seconds is not None else "not known"
        done = sum(p.state == "done" for p in same)
        cells = (len(same), done, f"{first.steps:,}", each, first.basis)
        room = [size_text(size) if size else "" for size in (first.memory, first.disk)]
        lines.append(f"| {run} | {' | '.join(map(str, cells))} | {' | '.join(room)} |")
    return lines


def _describe(name: str, corpus: SplitCorpus | None) -> str:
    if corpus is None:
        return "Not prepared, and not one of the paper's: `gramrun prepare` it to predict what it takes."
    origin = "prepared" if (Path("data") / name).is_dir() else "not prepared: the paper's sizes"
    return (
        f"{corpus.left.items:,} × {corpus.right.items:,} items, {len(corpus.train):,} training pairs "
        f"({origin}); shards {size_text(shard_bytes(corpus))}."
    )


def shard_bytes(corpus: SplitCorpus) -> int:
    """The size of a prepared corpus on disk."""
    return sum(int(file["bytes"]) for file in corpus.manifest["files"].values())


def _name(job: Job) -> str:
    if isinstance(job, Script):
        return f"{job.module.rpartition('.')[2]}: {job.output.stem}"
    return f"{job.command} {job.output.name.rpartition('-seed')[0]}"


def _absent(corpora: dict[str, SplitCorpus | None]) -> dict[str, SplitCorpus | None]:
    return {name: corpus for name, corpus in corpora.items() if not (Path("data") / name).is_dir()}


def _raw_files(corpora: dict[str, SplitCorpus | None]) -> list[str]:
    """What is to be downloaded and prepared before the first run."""
    lines = []
    for name, corpus in _absent(corpora).items():
        if corpus is None or name not in RAW_BYTES:
            lines.append(f"- {name}: not known")
            continue
        pairs = len(corpus.train) + len(corpus.validation)
        hours, taken = (
            time_text(RAW_BYTES[name] / _DOWNLOAD),
            time_text(cost_model.preparation(pairs)),
        )
        lines.append(
            f"- {name}: about {size_text(RAW_BYTES[name])} of raw files, unless they are there "
            f"({hours} at {size_text(_DOWNLOAD)} a second); {taken} to prepare"
        )
    return ["", "### To be prepared", "", *lines] if lines else []


def _totals(found: Sequence[Prediction], corpora: dict[str, SplitCorpus | None]) -> list[str]:
    cores = os.cpu_count() or 1
    left = [p for p in found if p.state not in ("done", "failed")]
    failed = sum(p.state == "failed" for p in found)
    known = sorted((p.seconds for p in left if p.seconds is not None), reverse=True)
    unknown = len(left) - len(known)
    absent = _absent(corpora)
    under_way = sorted((p.disk - p.kept for p in left), reverse=True)[:cores]
    disk = (
        sum(p.kept for p in left)
        + sum(under_way)
        + sum(shard_bytes(corpus) for corpus in absent.values() if corpus)
    )
    disk += sum(RAW_BYTES.get(name, 0) for name in absent)
    beside = sorted((p.memory for p in left), reverse=True)[:cores]
    lines = ["", "### In all", ""]
    more = f", {failed} failed before (--retry tries them again)" if failed else ""
    lines.append(f"{len(found)} runs, {len(found) - len(left) - failed} of them done{more}.")
    if known:
        parallel = time_text(together(known, cores))
        words = f"Time: {time_text(sum(known))} on one core, {parallel} on these {cores}, one run on each"
        more = f"; {unknown} runs of unknown length come on top" if unknown else ""
        lines.append(f"{words}{more}.")
    elif unknown:
        lines.append(f"Time: not known of {unknown} runs.")
    memory, room = psutil.virtual_memory().total, available_disk(Path("results"))
    lines.append(
        f"Memory: {size_text(max(beside, default=0))} for the largest run, {size_text(sum(beside))} for the "
        f"{len(beside)} largest side by side; this machine has {size_text(memory)}."
    )
    lines.append(
        f"Disk: {size_text(disk)} for checkpoints, shards and raw files; {size_text(room)} are free."
    )
    lines.append(_what_does_not_fit(left, memory, sum(beside), disk, room))
    if unsized := [name for name, corpus in absent.items() if corpus is None]:
        lines.append(f"Not counted, as they have never been prepared: {', '.join(unsized)}.")
    return lines


def _what_does_not_fit(found: Sequence[Prediction], memory: int, beside: int, disk: int, room: int) -> str:
    alone = list(dict.fromkeys(f"{_dataset(p.job)} {_name(p.job)}" for p in found if p.memory > memory))
    parts = [f"{', '.join(alone)} (more than this machine's memory)"] if alone else []
    if beside > memory and not alone:
        parts.append("the largest runs side by side (more than this machine's memory)")
    if disk > room:
        parts.append(
            f"all checkpoints at once ({size_text(disk - room)} too much; lower train.checkpoints_kept)"
        )
    return f"Does not fit here: {'; '.join(parts)}." if parts else "All of it fits here."
