"""The reproduction's pipeline from end to end at toy size, and how plans are narrowed."""

import argparse
import json
import multiprocessing
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments.reproduce import __main__, corpora, pipeline, plans
from gramrun.base.errors import InputError, RunError
from gramrun.base.files import read_json, write_json

TOY = corpora.Dataset("toy", "synthetic", settings=("synthetic.left_items=100", "synthetic.right_items=80"))
SETTINGS = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with small configs under the names that the experiments use."""
    config = yaml.safe_load(SETTINGS.read_text())
    config["data"]["path"] = "data/toy"
    config["train"]["epochs"] = 2
    config["gram_error"]["every"] = 2
    config["evaluation"]["every"] = "1 epoch"
    shutil.copytree(SETTINGS.parents[1] / "planted-clusters", tmp_path / "configs" / "planted-clusters")
    folder = tmp_path / "configs" / "toy"
    folder.mkdir(parents=True)
    for name in ("sampling", "sogram", "paper-sampling", "paper-sogram", "gram-error"):
        config["estimator"]["name"] = name.rpartition("-")[2] if name != "gram-error" else "sampling"
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(corpora.DATASETS, "toy", TOY)
    return Path("results") / "test"


def times(folder):
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.name in ("manifest.json", "metrics.jsonl")
    }


def plans_of(results):
    """Two seeds of the items whose runs the toy's configs can make."""
    grids = {
        "corpus_sizes": {},
        "gramian_error": {},
        "map_curves": {"alphas": [0.1]},
        "final_map": {"alphas": [0.1]},
        "factorial": {
            "optimizers": {"Adagrad": []},
            "batches": [1024],
            "estimators": ["sampling", "SOGram α=0.1"],
        },
    }
    return [plans.Plan(item, ("toy",), (0, 1), options, results) for item, options in grids.items()]


def long_plans_of(results):
    """One seed of the items whose runs are their own; scaling asks for its runs in several steps."""
    grids = {
        "error_at_scale": {
            "samples": 500,
            "learning_rates": [0.05, 0.01],
            "alphas": [0.1],
            "steps": 30,
        },
        "inner_products": {"gravity": [0.01, 10], "shown": [0.01, 10], "pairs": 200},
    }
    found = [plans.Plan(item, ("toy",), (0,), options, results) for item, options in grids.items()]
    options = {
        "topics": 4,
        "epochs": 20,
        "search": {"gravity": [3], "learning_rate": [0.3]},
        "estimators": {"sampling": ["sampling"]},
        "grids": [{"items": 200, "dim": 4, "batches": [4], "reference": 0}],
    }
    return [*found, plans.Plan("scaling", (), (0,), options, results)]


def test_the_pipeline_end_to_end(toy, capsys, monkeypatch):
    """Prepare, run, report, skip what is done, report a part, remember failures, retry, report what is finished."""
    every = plans_of(toy)
    path = pipeline.reproduce([*every, *long_plans_of(toy)], "quick", toy)
    text = path.read_text()
    assert text.startswith("# Gramian estimation, reproduced (quick profile)")
    assert "| toy |" in text.split("## Corpus sizes")[1] and "100 × 80" in text
    final = text.split("## Final MAP@10")[1].split("\n## ")[0]
    assert "\n| sampling |" in final and "\n| SOGram α=0.1 |" in final
    drawn = {p.relative_to(toy).as_posix() for p in toy.rglob("*.png")}
    assert drawn == {
        "gramian_error/gram-error-toy.png", "gramian_error/theory-toy.png", "map_curves/map-toy.png",
        "error_at_scale/error-at-scale-toy.png", "inner_products/inner-products-toy.png",
        "inner_products/gravity-toy.png", "scaling/loss_by_batch.png", "scaling/loss_by_error.png",
    }  # fmt: skip
    assert set(re.findall(r"\]\((\w+/[^)]+\.png)\)", text)) == drawn
    check_scaling(pd.read_csv(toy / "scaling" / "runs.csv"))
    assert json.loads((toy / "claims.json").read_text())["verdicts"]

    # What is published is enough to draw it again, without corpora and runs.
    Path("data").rename("data-elsewhere")
    Path("results/runs").rename("runs-elsewhere")
    forked = multiprocessing.get_context("fork")  # which know the toy
    with monkeypatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda _: forked)
        listed = [*every, *long_plans_of(toy)[:2]]
        again = pipeline.reproduce(listed, "quick", toy, finished=True, published=True)
    assert final in again.read_text()
    shutil.rmtree("results/runs")
    Path("data-elsewhere").rename("data")
    Path("runs-elsewhere").rename("results/runs")

    # What is done is not done again; items share their runs.
    tables = [every[0], every[3]]
    made = times(Path("results"))
    (toy / "baselines").mkdir()  # of another report
    capsys.readouterr()
    assert pipeline.reproduce(tables, "quick", toy) == path
    assert "all 4 runs are done" in capsys.readouterr().out
    assert times(Path("results")) == made and not (toy / "baselines").exists()

    # An interrupted run is resumed.
    run = Path("results/runs/toy/paper-sampling-seed0")
    write_json(run / "manifest.json", {**read_json(run / "manifest.json"), "status": "interrupted"})
    assert pipeline.run_tasks(tables) == {}
    assert read_json(run / "manifest.json")["status"] == "finished"

    # A report of what is finished goes beside that of the whole profile.
    text = path.read_text()
    more = [replace(every[3], seeds=(0, 5)), replace(every[0], datasets=("enwik8",))]
    part, missing = pipeline.with_results([*tables, *more])
    assert part == tables
    assert missing == {
        "final_map on toy": "2 runs or more are not finished", "corpus_sizes on enwik8": "not prepared"
    }  # fmt: skip
    partial = pipeline.reproduce([*tables, *more], "quick", toy, command="this", finished=True)
    assert partial == Path("results/test-part/RESULTS.md") and path.read_text() == text
    assert "`this`" in partial.read_text() and "corpus_sizes on enwik8: not prepared" in partial.read_text()

    # A run that diverges is reported, left out and not tried again; the others go on.
    diverging = replace(
        every[3], seeds=(0,), options={"alphas": [], "settings": ["train.learning_rate=1e30"]}
    )
    for _ in range(2):
        with pytest.raises(RunError, match="1 runs failed, and results/test/RESULTS.md leaves out"):
            pipeline.reproduce([every[0], diverging], "quick", toy)
        text = path.read_text()
        assert "## Corpus sizes" in text and "## Final MAP@10" not in text
        assert "final_map on toy: 1 runs failed, the first: step" in text
        made, told = times(Path("results")), capsys.readouterr()
    assert "not tried again: results/runs/toy/paper-s" in told.err
    assert pipeline.run_tasks([diverging], retry=True)
    assert times(Path("results")) != made
    with pytest.raises(
        RunError, match="nothing to report yet; the first that is missing is final_map on toy"
    ):
        pipeline.reproduce([diverging], "quick", toy, finished=True)


