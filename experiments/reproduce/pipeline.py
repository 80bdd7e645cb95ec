"""The main job: raw files → shards → runs → figures, tables and verdicts on the paper's claims.

    python -m experiments.reproduce [--profile NAME] [--items NAME...] [--datasets NAME...] [--seeds SEED...]
                                    [--finished] [--retry] [--dry-run]

Every step is skipped where it is done already, so a second call does only what is missing. A run that fails
is told, and left out with what needs it; the others go on, and the exit code is 1. Writes
results/<profile>/RESULTS.md, report.html, and a folder of figures and tables for each item; of less than the
whole profile, into results/<profile>-part/.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from experiments.report.html_report import write_html
from experiments.report.rendering import Report, write_markdown, write_runs
from experiments.report.section_files import write_tables
from experiments.report.sections import Section
from experiments.report.verdicts import gather, judge, load_claims, write_verdicts
from experiments.reproduce import items
from experiments.reproduce.corpora import DATASETS, prepare
from experiments.reproduce.jobs import Job, failure_of, state_of
from experiments.reproduce.plans import Plan
from experiments.reproduce.scheduler import RunsFailed, run_all
from gramrun.base.capacity import time_text
from gramrun.base.errors import InputError, RunError
from gramrun.base.locks import locked
from gramrun.base.provenance import now, provenance
from gramrun.data.shards import MANIFEST

_SECONDS_FOR_A_REPORT = 600.0  # which another process may be writing


class Item(Protocol):
    """A module of `experiments.reproduce.items`."""

    def tasks(self, plan: Plan) -> Sequence[Job]:
        """The runs and scripts that it needs now."""

    def section(self, plan: Plan) -> Section:
        """What came out."""


def item_of(plan: Plan) -> Item:
    """The module that a plan is for."""
    return cast("Item", importlib.import_module(f"experiments.reproduce.items.{plan.item}"))


def corpora(plan: Plan) -> list[str]:
    """The data sets that a plan needs: its own, and what its item asks for beside them."""
    more = getattr(item_of(plan), "corpora", None)
    return [*plan.datasets, *(more(plan) if more else ())]


def reproduce(
    plans: Sequence[Plan],
    profile: str,
    results: Path,
    *,
    command: str = "",
    part: bool = False,
    finished: bool = False,
    retry: bool = False,
) -> Path:
    """Do everything that the plans ask for; return the report's path.

    Args:
        plans: of the profile, or a part of it.
        profile: its name.
        results: where the report goes; that of a part goes beside it (`part_of`).
        command: what makes this report, for its readers; that of the whole profile where it is empty.
        part: whether the plans are less than the profile.
        finished: run nothing, and report what is finished.
        retry: try those runs again that have failed before.

    Raises:
        InputError: when another process makes the runs of this folder, or goes on writing this report.
        RunError: when no corpus can be had or nothing is finished; and where runs have failed, after the
            report is written.
    """
    started = time.monotonic()
    absent: dict[str, str] = {}
    failed: dict[Job, str] = {}
    if not finished:
        with locked(results.parent):
            plans, absent = prepare_all(plans)
            failed = run_tasks(plans, retry=retry)
    plans, missing = with_results(plans)
    for name, reason in missing.items():
        print(f"left out: {name}: {reason}", file=sys.stderr, flush=True)
    if part or (finished and missing):
        results = part_of(results)
    print("drawing and writing", flush=True)
    with locked(results, wait_seconds=_SECONDS_FOR_A_REPORT):
        sections = tell([replace(plan, results=results) for plan in plans], results)
        print(f"this call took {time_text(time.monotonic() - started)}", flush=True)
        command = command or f"make reproduce PROFILE={profile}"
        report = write_report(sections, {**absent, **missing}, profile, results, command)
    if failed:
        raise RunError(
            f"{len(failed)} runs failed, and {report} leaves out what needs them (--retry tries them again); "
            f"the first: {next(iter(failed.values()))}"
        )
    return report


def part_of(results: Path) -> Path:
    """Where the report of less than a whole profile goes: not over the profile's."""
    return results.with_name(f"{results.name}-part")


def tell(plans: Sequence[Plan], results: Path) -> list[Section]:
    """Draw and tell every plan anew; no tables and figures of an earlier report are left beside them."""
    for module in pkgutil.iter_modules(items.__path__):
        shutil.rmtree(results / module.name, ignore_errors=True)
    sections = []
    for plan in plans:
        plan.folder.mkdir(parents=True)
        section = item_of(plan).section(plan)
        write_tables(plan, section)
        sections.append(section)
    return sections


