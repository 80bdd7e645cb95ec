"""What users would pick instead: popularity, implicit ALS and exact ALS, on the same split and evaluation.

    python -m experiments.baselines [--dataset movielens-1m]

Each shipped baseline config runs with every seed; exact ALS also with the weights and λ of the paper, and
with the left side alone weighted by frequency. Writes results/baselines/<dataset>/: RESULTS.md and the runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.comparison import origin
from experiments.datasets import DATASETS, Dataset, prepare
from experiments.scheduling import gramrun
from gramrun import runs

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Baseline:
    """One row of the table.

    Attributes:
        label: its name there.
        config: in configs/<dataset>/.
        overrides: ``--set`` settings.
    """

    label: str
    config: str
    overrides: tuple[str, ...] = ()


ROWS = (
    Baseline("popularity", "popularity.yaml"),
    Baseline("implicit ALS, tuned", "implicit-als.yaml"),
    Baseline(
        "implicit ALS, the package's defaults",
        "implicit-als.yaml",
        ("baseline.confidence=1", "baseline.regularization=0.01"),
    ),
    Baseline("exact ALS, γ = 0, λ = 30", "exact-als.yaml"),
    Baseline("exact ALS, γ left = 1, right = 0, λ = 30", "exact-als.yaml", ("baseline.gamma_left=1",)),
    Baseline(
        "exact ALS, γ = 1 and λ = 1 (the paper's)",
        "exact-als.yaml",
        ("baseline.gamma_left=1", "baseline.gamma_right=1", "baseline.gravity=1"),
    ),
    Baseline("exact ALS, γ left = 0, right = 1, λ = 30", "exact-als.yaml", ("baseline.gamma_right=1",)),
    Baseline(
        "exact ALS, γ = 1, λ = 30",
        "exact-als.yaml",
        ("baseline.gamma_left=1", "baseline.gamma_right=1"),
    ),
)


def measured(dataset: Dataset, results: Path) -> Iterator[dict[str, Any]]:
    """Fit what is not fitted yet; a row for each baseline and seed."""
    for number, row in enumerate(ROWS):
        for seed in SEEDS:
            path = results / "runs" / f"{number}-seed{seed}"
            settings = (f"data.path={dataset.path}", f"baseline.seed={seed}", *row.overrides)
            if not path.exists():  # a baseline's directory appears whole or not at all
                options = [part for setting in settings for part in ("--set", setting)]
                config = dataset.configs / row.config
                gramrun(["baseline", "--config", str(config), *options, "--output", str(path)], threads=1)
            found = runs.read_json(path / runs.EVALUATION)
            low, high = found["validation"]["ci95"]
            yield {
                "baseline": row.label,
                "seed": seed,
                "validation": found["validation"]["map@10"],
                "train": found["train"]["map@10"],
                "low": low,
                "high": high,
                "seconds": runs.read_json(path / runs.MANIFEST)["seconds"],
            }
            print(row.label, seed, f"{found['validation']['map@10']:.4f}", flush=True)


def table(frame: pd.DataFrame, dataset: str) -> str:
    """The Markdown table."""
    lines = [
        f"# {dataset}: baselines",
        "",
        f"`python -m experiments.baselines --dataset {dataset}`; {len(SEEDS)} seeds, ± standard deviation; "
        "the last column is the 95 % bootstrap interval over left items for the first seed.",
        "",
        "| baseline | validation MAP@10 | training MAP@10 | seconds, with evaluation | interval |",
        "|---|---|---|---|---|",
    ]
    for label, rows in frame.groupby("baseline", sort=False):
        first = rows.iloc[0]
        lines.append(
            f"| {label} | {rows['validation'].mean():.4f} ± {rows['validation'].std():.4f} "
            f"| {rows['train'].mean():.4f} | {rows['seconds'].mean():.0f} "
            f"| [{first['low']:.4f}, {first['high']:.4f}] |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, evaluate, write."""
    parser = argparse.ArgumentParser(description="Popularity and two kinds of ALS.")
    parser.add_argument("--dataset", choices=DATASETS, default="movielens-1m")
    dataset = DATASETS[parser.parse_args().dataset]
    results = Path("results/baselines") / dataset.name
    prepare(dataset)
    frame = pd.DataFrame(measured(dataset, results))
    report = f"{table(frame, dataset.name)}\n{origin(results / 'runs' / '0-seed0')}\n"
    runs.write_text(results / "RESULTS.md", report)
    print(report)


if __name__ == "__main__":
    main()
