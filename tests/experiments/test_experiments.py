"""The main job itself, at toy size: two methods, two seeds, a planted corpus; and parts of other experiments."""

import argparse
import json
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from experiments.benchmarks import (
    estimator_cost,
    evaluation_speed,
    growth,
    resume_cost,
    step_parts,
    step_time,
    time_to_quality,
    timing,
)
from experiments.benchmarks import random_pages as pages
from experiments.reproduce import __main__, known_optimum, plans, rankings
from experiments.reproduce import corpora as datasets
from experiments.reproduce import jobs as tasks
from experiments.reproduce import pipeline as reproduce
from experiments.reproduce import scheduler as scheduling
from gramrun.base.errors import InputError, RunError
from gramrun.base.files import read_json, write_json
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus
from gramrun.evaluation import ranking
from gramrun.runs import directory

TOY = datasets.Dataset("toy", "synthetic", settings=("synthetic.left_items=300",))
quality = time_to_quality.quality
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
    monkeypatch.setitem(datasets.DATASETS, "toy", TOY)
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
        "estimator_comparison": {},
    }
    return [plans.Plan(item, ("toy",), (0, 1), options, results) for item, options in grids.items()]


def test_the_main_job_at_toy_size(toy, capsys):
    path = reproduce.reproduce(plans_of(toy), "test", toy)
    text = path.read_text()
    assert text.startswith("# Gramian estimation, reproduced (test profile)")
    assert "| toy |" in text.split("## Corpus sizes")[1]
    assert "300 × 400" in text
    final = text.split("## Final MAP@10")[1].split("\n## ")[0]
    assert [row.split(" |")[0] for row in final.splitlines() if row.startswith("| S") or row.startswith("| s")] == [
        "| sampling", "| SOGram α=0.5", "| SOGram α=0.1"
    ]  # fmt: skip
    assert "On toy, late errors from least to largest: at B = " in text
    assert {p.relative_to(toy).as_posix() for p in toy.rglob("*.png")} == {
        f"{name}-toy.png"
        for name in (
            "gramian_error/gram-error", "gramian_error/theory", "trade_off/trade-off", "map_curves/map",
            "estimator_comparison/map",
        )
    }  # fmt: skip
    page = (toy / "report.html").read_text()
    assert page.count("<svg") == 5
    verdicts = json.loads((toy / "claims.json").read_text())
    assert verdicts
    # What was done is not done again, and items share their runs: 3 of the paper's methods, 3 recommended
    # ones (sampling and SOGram at two α) and a trajectory, each with two seeds.
    made = times(Path("results"))
    more = [replace(plans_of(toy)[1], seeds=(0, 5)), replace(plans_of(toy)[0], datasets=("enwik8",))]
    part, missing = reproduce.with_results([*plans_of(toy), *more])
    assert part == plans_of(toy)
    assert missing == {
        "gramian_error on toy": "1 runs or more are not finished", "corpus_sizes on enwik8": "not prepared"
    }  # fmt: skip
    (toy / "weighting").mkdir()  # of another report
    partial = reproduce.reproduce([*plans_of(toy), *more], "test", toy, command="this", finished=True)
    assert partial == Path("results/test-part/RESULTS.md") and path.read_text() == text
    assert "`this`" in partial.read_text() and "corpus_sizes on enwik8: not prepared" in partial.read_text()
    assert len({p.parent for p in made}) == 14
    capsys.readouterr()
    assert reproduce.reproduce(plans_of(toy), "test", toy) == path
    assert "all 14 runs are done" in capsys.readouterr().out
    assert times(Path("results")) == made
    assert not (toy / "weighting").exists()


