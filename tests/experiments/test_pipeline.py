"""`make reproduce` at toy size: two methods, two seeds, a planted corpus."""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from experiments.reproduce import __main__, corpora, jobs, pipeline, plans, rankings, scheduler
from gramrun.base.errors import InputError, RunError
from gramrun.base.files import read_json, write_json
from gramrun.runs import directory

TOY = corpora.Dataset("toy", "synthetic", settings=("synthetic.left_items=150",))
SETTINGS = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with small configs under the names that the experiments use."""
    config = yaml.safe_load(SETTINGS.read_text())
    config["data"]["path"] = "data/toy"
    config["train"]["epochs"] = 2
    config["evaluation"]["every"] = "1 epoch"
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
        "trade_off": {},
        "map_curves": {"alphas": [0.5, 0.1]},
        "final_map": {"alphas": [0.5, 0.1]},
    }
    return [plans.Plan(item, ("toy",), (0, 1), options, results) for item, options in grids.items()]


def test_the_main_job_at_toy_size(toy, capsys):
    path = pipeline.reproduce(plans_of(toy), "test", toy)
    text = path.read_text()
    assert text.startswith("# Gramian estimation, reproduced (test profile)")
    assert "| toy |" in text.split("## Corpus sizes")[1]
    assert "150 × 400" in text
    final = text.split("## Final MAP@10")[1].split("\n## ")[0]
    assert [row.split(" |")[0] for row in final.splitlines() if row.startswith("| S") or row.startswith("| s")] == [
        "| sampling", "| SOGram α=0.5", "| SOGram α=0.1"
    ]  # fmt: skip
    assert {p.relative_to(toy).as_posix() for p in toy.rglob("*.png")} == {
        f"{name}-toy.png"
        for name in (
            "gramian_error/gram-error", "gramian_error/theory", "trade_off/trade-off", "map_curves/map",
        )
    }  # fmt: skip
    page = (toy / "report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 4
    verdicts = json.loads((toy / "claims.json").read_text())
    assert verdicts
    # What was done is not done again, and items share their runs: 3 methods and a trajectory,
    # each with two seeds.
    made = times(Path("results"))
    more = [replace(plans_of(toy)[1], seeds=(0, 5)), replace(plans_of(toy)[0], datasets=("enwik8",))]
    part, missing = pipeline.with_results([*plans_of(toy), *more])
    assert part == plans_of(toy)
    assert missing == {
        "gramian_error on toy": "1 runs or more are not finished", "corpus_sizes on enwik8": "not prepared"
    }  # fmt: skip
    (toy / "weighting").mkdir()  # of another report
    partial = pipeline.reproduce([*plans_of(toy), *more], "test", toy, command="this", finished=True)
    assert partial == Path("results/test-part/RESULTS.md") and path.read_text() == text
    assert "`this`" in partial.read_text() and "corpus_sizes on enwik8: not prepared" in partial.read_text()
    assert len({p.parent for p in made}) == 8
    capsys.readouterr()
    assert pipeline.reproduce(plans_of(toy), "test", toy) == path
    assert "all 8 runs are done" in capsys.readouterr().out
    assert times(Path("results")) == made
    assert not (toy / "weighting").exists()


def test_what_fails_is_told_and_left_out_and_not_tried_again(toy, capsys):
    sizes, *_, final = plans_of(toy)
    diverging = replace(
        final, seeds=(0,), options={"alphas": [0.5], "settings": ["train.learning_rate=1e30"]}
    )
    for _ in range(2):
        with pytest.raises(RunError, match="2 runs failed, and results/test/RESULTS.md leaves out"):
            pipeline.reproduce([sizes, diverging], "test", toy)
        text = (toy / "RESULTS.md").read_text()
        assert "## Corpus sizes" in text and "## Final MAP@10" not in text
        assert "final_map on toy: 2 runs failed, the first: step" in text
        made, told = times(Path("results")), capsys.readouterr()
    assert times(Path("results")) == made and "not tried again: results/runs/toy/paper-s" in told.err
    assert pipeline.run_tasks([diverging], retry=True)
    assert times(Path("results")) != made
    with pytest.raises(
        RunError, match="nothing to report yet; the first that is missing is final_map on toy"
    ):
        pipeline.reproduce([diverging], "test", toy, finished=True)


def test_the_command_of_a_part_names_its_arguments(monkeypatch, tmp_path):
    """Through the command line itself: nothing is finished, so that what it says is all that it does."""
    monkeypatch.chdir(tmp_path)
    parsed = argparse.Namespace(profile="quick", items=None, datasets=None, seeds=None, finished=False)
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


def test_states_of_a_task(toy):
    corpora.prepare(TOY)
    config = Path("configs/toy/sogram.yaml")
    task = jobs.Task("train", config, ("data.path=data/toy",), Path("r"))
    assert jobs.state_of(task) == "new"
    scheduler.run_all([task])
    assert jobs.state_of(task) == "done"
    other = jobs.Task("train", config, ("data.path=data/toy", "train.seed=3"), Path("r"))
    assert jobs.state_of(other) == "stale"
    manifest = Path("r/manifest.json")
    write_json(manifest, {**read_json(manifest), "status": "interrupted"})
    assert jobs.state_of(task) == "resume"
    scheduler.run_all([task])
    assert jobs.state_of(task) == "done"
    os.unlink("r/config.yaml")
    assert jobs.state_of(task) == "stale"


def test_runs_are_evaluated_side_by_side_as_one_after_another(toy, monkeypatch):
    corpora.prepare(TOY)
    config = Path("configs/toy/sogram.yaml")
    paths = [Path(f"r{seed}") for seed in (0, 1)]
    scheduler.run_all(
        [jobs.Task("train", config, ("data.path=data/toy", f"train.seed={p.name[1]}"), p) for p in paths]
    )
    monkeypatch.setattr(rankings, "WORTH_PROCESSES", 1)
    found = rankings.evaluate(paths)
    assert found[0] != found[1]
    assert {"validation", "train"} == set(found[0])
    for path in paths:
        (path / directory.EVALUATION).unlink()
    monkeypatch.setattr(rankings, "WORTH_PROCESSES", 3)
    again = rankings.evaluate(paths)
    for result in (*found, *again):
        for split in result.values():
            del split["seconds"]
    assert again == found


def test_a_failing_run_fails_the_job_with_its_own_message(toy):
    corpora.prepare(TOY)
    task = jobs.Task("train", Path("configs/toy/sogram.yaml"), ("train.batch_size=99999",), Path("r"))
    with pytest.raises(RunError, match="train.batch_size is 99999"):
        scheduler.run_all([task])
