"""Weighting and baselines: the runs they ask for, and what they say of numbers that are made up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.report.points_figure import points_figure
from experiments.reproduce.baseline_runs import baseline_tasks
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


def test_a_narrowed_plan_solves_nothing_of_the_corpora_it_leaves_out(plan):
    (kept,) = {task.output.parent.name for task in weighting.tasks(replace(plan, datasets=("enwik8",)))}
    assert kept == "enwik8"


def test_baselines_share_exact_als_with_the_weighting(plan):
    solved = {task.output: task for task in weighting.tasks(plan) if task.command == "baseline"}
    mine = {task.output: task for task in baselines.tasks(plan)}
    assert len(set(solved) & set(mine)) == 4 * 2  # all but (.5, .5)
    assert all(mine[path] == solved[path] for path in set(solved) & set(mine))
    popular = [task for task in mine.values() if task.config.stem == "popularity"]
    assert len(popular) == len(DATASETS), "popularity draws nothing, so one seed is enough"


def test_baselines_whose_package_is_missing_are_left_out(plan, monkeypatch):
    monkeypatch.setattr("experiments.reproduce.baseline_runs.importlib.util.find_spec", lambda name: None)
    assert not [task for task in baselines.tasks(plan) if task.config.stem == "implicit-als"]
    absent = Method("none", "no-such-config")
    assert baseline_tasks(plan, "enwik8", [absent]) == []


def test_the_verdict_on_weighting_turns_with_its_numbers():
    even, popular = (0.30, 0.31, 0.32), (0.1, 0.11, 0.12)
    found = {(0.0, 0.0): even, (1.0, 0.0): even, (0.0, 1.0): popular, (1.0, 1.0): popular}
    words = weighting.verdict("d", found, floor=0.2)
    assert "γ=(0, 0) (left, right) ranks best, 0.3100 ± 0.0100, not told apart from γ=(1, 0)" in words
    assert "Below popularity (0.2000): γ=(0, 1), γ=(1, 1)." in words
    assert "Weighing the left side by pairs changes MAP@10 by +0.0 %" in words
    assert "Weighing the right side by pairs changes MAP@10 by -64.6 %" in words
    turned = weighting.verdict("d", {(0.0, 0.0): popular, (1.0, 1.0): even}, floor=0.05)
    assert "γ=(1, 1) (left, right) ranks best" in turned and "None is below popularity." in turned
    assert "not told apart" not in turned and "Weighing" not in turned


def rows(label, *values):
    return pd.DataFrame({"label": label, "seed": range(len(values)), "validation": values})


def test_the_verdict_on_baselines_turns_with_its_numbers():
    frame = pd.concat([rows("popularity", 0.1), rows("ALS", 0.30, 0.31, 0.32)])
    assert "ahead of it" in baselines.verdict("d", frame, rows("two towers: x", 0.40, 0.41, 0.42))
    behind = baselines.verdict("d", frame, rows("two towers: x", 0.04, 0.05, 0.06))
    assert "the best baseline is ALS" in behind and "behind it" in behind and "below popularity" in behind
    near = baselines.verdict("d", frame, rows("two towers: x", 0.2, 0.4, 0.3))
    assert "not told apart from it" in near and "above popularity" in near
    assert "no two-tower method was run" in baselines.verdict("d", frame, pd.DataFrame({"label": []}))


def test_the_difference_of_unpaired_seeds_by_hand():
    low, high = baselines.difference((1.0, 3.0), (0.0, 0.0))
    # Welch: mean 2, standard error sqrt(2 / 2) = 1, one degree of freedom: t = 12.706.
    assert (low, high) == pytest.approx((2 - 12.706, 2 + 12.706), abs=1e-3)
    assert np.isnan(baselines.difference((1.0,), (0.0, 0.1))).all()


def test_points_that_never_arrive_are_hollow_and_in_the_frame():
    frame = pd.DataFrame({"panel": "p", "label": ["a", "a", "b"], "series": "s", "value": [1.0, np.inf, 3.0]})
    figure = points_figure(frame, "epochs", limit=4)
    axis = figure.axes[0]
    markers = [line for line in axis.get_lines() if line.get_marker() not in ("None", "")]
    assert sorted(float(line.get_xdata()[0]) for line in markers) == [1.0, 3.0, 4 * 1.05]
    assert [line.get_markerfacecolor() for line in markers].count("white") == 1
    assert axis.get_xlim()[1] > 4 * 1.05
    assert [text.get_text() for text in axis.get_yticklabels()] == ["a", "b"]
    assert axis.get_ylim()[0] > axis.get_ylim()[1], "the first row is on top"