def test_what_fails_is_told_and_left_out_and_not_tried_again(toy, capsys):
    sizes, *_, final, _ = plans_of(toy)
    diverging = replace(
        final, seeds=(0,), options={"alphas": [0.5], "settings": ["train.learning_rate=1e30"]}
    )
    for _ in range(2):
        with pytest.raises(RunError, match="2 runs failed, and results/test/RESULTS.md leaves out"):
            reproduce.reproduce([sizes, diverging], "test", toy)
        text = (toy / "RESULTS.md").read_text()
        assert "## Corpus sizes" in text and "## Final MAP@10" not in text
        assert "final_map on toy: 2 runs failed, the first: step" in text
        made, told = times(Path("results")), capsys.readouterr()
    assert times(Path("results")) == made and "not tried again: results/runs/toy/paper-s" in told.err
    assert reproduce.run_tasks([diverging], retry=True)
    assert times(Path("results")) != made
    with pytest.raises(
        RunError, match="nothing to report yet; the first that is missing is final_map on toy"
    ):
        reproduce.reproduce([diverging], "test", toy, finished=True)


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
    part = reproduce.narrowed([*every, scaling], ["corpus_sizes", "scaling"], ["toy"], [7])
    assert part == [replace(every[0], datasets=("toy",), seeds=(7,)), replace(scaling, seeds=(7,))]
    assert reproduce.narrowed([*every, scaling], None, ["other"], None) == [
        replace(every[0], datasets=("other",)), scaling
    ]  # fmt: skip
    with pytest.raises(InputError, match="has no corpus fr; it has other, toy"):
        reproduce.narrowed(every, None, ["fr"], None)
    with pytest.raises(InputError, match="has no item x; it has"):
        reproduce.narrowed(every, ["x"], None, None)


def test_a_corpus_that_cannot_be_had_is_left_out_and_named(toy, monkeypatch, capsys):
    monkeypatch.setitem(
        datasets.DATASETS, "absent", datasets.Dataset("absent", "atomic", ("split.tuning_fraction=2",))
    )
    sizes, errors = plans_of(toy)[:2]
    kept, absent = reproduce.prepare_all([replace(sizes, datasets=("absent", "toy")), errors])
    assert kept == [sizes, errors]
    assert list(absent) == ["absent"] and "split.tuning_fraction" in absent["absent"]
    assert "left out" in capsys.readouterr().err
    with pytest.raises(RunError, match="none of absent could be prepared"):
        reproduce.prepare_all([replace(sizes, datasets=("absent",))])


def test_states_of_a_task(toy):
    datasets.prepare(TOY)
    config = Path("configs/toy/sogram.yaml")
    task = tasks.Task("train", config, ("data.path=data/toy",), Path("r"))
    assert tasks.state_of(task) == "new"
    scheduling.run_all([task])
    assert tasks.state_of(task) == "done"
    other = tasks.Task("train", config, ("data.path=data/toy", "train.seed=3"), Path("r"))
    assert tasks.state_of(other) == "stale"
    manifest = Path("r/manifest.json")
    write_json(manifest, {**read_json(manifest), "status": "interrupted"})
    assert tasks.state_of(task) == "resume"
    scheduling.run_all([task])
    assert tasks.state_of(task) == "done"
    os.unlink("r/config.yaml")
    assert tasks.state_of(task) == "stale"