def narrowed(
    plans: Sequence[Plan],
    items: Sequence[str] | None,
    datasets: Sequence[str] | None,
    seeds: Sequence[int] | None,
) -> list[Plan]:
    """A part of a profile; None is all of it.

    Raises:
        InputError: when the profile has no such item or corpus.
    """
    known = ({plan.item for plan in plans}, {name for plan in plans for name in plan.datasets})
    for what, wanted, there in zip(("item", "corpus"), (items, datasets), known, strict=True):
        if unknown := set(wanted or ()) - there:
            raise InputError(f"has no {what} {min(unknown)}; it has {', '.join(sorted(there))}")
    parts = []
    for plan in plans:
        kept = tuple(name for name in plan.datasets if datasets is None or name in datasets)
        if (items is None or plan.item in items) and (kept or not plan.datasets):
            parts.append(replace(plan, datasets=kept, seeds=tuple(seeds or plan.seeds)))
    return parts


def prepare_all(plans: Sequence[Plan]) -> tuple[list[Plan], dict[str, str]]:
    """Prepare every corpus; those that cannot be had are left out of the plans.

    Returns:
        The plans, and why each absent corpus is absent.

    Raises:
        RunError: when there is none of them.
    """
    absent = {}
    names = dict.fromkeys(name for plan in plans for name in corpora(plan))
    for name in names:
        print(f"preparing {name}", flush=True)
        try:
            prepare(DATASETS[name], quiet=True)
        except RunError as error:
            absent[name] = str(error)
            print(f"  left out: {error}", file=sys.stderr, flush=True)
    if names and len(absent) == len(names):
        raise RunError(f"none of {', '.join(names)} could be prepared, see above")
    kept = [replace(plan, datasets=tuple(d for d in plan.datasets if d not in absent)) for plan in plans]
    return [
        now for before, now in zip(plans, kept, strict=True) if now.datasets or not before.datasets
    ], absent


def with_results(plans: Sequence[Plan]) -> tuple[list[Plan], dict[str, str]]:
    """The plans with those corpora alone on which there is something to tell.

    That is where all runs are done; items with a ``can_tell`` know better (`experiments.reproduce.items`).

    Returns:
        The plans; and of each item and corpus on which runs are missing, why.

    Raises:
        RunError: when there is nothing to tell.
    """
    kept, missing = [], {}
    for plan in plans:
        datasets = []
        for name in plan.datasets or ("",):
            part = replace(plan, datasets=(name,) if name else ())
            can_tell, reason = _standing(part)
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


def _standing(plan: Plan) -> tuple[bool, str]:
    """Whether an item can tell something, and what is missing of its runs; of one corpus, or of none."""
    for name in plan.datasets:
        if not (DATASETS[name].path / MANIFEST).exists():
            return False, "not prepared"
    states = {job: state_of(job) for job in item_of(plan).tasks(plan)}
    failed = [job for job, state in states.items() if state == "failed"]
    waiting = sum(state not in ("done", "failed") for state in states.values())
    reasons = [f"{waiting} runs or more are not finished"] if waiting else []
    if failed:
        reasons.append(f"{len(failed)} runs failed, the first: {failure_of(failed[0])}")
    own = getattr(item_of(plan), "can_tell", None)
    return own(plan) if own else not reasons, "; ".join(reasons)


def run_tasks(plans: Sequence[Plan], *, retry: bool = False) -> dict[Job, str]:
    """Run what the items ask for, together, until none asks for more.

    Runs that have failed before are not tried again, for they would fail again.

    Args:
        plans: whose items.
        retry: try them all the same, once.

    Returns:
        What failed, now or before, and why.

    Raises:
        RunError: when what was run is not what was asked for.
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
        # Else it would be asked for again, for ever: another version of gramrun made its configuration, say.
        if undone := [task for task in waiting if state_of(task) != "done" and task not in failed]:
            raise RunError(
                f"{undone[0].output}: was run, but is not what was asked for; remove it and try again"
            )


def write_report(
    sections: Sequence[Section], absent: Mapping[str, str], profile: str, results: Path, command: str
) -> Path:
    """RESULTS.md (whose path is returned), report.html, claims.json and runs.json of the sections."""
    verdicts = judge(load_claims(), gather(sections), profile)
    report = Report(
        f"Gramian estimation, reproduced ({profile} profile)",
        command,
        results,
        sections,
        verdicts,
        provenance(),
        now(),
        absent,
    )
    write_verdicts(verdicts, results / "claims.json")
    write_runs(report)
    write_html(report)
    return write_markdown(report)
