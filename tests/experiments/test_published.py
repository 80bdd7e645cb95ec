"""Published measurements: what is packed comes back as it was, and never over what is here."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.reproduce import published
from experiments.reproduce.jobs import Script, Task
from gramrun.base.errors import InputError


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A finished run and script in an empty root."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(published, "state_of", lambda job: "done")
    run = tmp_path / "results/runs/toy/a-seed0"
    (run / "checkpoints").mkdir(parents=True)
    for name in ("metrics.jsonl", "embeddings.npz", "checkpoints/step-1.pt"):
        (run / name).write_text(name)
    (run / "manifest.json").write_text('{"data_hash": "d"}')
    (run / "config.yaml").write_text("train: {epochs: 3}")
    script = Script("m", (), "", Path("results/runs/planted/planted.csv"))
    script.output.parent.mkdir()
    script.output.write_text("x")
    script.stamp.write_text("stamp")
    return [Task("train", tmp_path / "c.yaml", (), run.relative_to(tmp_path)), script]


def test_measurements_come_back_and_nothing_large_is_published(finished):
    assert published.add(finished) == 5
    assert {path.rpartition("/")[2] for path in published.read()} == {
        "manifest.json", "config.yaml", "metrics.jsonl", "planted.csv", "planted.csv.stamp.json",
    }  # fmt: skip
    run = finished[0].output
    for path in sorted(run.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run.rmdir()
    assert published.restore() == 3
    assert (run / "metrics.jsonl").read_text() == "metrics.jsonl"
    assert not (run / "checkpoints").exists()


def test_a_run_that_is_here_is_left_alone(finished):
    published.add(finished)
    metrics = finished[0].output / "metrics.jsonl"
    metrics.unlink()
    assert published.restore() == 0 and not metrics.exists()


def test_a_run_whose_restoring_was_interrupted_is_completed(finished, monkeypatch):
    published.add(finished)
    run = finished[0].output
    shutil.rmtree(run)

    def stopped(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(published, "new_file", stopped)
        published.restore()
    assert not (run / "manifest.json").exists()  # so that it does not count as a run
    assert published.restore() == 3
    assert {path.name for path in run.iterdir()} == {"manifest.json", "config.yaml", "metrics.jsonl"}


def test_a_manifest_is_restored_when_the_other_files_are_on_the_disk(finished, monkeypatch):
    published.add(finished)
    shutil.rmtree("results/runs")
    synced = []

    def sync():
        synced.append({path.name for path in finished[0].output.iterdir()})

    monkeypatch.setattr(published.os, "sync", sync)
    assert published.restore() == 5
    assert synced == [{"config.yaml", "metrics.jsonl"}]


def test_a_script_adds_its_file_to_those_of_others(finished):
    script = finished[1]
    published.add(finished)
    other = replace(script, output=script.output.with_name("other.csv"))
    other.output.write_text("y")
    other.stamp.write_text("stamp")
    assert published.add([other]) == 7


def test_a_stamp_comes_back_only_with_its_file(finished):
    published.add(finished)
    script = finished[1]
    script.output.write_text("half of another measurement")
    script.stamp.unlink()
    assert published.restore() == 2 and script.output.read_text() == "x"
    script.output.write_text("measured here")
    assert published.restore() == 0 and script.output.read_text() == "measured here"


def test_only_the_corpora_of_the_jobs_are_published(finished, monkeypatch):
    for name in ("toy", "other"):
        folder = Path("data") / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text('{"content_hash": "c"}')
    corpora = {name: SimpleNamespace(path=Path("data") / name) for name in ("toy", "other")}
    monkeypatch.setattr(published, "DATASETS", corpora)
    published.add(finished)
    assert [path for path in published.read() if "corpora" in path] == ["results/corpora/toy.json"]


@pytest.mark.parametrize(
    ("name", "text", "replaced"),
    [
        (None, "", False),  # measured again
        ("config.yaml", "train: {epochs: 3, l2: 0}", False),  # a key that is newer than what is published
        ("config.yaml", "train: {epochs: 4}", True),
        ("config.yaml", "{}", True),
        ("manifest.json", '{"data_hash": "other"}', True),
        ("evaluation.json", "{}", True),  # what the published run lacks
    ],
)
def test_a_published_run_stays_unless_it_is_another_or_has_less(finished, name, text, replaced):
    published.add(finished[:1])
    before = published.FILE.stat().st_mtime_ns
    run = finished[0].output
    (run / "metrics.jsonl").write_text("other numbers")
    if name:
        (run / name).write_text(text)
    published.add(finished[:1])
    found = published.read()[f"{run.as_posix()}/metrics.jsonl"]
    assert (found == b"other numbers") == replaced
    assert replaced or published.FILE.stat().st_mtime_ns == before


def test_a_damaged_file_is_named(finished):
    published.add(finished)
    published.FILE.write_bytes(b"no Parquet")
    with pytest.raises(InputError, match=r"measurements\.parquet: damaged"):
        published.restore()


def test_tables_of_studies_take_the_place_of_older_ones(finished):
    published.add(finished)
    folder = published.FILE.parent
    (folder / "gain").mkdir()
    (folder / "published.txt").write_text("RESULTS.md\ngain/drawn.csv\n")
    for name in ("RESULTS.md", "gain/drawn.csv", "gain/gain.csv", "gain/old.md", "gain/picture.png"):
        (folder / name).write_text(name)
    published.add_tables()
    (folder / "gain/old.md").unlink()
    (folder / "gain/gain.csv").write_text("measured again")
    published.add_tables()
    found = published.read()
    assert len(found) == 6 and found["results/reference/gain/gain.csv"] == b"measured again"
    (folder / "gain/gain.csv").unlink()
    assert published.restore() == 1 and (folder / "gain/gain.csv").exists()
