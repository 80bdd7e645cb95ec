"""Comparisons of training runs that differ in a few settings: experiments/studies/comparisons/*.yaml.

    python -m experiments.studies.comparison zero_start [--dataset movielens-1m]

Each file names a base config, what is fixed, the variants with their settings, and the seeds. All runs of one
seed start from the same parameters and see the same gradient batches, so differences are paired by seed.
Writes results/comparisons/<name>/<dataset>/: every run, runs.csv and RESULTS.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from experiments.reproduce.jobs import Task
from experiments.reproduce.plans import settings, slug
from experiments.reproduce.scheduler import gramrun, run_all
from gramrun import runs
from gramrun.base.files import read_json, write_text
from gramrun.runs import directory

COMPARISONS = Path(__file__).with_name("comparisons")


def tasks(comparison: dict[str, Any], dataset: str, results: Path) -> dict[tuple[str, int], Task]:
    """The runs of a comparison, by variant and seed."""
    config = Path("configs") / dataset / comparison["base"]
    return {
        (label, seed): Task(
            "train",
            config,
            settings(
                {
                    "data.path": str(Path("data") / dataset),
                    "train.checkpoint_every": 0,
                    **comparison["fixed"],
                    **(changes or {}),
                    "train.seed": seed,
                }
            ),
            results / "runs" / f"{slug(label)}-seed{seed}",
        )
        for label, changes in comparison["variants"].items()
        for seed in comparison["seeds"]
    }


def measurements(every: dict[tuple[str, int], Task]) -> pd.DataFrame:
    """Every evaluation of every run: a row for each variant, seed and step."""
    frames = [
        pd.DataFrame(runs.open_run(task.output).metrics()).assign(variant=label, seed=seed)
        for (label, seed), task in every.items()
    ]
    return pd.concat(frames, ignore_index=True)


def paired(by_seed: pd.DataFrame, column: str, baseline: str) -> str:
    """The mean difference of two columns over seeds, ± half its 95 % t-interval.

    Args:
        by_seed: a row for each seed, a column for each variant.
        column: the variant.
        baseline: what it is compared with.
    """
    difference = by_seed[column] - by_seed[baseline]
    half = stats.t.ppf(0.975, len(difference) - 1) * difference.std() / np.sqrt(len(difference))
    return f"{difference.mean():+.4f} ± {half:.4f}"


def table(comparison: dict[str, Any], frame: pd.DataFrame, name: str, dataset: str) -> str:
    """The Markdown of a comparison: MAP@10 at each evaluation, and the paired difference at the last."""
    baseline = comparison["baseline"]
    # The last step of each epoch: the end of a run may lie one step after its last whole interval.
    by_epoch = frame.assign(shown=frame["epoch"].map("{:.2g}".format)).groupby("shown")["step"].max()
    steps = sorted(by_epoch)
    by_seed = frame[frame["step"] == steps[-1]].pivot(index="seed", columns="variant", values="map@10")
    epochs = [frame.loc[frame["step"] == step, "epoch"].iloc[0] for step in steps]
    lines = [
        f"# {comparison['title']}",
        "",
        f"`python -m experiments.studies.comparison {name} --dataset {dataset}` "
        f"(`experiments/studies/comparisons/{name}.yaml`, base "
        f"`configs/{dataset}/{comparison['base']}`). Validation "
        f"MAP@10, {len(comparison['seeds'])} seeds, ± standard deviation; the difference to *{baseline}* at "
        "the end is paired by seed, with a 95 % t-interval.",
        "",
        f"| variant | {' | '.join(f'after {epoch:.2g} epochs' for epoch in epochs)} | minus {baseline} "
        "| training MAP@10 | training time |",
        "|---|" + "---|" * (len(steps) + 3),
    ]
    for variant in comparison["variants"]:
        rows = frame[frame["variant"] == variant]
        by_step = rows.groupby("step")["map@10"].agg(["mean", "std"])
        cells = [f"{by_step['mean'][step]:.4f} ± {by_step['std'][step]:.4f}" for step in steps]
        difference = "" if variant == baseline else paired(by_seed, variant, baseline)
        last = rows[rows["step"] == steps[-1]]
        train = f"{last['train_map@10'].mean():.4f}" if "train_map@10" in last else ""
        lines.append(
            f"| {variant} | {' | '.join(cells)} | {difference} | {train} "
            f"| {last['train_seconds'].mean():.0f} s |"
        )
    return "\n".join([*lines, "", *comparison.get("notes", "").splitlines()]).rstrip() + "\n"


def origin(run: Path) -> str:
    """How the numbers of a table came about, from the manifest of one of its runs."""
    manifest = read_json(run / directory.MANIFEST)
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    return (
        f"Code: commit `{manifest['git_commit']}`; data: content hash `{manifest['data_hash'][:16]}`; "
        f"python {manifest['python']}, {versions}; {manifest['processor']}, one thread a run."
    )


def main() -> None:
    """Run one comparison and write its table."""
    names = sorted(path.stem for path in COMPARISONS.glob("*.yaml"))
    parser = argparse.ArgumentParser(description="Compare training runs that differ in a few settings.")
    parser.add_argument("name", choices=names)
    parser.add_argument("--dataset", default="movielens-1m")
    arguments = parser.parse_args()
    comparison = yaml.safe_load((COMPARISONS / f"{arguments.name}.yaml").read_text(encoding="utf-8"))
    results = Path("results/comparisons") / arguments.name / arguments.dataset
    gramrun(["prepare", arguments.dataset, "--output", str(Path("data") / arguments.dataset)])
    every = tasks(comparison, arguments.dataset, results)
    run_all(list(every.values()))
    frame = measurements(every)
    write_text(results / "runs.csv", frame.to_csv(index=False))
    report = table(comparison, frame, arguments.name, arguments.dataset)
    report += f"\n{origin(next(iter(every.values())).output)}\n"
    write_text(results / "RESULTS.md", report)
    print(report)


if __name__ == "__main__":
    main()
