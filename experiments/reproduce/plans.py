"""Plans: the options of each item in a profile (profiles/*.yaml), and the runs that follow from them.

A run's folder is named by its settings, ``results/runs/<dataset>/<config>-<settings>-seed<seed>``, so that
items and profiles share the runs that they have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from experiments.report.claim import Claim
from experiments.reproduce.corpora import DATASETS, configs
from experiments.reproduce.jobs import Task
from gramrun.base.errors import InputError

PROFILES = Path(__file__).with_name("profiles")
QUICKEST_FIRST = ("quick", "published", "standard", "paper")
RUNS = Path("results") / "runs"
LONGEST_NAME = 120  # of a run's folder, before its hash and seed


@dataclass(frozen=True)
class Plan:
    """The plan of one item.

    Attributes:
        item: the name of a module in `experiments.reproduce.items`.
        datasets: corpora, by their names in `corpora.DATASETS`.
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
        """An option; where it is a table by corpus, that corpus's value. None where it is not given."""
        value = self.options.get(name)
        return value.get(dataset) if isinstance(value, Mapping) else value

    def settings_of(self, estimator: str) -> tuple[str, ...]:
        """The option ``estimator_settings``: what one estimator's runs have beyond the others'."""
        return tuple(self.options.get("estimator_settings", {}).get(estimator, ()))

    def named(self, table: str) -> str:
        """What a table is called: with the option ``part``, where an item has several plans."""
        return "-".join([table, *([self.options["part"]] if "part" in self.options else [])])

    def seeds_of(self, estimator: str) -> tuple[int, ...]:
        """One estimator's seeds: the plan's, as far as the option ``estimator_seeds`` has them.

        They are the plan's first ones, so that numbers of two estimators are paired by their order.
        """
        own = self.options.get("estimator_seeds", {}).get(estimator, self.seeds)
        return tuple(takewhile(own.__contains__, self.seeds))

    @property
    def seed_count(self) -> str:
        """How many seeds, as in "8 seeds (SOGram α=0.01: 5)"."""
        count = len(self.seeds)
        own = {name: len(self.seeds_of(name)) for name in self.options.get("estimator_seeds", ())}
        fewer = ", ".join(f"{name}: {n}" for name, n in own.items() if 0 < n < count)
        return ("one seed" if count == 1 else f"{count} seeds") + f" ({fewer})" * bool(fewer)

    @property
    def seeds_shown(self) -> str:
        """What a caption says of its numbers."""
        return self.seed_count + ", ± standard deviation" * (len(self.seeds) > 1)

    def tasks(self, command: str, dataset: str, config: str, *settings: str) -> list[Task]:
        """A run of ``configs/<dataset>/<config>.yaml`` for each seed."""
        return [run_task(command, dataset, config, *settings, seed=seed) for seed in self.seeds]


def run_task(command: str, dataset: str, config: str, *settings: str, seed: int) -> Task:
    """One run, in the folder that its settings name."""
    keys_and_values = (setting.partition("=")[::2] for setting in settings)
    parts = [f"{key.rpartition('.')[2]}-{value}" for key, value in keys_and_values]
    name = slug("-".join([config, *parts]))
    if len(name) > LONGEST_NAME:  # file systems end names at 255 bytes
        name = f"{name[:LONGEST_NAME].rstrip('-.')}-{sha256(name.encode()).hexdigest()[:8]}"
    section = "baseline" if command == "baseline" else "train"
    return Task(
        command,
        configs(dataset) / f"{config}.yaml",
        (f"data.path={Path('data') / dataset}", *settings, f"{section}.seed={seed}"),
        RUNS / dataset / f"{name}-seed{seed}",
    )


def settings(values: Mapping[str, Any]) -> tuple[str, ...]:
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


def profiles() -> list[str]:
    """All profiles, the cheapest first."""
    known = sorted(path.stem for path in PROFILES.glob("*.yaml"))
    return sorted(known, key=lambda name: QUICKEST_FIRST.index(name) if name in QUICKEST_FIRST else 9)


