"""Baselines: the runs they ask for, and what they say of numbers that are made up."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.reproduce import rankings
from experiments.reproduce.items import baselines
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method
from gramrun.config import BaselineConfig
from gramrun.config.loading import load_config

ROOT = Path(__file__).parents[2]
DATASETS = ["movielens-100k", "movielens-1m", "enwik8"]


@pytest.fixture
def plan(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    return Plan("baselines", tuple(DATASETS), (0, 1), {"exact": ["movielens-100k"]}, tmp_path)


@pytest.mark.parametrize("dataset", DATASETS)
def test_exact_als_of_the_configs_weighs_items_evenly(dataset, monkeypatch):
    """What `exact_method` takes for granted: γ = 0 needs no setting."""
    monkeypatch.chdir(ROOT)
    solved = load_config(BaselineConfig, Path(f"configs/{dataset}/exact-als.yaml")).baseline
    assert (solved.gamma_left, solved.gamma_right) == (0, 0)


def test_every_baseline_is_asked_for_once(plan):
    tasks = baselines.tasks(plan)
    assert len({task.output for task in tasks}) == len(tasks)
    solved = [task.wanted().baseline for task in tasks if task.config.stem == "exact-als"]
    each = [(0, 0), (1, 0), (0, 1), (1, 1), (1, 1)]  # the last with the paper's λ
    assert sorted((s.gamma_left, s.gamma_right) for s in solved) == sorted(each * 2), "two seeds, one corpus"
    assert sum(s.gravity == 1 for s in solved) == 2
    popular = [task for task in tasks if task.config.stem == "popularity"]
    assert len(popular) == len(DATASETS), "popularity draws nothing, so one seed is enough"


def test_baselines_whose_package_is_missing_are_left_out(plan, monkeypatch):
    monkeypatch.setattr("experiments.reproduce.rankings.importlib.util.find_spec", lambda name: None)
    assert not [task for task in baselines.tasks(plan) if task.config.stem == "implicit-als"]
    absent = Method("none", "no-such-config")
    assert rankings.tasks(plan, [absent]) == []


def test_baselines_differ_from_the_best_by_welchs_interval():
    """Logarithms 0 and .2 against 0: a standard error of .1, one degree of freedom, t = 12.706."""
    values = {"best": (1.0, np.exp(0.2)), "other": (1.0, 1.0), "one seed": (np.exp(-0.1),)}
    rows = [
        {"label": label, "seed": seed, "validation": x, "train": x, "seconds": 1.0, "interval": (0, 1)}
        for label, some in values.items()
        for seed, x in enumerate(some)
    ]
    table = baselines.table(pd.DataFrame(rows))
    low, high = (np.exp(-0.1 + half) - 1 for half in (-1.27062, 1.27062))
    cells = table["over the best [95 %, Welch]"].tolist()
    assert cells == ["", f"{np.exp(-0.1) - 1:+.1%} [{low:+.1%}, {high:+.1%}]", f"{np.exp(-0.2) - 1:+.1%}"]
