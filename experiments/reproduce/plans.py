"""What a profile asks for: experiments/reproduce/profiles/*.yaml, read into plain records.

A plan is what one item of `experiments.reproduce.items` is to do: on which corpora, with which seeds, over
which grid.
Runs are kept by what they are, in ``results/runs/<dataset>/<config>-<settings>-seed<seed>``, and not by who
asked for them, so that items, and profiles, share what they have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from experiments.reproduce.jobs import Task

PROFILES = Path(__file__).with_name("profiles")
RUNS = Path("results") / "runs"
LONGEST_NAME = 120  # of a run's folder, before its hash and seed


@dataclass(frozen=True)
class Plan:
    """What one item is to do.

    Attributes:
        item: the name of a module in `experiments.reproduce.items`.
        datasets: corpora, by their names in `experiments.reproduce.corpora`.
        seeds: of parameters and batches.
        options: the item's own grid.
        results: the profile's folder; the item's files go into a folder of its name there.
    """

    item: str
    datasets: tuple[str, ...]
    seeds: tuple[int, ...]
    options: Mapping[str, Any]
    results: Path

    @property
    def folder(self) -> Path:
        """Where the item's tables and figures go."""
        return self.results / self.item

    def option(self, name: str, dataset: str) -> Any:
        """An option, where it is a table by corpus that of this corpus; None where it is not given."""
        value = self.options.get(name)
        return value.get(dataset) if isinstance(value, Mapping) else value

    def tasks(self, command: str, dataset: str, config: str, *settings: str) -> list[Task]:
        """A run for each seed.

        Args:
            command: ``train``, ``gram-error`` or ``baseline``.
            dataset: whose config and corpus.
            config: the name of the YAML file in ``configs/<dataset>``.
            *settings: ``--set`` settings, ``key=value``.
        """
        return [run_task(command, dataset, config, *settings, seed=seed) for seed in self.seeds]


def run_task(command: str, dataset: str, config: str, *settings: str, seed: int) -> Task:
    """One run, in the folder that its settings name."""
    keys_and_values = (setting.partition("=")[::2] for setting in settings)
    parts = [f"{key.rpartition('.')[2]}-{value}" for key, value in keys_and_values]
    name = slug("-".join([config, *parts]))
    if len(name) > LONGEST_NAME:  # a list of estimators, say: file systems end names at 255 bytes
        name = f"{name[:LONGEST_NAME].rstrip('-.')}-{sha256(name.encode()).hexdigest()[:8]}"
    section = "baseline" if command == "baseline" else "train"
    return Task(
        command,
        Path("configs") / dataset / f"{config}.yaml",
        (f"data.path={Path('data') / dataset}", *settings, f"{section}.seed={seed}"),
        RUNS / dataset / f"{name}-seed{seed}",
    )


def profiles() -> list[str]:
    """The names of all profiles."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def load_profile(name: str, results: Path) -> list[Plan]:
    """The plans of a profile, in the order of the report.

    Args:
        name: ``quick``, ``standard`` or ``paper``.
        results: the folder for tables and figures.

    Raises:
        FileNotFoundError: when there is no such profile.
    """
    profile = yaml.safe_load((PROFILES / f"{name}.yaml").read_text(encoding="utf-8"))
    return [
        Plan(
            item,
            tuple(plan.get("datasets", ())),
            tuple(plan.get("seeds", profile["seeds"])),
            {key: value for key, value in plan.items() if key not in ("datasets", "seeds")},
            results,
        )
        for item, plan in profile["items"].items()
    ]


def settings(values: dict[str, Any]) -> tuple[str, ...]:
    """Dotted keys and values as ``--set`` takes them."""
    return tuple(f"{key}={scalar(value)}" for key, value in values.items())


def scalar(value: object) -> str:
    """A value as it is written after ``--set key=``."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def slug(label: str) -> str:
    """A folder name for a label."""
    kept = "".join(
        c if (c.isalnum() and c.isascii()) or c in ".-" else "-" for c in label.replace("β", "beta")
    )
    return "-".join(part for part in kept.split("-") if part)
