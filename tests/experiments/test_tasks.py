"""What is asked for and whether it is done: training runs, baselines, and scripts that write a file."""

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.reproduce import corpora as datasets
from experiments.reproduce import known_optimum
from experiments.reproduce import scheduler as scheduling
from experiments.reproduce.forecast import Forecast
from experiments.reproduce.items import known_optimum as item
from experiments.reproduce.jobs import Script, failure_of, remember_failure, seconds_of, state_of
from experiments.reproduce.plans import Plan, run_task
from gramrun.base.errors import RunError
from gramrun.base.files import read_json, write_json
from gramrun.runs import directory

ROOT = Path(__file__).parents[2]
WRITER = """
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--output", type=pathlib.Path)
parser.add_argument("--text")
parser.add_argument("--lazy", action="store_true")
arguments = parser.parse_args()
if arguments.text == "bad":
    raise SystemExit("no such text")
if not arguments.lazy:
    arguments.output.write_text(arguments.text)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a prepared planted corpus and its configs, as an experiment finds it."""
    shutil.copytree(ROOT / "configs" / "synthetic", tmp_path / "configs" / "synthetic")
    monkeypatch.chdir(tmp_path)
    datasets.prepare(datasets.Dataset("synthetic", "synthetic", ("synthetic.left_items=100",)))
    return tmp_path