def check_scaling(frame):
    exact, sampled = frame["error"]
    assert exact < 0.1, "the exact Gramian is one gradient step old"
    assert sampled > exact and frame["rank"].between(1, 4.001).all()
    assert not list(Path("results/runs").glob("planted-clusters*/*/checkpoints/*.pt")), (
        "they would fill the disk"
    )


def test_the_command_of_a_part_names_its_arguments(monkeypatch, tmp_path):
    """Through the command line itself: nothing is finished, so that what it says is all that it does."""
    monkeypatch.chdir(tmp_path)
    options = {"items": None, "datasets": None, "seeds": None, "finished": False, "published": False}
    parsed = argparse.Namespace(profile="quick", **options)
    assert __main__.command_of(parsed) == "make reproduce PROFILE=quick"
    parsed.items, parsed.seeds, parsed.finished = ["final_map"], [0, 1], True
    command = "python -m experiments.reproduce --profile quick --items final_map --seeds 0 1 --finished"
    assert __main__.command_of(parsed) == command
    monkeypatch.setattr(sys, "argv", command.split()[2:])
    assert __main__.main() == 1 and not list(tmp_path.iterdir())


def test_a_part_of_a_profile(toy):
    every = plans_of(toy)
    scaling = plans.Plan("scaling", (), (0,), {}, toy)
    every[0] = replace(every[0], datasets=("toy", "other"))
    part = plans.narrowed([*every, scaling], ["corpus_sizes", "scaling"], ["toy"], [7])
    assert part == [replace(every[0], datasets=("toy",), seeds=(7,)), replace(scaling, seeds=(7,))]
    assert plans.narrowed([*every, scaling], None, ["other"], None) == [
        replace(every[0], datasets=("other",)), scaling
    ]  # fmt: skip
    with pytest.raises(InputError, match="has no corpus fr; it has other, toy"):
        plans.narrowed(every, None, ["fr"], None)
    with pytest.raises(InputError, match="has no item x; it has"):
        plans.narrowed(every, ["x"], None, None)
    with pytest.raises(InputError, match="has none of map_curves on other"):
        plans.narrowed(every, ["map_curves"], ["other"], None)


def test_a_corpus_that_cannot_be_had_is_left_out_and_named(toy, monkeypatch, capsys):
    monkeypatch.setitem(
        corpora.DATASETS, "absent", corpora.Dataset("absent", "atomic", ("split.tuning_fraction=2",))
    )
    sizes, errors = plans_of(toy)[:2]
    kept, absent = pipeline.prepare_all([replace(sizes, datasets=("absent", "toy")), errors])
    assert kept == [sizes, errors]
    assert list(absent) == ["absent"] and "split.tuning_fraction" in absent["absent"]
    assert "left out" in capsys.readouterr().err
    with pytest.raises(RunError, match="none of absent could be prepared"):
        pipeline.prepare_all([replace(sizes, datasets=("absent",))])
