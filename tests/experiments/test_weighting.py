"""Weighting and baselines: the runs they ask for, and what they say of numbers that are made up."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.reproduce import rankings
from experiments.reproduce.items import baselines, weighting
from experiments.reproduce.plans import Plan
from experiments.reproduce.rankings import Method
from gramrun.config import BaselineConfig, RunConfig
from gramrun.config.loading import load_config

ROOT = Path(__file__).parents[2]
DATASETS = ["movielens-100k", "movielens-1m", "enwik8"]
GAMMAS = [[0, 0], [1, 0], [0, 1], [1, 1], [0.5, 0.5]]


@pytest.fixture
def plan(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    options = {"gammas": GAMMAS, "config": "sagram", "exact": ["movielens-100k"]}
    return Plan("weighting", tuple(DATASETS), (0, 1), options, tmp_path)


@pytest.mark.parametrize("dataset", DATASETS)
def test_recommended_configs_weigh_items_evenly(dataset, monkeypatch):
    """What `gamma_settings` takes for granted: γ = 0 needs no setting, so that runs are shared."""
    monkeypatch.chdir(ROOT)
    for name in ("sampling", "sagram"):
        train = load_config(RunConfig, Path(f"configs/{dataset}/{name}.yaml")).train
        assert (train.gamma_left, train.gamma_right) == (0, 0)
    solved = load_config(BaselineConfig, Path(f"configs/{dataset}/exact-als.yaml")).baseline
    assert (solved.gamma_left, solved.gamma_right) == (0, 0)


def test_every_weighting_is_trained_and_solved(plan):
    tasks = weighting.tasks(plan)
    trained = [task.wanted().train for task in tasks if task.command == "train"]
    solved = [task.wanted().baseline for task in tasks if task.command == "baseline"]
    assert len(trained) == len(DATASETS) * len(GAMMAS) * 2 and len(solved) == len(GAMMAS) * 2
    assert {(t.gamma_left, t.gamma_right) for t in trained} == {tuple(g) for g in GAMMAS}
    assert {(s.gamma_left, s.gamma_right) for s in solved} == {tuple(g) for g in GAMMAS}
    assert len({task.output for task in tasks}) == len(tasks)


def test_baselines_share_exact_als_with_the_weighting(plan):
    solved = {task.output: task for task in weighting.tasks(plan) if task.command == "baseline"}
    mine = {task.output: task for task in baselines.tasks(plan)}
    assert len(set(solved) & set(mine)) == 4 * 2  # all but (.5, .5)
    assert all(mine[path] == solved[path] for path in set(solved) & set(mine))
    popular = [task for task in mine.values() if task.config.stem == "popularity"]
    assert len(popular) == len(DATASETS), "popularity draws nothing, so one seed is enough"


def test_baselines_whose_package_is_missing_are_left_out(plan, monkeypatch):
    monkeypatch.setattr("experiments.reproduce.rankings.importlib.util.find_spec", lambda name: None)
    assert not [task for task in baselines.tasks(plan) if task.config.stem == "implicit-als"]
    absent = Method("none", "no-such-config")
    assert rankings.tasks(plan, [absent]) == []


def test_effects_of_a_side_are_paired_by_seed():
    even, popular = (0.30, 0.31, 0.32), (0.1, 0.11, 0.12)
    found = {(0.0, 0.0): even, (1.0, 0.0): even, (0.0, 1.0): popular, (1.0, 1.0): popular}
    table = weighting.effects(found)
    assert table["side"].tolist() == ["left", "left", "right", "right"]
    assert table["change"].iloc[0] == "+0.0% [+0.0%, +0.0%]"
    assert table["change"].iloc[2].startswith("-64.6% [")


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
