"""The experiments that files describe: every run they name is a valid config, and their tables say what they hold."""

import math
from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments.studies import comparison, estimator_error
from gramrun.config import RunConfig
from gramrun.config.loading import load_config

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(comparison.COMPARISONS.glob("*.yaml"))
WATCHED = yaml.safe_load(estimator_error.SEARCH.read_text())


def read(file):
    return yaml.safe_load(file.read_text())


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
@pytest.mark.parametrize("dataset", ["movielens-100k", "movielens-1m"])
def test_every_variant_is_a_valid_config(file, dataset, monkeypatch):
    monkeypatch.chdir(CONFIGS.parent)
    wanted = read(file)
    tasks = comparison.tasks(wanted, dataset, Path("results"))
    configs = [load_config(RunConfig, task.config, task.overrides) for task in tasks.values()]
    assert len(set(configs)) == len(configs) == len(wanted["variants"]) * len(wanted["seeds"])
    assert len({task.output for task in tasks.values()}) == len(tasks)
    assert wanted["baseline"] in wanted["variants"]
    lengths = {(config.train.epochs, config.train.steps) for config in configs}
    assert len(lengths) == 1, "paired runs are of one length"


def test_paired_differences_by_hand():
    by_seed = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": [0.0, 2.0, 1.0]})
    # Differences 1, 0, 3: mean 4/3, sd √(7/3); t(0.975, 2) = 4.3027.
    half = 4.3027 * math.sqrt(7 / 3) / math.sqrt(3)
    assert comparison.paired(by_seed, "a", "b") == f"+1.3333 ± {half:.4f}"


@pytest.mark.parametrize("dataset", ["movielens-100k", "movielens-1m"])
def test_everything_that_watches_is_a_valid_config(dataset, monkeypatch):
    monkeypatch.chdir(CONFIGS.parent)
    for size in WATCHED["batch_sizes"]:
        task = estimator_error.task(dataset, WATCHED, size, 0, Path("results"))
        config = load_config(RunConfig, task.config, task.overrides)
        labels = [section.label for section in config.gram_error.estimators]
        assert config.train.batch_size == estimator_error.GRADIENT_BATCH
        reused = 0 if size == estimator_error.GRADIENT_BATCH else 1
        assert len(set(labels)) == len(WATCHED["paper"]) + len(WATCHED["ours"]) - reused
        assert set(WATCHED["drawn"]) <= set(labels)
        assert {section.gramian_batch_size for section in config.gram_error.estimators} == {size}


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({1: 0.04, 50: 0.03}, 1),
        ({1: 0.9, 50: 0.04, 100: 0.06, 150: 0.03, 200: 0.01}, 150),
        ({1: 0.01, 50: 0.05}, math.inf),
    ],
)
def test_from_which_step_on_an_error_is_small(errors, expected):
    assert estimator_error.settled(pd.Series(errors)) == expected


def test_below_the_paper_means_at_every_step_and_on_both_sides():
    rows = [
        (label, side, 0, step, error)
        for label, errors in {
            "p": (0.5, 0.4),
            "q": (0.3, 0.6),
            "best": (0.25, 0.2),
            "late": (0.4, 0.1),
        }.items()
        for side in ("left", "right")
        for step, error in zip((50, 100), errors, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["label", "side", "seed", "step", "error"])
    assert estimator_error.always_below(frame, ["p", "q"], ["best", "late"]) == ["best"]
