"""RESULTS.md: tables and pictures from the run directories, each with its command, hashes and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from experiments.datasets import Dataset, Method, gram_error_path, run_path
from gramrun import figures, runs

TAIL = 0.2  # Gramian errors are averaged over this last part of the trajectory


def write_report(dataset: Dataset, results: Path) -> Path:
    """Write ``results/RESULTS.md`` from finished runs; return its path."""
    corpus = runs.read_json(dataset.path / "manifest.json")
    parts = [
        f"# {dataset.name}: results",
        _provenance(dataset, corpus, results),
        "Every run's manifest and evaluation is in [runs.json](runs.json).",
        "## Ranking",
        _protocol(dataset, corpus, results),
        *(_table(dataset, results, heading) for heading in dict.fromkeys(m.table for m in dataset.methods)),
        "![MAP@10, recommended setting](map-recommended.png)",
        "![MAP@10, the paper's setting](map-paper.png)",
        "## Gramian error",
        _gram_error(dataset, results),
        "![Gramian error](gram-error.png)",
        "![Trade-off over α](trade-off.png)",
        "Measured errors beside Proposition 5 (configs/README.md says how to read it; between two measured "
        "steps the largest drift may have been larger, and the dotted bound with it):",
        "![Proposition 5](theory.png)",
    ]
    runs.write_json(results / "runs.json", _manifests(results))
    path = results / "RESULTS.md"
    runs.write_text(path, "\n\n".join(parts) + "\n")
    return path


def _manifests(results: Path) -> dict[str, Any]:
    """Each run's manifest with its evaluation, by name: what stands behind every number of the tables."""
    manifests = {}
    for path in sorted((results / "runs").iterdir()):
        evaluation = path / runs.EVALUATION
        measured = runs.read_json(evaluation) if evaluation.exists() else {}
        manifests[path.name] = {**runs.open_run(path).manifest, "evaluation": measured}
    return manifests


def _items(corpus: dict[str, Any], side: str) -> str:
    """What the items of one side are called, in the plural."""
    return f"{corpus['sides'][side]['item']}s"


def _provenance(dataset: Dataset, corpus: dict[str, Any], results: Path) -> str:
    sizes = corpus["corpus"]
    manifest = runs.read_json(run_path(results, dataset.methods[0], dataset.seeds[0]) / runs.MANIFEST)
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    verified = {True: "verified against the official checksums", False: "NOT VERIFIED", None: "made"}[
        corpus["origin"].get("verified")
    ]
    return "\n".join(
        [
            f"- Command: `make reproduce DATASET={dataset.name}`; "
            f"{_core_minutes(dataset, results):.0f} core-minutes of runs.",
            f"- Data: {sizes['left_items']:,} {_items(corpus, 'left')} × "
            f"{sizes['right_items']:,} {_items(corpus, 'right')}, "
            f"{sizes['train_pairs']:,} training and {sizes['validation_pairs']:,} validation pairs, "
            f"{verified}; content hash `{corpus['content_hash'][:16]}`.",
            f"- Seeds: {', '.join(map(str, dataset.seeds))} (parameters and batches; the split is the same). "
            "± is the standard deviation over seeds.",
            f"- Code: commit `{manifest['git_commit']}`; python {manifest['python']}, {versions}.",
            f"- Machine: {manifest['processor']}, {manifest['host_threads']} cores, one thread a run, "
            "as many runs at once as cores; so milliseconds a step are rough (`make bench` interleaves).",
        ]
    )


def _core_minutes(dataset: Dataset, results: Path) -> float:
    """What all runs took, evaluation included, summed over cores."""
    paths = [run_path(results, method, seed) for method in dataset.methods for seed in dataset.seeds]
    seconds = sum(runs.open_run(path).metrics()[-1]["seconds"] for path in paths)
    trajectories = (runs.open_run(gram_error_path(results, seed)).manifest for seed in dataset.seeds)
    return (seconds + sum(manifest["seconds"] for manifest in trajectories)) / 60


def _protocol(dataset: Dataset, corpus: dict[str, Any], results: Path) -> str:
    first = run_path(results, dataset.methods[0], dataset.seeds[0])
    example = runs.read_json(first / runs.EVALUATION)["validation"]
    left = _items(corpus, "left")
    pool = "all right items" if example["full"] else f"{example['candidates']:,} sampled candidates"
    return (
        f"MAP@10 with the denominator min(10, relevant), ties against the model, {pool}. Validation: "
        f"{example['left_items']:,} {left}, training positives excluded. Training: nothing excluded. The "
        f"last column is the 95 % bootstrap interval over {left} for seed 0; read differences beside it."
    )


