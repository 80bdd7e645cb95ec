"""Ours: whether training ends at the minimum that exact ALS knows, and how soon.

Every objective of the plan is a call of `experiments.reproduce.known_optimum`, so that they run side by
side. Options:
``objectives`` and ``estimators``, by their names there and all where absent; ``learning_rate``, ``epochs``.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.report.points_figure import points_figure
from experiments.report.section_files import write_figure
from experiments.report.sections import Section, Table
from experiments.reproduce import known_optimum
from experiments.reproduce.jobs import Script
from experiments.reproduce.known_optimum import ESTIMATORS, REACHED, SETTINGS, Setting
from experiments.reproduce.plans import RUNS, Plan, slug
from gramrun.base.files import read_json


def tasks(plan: Plan) -> list[Script]:
    """A script for each objective."""
    return [_script(plan, setting) for setting in _objectives(plan)]


def _objectives(plan: Plan) -> list[Setting]:
    wanted = plan.options.get("objectives", [setting.title for setting in SETTINGS])
    return [setting for setting in SETTINGS if setting.title in wanted]


def _script(plan: Plan, setting: Setting) -> Script:
    names = list(plan.options.get("estimators", ESTIMATORS))
    rate, epochs, seeds = plan.options["learning_rate"], plan.options["epochs"], len(plan.seeds)
    arguments = (
        *("--seeds", f"{seeds}", "--learning-rate", f"{rate:g}", "--epochs", f"{epochs:g}"),
        *("--settings", setting.title, "--estimators", *names),
    )
    name = slug(
        f"{setting.title}-{len(names)}-estimators-learning-rate-{rate:g}-epochs-{epochs:g}-seeds-{seeds}"
    )
    settings = known_optimum.fingerprint([setting], names)
    return Script(known_optimum.__name__, arguments, settings, RUNS / "known-optimum" / f"{name}.csv")


def section(plan: Plan) -> Section:
    """A table for each objective, and when each estimator arrives."""
    frame = pd.concat([pd.read_csv(script.output) for script in tasks(plan)], ignore_index=True)
    limit = float(plan.options["epochs"])
    points = pd.DataFrame(
        {
            "panel": frame["setting"],
            "label": frame["estimator"],
            "series": "runs",
            "value": frame["epoch"].fillna(np.inf),
        }
    )
    figure = points_figure(points, f"epochs until F is within {REACHED:.0%} of F*", limit=limit)
    arrives = f"When each run arrives; hollow: not within {limit:g} epochs."
    by_run = frame.groupby(["setting", "estimator"], sort=False)["excess"]
    return Section(
        plan.item,
        "Training against a known optimum",
        "",
        verdict(frame, limit),
        (
            Table("excess", caption(plan), table(frame)),
            Table("scripts", "What made each part of the table.", scripts_table(tasks(plan))),
        ),
        (write_figure(plan, figure, "epochs", arrives),),
        {f"known optimum, {a}/{b}/end excess": tuple(map(float, values)) for (a, b), values in by_run},
    )


def scripts_table(scripts: Sequence[Script]) -> pd.DataFrame:
    """The command of each script, the hash of its settings, the code and machine, by its stamp."""
    rows = []
    for script in scripts:
        stamp = read_json(script.stamp)
        made = stamp.get("provenance", {})
        versions = ", ".join(f"{name} {version}" for name, version in made.get("versions", {}).items())
        rows.append(
            {
                "command": f"python -m {script.module} {shlex.join(script.arguments)}",
                "settings": script.settings,
                "code": made.get("git_commit") or "unknown",
                "environment": f"Python {made['python']}, {versions}, {made['processor']}"
                if made
                else "unknown",
                "minutes": f"{float(stamp['seconds']) / 60:.1f}",
            }
        )
    return pd.DataFrame(rows)


def caption(plan: Plan) -> str:
    """What the numbers of `table` are."""
    options, sizes = plan.options, " × ".join(map(str, known_optimum.SIZES.values()))
    return (
        f"Linear towers over ids, {sizes} items, k = {known_optimum.EMBEDDING_DIM}, "
        f"η = {options['learning_rate']:g}, {options['epochs']:g} epochs, {len(plan.seeds)} seeds: median "
        f"(least to greatest). Excess is F / F* − 1, with F* from exact ALS; a run has arrived when it is "
        f"below {REACHED:.0%}."
    )


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row for each objective and estimator; a run that never arrives counts as infinitely late."""
    rows = []
    for (setting, name), found in frame.groupby(["setting", "estimator"], sort=False):
        epoch, end = found["epoch"].fillna(np.inf), found["excess"]
        rows.append(
            {
                "objective": setting,
                "Gramian estimate": name,
                "arrived": f"{int(np.isfinite(epoch).sum())} of {len(found)}",
                "epochs": f"{epoch.median():.1f} ({epoch.min():.1f} to {epoch.max():.1f})",
                "end excess": f"{end.median():.2%} ({end.min():.2%} to {end.max():.2%})",
            }
        )
    return pd.DataFrame(rows).replace({"epochs": {"inf": "never"}}, regex=True)


def verdict(frame: pd.DataFrame, limit: float) -> str:
    """How many runs arrive under each objective, who is late, and who is soonest; by medians over seeds."""
    parts = []
    for setting, group in frame.groupby("setting", sort=False):
        ended = group["excess"] < REACHED
        medians = (
            group.assign(epoch=group["epoch"].fillna(np.inf))
            .groupby("estimator", sort=False)["epoch"]
            .median()
        )
        words = f"{setting}: {int(ended.sum())} of {len(group)} runs end within {REACHED:.0%} of F*"
        if late := list(medians.index[~np.isfinite(medians)]):
            words += f"; most seeds do not arrive in {limit:g} epochs under {', '.join(late)}"
        arrived = medians[np.isfinite(medians)]
        if len(arrived) > 1:
            first, last = arrived.idxmin(), arrived.idxmax()
            words += f"; soonest {first} ({arrived[first]:.1f} epochs), "
            words += f"latest of those {last} ({arrived[last]:.1f})"
        parts.append(f"{words}.")
    far = frame.loc[frame["excess"].idxmax()]
    parts.append(f"The farthest end is {far['excess']:.1%} above F* ({far['estimator']}, {far['setting']}).")
    return " ".join(parts)
