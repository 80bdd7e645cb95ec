"""Runs of ``gramrun baseline`` as rows of a table: their tasks, and what they measured."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import pandas as pd

from experiments.reproduce import rankings
from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import Plan, run_task
from experiments.reproduce.rankings import Method
from gramrun.base.files import read_json
from gramrun.runs import directory

UNSEEDED = ("popularity",)  # configs of methods that draw nothing
PACKAGES = {"implicit-als": "implicit"}  # configs of methods that need one, which may not be installed


def missing_packages(methods: Sequence[Method]) -> list[str]:
    """The packages that some of these methods need, and that are not installed."""
    needed = dict.fromkeys(PACKAGES[m.config] for m in methods if m.config in PACKAGES)
    return [package for package in needed if importlib.util.find_spec(package) is None]


def possible(dataset: str, methods: Sequence[Method]) -> list[Method]:
    """The methods that the data set has a config for, and whose package is installed."""
    missing = missing_packages(methods)
    return [m for m in rankings.present(dataset, methods) if PACKAGES.get(m.config) not in missing]


def seeds_of(plan: Plan, method: Method) -> tuple[int, ...]:
    """The seeds that a method is run with."""
    return plan.seeds[:1] if method.config in UNSEEDED else plan.seeds


def baseline_tasks(plan: Plan, dataset: str, methods: Sequence[Method]) -> list[Task]:
    """A task for each possible method and seed."""
    return [
        run_task("baseline", dataset, method.config, *method.settings, seed=seed)
        for method in possible(dataset, methods)
        for seed in seeds_of(plan, method)
    ]


def measure_baseline(plan: Plan, dataset: str, methods: Sequence[Method]) -> pd.DataFrame:
    """What finished baselines measured.

    Returns:
        A row for each method and seed: ``label``, ``seed``, ``validation`` and ``train`` (MAP@10),
        ``seconds`` (with the evaluation) and ``interval`` (of the validation MAP@10, over left items).
    """
    rows = []
    for method in possible(dataset, methods):
        for seed in seeds_of(plan, method):
            path = run_task("baseline", dataset, method.config, *method.settings, seed=seed).output
            found = read_json(path / directory.EVALUATION)
            rows.append(
                {
                    "label": method.label,
                    "seed": seed,
                    "validation": found["validation"]["map@10"],
                    "train": found["train"]["map@10"],
                    "seconds": read_json(path / directory.MANIFEST)["seconds"],
                    "interval": found["validation"]["ci95"],
                }
            )
    return pd.DataFrame(rows)
