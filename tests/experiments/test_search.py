"""The search: one budget for every method, validation pairs untouched, and a choice that follows the scores."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.reproduce.corpora import DATASETS, tuning
from experiments.reproduce.items import search
from experiments.reproduce.plans import Plan
from gramrun.base.files import write_json
from gramrun.config import PrepareConfig
from gramrun.config.loading import dump_config, load_config
from gramrun.runs import directory

ROOT = Path(__file__).parents[2]
SEARCH = search.load(Plan("search", (), (), {}, Path()))
GRIDS = SEARCH["datasets"]


def make_plan(results, dataset="movielens-100k", **options):
    return Plan("search", (dataset,), (0, 1), options, results)


@pytest.mark.parametrize("dataset", GRIDS)
def test_every_method_has_the_same_budget_inside_the_ranges(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    plan = make_plan(tmp_path, dataset)
    every, by_method = search.candidates(plan, dataset), {}
    for candidate in every:
        config = search.search_task(plan, dataset, candidate).wanted()
        assert config.data.path == Path(f"data/{dataset}-tuning")
        train, grid = config.train, GRIDS[dataset]
        for value, name in ((train.gravity, "train.gravity"), (train.learning_rate, "train.learning_rate")):
            assert grid["ranges"][name][0] <= value <= grid["ranges"][name][1]
        if config.model.hidden:
            assert train.dense_learning_rate == pytest.approx(train.learning_rate / 100)
        by_method.setdefault(candidate.method, []).append((train.gravity, train.learning_rate))
        assert ("estimator.alpha" in candidate.values) == config.estimator.has_alpha
    assert set(by_method) == set(SEARCH["methods"]) | set(GRIDS[dataset].get("variants", {}))
    assert len({tuple(points) for points in by_method.values()}) == 1, "the same λ and η for every method"
    assert len(set(by_method["sampling"])) == SEARCH["points"]
    alphas = [c.values["estimator.alpha"] for c in every if c.method == "SOGram"]
    assert len(set(alphas)) == len(alphas), "α is drawn, and not one of a few"
    outputs = {search.search_task(plan, dataset, c).output for c in every}
    assert len(outputs) == len(every)


def test_the_tuning_corpus_is_part_of_the_training_split(tmp_path):
    for name in GRIDS:
        made = tuning(name)
        assert DATASETS[made.name] == made
        assert load_config(PrepareConfig, None, made.settings).split.tuning_fraction == 0.1
    assert search.corpora(make_plan(tmp_path)) == ["movielens-100k-tuning"]


def finish(task, score):
    """What a finished run leaves that the search reads."""
    task.output.mkdir(parents=True)
    (task.output / directory.CONFIG).write_text(dump_config(task.wanted()))
    write_json(
        task.output / directory.MANIFEST,
        {"kind": task.command, "status": "finished", "config_hash": "", "data_hash": ""},
    )
    (task.output / directory.METRICS).write_text(json.dumps({"step": 9, "map@10": score}) + "\n")


def test_final_runs_are_asked_for_with_the_best_points_when_the_search_is_done(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    plan = make_plan(tmp_path, points=3, methods=["sampling", "SOGram"])
    first = search.tasks(plan)
    assert len(first) == 6 and {task.overrides[0] for task in first} == {
        "data.path=data/movielens-100k-tuning"
    }
    for task, score in zip(first, (0.1, 0.3, 0.2, 0.6, 0.5, 0.4), strict=True):
        finish(task, score)
    monkeypatch.setattr(search, "state_of", lambda task: "done")
    final = search.tasks(plan)[6:]
    assert len(final) == 4, "two methods, two seeds"
    points = [c.values for c in search.candidates(plan, "movielens-100k")]
    wanted = [task.wanted() for task in final]
    assert {config.data.path for config in wanted} == {Path("data/movielens-100k")}
    assert [c.train.gravity for c in wanted] == [points[1]["train.gravity"]] * 2 + [
        points[3]["train.gravity"]
    ] * 2
    assert wanted[2].estimator.alpha == points[3]["estimator.alpha"]
    assert [c.train.seed for c in wanted] == [0, 1, 0, 1]
    monkeypatch.setattr(search, "state_of", lambda task: "new" if task == first[0] else "done")
    assert search.tasks(plan) == first, "nothing is chosen before the whole search is done"


def test_points_that_failed_are_not_chosen_and_a_search_of_failures_alone_has_not_ended(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    plan = make_plan(tmp_path, points=2, methods=["sampling", "SOGram"])
    searches = search.tasks(plan)
    finish(searches[1], 0.2)
    states = dict(zip(searches, ("failed", "done", "failed", "failed"), strict=True))
    monkeypatch.setattr(search, "state_of", lambda task: states.get(task, "new"))
    (only,) = search.chosen(plan, "movielens-100k")
    assert only.label == "sampling" and "train.learning_rate" in str(only.settings)
    assert only.settings == search.candidates(plan, "movielens-100k")[1].settings
    assert len(search.tasks(plan)) == 4 + 2 and not search.can_tell(plan)
    assert search.scores(plan, "movielens-100k")["tuning"].isna().tolist() == [True, False, True, True]
    states[searches[1]] = "failed"
    assert search.tasks(plan) == searches and not search.can_tell(plan)


def tried():
    return pd.DataFrame(
        {
            "method": ["sampling", "sampling", "SOGram", "SOGram"],
            "train.gravity": [10.0, 20, 10, 20],
            "train.learning_rate": [0.1, 0.2, 0.1, 0.2],
            "estimator.alpha": [np.nan, np.nan, 0.1, 0.01],
            "tuning": [0.1, 0.3, 0.4, 0.2],
        }
    )


def final(**validation):
    flat = {"steps": 20, "seconds": 3.0, "popularity": 0.01}
    rows = [
        {
            "label": label,
            "seed": seed,
            "validation": x,
            "train": 2 * x,
            "machine": "one",
            "curve": np.array([[1.0, 10, x], [3.0, 20, x]]),
            **flat,
        }
        for label, values in validation.items()
        for seed, x in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_the_table_of_a_search():
    frame = final(sampling=[0.10, 0.12, 0.11], SOGram=[0.11, 0.13, 0.1201])
    table = search.final_table(tried(), frame)
    assert table["λ"].tolist() == ["20", "10", ""] and table["α"].tolist() == ["", "0.1", ""]
    assert table["lift over sampling [95 %]"].tolist()[1].startswith("+9.2% [")
    assert table["method"].tolist() == ["sampling", "SOGram", "popularity"]
    assert search.at_the_ends(tried())[0] == "λ of sampling (20)"
