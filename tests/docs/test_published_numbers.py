"""The numbers on ranking in README and findings, derived again from the published measurements.

Each function below writes a table's cells as the page has them, from the evaluations in measurements.parquet.
"""

import json
import re
from collections import defaultdict

import numpy as np
import pages
import pytest
import yaml

from experiments.report.sections import interval
from experiments.reproduce import published

FINDINGS = (
    pages.read("docs/findings.md").split("## When does a better Gramian rank better?")[1].split("\n## ")[0]
)
README = pages.read("README.md")
ESTIMATORS = {
    "sampling": ("sampling", None, None),
    "SOGram .1": ("sogram", 0.1, None),
    "SOGram .01": ("sogram", 0.01, None),
    "SOGram .001": ("sogram", 0.001, None),
    "SAGram per pair": ("sagram", None, "pair"),
    "SAGram per item": ("sagram", None, "item"),
    "exact": ("exact", None, None),
}
BATCHES = (64, 1024)


@pytest.fixture(scope="module")
def maps():
    """Validation MAP@10 by seed of enwik8's runs, by optimizer, estimator and B; the exact Gramian has none."""
    files = published.read(pages.ROOT / published.FILE)
    found = defaultdict(dict)
    for path, content in files.items():
        match = re.fullmatch(r"results/runs/enwik8/(paper-.*)-seed(\d+)/config.yaml", path)
        evaluation = files.get(path.replace("config.yaml", "evaluation.json"))
        if match and evaluation:
            config = yaml.safe_load(content)
            own = config["estimator"]
            name = next(
                name for name, (kind, alpha, cache) in ESTIMATORS.items()
                if kind == own["name"] and alpha in (None, own["alpha"]) and cache in (None, own["cache"])
            )  # fmt: skip
            batch = None if name == "exact" else own["gramian_batch_size"]
            value = json.loads(evaluation)["validation"]["map@10"]
            found[config["train"]["optimizer"], name, batch][int(match[2])] = value
    return {key: [values[seed] for seed in sorted(values)] for key, values in found.items()}


def number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def spread(values) -> str:
    return f"{number(np.mean(values), 4)} ± {number(np.std(values, ddof=1), 4)}"


def lift(own, other, digits: int) -> str:
    """As "+3.2 % [−1.7, +8.0]", paired by seed."""
    ratios = 100 * (np.array(own) / np.array(other) - 1)
    low, high = interval(tuple(ratios))
    text = f"{ratios.mean():+.{digits}f} % [{low:+.{digits}f}, {high:+.{digits}f}]"
    return text.replace("-", "−")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def line(page: str, start: str) -> list[str]:
    """The cells of the one row of the page's tables that begins with these."""
    (row,) = [text for text in page.splitlines() if text.startswith(start)]
    return cells(row)


@pytest.mark.parametrize(
    ("start", "name"),
    [
        ("batch sampling", "sampling"),
        ("SOGram, α = 0.1", "SOGram .1"),
        ("SOGram, α = 0.01", "SOGram .01"),
        ("SAGram β = 1 per pair", "SAGram per pair"),
        ("exact Gramian at every step", "exact"),
    ],
)
def test_the_final_map_on_enwik8(maps, start, name):
    own = maps["sparse-adam", name, None if name == "exact" else 1024][:3]
    sampling = maps["sparse-adam", "sampling", 1024][:3]
    shown = line(FINDINGS, f"| {start} |")
    assert shown[1] == spread(own)
    digits = 0 if name == "SOGram .01" else 1
    assert shown[2] == ("" if name == "sampling" else lift(own, sampling, digits))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("optimizer", ["sparse-adam", "adagrad"])
def test_the_factorial_experiment(maps, optimizer, batch):
    label = {"sparse-adam": "sparse Adam", "adagrad": "Adagrad"}[optimizer]
    shown = line(FINDINGS, f"| {label} | {batch:,} |")
    sampling = maps[optimizer, "sampling", batch]
    names = ["SOGram .1", "SOGram .01", "SOGram .001", "SAGram per item", "exact"]
    runs = [maps.get((optimizer, name, None if name == "exact" else batch), []) for name in names]
    expected = [
        lift(own, sampling, 1 if abs(np.mean(own) / np.mean(sampling) - 1) < 0.12 else 0)
        if len(own) == len(sampling)
        else "–"
        for own in runs
    ]
    assert shown[2:] == [spread(sampling), *expected]


def test_readme_rounds_the_same_numbers(maps):
    sampling = maps["sparse-adam", "sampling", 1024][:3]
    lifts = [
        lift(maps["sparse-adam", *key][:3], sampling, 0) for key in (("SOGram .1", 1024), ("exact", None))
    ]
    sogram, exact = (text.replace("[+0", "[0").replace("+", "") for text in lifts)
    assert f"{sogram} (α = .1); exact Gramians gain {exact}" in README