def test_runs_are_evaluated_side_by_side_as_one_after_another(toy, monkeypatch):
    datasets.prepare(TOY)
    config = Path("configs/toy/sogram.yaml")
    paths = [Path(f"r{seed}") for seed in (0, 1)]
    scheduling.run_all(
        [tasks.Task("train", config, ("data.path=data/toy", f"train.seed={p.name[1]}"), p) for p in paths]
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
    datasets.prepare(TOY)
    task = tasks.Task("train", Path("configs/toy/sogram.yaml"), ("train.batch_size=99999",), Path("r"))
    with pytest.raises(RunError, match="train.batch_size is 99999"):
        scheduling.run_all([task])


def test_the_cost_of_every_estimator_at_toy_size(tmp_path, monkeypatch):
    """Each makes a step, and keeps as many bytes as its formula says: k = 4, 50 pages, both sides."""
    sizes = ("model.embedding_dim=4", "train.batch_size=16", "estimator.gramian_batch_size=16")
    monkeypatch.setattr(estimator_cost, "BATCHES", sizes)
    monkeypatch.setattr(timing, "STEPS", 2)
    corpus = pages.pages_corpus(tmp_path / "pages", pages=50, links=600)
    assert corpus.left.features[0].vocabulary == corpus.right.features[0].vocabulary  # one table for both
    model = ("model.hidden=[8, 4]", "model.input_dim=3")
    steppers, memory, rebuilds = estimator_cost.contenders(None, model, corpus, tmp_path)
    frame = timing.measure(steppers, rounds=1)
    assert set(frame) == set(estimator_cost.ESTIMATORS)
    assert {name for name, taken in rebuilds.items() if taken} == {
        n for n in memory if n.startswith("SAGram")
    }
    assert memory["sampling"] == memory["exact Gramian"] == 2 * (4 * 4 * 4 + 8)  # a Gramian and a count
    # Caches grow with the items or pairs, in their dtype; what is left does not depend on either.
    fixed = memory["SAGram β=1, per item"] - 2 * 50 * 4 * 4
    assert memory["SAGram β=1, per item, bfloat16"] == fixed + 2 * 50 * 4 * 2
    assert memory["SAGram β=1, per pair (γ = 1)"] == fixed + 2 * len(corpus.train) * 4 * 4
    text = timing.table(frame, "toy", "sampling", {"state": {name: f"{memory[name]} B" for name in memory}})
    first, second = text.splitlines()[4:6]
    assert first.startswith("| sampling |")
    assert first.endswith("| 1.00 (1.00–1.00) | 144 B |")
    assert second.count("|") == first.count("|")


def pages_of_two_layers(folder):
    """50 pages in a folder, and a config of towers 9 → 8 → 4 with batches of 16 and Gramian batches of 12."""
    corpus = pages.pages_corpus(folder / "pages", pages=50, links=600)
    config = yaml.safe_load((SETTINGS.parents[1] / "wikipedia-simple" / "paper-sogram.yaml").read_text())
    config["model"] |= {"hidden": [8], "input_dim": 3, "embedding_dim": 4}
    config["train"]["batch_size"] = config["estimator"]["gramian_batch_size"] = 16
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    return file, corpus


def test_the_products_of_a_step(tmp_path):
    """Those of a small step, by hand."""
    file, corpus = pages_of_two_layers(tmp_path)
    config = load_config(RunConfig, file, ["estimator.gramian_batch_size=12"])
    tower = [(12, 9, 8), (12, 8, 4), (4, 12, 4)]  # forward on B, and its Gramian
    tower += [(16, 9, 8), (16, 8, 4), (16, 4, 4)]  # forward on B', times the Gramian
    tower += [(4, 16, 8), (16, 4, 8), (8, 16, 9), (16, 8, 9)]  # gradients of weights and inputs, from the top
    assert step_time.products(config, corpus) == tower * 2
    linear = load_config(RunConfig, file, ["estimator.gramian_batch_size=12", "model.hidden=[]"])
    assert step_time.products(linear, corpus) == [(4, 12, 4), (16, 4, 4)] * 2
    next(step_time.bare_steps(tower))


def test_every_contender_of_a_step_at_toy_size(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "STEPS", 2)
    monkeypatch.setattr(step_time, "PARTS_STEPS", 5)
    monkeypatch.setattr(step_time, "ENGINES", {**step_time.ENGINES, "sgd": ("train.optimizer=sgd",)})
    threads = torch.get_num_threads()
    try:
        timed = step_time.time_workload(*pages_of_two_layers(tmp_path)[:1], tmp_path / "pages", 2, rounds=1)
    finally:
        torch.set_num_threads(threads)
    assert set(timed["ms"]) == {step_time.BARE, step_time.PLAIN, *step_time.ENGINES}
    assert all(ms > 0 for times in timed["ms"].values() for ms in times)
    parts = timed["parts"]
    assert list(parts)[-1] == step_parts.REST
    assert {"dense forward of B'", "dense backward", "table update", "drawing B' and B"} < set(parts)
    assert "waiting for the other tower" in parts
    assert all(ms > 0 for ms in parts.values()), parts
    text = step_parts.parts_table({1: parts, 2: parts}, "toy")
    assert text.splitlines()[-1].count("100%") == 2


def test_growth_at_toy_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "STEPS", 2)
    folders = {"900": tmp_path / "900", "2K": tmp_path / "2K"}
    for pages_of, folder in zip((900, 2000), folders.values(), strict=True):
        growth.write(folder, {"pages": pages_of, "links": 9000})
    timed = growth.time_steps(folders, rounds=1)
    assert set(timed["ms"]) == set(timed["start"]) == set(folders)
    memory = {name: {"peak": 2e9, "predicted": 1.9e9} for name in folders}
    lines = growth.report(timed, memory).splitlines()
    assert lines[-2].startswith("| 900 |")  # the first of the sizes, whatever their names
    assert " | 1.00 (1.00–1.00) | " in lines[-2]
    assert lines[-1].endswith(" | 2.00 | 0.95 |")


