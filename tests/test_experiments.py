"""The main job itself, at toy size: two methods, two seeds, a planted corpus; then again, with nothing to do."""

import os
from pathlib import Path

import pytest
import yaml

from experiments import movielens, report, reproduce, scheduling
from gramrun.errors import RunError

METHODS = (
    movielens.Method("sampling", "First table", "sampling"),
    movielens.Method("sogram", "First table", "SOGram α=0.5", ("estimator.alpha=0.5",)),
    movielens.Method("paper-sampling", "Second table", "sampling"),
)
SETTINGS = Path(__file__).parents[1] / "configs" / "synthetic" / "sogram.yaml"


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with small configs under the names that the experiments use."""
    config = yaml.safe_load(SETTINGS.read_text())
    config["train"]["epochs"] = 2
    config["evaluation"]["every"] = "1 epoch"
    folder = tmp_path / "configs" / "synthetic"
    folder.mkdir(parents=True)
    for name in ("sampling", "sogram", "paper-sampling", "gram-error"):
        config["estimator"]["name"] = name.rpartition("-")[2] if name != "gram-error" else "sampling"
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    for module in (movielens, report, reproduce):
        monkeypatch.setattr(module, "METHODS", METHODS)
        monkeypatch.setattr(module, "SEEDS", (0, 1))
    monkeypatch.chdir(tmp_path)
    return Path("results")


def times(folder):
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.name in ("manifest.json", "metrics.jsonl")
    }


def test_the_main_job_at_toy_size(toy, capsys):
    path = reproduce.reproduce("synthetic", toy)
    text = path.read_text()
    assert "### First table" in text
    assert "| SOGram α=0.5 | 0." in text
    assert "| popularity | 0." in text
    assert "| SAGram β=1/n, per item | 0." in text
    assert sorted(p.name for p in toy.glob("*.png")) == [
        "gram-error.png", "map-paper.png", "map-recommended.png", "trade-off.png"
    ]  # fmt: skip
    assert len(list(toy.glob("*.svg"))) == 4
    before = times(toy)
    capsys.readouterr()
    assert reproduce.reproduce("synthetic", toy).read_text() == text
    assert "8 of 8 runs are done already" in capsys.readouterr().out
    assert times(toy) == before


def test_states_of_a_task(toy):
    scheduling.gramrun(["prepare", "synthetic", "--output", "data/synthetic"])
    config = Path("configs/synthetic/sogram.yaml")
    task = scheduling.Task("train", config, ("data.path=data/synthetic",), Path("r"))
    assert scheduling.state_of(task) == "new"
    scheduling.run_all([task])
    assert scheduling.state_of(task) == "done"
    other = scheduling.Task("train", config, ("data.path=data/synthetic", "train.seed=3"), Path("r"))
    assert scheduling.state_of(other) == "stale"
    manifest = Path("r/manifest.json")
    manifest.write_text(manifest.read_text().replace('"finished",', '"interrupted",'))
    assert scheduling.state_of(task) == "resume"
    scheduling.run_all([task])
    assert scheduling.state_of(task) == "done"
    os.unlink("r/config.yaml")
    assert scheduling.state_of(task) == "stale"


def test_a_failing_run_fails_the_job_with_its_own_message(toy):
    scheduling.gramrun(["prepare", "synthetic", "--output", "data/synthetic"])
    task = scheduling.Task(
        "train", Path("configs/synthetic/sogram.yaml"), ("train.batch_size=99999",), Path("r")
    )
    with pytest.raises(RunError, match="train.batch_size is 99999"):
        scheduling.run_all([task])
