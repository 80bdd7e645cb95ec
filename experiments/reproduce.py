"""The main job: raw files → shards → trained runs → evaluations → Gramian errors → pictures → RESULTS.md.

    python -m experiments.reproduce --dataset movielens-100k

Every step is skipped where it is done already, so a second call does only what is missing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from experiments.datasets import DATASETS, Dataset, gram_error_path, prepare, run_path
from experiments.report import draw_figures, write_report
from experiments.scheduling import Task, run_all
from gramrun import runs
from gramrun.data.shards import PreparedCorpus, open_corpus
from gramrun.errors import GramrunError
from gramrun.evaluation import evaluate_run


def reproduce(dataset: Dataset, results: Path) -> Path:
    """Do everything for one data set; return the report's path."""
    started = time.monotonic()
    print(f"1/4 preparing {dataset.name}", flush=True)
    prepare(dataset, quiet=False)

    # The longest first, so that no core idles at the end.
    tasks = [
        Task(
            "gram-error",
            dataset.configs / "gram-error.yaml",
            (f"data.path={dataset.path}", f"train.seed={seed}"),
            gram_error_path(results, seed),
        )
        for seed in dataset.seeds
    ]
    by_length = sorted(dataset.methods, key=lambda method: not method.config.startswith(("paper", "hidden")))
    tasks += [
        Task(
            "train",
            dataset.configs / f"{method.config}.yaml",
            (f"data.path={dataset.path}", f"train.seed={seed}", *method.overrides),
            run_path(results, method, seed),
        )
        for method in by_length
        for seed in dataset.seeds
    ]
    print(f"2/4 training and watching: {len(tasks)} runs", flush=True)
    run_all(tasks)

    print("3/4 evaluating", flush=True)
    corpus = open_corpus(dataset.path)
    for task in tasks:
        if task.command == "train":
            evaluate(task.output, corpus)

    print("4/4 drawing and writing", flush=True)
    draw_figures(dataset, results)
    print(f"this call took {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
    return write_report(dataset, results)


def evaluate(path: Path, corpus: PreparedCorpus) -> None:
    """Evaluate both splits of a run, unless its newest checkpoint was evaluated already."""
    run = runs.open_run(path)
    file = path / runs.EVALUATION
    known = runs.read_json(file) if file.exists() else {}
    for split in ("validation", "train"):
        if split not in known or run.checkpoint_path(known[split]["step"]) != run.checkpoints()[-1]:
            runs.record_evaluation(run, evaluate_run(run, corpus, split))


def main() -> int:
    """Parse the arguments and run; errors are one line."""
    parser = argparse.ArgumentParser(description="Reproduce the experiments of one data set.")
    parser.add_argument("--dataset", choices=DATASETS, default="movielens-100k")
    arguments = parser.parse_args()
    try:
        report = reproduce(DATASETS[arguments.dataset], Path("results") / arguments.dataset)
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
