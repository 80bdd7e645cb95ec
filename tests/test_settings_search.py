"""The search of settings: every point is a run of its own, none sees validation pairs, and the table shows them all."""

from pathlib import Path

import pytest
import yaml

from experiments import settings_search
from experiments.datasets import DATASETS
from gramrun.config import RunConfig
from gramrun.config_loading import load_config

ROOT = Path(__file__).parents[1]
SEARCH = yaml.safe_load(settings_search.SEARCH.read_text(encoding="utf-8"))
ENWIK8 = DATASETS["enwik8"]


def test_every_point_is_a_valid_run_of_its_own_on_the_tuning_corpus(monkeypatch):
    monkeypatch.chdir(ROOT)
    every = settings_search.points(SEARCH)
    tasks = [settings_search.task(SEARCH, p, ENWIK8, Path("data/tuning"), Path("results")) for p in every]
    configs = [load_config(RunConfig, task.config, task.overrides) for task in tasks]
    assert len(set(configs)) == len(every) == 3 * 4 * 3 + 2 * 2 * 2
    assert len({task.output for task in tasks}) == len(every)
    assert {config.data.path for config in configs} == {Path("data/tuning")}
    for point, config in zip(every, configs, strict=True):
        assert (config.model.hidden == ()) == (point.towers == "linear")
        assert (config.train.gamma_left, config.train.gamma_right) == point.gamma
        assert config.train.dense_learning_rate == pytest.approx(config.train.learning_rate / 100)


def test_the_table_has_each_score_in_its_place_and_the_best_of_each_towers_bold():
    axes = {"gamma": [[0, 0], [1, 1]], "gravity": [3], "learning_rate": [0.1, 0.3]}
    search = {
        "epochs": 2,
        "towers": {"linear": {"axes": axes}, "hidden": {"axes": {**axes, "gamma": [[1, 0]]}}},
    }
    scores = {point: 0.1 + index / 100 for index, point in enumerate(settings_search.points(search))}
    lines = settings_search.table(scores, search, ENWIK8).splitlines()
    assert lines[4:8] == [
        "| linear, γ left, right | λ = 3, η = 0.1 | λ = 3, η = 0.3 |",
        "|---|---|---|",
        "| 0, 0 | 0.1000 | 0.1100 |",
        "| 1, 1 | 0.1200 | **0.1300** |",
    ]
    assert lines[-1] == "| 1, 0 | 0.1400 | **0.1500** |"