def _table(dataset: Dataset, results: Path, heading: str) -> str:
    methods = [method for method in dataset.methods if method.table == heading]
    frames = {method: _measurements(dataset, results, method) for method in methods}
    baseline = frames[methods[0]]["validation"].mean()
    popularity = runs.read_json(run_path(results, methods[0], dataset.seeds[0]) / runs.EVALUATION)
    lines = [
        f"### {heading}",
        "",
        "| method | validation MAP@10 | vs sampling | training MAP@10 "
        "| best validation (at step) | ms/step | interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, frame in frames.items():
        mean = frame.mean(numeric_only=True)
        change = f"{100 * (mean['validation'] / baseline - 1):+.1f} %"
        low, high = frame["interval"].iloc[0]
        lines.append(
            f"| {method.label} | {_spread(frame['validation'])} | {change} | {_spread(frame['train'])} "
            f"| {mean['best']:.4f} ({mean['best_step']:,.0f} of {mean['steps']:,.0f}) "
            f"| {mean['ms']:.2f} | [{low:.4f}, {high:.4f}] |"
        )
    row = {split: popularity[split]["popularity"] for split in ("validation", "train")}
    low, high = row["validation"]["ci95"]
    lines.append(
        f"| popularity | {row['validation']['map@10']:.4f} "
        f"| {100 * (row['validation']['map@10'] / baseline - 1):+.1f} % | {row['train']['map@10']:.4f} "
        f"| – | – | [{low:.4f}, {high:.4f}] |"
    )
    return "\n".join(lines)


def _measurements(dataset: Dataset, results: Path, method: Method) -> pd.DataFrame:
    rows = []
    for seed in dataset.seeds:
        run = runs.open_run(run_path(results, method, seed))
        evaluation = runs.read_json(run.path / runs.EVALUATION)
        curve = pd.DataFrame(run.metrics())
        best = curve["map@10"].idxmax()
        rows.append(
            {
                "validation": evaluation["validation"]["map@10"],
                "train": evaluation["train"]["map@10"],
                "best": curve["map@10"][best],
                "best_step": curve["step"][best],
                "steps": curve["step"].iloc[-1],
                "ms": 1e3 * curve["train_seconds"].iloc[-1] / curve["step"].iloc[-1],
                "interval": evaluation["validation"]["ci95"],
            }
        )
    return pd.DataFrame(rows)


def _spread(values: pd.Series) -> str:
    return f"{values.mean():.4f} ± {values.std():.4f}"


def _gram_error(dataset: Dataset, results: Path) -> str:
    frame = figures.gram_error_frame([gram_error_path(results, seed) for seed in dataset.seeds])
    late = frame[frame["step"] > (1 - TAIL) * frame["step"].max()]
    labels = late["estimator"] + late["alpha"].map(lambda a: "" if pd.isna(a) else f" α={a:g}")
    means = (
        late.assign(estimator=labels)
        .groupby(["estimator", "side", "batch_size", "seed"], sort=False)["error"]
        .mean()
    )
    by_seed = means.groupby(["estimator", "side", "batch_size"], sort=False).agg(["mean", "std"])
    sizes = sorted(late["batch_size"].unique())
    columns = [(side, size) for side in ("left", "right") for size in sizes]
    lines = [
        f"‖Ĝ − G‖_F / ‖G‖_F, mean over the last {100 * TAIL:.0f} % of one trajectory a seed (driven by batch "
        f"sampling, {frame['step'].max():,} steps), ± over seeds. Paper, Section 4.2.",
        "",
        "| estimator | " + " | ".join(f"{side}, B = {size}" for side, size in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for estimator in dict.fromkeys(labels):
        cells = [by_seed.loc[(estimator, side, size)] for side, size in columns]
        lines.append(
            f"| {estimator} | " + " | ".join(f"{c['mean']:.3f} ± {c['std']:.3f}" for c in cells) + " |"
        )
    return "\n".join(lines)


def draw_figures(dataset: Dataset, results: Path) -> None:
    """Draw every picture of the report as PNG and SVG, as ``gramrun plot`` does."""
    methods = dataset.methods
    recommended = [m for m in methods if m.table == methods[0].table and not m.config.startswith("hidden")]
    paper = [m for m in methods if m.table == methods[-1].table]
    trajectories = [gram_error_path(results, seed) for seed in dataset.seeds]

    def directories(methods: list[Method]) -> list[Path]:
        return [run_path(results, method, seed) for method in methods for seed in dataset.seeds]

    for kind, paths, name in (
        ("map", directories(recommended), "map-recommended"),
        ("map", directories(paper), "map-paper"),
        ("gram-error", trajectories, "gram-error"),
        ("trade-off", trajectories, "trade-off"),
        ("theory", trajectories, "theory"),
    ):
        for suffix in ("png", "svg"):
            figures.draw(kind, paths, results / f"{name}.{suffix}")
