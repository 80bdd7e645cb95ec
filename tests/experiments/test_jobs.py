"""What is asked for and whether it is done: training runs, baselines, and scripts that write a file."""

import importlib.util
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.reproduce import corpora, scheduler
from experiments.reproduce.jobs import Script, failure_of, remember_failure, seconds_of, state_of
from experiments.reproduce.plans import run_task
from experiments.reproduce.scheduler import Forecast
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
    corpora.prepare(corpora.Dataset("synthetic", "synthetic", ("synthetic.left_items=100",)))
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
    scheduler.run_all([task])
    assert state_of(task) == "done"
    assert Forecast([task]).seconds(task) == seconds_of(task) > 0
    other = replace(task, overrides=(*task.overrides, "baseline.gravity=2"))
    assert state_of(other) == "stale"
    scheduler.run_all([other])
    assert (state_of(other), state_of(task)) == ("done", "stale")


def test_a_directory_of_another_kind_is_stale(here):
    baseline = run_task("baseline", "synthetic", "exact-als", "baseline.sweeps=2", seed=3)
    scheduler.run_all([baseline])
    trained = replace(run_task("train", "synthetic", "sogram", seed=3), output=baseline.output)
    assert state_of(trained) == "stale"


def test_a_script_is_done_as_long_as_it_is_the_same(writer):
    assert state_of(writer) == "new"
    scheduler.run_all([writer])
    assert writer.output.read_text() == "hello"
    assert state_of(writer) == "done" and seconds_of(writer) > 0
    longer = replace(writer, arguments=("--text", "more"), output=writer.output.with_name("more.txt"))
    assert Forecast([writer, longer]).seconds(longer) == seconds_of(writer)
    assert state_of(replace(writer, settings="b")) == "stale"
    other = replace(writer, arguments=("--text", "bye"))
    assert state_of(other) == "stale"
    scheduler.run_all([other])
    assert writer.output.read_text() == "bye"
    writer.stamp.unlink()
    assert state_of(other) == "stale" and seconds_of(other) is None


def test_a_script_that_fails_or_writes_nothing_fails_the_job(writer):
    scheduler.run_all([writer])
    with pytest.raises(RunError, match="no such text"):
        scheduler.run_all([replace(writer, arguments=("--text", "bad"))])
    assert state_of(writer) == "stale", "nobody knows who wrote the file"
    lazy = replace(writer, arguments=("--lazy",), output=writer.output.with_name("none.txt"))
    with pytest.raises(RunError, match="has not written"):
        scheduler.run_all([lazy])


def toy_runs(*settings):
    small = ("train.epochs=1", "train.batch_size=64", "estimator.gramian_batch_size=64")
    return [run_task("train", "synthetic", "sogram", *small, *settings, seed=seed) for seed in (0, 1)]


def test_a_run_that_diverges_is_remembered_and_the_others_go_on(here, monkeypatch, capfd):
    monkeypatch.setattr(scheduler.os, "cpu_count", lambda: 1)
    bad, good = toy_runs("train.learning_rate=1e30")[0], toy_runs()[1]
    with pytest.raises(scheduler.RunsFailed, match="objective is nan") as failed:
        scheduler.run_all([bad, good])
    assert list(failed.value.failures) == [bad]
    assert (state_of(bad), state_of(good)) == ("failed", "done")
    assert "objective is nan" in failure_of(bad) and "the others go on" in capfd.readouterr().err
    again = replace(bad, overrides=(*bad.overrides, "train.learning_rate=0.1"))
    assert state_of(again) == "stale", "another config may do better"


def test_a_run_that_was_killed_is_remembered_and_one_that_was_interrupted_is_not(here):
    run = toy_runs()[0]
    remember_failure(run, "killed")  # before it had written anything
    scheduler.run_all([run])
    manifest = run.output / directory.MANIFEST
    for status, state in (("running", "failed"), ("interrupted", "resume"), ("finished", "done")):
        write_json(manifest, {**read_json(manifest), "status": status})
        remember_failure(run, "killed (-9)")
        assert state_of(run) == state
    assert failure_of(run) == "killed (-9)"


def test_what_is_not_known_begins_first(here, monkeypatch):
    """A job that nothing is known of may be the longest."""
    begun = []
    monkeypatch.setattr(scheduler.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(scheduler, "make_run", lambda task, *flags: begun.append(task.command))
    monkeypatch.setattr(Forecast, "seconds", lambda self, job: {"train": 5.0}.get(job.command))
    tasks = [run_task(command, "synthetic", "exact-als" if command == "baseline" else "sogram", seed=0)
             for command in ("train", "baseline")]  # fmt: skip
    scheduler.run_all(tasks)
    assert begun == ["baseline", "train"]


@pytest.mark.skipif(importlib.util.find_spec("implicit") is None, reason="implicit is not installed")
def test_implicit_als_is_a_task_too(here):
    file = Path("configs/synthetic/implicit-als.yaml")
    file.write_text("data: {path: x}\nbaseline: {name: implicit-als, sweeps: 2, embedding_dim: 4}\n")
    task = run_task("baseline", "synthetic", "implicit-als", seed=0)
    scheduler.run_all([task])
    assert state_of(task) == "done"