@pytest.fixture
def writer(tmp_path, monkeypatch):
    (tmp_path / "text_writer.py").write_text(WRITER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return Script("text_writer", ("--text", "hello"), "a", tmp_path / "made" / "hello.txt")


def test_a_baseline_is_run_once_and_again_when_it_is_another(here):
    task = run_task("baseline", "synthetic", "exact-als", "baseline.sweeps=2", seed=3)
    assert task.output == Path("results/runs/synthetic/exact-als-sweeps-2-seed3")
    assert task.wanted().baseline.seed == 3
    assert state_of(task) == "new" and seconds_of(task) is None
    scheduling.run_all([task])
    assert state_of(task) == "done"
    assert Forecast([task]).seconds(task) == seconds_of(task) > 0
    other = replace(task, overrides=(*task.overrides, "baseline.gravity=2"))
    assert state_of(other) == "stale"
    scheduling.run_all([other])
    assert (state_of(other), state_of(task)) == ("done", "stale")


def test_a_directory_of_another_kind_is_stale(here):
    baseline = run_task("baseline", "synthetic", "exact-als", "baseline.sweeps=2", seed=3)
    scheduling.run_all([baseline])
    trained = replace(run_task("train", "synthetic", "sogram", seed=3), output=baseline.output)
    assert state_of(trained) == "stale"


def test_a_script_is_done_as_long_as_it_is_the_same(writer):
    assert state_of(writer) == "new"
    scheduling.run_all([writer])
    assert writer.output.read_text() == "hello"
    assert state_of(writer) == "done" and seconds_of(writer) > 0
    longer = replace(writer, arguments=("--text", "more"), output=writer.output.with_name("more.txt"))
    assert Forecast([writer, longer]).seconds(longer) == seconds_of(writer)
    assert state_of(replace(writer, settings="b")) == "stale"
    other = replace(writer, arguments=("--text", "bye"))
    assert state_of(other) == "stale"
    scheduling.run_all([other])
    assert writer.output.read_text() == "bye"
    writer.stamp.unlink()
    assert state_of(other) == "stale" and seconds_of(other) is None


def test_a_script_that_fails_or_writes_nothing_fails_the_job(writer):
    scheduling.run_all([writer])
    with pytest.raises(RunError, match="no such text"):
        scheduling.run_all([replace(writer, arguments=("--text", "bad"))])
    assert state_of(writer) == "stale", "nobody knows who wrote the file"
    lazy = replace(writer, arguments=("--lazy",), output=writer.output.with_name("none.txt"))
    with pytest.raises(RunError, match="has not written"):
        scheduling.run_all([lazy])


def toy_runs(*settings):
    small = ("train.epochs=1", "train.batch_size=64", "estimator.gramian_batch_size=64")
    return [run_task("train", "synthetic", "sogram", *small, *settings, seed=seed) for seed in (0, 1)]


def test_a_run_that_diverges_is_remembered_and_the_others_go_on(here, monkeypatch, capfd):
    monkeypatch.setattr(scheduling.os, "cpu_count", lambda: 1)
    bad, good = toy_runs("train.learning_rate=1e30")[0], toy_runs()[1]
    with pytest.raises(scheduling.RunsFailed, match="objective is nan") as failed:
        scheduling.run_all([bad, good])
    assert list(failed.value.failures) == [bad]
    assert (state_of(bad), state_of(good)) == ("failed", "done")
    assert "objective is nan" in failure_of(bad) and "the others go on" in capfd.readouterr().err
    again = replace(bad, overrides=(*bad.overrides, "train.learning_rate=0.1"))
    assert state_of(again) == "stale", "another config may do better"


def test_a_run_that_was_killed_is_remembered_and_one_that_was_interrupted_is_not(here):
    run = toy_runs()[0]
    remember_failure(run, "killed")  # before it had written anything
    scheduling.run_all([run])
    manifest = run.output / directory.MANIFEST
    for status, state in (("running", "failed"), ("interrupted", "resume"), ("finished", "done")):
        write_json(manifest, {**read_json(manifest), "status": status})
        remember_failure(run, "killed (-9)")
        assert state_of(run) == state
    assert failure_of(run) == "killed (-9)"


def test_what_is_not_known_begins_first(here, monkeypatch):
    """A job that nothing is known of may be the longest."""
    begun = []
    monkeypatch.setattr(scheduling.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(scheduling, "make_run", lambda task, *flags: begun.append(task.command))
    monkeypatch.setattr(Forecast, "seconds", lambda self, job: {"train": 5.0}.get(job.command))
    tasks = [run_task(command, "synthetic", "exact-als" if command == "baseline" else "sogram", seed=0)
             for command in ("train", "baseline")]  # fmt: skip
    scheduling.run_all(tasks)
    assert begun == ["baseline", "train"]


@pytest.mark.skipif(importlib.util.find_spec("implicit") is None, reason="implicit is not installed")
def test_implicit_als_is_a_task_too(here):
    file = Path("configs/synthetic/implicit-als.yaml")
    file.write_text("data: {path: x}\nbaseline: {name: implicit-als, sweeps: 2, embedding_dim: 4}\n")
    task = run_task("baseline", "synthetic", "implicit-als", seed=0)
    scheduling.run_all([task])
    assert state_of(task) == "done"


def test_the_known_optimum_from_its_script_to_its_section(tmp_path, monkeypatch):
    """One objective, two estimators, one epoch: nobody arrives, and the section says so."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    options = {
        "objectives": [known_optimum.SETTINGS[3].title],
        "estimators": ["exact Gramian", "sampling"],
        "learning_rate": 0.3,
        "epochs": 1,
    }
    plan = Plan("known_optimum", (), (0, 1), options, Path("results"))
    plan.folder.mkdir(parents=True)
    scripts = item.tasks(plan)
    assert [state_of(script) for script in scripts] == ["new"]
    scheduling.run_all(scripts)
    assert [state_of(script) for script in scripts] == ["done"]
    section = item.section(plan)
    assert "0 of 4 runs end within 1% of F*" in section.verdict
    assert "most seeds do not arrive in 1 epochs under exact Gramian, sampling" in section.verdict
    assert section.tables[0].frame["epochs"].tolist() == ["never (never to never)"] * 2
    name = f"known optimum, {options['objectives'][0]}/sampling/end excess"
    assert len(section.measured[name]) == 2 and min(section.measured[name]) > 0.01
    assert (plan.folder / "epochs.svg").exists()
    (made,) = section.tables[1].frame.to_dict("records")
    assert made["command"].startswith(
        "python -m experiments.reproduce.known_optimum --seeds 2 --learning-rate 0.3"
    )
    assert made["settings"] == scripts[0].settings and "torch" in made["environment"]
    changed = {**known_optimum.ESTIMATORS, "sampling": ("name=sampling", "gramian_batch_size=9")}
    monkeypatch.setattr(known_optimum, "ESTIMATORS", changed)
    assert [state_of(script) for script in item.tasks(plan)] == ["stale"], "its settings are others now"


def test_the_words_on_the_known_optimum_turn_with_their_numbers():
    rows = [("s", "a", 2.0, 0.001), ("s", "a", 4.0, 0.002), ("s", "b", 8.0, 0.003), ("s", "b", 9.0, 0.009)]
    frame = pd.DataFrame(rows, columns=["setting", "estimator", "epoch", "excess"])
    words = item.verdict(frame, 40)
    assert words.startswith(
        "s: 4 of 4 runs end within 1% of F*; soonest a (3.0 epochs), latest of those b (8.5)."
    )
    assert "The farthest end is 0.9% above F* (b, s)." in words
    frame.loc[2:, "epoch"], frame.loc[2:, "excess"] = np.nan, 0.5
    assert "2 of 4 runs end within 1% of F*; most seeds do not arrive in 40 epochs under b." in item.verdict(
        frame, 40
    )


def test_the_time_that_is_left(monkeypatch):
    """Three runs of 60 s, one begun 20 s ago, and one of which nothing is known, on two cores."""

    class Known:
        def seconds(self, task):
            return None if task == "new" else 60.0

    monkeypatch.setattr(scheduling.time, "monotonic", lambda: 100.0)
    assert (
        scheduling._time_left(["a", "b", "c", "new"], {"a": 80.0}, Known(), 2) == "about 2 min left"
    )  # 40 + 60, 60 + 60
    assert scheduling._time_left(["a", "b"], {"a": 80.0, "b": 10.0}, Known(), 2) == "about 40 s left"
    assert scheduling._time_left(["new"], {}, Known(), 2) == "time left not known yet"
    assert scheduling._time_left([], {}, Known(), 2) == "about 0 s left"
