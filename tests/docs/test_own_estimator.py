"""docs/how-to.md adds an estimator from outside: its files are taken from the page, tested and trained with."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pages
import pytest
import torch

from gramrun.base.errors import ConfigError
from gramrun.config import RunConfig
from gramrun.config.loading import config_hash, load_config
from gramrun.gramian import make_estimator
from gramrun.gramian.contracts import CHECKS, DIM, Listed, Trajectory
from gramrun.gramian.population import make_population
from gramrun.training.trainer import Trainer

NAME = "moving_mean"
PAIRS = torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4, 4, 5, 6])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the page's files, on Python's path."""
    written = [block for block in pages.blocks("docs/how-to.md") if NAME in (block.file_name or "")]
    assert [block.file_name for block in written] == [f"{NAME}.py", f"test_{NAME}.py"]
    for block in written:
        (tmp_path / str(block.file_name)).write_text(block.text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    yield tmp_path
    sys.modules.pop(NAME, None)


def test_its_own_tests_pass(folder):
    """The contracts of all estimators, and that the mean is unbiased, as a user runs them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{NAME}.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(pages.ROOT)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 13, "12 contracts and a theorem"


def test_the_contracts_can_be_broken(folder):
    """One that forgets its state is caught: the page's tests are not empty."""
    text = (folder / f"{NAME}.py").read_text()
    broken = text.replace('self.register_buffer("recent", ', "self.recent = (")
    assert broken != text
    (folder / f"{NAME}.py").write_text(broken)
    with pytest.raises(AssertionError):
        CHECKS["state round trip"](Listed(f"{NAME}:MovingMean"), make_population(PAIRS, 7, 1.0), 0)


def test_it_is_the_mean_of_the_last_batches(folder):
    """By its definition, summed literally."""
    population = make_population(PAIRS, 7, 1.0)
    trajectory = Trajectory(population, 0, steps=14, batch=4, seed=0)
    estimator = make_estimator(f"{NAME}:MovingMean", embedding_dim=DIM, population=population)
    means = []
    for t in trajectory.steps:
        rows = trajectory.drawn(t, t).embeddings
        means.append(sum(torch.outer(u, u) for u in rows) / len(rows))
        last = means[-10:]
        torch.testing.assert_close(trajectory.show(estimator, t), sum(last) / len(last))


def test_it_trains_watches_and_resumes_by_the_command_line(folder, gramrun, corpus_path):
    """As the page says, on the small corpus; a resumed run ends with the same bits."""
    config = pages.ROOT / "configs" / "synthetic" / "sogram.yaml"
    settings = [
        f"data.path={corpus_path}",
        f"estimator.name={NAME}:MovingMean",
        "estimator.gramian_batch_size=32",
        "train.batch_size=64",
        f"gram_error.estimators=[{{name: {NAME}:MovingMean, gramian_batch_size: 32}}, "
        "{name: sampling, gramian_batch_size: 32}]",
    ]
    options = [option for setting in settings for option in ("--set", setting)]
    steps = lambda n: ["--set", f"train.steps={n}"]  # noqa: E731
    for arguments in (
        ["train", "--config", config, "--output", "whole", *options, *steps(40)],
        ["train", "--config", config, "--output", "parts", *options, *steps(20)],
        ["train", "--resume", "--output", "parts", *steps(40)],
        ["evaluate", "whole"],
        ["gram-error", "--config", config, "--output", "errors", *options, *steps(20)],
        ["plot", "gram-error", "errors", "--output", "errors.png"],
        ["doctor", "--config", config, *options],
    ):
        code, _, err = gramrun(*arguments)
        assert code == 0, err
    whole, parts = (
        torch.load(folder / run / "checkpoints" / "step-000000040.pt", weights_only=True)["trainer"]
        for run in ("whole", "parts")
    )
    assert "recent" in whole["left_estimator"]
    assert torch.equal(whole["left_estimator"]["recent"], parts["left_estimator"]["recent"])
    for name, rows in whole["model"].items():
        assert torch.equal(rows, parts["model"][name]), name
    assert "MovingMean" in (folder / "errors" / "gram_error.csv").read_text()


REFUSED = {
    "nowhere_at_all:Mean": "Python finds no module nowhere_at_all; install it, or name its folder in PYTHONPATH",
    f"{NAME}:Median": f"{NAME} has no class or function Median",
    "needs_more:Mean": "cannot be used: ModuleNotFoundError: No module named 'nowhere_at_all'",
    "broken:Mean": "cannot be used: SyntaxError",
    "other:takes_nothing": "cannot be used: TypeError",
    "other:refuses": "cannot be used: ValueError: not today",
    "os:system": "cannot be used: TypeError",
    "other:gives_text": "gives a str; it must give a gramrun.gramian.estimator.GramianEstimator",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line_and_writes_nothing(folder, gramrun, corpus_path, name):
    (folder / "needs_more.py").write_text("import nowhere_at_all\n")
    (folder / "broken.py").write_text("class Mean(\n")
    (folder / "other.py").write_text(
        "def takes_nothing(): ...\n"
        "def gives_text(**given): return 'no'\n"
        "def refuses(**given): raise ValueError('not today')\n"
    )
    config = pages.ROOT / "configs" / "synthetic" / "sogram.yaml"
    options = ["--config", config, "--set", f"data.path={corpus_path}", "--set", f"estimator.name={name}"]
    code, _, err = gramrun("train", *options, "--output", "run")
    assert code == 2
    assert REFUSED[name] in err
    assert err.count("\n") == 1
    assert not (folder / "run").exists()


@pytest.mark.parametrize("name", ["a:", ":b", "a:b:c", "a b:c", "1a:b", "a..b:c", "a/b:c"])
def test_a_name_that_can_be_no_module_is_a_bad_config(name, corpus_path):
    config = pages.ROOT / "configs" / "synthetic" / "sogram.yaml"
    with pytest.raises(ConfigError, match=r"estimator.name: input should be 'sampling'.*'module:class'"):
        load_config(RunConfig, config, [f"data.path={corpus_path}", f"estimator.name='{name}'"])


def test_only_a_training_imports_it(make_config, corpus):
    """A config that names it can be read, shown and hashed where it is not installed."""
    config = make_config("estimator.name=nowhere_at_all:Mean")
    assert config.estimator.label == "Mean α=0.1"
    assert config_hash(config) != config_hash(make_config())
    with pytest.raises(ConfigError, match="nowhere_at_all"):
        Trainer(config, corpus)
