"""Every benchmark at toy size, and the rules of timing."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from small_wiki import write_wiki

from experiments.benchmarks import (
    estimator_cost,
    evaluation_speed,
    gpu,
    prepare_speed,
    row_wise,
    step_time,
)
from experiments.benchmarks.random_pages import pages_corpus
from experiments.reproduce import timing
from gramrun.base.processes import SINGLE_PROCESS
from gramrun.config import PrepareConfig, RunConfig
from gramrun.config.loading import load_config
from gramrun.data.expansion import Expansion, expand
from gramrun.data.registry import find
from gramrun.evaluation import ranking

CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_cost_of_every_estimator_at_toy_size(tmp_path, monkeypatch):
    """Each makes a step, and keeps as many bytes as its formula says: k = 4, 50 pages, both sides."""
    sizes = ("model.embedding_dim=4", "train.batch_size=16", "estimator.gramian_batch_size=16")
    monkeypatch.setattr(estimator_cost, "BATCHES", sizes)
    monkeypatch.setattr(timing, "STEPS", 2)
    corpus = pages_corpus(tmp_path / "pages", pages=50, links=600)
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
    corpus = pages_corpus(folder / "pages", pages=50, links=600)
    config = yaml.safe_load((CONFIGS / "wikipedia-simple" / "paper-sogram.yaml").read_text())
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
    monkeypatch.setattr(
        step_time,
        "ENGINES",
        {**step_time.ENGINES, "sgd": ("train.optimizer=sgd", "train.initial_accumulator=0")},
    )
    threads = torch.get_num_threads()
    try:
        timed = step_time.time_workload(*pages_of_two_layers(tmp_path)[:1], tmp_path / "pages", 2, rounds=1)
    finally:
        torch.set_num_threads(threads)
    assert set(timed["ms"]) == {step_time.BARE, step_time.PLAIN, *step_time.ENGINES}
    assert all(ms > 0 for times in timed["ms"].values() for ms in times)


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


def test_the_speed_of_ranking_at_toy_size(tmp_path, monkeypatch):
    """Every part runs; the relevant items that are planted among the best are found there."""
    monkeypatch.setattr(timing, "STEPS", 1)
    for zipf in (False, True):
        problem = evaluation_speed.made_up(rows=300, items=900, candidates=700, dim=16, zipf=zipf)
        frame = evaluation_speed.measure(problem, rounds=1)
        assert {evaluation_speed.BARE, evaluation_speed.WHOLE, evaluation_speed.FLOAT64} == set(frame)
        assert (frame > 0).all(axis=None)
        scorer = ranking.InnerProducts(problem.left, problem.right)
        ranks, _ = ranking.rank_scored(scorer, problem.candidates, problem.relevant, problem.excluded)
        assert (ranks <= 100).mean() > 0.3
    text = timing.table(frame, evaluation_speed.title("toy", problem), evaluation_speed.BARE)
    assert "toy: 300 left items, 700 candidates of 900, k = 16" in text
    assert text.splitlines()[4].startswith("| product and topk |")


@pytest.mark.parametrize("generation", prepare_speed.TIMED)
def test_the_tables_that_prepare_is_timed_on_hold_an_expansion(generation, tmp_path, monkeypatch):
    """A small wiki in enwik8's place is expanded to 480 pages, written, and read as it was."""
    (tmp_path / "raw").mkdir()
    write_wiki(tmp_path / "raw" / "enwik8")
    monkeypatch.setenv("GRAMRUN_RAW", str(tmp_path / "raw"))
    expansion = Expansion(2, 2, 2, 5000)
    monkeypatch.setitem(prepare_speed.WIKIS, "1m", expansion)
    prepare_speed._write("1m", tmp_path / "tables", generation)
    corpus = find("wikipedia-sql", PrepareConfig(), tmp_path / "tables").read(tmp_path)
    expanded = expand("1m", find("enwik8", PrepareConfig(), None).read(tmp_path), expansion)
    assert corpus.left.items == expanded.left.items == 480
    np.testing.assert_array_equal(corpus.pair_left, expanded.pair_left)
    np.testing.assert_array_equal(corpus.pair_right, expanded.pair_right)


def test_split_tables_at_toy_size(tmp_path, monkeypatch):
    """A step of one process exchanges nothing; of many, nearly 14 times the rows of a batch."""
    small = ("train.batch_size=32", "estimator.gramian_batch_size=32")
    monkeypatch.setattr(row_wise, "SETTINGS", (*row_wise.SETTINGS, *small))
    row_wise.write_ids(tmp_path / "ids", 400)
    found = row_wise.time_steps(tmp_path / "ids", ["replicated"], 4, 2, SINGLE_PROCESS)["replicated"]
    assert found["ms"] > 0
    assert row_wise.exchanged(1, 64) == 0
    assert row_wise.exchanged(10**6, 64) == pytest.approx(14 * row_wise.BATCH * 64 * 4, rel=1e-5)
    timed = pd.DataFrame([
        {"round": 0, "processes": n, "tables": tables, **found} for n in (1, 2) for tables in row_wise.TABLES
    ])  # fmt: skip
    memory = {"rows": 10, "width": 8, "tables": "row-wise", "processes": 4, "predicted": 3e9, "peak": 2e9}
    text = row_wise.report(timed, [{**memory, "start": 1, "evaluate": 1e9}], [])
    assert "| 10 | 8 | row-wise | 4 | 3.00 | 2.00 | 1.50 | 1.0 | 0.00 | 1.00 |" in text


def test_what_a_gpu_is_to_show_is_rehearsed_on_the_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(timing, "STEPS", 2)
    monkeypatch.setattr(gpu, "COMPARED", 5)
    monkeypatch.chdir(CONFIGS.parent)
    assert gpu.main(["--device", "cpu", "--toy", "--output", str(tmp_path)]) == 0
    parts = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert list(parts) == ["exchanges", "learners", "steps, wikipedia-simple", "corpora, 85K"]
    assert parts["exchanges"]["backend"] == "gloo"
    assert max(parts["learners"]["largest relative distance"].values()) < 1e-5
    assert set(parts["steps, wikipedia-simple"]["ms"]) == {step_time.BARE, *gpu.ENGINES}
    assert "static" in (tmp_path / "gpu.md").read_text()
    absent = gpu.train_for("wikipedia-fr", tmp_path / "fr-scale", "cpu", 1)
    assert gpu.describe(absent) == f"absent: gramrun prepare fr-scale --output {tmp_path / 'fr-scale'}"


def test_tables_name_the_command_that_made_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["toy.py", "--rounds", "3", "--folder", "my corpora"])
    timing.write("toy", "### Toy", {"ms": [1]}, tmp_path)
    command, _, rest = (tmp_path / "toy.md").read_text().partition("\n\n")
    assert command.endswith(" --rounds 3 --folder 'my corpora'`") and rest.startswith("### Toy\n\nCode: ")
    made = json.loads((tmp_path / "toy.json").read_text())
    assert command == f"`{made['command']}`" and made["ms"] == [1]


@pytest.mark.parametrize("wiki", gpu.WIKIS.values())
def test_the_products_of_the_large_wikipedias_have_shapes_that_fit(tmp_path, wiki):
    """On the meta device, which has shapes and no numbers."""
    corpus = pages_corpus(tmp_path / "pages", pages=50, links=600)
    config = load_config(RunConfig, CONFIGS / wiki / "paper-sogram.yaml", [])
    next(step_time.bare_steps(step_time.products(config, corpus), "meta"))