def load_profile(name: str, results: Path) -> list[Plan]:
    """The plans of a profile, in the order of the report; `results` is the folder for tables and figures.

    An item has one plan, or a list of them for corpora that differ in their options.
    """
    profile = _read(name)
    return [
        Plan(
            item,
            tuple(plan.get("datasets", ())),
            tuple(plan.get("seeds", profile["seeds"])),
            {key: value for key, value in plan.items() if key not in ("datasets", "seeds")},
            results,
        )
        for item, plans in profile["items"].items()
        for plan in (plans if isinstance(plans, list) else [plans])
    ]


def profile_note(name: str) -> str:
    """What the report says of a profile's measurements as a whole, or an empty string."""
    return str(_read(name).get("note", ""))


def _read(name: str) -> Any:
    return _joined(yaml.safe_load((PROFILES / f"{name}.yaml").read_text(encoding="utf-8")))


def _joined(value: Any) -> Any:
    """Lists of texts within a list are parts of it, so that one list of settings can hold others by alias."""
    if isinstance(value, Mapping):
        return {key: _joined(part) for key, part in value.items()}
    if not isinstance(value, list):
        return value
    parts = [part if _texts(part) else [part] for part in map(_joined, value)]
    return [one for part in parts for one in part]


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def narrowed(
    plans: Sequence[Plan],
    items: Sequence[str] | None,
    datasets: Sequence[str] | None,
    seeds: Sequence[int] | None,
) -> list[Plan]:
    """A part of a profile; None is all of it.

    Raises:
        InputError: the profile has no such item or corpus, or not the one on the other.
    """
    known = ({plan.item for plan in plans}, {name for plan in plans for name in plan.datasets})
    for what, wanted, there in zip(("item", "corpus"), (items, datasets), known, strict=True):
        if unknown := set(wanted or ()) - there:
            raise InputError(f"has no {what} {min(unknown)}; it has {', '.join(sorted(there))}")
    parts = []
    for plan in plans:
        kept = tuple(name for name in plan.datasets if datasets is None or name in datasets)
        if (items is None or plan.item in items) and (kept or not plan.datasets):
            parts.append(replace(plan, datasets=kept, seeds=tuple(dict.fromkeys(seeds or plan.seeds))))
    if not parts:
        raise InputError(f"has none of {', '.join(items or ())} on {', '.join(datasets or ())}")
    return parts


def measuring_command(claim: Claim, case: Mapping[str, str], measured: bool, profile: str) -> str:
    """The narrowest call that measures one case of a claim.

    Args:
        claim: what the paper says.
        case: values of its placeholders.
        measured: whether this profile measured it; else another profile is looked for first.
        profile: that of the report.
    """
    first = [name.partition("/")[0] for side in claim.names(case) for name in side]
    corpora = {name: corpus for name in first if (corpus := _corpus(name))}
    datasets = list(dict.fromkeys(corpora.values()))
    items = {name: _items(name).get(claim.item) for name in profiles()}
    having = [name for name, own in items.items() if own is not None and own.issuperset(corpora)]
    if not having:
        return "no profile measures it"
    others = [name for name in having if name != profile] or having
    # An item that makes its own corpora makes the largest ones in the longest profile.
    chosen = profile if measured and profile in having else others[0] if datasets else having[-1]
    narrow = f" --datasets {' '.join(datasets)}" if datasets else ""
    return f"python -m experiments.reproduce --profile {chosen} --items {claim.item}{narrow}"


def _corpus(name: str) -> str:
    """The corpus of a measurement, whose name `Plan.named` may lengthen; empty where it is made apart."""
    return max((known for known in DATASETS if f"{name}-".startswith(f"{known}-")), key=len, default="")


@cache
def _items(profile: str) -> dict[str, frozenset[str]]:
    """The corpora of each item of a profile, also as its measurements are named."""
    corpora: dict[str, frozenset[str]] = {}
    for plan in load_profile(profile, Path()):
        own = (*plan.datasets, *map(plan.named, plan.datasets))
        corpora[plan.item] = corpora.get(plan.item, frozenset()).union(own)
    return corpora
