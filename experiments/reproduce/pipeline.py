"""The stages of ``python -m experiments.reproduce``: prepare, run, write the sections, judge, report.

Each stage skips finished work, so a second call does only what is missing. A failed run is reported at once
and left out with the items that need it; the other runs go on.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pkgutil
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Protocol, cast

from experiments.report.claims import CLAIMS
from experiments.report.page import Report
from experiments.report.page import write_report as write_page
from experiments.report.sections import Section, gather, joined, write_tables
from experiments.report.verdicts import judge
from experiments.reproduce import items
from experiments.reproduce import published as measurements
from experiments.reproduce.corpora import DATASETS, prepare
from experiments.reproduce.jobs import Job, failure_of, kept_manifest, state_of
from experiments.reproduce.plans import Plan, measuring_command, profile_note
from experiments.reproduce.scheduler import RunsFailed, run_all
from gramrun.base.capacity import time_text
from gramrun.base.errors import RunError
from gramrun.base.locks import locked
from gramrun.base.provenance import now, provenance
from gramrun.data.shards import MANIFEST

_SECONDS_FOR_A_REPORT = 600.0  # while another process may write one
_MOST_PROCESSES = 4  # that draw; each holds up to a gigabyte of resamples


class Item(Protocol):
    """A module of `experiments.reproduce.items`; its docstring describes the optional functions."""

    def tasks(self, plan: Plan) -> Sequence[Job]:
        """The jobs that it needs now."""

    def section(self, plan: Plan) -> Section:
        """Its section of the report."""


def item_of(plan: Plan) -> Item:
    """The module that a plan is for."""
    return cast("Item", importlib.import_module(f"experiments.reproduce.items.{plan.item}"))


def reproduce(
    plans: Sequence[Plan],
    profile: str,
    results: Path,
    *,
    command: str = "",
    part: bool = False,
    finished: bool = False,
    published: bool = False,
    retry: bool = False,
) -> Path:
    """Do everything that the plans ask for; return the report's path.

    Args:
        plans: of the profile, or a part of it.
        profile: its name.
        results: where the report goes; that of a part goes beside it (``<results>-part``).
        command: makes this report; by default the command of the whole profile.
        part: whether the plans are less than the profile.
        finished: run nothing, and report what is finished.
        published: take what `published.FILE` has instead of running it again.
        retry: try failed runs again.

    Raises:
        InputError: another process makes these runs, or writes this report.
        RunError: no corpus can be had or nothing is finished; or, after the report is written, runs failed.
    """
    started = time.monotonic()
    absent: dict[str, str] = {}
    failed: dict[Job, str] = {}
    if published:
        print(f"{measurements.restore()} files of published runs written", flush=True)
    if not finished:
        with locked(results.parent):
            plans, absent = prepare_all(plans)
            failed = run_tasks(plans, retry=retry)
    plans, missing = with_results(plans)
    for name, reason in missing.items():
        print(f"left out: {name}: {reason}", file=sys.stderr, flush=True)
    if part or (finished and missing):
        results = results.with_name(f"{results.name}-part")  # not over the whole profile's report
    with locked(results, wait_seconds=_SECONDS_FOR_A_REPORT):
        # Runs without an evaluation are evaluated while they are drawn, which takes every core by itself.
        processes = min(os.cpu_count() or 1, _MOST_PROCESSES) if finished and published else 1
        sections = write_sections([replace(plan, results=results) for plan in plans], results, processes)
        if not finished:  # after the sections, which evaluate the runs
            measurements.add([job for plan in plans for job in item_of(plan).tasks(plan)])
        print(f"this call took {time_text(time.monotonic() - started)}", flush=True)
        command = command or f"make reproduce PROFILE={profile}"
        report = write_report(sections, {**absent, **missing}, profile, results, command)
    if failed:
        raise RunError(
            f"{len(failed)} runs failed, and {report} leaves out what needs them (--retry tries them again); "
            f"the first: {next(iter(failed.values()))}"
        )
    return report


def prepare_all(plans: Sequence[Plan]) -> tuple[list[Plan], dict[str, str]]:
    """Prepare every corpus; leave those that cannot be had out of the plans.

    Returns:
        The plans, and why each absent corpus is absent.

    Raises:
        RunError: there is none of them.
    """
    absent = {}
    names = dict.fromkeys(name for plan in plans for name in (*plan.datasets, *_more_corpora(plan)))
    for name in names:
        print(f"preparing {name}", flush=True)
        try:
            prepare(DATASETS[name])
        except RunError as error:
            absent[name] = str(error)
            print(f"  left out: {error}", file=sys.stderr, flush=True)
    if names and len(absent) == len(names):
        raise RunError(f"none of {', '.join(names)} could be prepared, see above")
    kept = []
    for plan in plans:
        datasets = tuple(name for name in plan.datasets if name not in absent)
        if datasets or not plan.datasets:
            kept.append(replace(plan, datasets=datasets))
    return kept, absent


def _more_corpora(plan: Plan) -> Sequence[str]:
    more = getattr(item_of(plan), "corpora", None)
    return more(plan) if more else ()


def run_tasks(plans: Sequence[Plan], *, retry: bool = False) -> dict[Job, str]:
    """Run the jobs of all items together, until no item needs more.

    Args:
        plans: whose items.
        retry: try runs that failed before again, once.

    Returns:
        What failed, now or before, and why.

    Raises:
        RunError: what was run is not what was asked for.
    """
    failed: dict[Job, str] = {}
    while True:
        for plan in plans:
            if make_ready := getattr(item_of(plan), "make_ready", None):
                make_ready(plan)
        tasks = list(dict.fromkeys(task for plan in plans for task in item_of(plan).tasks(plan)))
        states = {task: state_of(task) for task in tasks}
        for task in tasks:
            if states[task] == "failed" and not retry and task not in failed:
                failed[task] = f"{task.output}: {failure_of(task)}"
                print(f"failed before, and not tried again: {failed[task]}", file=sys.stderr, flush=True)
        waiting = [task for task in tasks if states[task] != "done" and task not in failed]
        if not waiting:
            print(f"all {len(tasks) - len(failed)} runs are done" + f", {len(failed)} failed" * bool(failed))
            return failed
        try:
            run_all([task for task in tasks if task not in failed])
        except RunsFailed as error:
            failed |= error.failures
        # Another version of gramrun may resolve the configuration differently; without this check, the loop
        # would not end.
        if undone := [task for task in waiting if state_of(task) != "done" and task not in failed]:
            raise RunError(
                f"{undone[0].output}: was run, but is not what was asked for; remove it and try again"
            )


def with_results(plans: Sequence[Plan]) -> tuple[list[Plan], dict[str, str]]:
    """The plans, narrowed to the corpora whose runs are done (or where the item's `can_tell` says so).

    Returns:
        The plans; and of each item and corpus on which runs are missing, why.

    Raises:
        RunError: nothing is finished.
    """
    kept, missing = [], {}
    state = cache(state_of)  # items share runs
    for plan in plans:
        datasets = []
        for name in plan.datasets or ("",):
            can_tell, reason = _standing(replace(plan, datasets=(name,) if name else ()), state)
            if reason:
                missing[f"{plan.item} on {name}" if name else plan.item] = reason
            if can_tell:
                datasets.append(name)
        if datasets:
            kept.append(replace(plan, datasets=tuple(filter(None, datasets))))
    if not kept:
        what, reason = next(iter(missing.items()), ("the profile", "has no items"))
        raise RunError(f"there is nothing to report yet; the first that is missing is {what}: {reason}")
    return kept, missing


def _standing(plan: Plan, state: Callable[[Job], str]) -> tuple[bool, str]:
    """Whether an item has something to report, and what is missing of its runs; on one corpus, or none."""
    for name in plan.datasets:
        folder = DATASETS[name].path
        if not ((folder / MANIFEST).exists() or kept_manifest(folder).exists()):
            return False, "not prepared"
    states = {job: state(job) for job in item_of(plan).tasks(plan)}
    failed = [job for job, state in states.items() if state == "failed"]
    waiting = sum(state not in ("done", "failed") for state in states.values())
    reasons = [f"{waiting} runs or more are not finished"] if waiting else []
    if failed:
        reasons.append(f"{len(failed)} runs failed, the first: {failure_of(failed[0])}")
    own = getattr(item_of(plan), "can_tell", None)
    return own(plan) if own else not reasons, "; ".join(reasons)


def write_sections(plans: Sequence[Plan], results: Path, processes: int = 1) -> list[Section]:
    """Draw and tabulate every plan anew, after removing the files of an earlier report."""
    for module in pkgutil.iter_modules(items.__path__):
        shutil.rmtree(results / module.name, ignore_errors=True)
    for name in ("RESULTS.md", "claims.json", "runs.csv"):  # an interrupted report is none
        (results / name).unlink(missing_ok=True)
    if processes == 1:
        return _by_item(plans, map(_drawn, plans))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        try:
            return _by_item(plans, pool.map(_drawn, plans))
        finally:  # after a fault or an interruption, not the other sections first
            pool.shutdown(wait=False, cancel_futures=True)


def _drawn(plan: Plan) -> Section:
    plan.folder.mkdir(parents=True, exist_ok=True)
    section = item_of(plan).section(plan)
    write_tables(plan.folder, section.tables)
    return section


def _by_item(plans: Sequence[Plan], drawn: Iterable[Section]) -> list[Section]:
    """One section for each item, of the sections of its plans."""
    sections: dict[str, Section] = {}
    for number, (plan, section) in enumerate(zip(plans, drawn, strict=True), start=1):
        print(f"drew {plan.item} ({number} of {len(plans)})", flush=True)
        first = sections.get(plan.item)
        sections[plan.item] = joined(first, section) if first else section
    return list(sections.values())


def write_report(
    sections: Sequence[Section], absent: Mapping[str, str], profile: str, results: Path, command: str
) -> Path:
    """Judge the claims by the sections and write the report; return the path of RESULTS.md."""
    verdicts = judge(CLAIMS, gather(sections), partial(measuring_command, profile=profile))
    title = f"Gramian estimation, reproduced ({profile} profile)"
    note = profile_note(profile)
    report = Report(title, command, results, sections, verdicts, provenance(), now(), note, absent)
    return write_page(report)