def test_time_to_quality_at_toy_size(toy, monkeypatch):
    """Both kinds of curve on a planted corpus, their time without evaluations, and the table's arithmetic."""
    datasets.prepare(TOY)
    corpus = open_corpus(Path("data/toy"))
    monkeypatch.setattr(time_to_quality, "EVERY", 10)
    monkeypatch.setattr(time_to_quality, "quality", lambda *arguments: time.sleep(0.2) or quality(*arguments))
    trained = time_to_quality.gramrun_curve(
        Path("configs/toy/sogram.yaml"), corpus, ("train.epochs=null", "train.steps=25"), 0
    )
    assert len(trained) == 3
    baseline = SETTINGS.parents[1] / "movielens-1m" / "implicit-als.yaml"
    fitted = time_to_quality.implicit_curve(baseline, corpus, ("baseline.sweeps=4",), 0)
    assert len(fitted) == 4
    for curve in (trained, fitted):
        seconds = [at for at, _ in curve]
        assert seconds == sorted(seconds)
        assert seconds[-1] - seconds[0] < 0.2 * (len(curve) - 1)
        assert all(0 < value < 1 for _, value in curve)
    found = {
        time_to_quality.REFERENCE: [[(1.0, 0.1), (2.0, 0.3)], [(1.0, 0.2), (3.0, 0.4)]],
        "SOGram": [[(4.0, 0.25)], [(6.0, 0.3), (8.0, 0.2)]],
    }
    text = time_to_quality.report(found, (0.2, 0.35), threads=2)
    assert (
        "| implicit ALS | 1.50 (1.00–2.00) [1.0] | – | 2.50 (2.00–3.00) [1.0] | 0.3500 (0.3000–0.4000) |"
        in text
    )
    assert "| SOGram | 5.00 (4.00–6.00) [4.0] | – | 5.00 (4.00–6.00) [2.0] | 0.2750 (0.2500–0.3000) |" in text


