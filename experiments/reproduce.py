"""The main job: raw files → shards → runs → figures, tables and verdicts on the paper's claims.

    python -m experiments.reproduce [--profile NAME] [--items NAME...] [--datasets NAME...] [--seeds SEED...]
                                    [--finished] [--dry-run]

Every step is skipped where it is done already, so a second call does only what is missing. Writes
results/<profile>/RESULTS.md, report.html, and a folder of figures and tables for each item.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from experiments.claims import gather, judge, load_claims, write_verdicts
from experiments.datasets import DATASETS, prepare
from experiments.dry_run import dry_run
from experiments.forecast import in_words
from experiments.html_report import write_html
from experiments.plans import Plan, load_profile, profiles
from experiments.rendering import Report, write_markdown, write_runs
from experiments.scheduling import run_all
from experiments.sections import Section
from experiments.tasks import Job, state_of
from gramrun import runs
from gramrun.errors import GramrunError, InputError, RunError
from gramrun.provenance import now, provenance


class Item(Protocol):
    """A module of `experiments.items`."""

    def tasks(self, plan: Plan) -> Sequence[Job]:
        """The runs and scripts that it needs now."""

    def section(self, plan: Plan) -> Section:
        """What came out."""


def item_of(plan: Plan) -> Item:
    """The module that a plan is for."""
    return cast("Item", importlib.import_module(f"experiments.items.{plan.item}"))


def corpora(plan: Plan) -> list[str]:
    """The data sets that a plan needs: its own, and what its item asks for beside them."""
    more = getattr(item_of(plan), "corpora", None)
    return [*plan.datasets, *(more(plan) if more else ())]


def reproduce(plans: Sequence[Plan], profile: str, results: Path, *, finished: bool = False) -> Path:
    """Do everything that the plans ask for; return the report's path.

    Args:
        plans: of the profile, or a part of it.
        profile: its name.
        results: where the report goes.
        finished: run nothing, and report what is finished.

    Raises:
        RunError: when a run fails, no corpus can be had, or nothing is finished.
    """
    started = time.monotonic()
    absent: dict[str, str] = {}
    if finished:
        plans = finished_only(plans)
    else:
        plans, absent = prepare_all(plans)
        run_tasks(plans)
    print("drawing and writing", flush=True)
    sections = []
    for plan in plans:
        plan.folder.mkdir(parents=True, exist_ok=True)
        section = item_of(plan).section(plan)
        for table in section.tables:
            runs.write_text(plan.folder / f"{table.name}.csv", table.frame.to_csv(index=False))
        sections.append(section)
    print(f"this call took {in_words(time.monotonic() - started)}", flush=True)
    return write_report(sections, absent, profile, results)


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


def finished_only(plans: Sequence[Plan]) -> list[Plan]:
    """The plans with those corpora alone on which all runs are finished.

    Items that say ``PARTIAL = True`` tell of whatever runs there are, and stay.

    Raises:
        RunError: when nothing is finished.
    """

    def is_done(plan: Plan) -> bool:
        return all(state_of(job) == "done" for job in item_of(plan).tasks(plan))

    kept = []
    for plan in plans:
        datasets = tuple(name for name in plan.datasets if is_done(replace(plan, datasets=(name,))))
        if datasets or (not plan.datasets and (getattr(item_of(plan), "PARTIAL", False) or is_done(plan))):
            kept.append(replace(plan, datasets=datasets))
    if not kept:
        raise RunError("no item of the profile has finished runs; leave out --finished to make them")
    return kept


def run_tasks(plans: Sequence[Plan]) -> None:
    """Run what the items ask for, together, until none asks for more.

    Raises:
        RunError: when a run fails.
    """
    while True:
        tasks = list(dict.fromkeys(task for plan in plans for task in item_of(plan).tasks(plan)))
        if all(state_of(task) == "done" for task in tasks):
            print(f"all {len(tasks)} runs are done", flush=True)
            return
        run_all(tasks)
        # Else it would be asked for again, for ever: another version of gramrun made its configuration, say.
        if undone := [task for task in tasks if state_of(task) != "done"]:
            raise RunError(
                f"{undone[0].output}: was run, but is not what was asked for; remove it and try again"
            )


def write_report(sections: Sequence[Section], absent: Mapping[str, str], profile: str, results: Path) -> Path:
    """RESULTS.md (whose path is returned), report.html, claims.json and runs.json of the sections."""
    verdicts = judge(load_claims(), gather(sections), profile)
    report = Report(
        f"Gramian estimation, reproduced ({profile} profile)",
        f"make reproduce PROFILE={profile}",
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


def main() -> int:
    """Parse the arguments and run; errors are one line."""
    parser = argparse.ArgumentParser(description="Reproduce the paper's figures, tables and claims.")
    parser.add_argument("--profile", choices=profiles(), default="quick")
    parser.add_argument("--items", nargs="+", metavar="NAME", help="only these items of the profile")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help="only these corpora")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="SEED", help="these, and not the profile's")
    parser.add_argument("--finished", action="store_true", help="run nothing, report what is finished")
    parser.add_argument("--dry-run", action="store_true", help="only say what it would take")
    arguments = parser.parse_args()
    results = Path("results") / arguments.profile
    plans = load_profile(arguments.profile, results)
    try:
        plans = narrowed(plans, arguments.items, arguments.datasets, arguments.seeds)
    except InputError as error:
        parser.error(f"{arguments.profile} {error}")
    try:
        if arguments.dry_run:
            print(dry_run(plans))
            return 0
        report = reproduce(plans, arguments.profile, results, finished=arguments.finished)
    except GramrunError as error:
        print(f"reproduce: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("reproduce: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    print(f"wrote {report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
