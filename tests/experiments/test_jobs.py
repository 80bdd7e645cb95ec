"""What state a job is in: training runs, baselines, and scripts that write a file."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.reproduce import scheduler
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
def here(tmp_path, monkeypatch, corpus_path):
    """A folder with the small corpus and its configs, as an experiment finds it."""
    shutil.copytree(ROOT / "configs" / "synthetic", tmp_path / "configs" / "synthetic")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "synthetic").symlink_to(corpus_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def writer(tmp_path, monkeypatch):
    (tmp_path / "text_writer.py").write_text(WRITER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return Script("text_writer", ("--text", "hello"), "a", tmp_path / "made" / "hello.txt")


def test_states_of_a_run(here):
    task = run_task("baseline", "synthetic", "exact-als", "baseline.sweeps=2", seed=3)
    assert task.output == Path("results/runs/synthetic/exact-als-sweeps-2-seed3")
    assert state_of(task) == "new" and seconds_of(task) is None
    remember_failure(task, "killed")  # before it has written anything
    scheduler.run_all([task])
    assert state_of(task) == "done"
    assert read_json(task.output / directory.MANIFEST)["threads"] == 1
    assert Forecast([task]).seconds(task) == seconds_of(task) > 0
    assert state_of(replace(task, overrides=(*task.overrides, "baseline.gravity=2"))) == "stale"
    trained = run_task("train", "synthetic", "sogram", seed=3)
    assert state_of(replace(trained, output=task.output)) == "stale", "a directory of another kind"
    manifest = task.output / directory.MANIFEST
    for status, state in (("running", "failed"), ("interrupted", "resume"), ("finished", "done")):
        write_json(manifest, {**read_json(manifest), "status": status})
        remember_failure(task, "killed (-9)")
        assert state_of(task) == state
    assert failure_of(task) == "killed (-9)"
    os.unlink(task.output / directory.CONFIG)
    assert state_of(task) == "stale"


def test_states_of_a_script(writer):
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


def test_every_job_at_work_is_asked_to_end(tmp_path, monkeypatch):
    """A SIGTERM for the whole is not theirs: without this they would go on, each to its end."""
    (tmp_path / "sleeper.py").write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[-1]).touch()\ntime.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    scripts = [Script("sleeper", (), "a", tmp_path / name) for name in ("a", "b")]
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(scheduler.run_script, script) for script in scripts]
        while not all(
            script.output.exists() or end.done() for script, end in zip(scripts, ends, strict=True)
        ):
            time.sleep(0.05)
        scheduler.terminate_all()
        for end in ends:
            with pytest.raises(RunError, match=r"failed \(-15\)"):
                end.result()
    scheduler.terminate_all()  # of none


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