def test_a_part_is_not_counted_within_another(monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(step_parts.time, "perf_counter", lambda: clock["now"])

    def spend(seconds):
        clock["now"] += seconds

    watch = step_parts.Stopwatch()
    inner = watch.timed("inner", spend)
    outer = watch.timed(lambda: "outer", lambda: (spend(1), inner(2), spend(4), inner(8)))
    outer()
    inner(16)
    other = threading.Thread(target=inner, args=(32,))
    other.start()
    other.join()
    assert watch.seconds == {"inner": 26, "outer": 5}


def test_slow_contenders_are_timed_over_fewer_steps(monkeypatch):
    done = {"fast": 0, "slow": 0}
    clock = {"now": 0.0}

    def step(name, seconds):
        done[name] += 1
        clock["now"] += seconds

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock["now"])
    steppers = {"fast": lambda: step("fast", 0.001), "slow": lambda: step("slow", 0.75)}
    frame = timing.measure(steppers, rounds=2)
    assert done == {"fast": 3 * timing.STEPS, "slow": 3 * 3}  # 2 seconds are over in the third step
    assert frame["fast"].tolist() == pytest.approx([1, 1])
    assert frame["slow"].tolist() == pytest.approx([750, 750])


def test_the_table_of_the_known_optimum_counts_runs_that_never_arrive():
    rows = [("s", 0.5, "sampling", seed, epoch, 0.01 * seed) for seed, epoch in enumerate((3.0, np.nan, 5.0))]
    frame = pd.DataFrame(rows, columns=["setting", "optimum", "estimator", "seed", "epoch", "excess"])
    assert "| sampling | 5.0 (3.0–inf) | 1.00% (0.00% to 2.00%) |" in known_optimum.table(frame, "sizes", 0.2)


def test_methods_that_a_setting_of_the_known_optimum_cannot_have():
    paper, small_batch, _, uniform, *_ = known_optimum.SETTINGS
    pair = known_optimum.ESTIMATORS["SAGram β=1, per pair"]
    free = known_optimum.ESTIMATORS["SOGram α=0.1, debiased, previous batch"]
    assert known_optimum.possible(pair, paper)
    assert not known_optimum.possible(pair, uniform)
    assert known_optimum.possible(free, uniform)
    assert not known_optimum.possible(free, small_batch)


def test_the_speed_of_ranking_at_toy_size(tmp_path, monkeypatch):
    """Every part runs; the relevant items that are planted among the best are found there."""
    monkeypatch.setattr(timing, "STEPS", 1)
    for zipf in (False, True):
        problem = evaluation_speed.made_up(rows=300, items=900, candidates=700, dim=16, zipf=zipf)
        frame = evaluation_speed.measure(problem, rounds=1)
        assert {evaluation_speed.BARE, evaluation_speed.WHOLE, evaluation_speed.FLOAT64} < set(frame)
        assert (frame > 0).all(axis=None)
        arguments = problem.left, problem.right, problem.candidates, problem.relevant, problem.excluded
        assert (ranking.rank_relevant(*arguments)[0] <= 100).mean() > 0.3
    text = timing.table(frame, evaluation_speed.title("toy", problem), evaluation_speed.BARE)
    assert "toy: 300 left items, 700 candidates of 900, k = 16" in text
    assert text.splitlines()[4].startswith("| product and topk |")


def test_the_cost_of_checkpoints(corpus_path, tmp_path):
    (tmp_path / "runs").mkdir()
    frame, facts = resume_cost.measure("sagram", corpus_path, tmp_path / "runs", rounds=2)
    assert sorted(frame) == ["restore", "save", "torch.load", "torch.save"]
    assert len(frame) == 2
    whole = tmp_path / "runs" / "sagram-plain" / f"{resume_cost.STEPS + 3}.pt"
    assert facts["bytes"] == pytest.approx(whole.stat().st_size, abs=4000)  # the same tensors
    frame = pd.DataFrame({"save": [1, 3], "torch.save": [2, 2], "restore": [4, 4], "torch.load": [1, 1]})
    cells = resume_cost.row("m", frame, {"epoch": 100, "bytes": 5e6}).split(" | ")
    assert cells[2:5] == ["2000 (1000–3000)", "1.00 (0.50–1.50)", "4000 (4000–4000)"]
    assert cells[5:] == ["4.00 (4.00–4.00)", "100", "2.00 (1.00–3.00) |"]
