"""The experiments that files describe: every run they name is a valid config, and their tables say what they hold."""

import math
from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments.studies import comparison
from gramrun.config import RunConfig
from gramrun.config.loading import load_config

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(comparison.COMPARISONS.glob("*.yaml"))


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
