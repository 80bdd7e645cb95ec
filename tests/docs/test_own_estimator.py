"""The estimator of docs/how-to.md: its files are taken from the page, tested, and trained with."""

from __future__ import annotations

import importlib
import sys

import pages
import pytest
import torch
from helpers import CONFIG, SMALL, settings

from gramrun.base.errors import ConfigError
from gramrun.config import RunConfig
from gramrun.config.loading import config_hash, load_config
from gramrun.gramian.contracts import CHECKS, Listed
from gramrun.gramian.population import make_population
from gramrun.training.trainer import Trainer

NAME = "moving_mean"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on Python's path with the page's files."""
    for block in pages.blocks("docs/how-to.md"):
        if NAME in block.file_name:
            (tmp_path / block.file_name).write_text(block.text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in (NAME, f"test_{NAME}"):
        sys.modules.pop(name, None)


def test_its_own_tests_pass(folder):
    page_tests = importlib.import_module(f"test_{NAME}")
    for check in CHECKS:
        page_tests.test_contract(check, companion_dim=2)
    page_tests.test_unbiased_on_a_constant_trajectory()


def test_the_contracts_can_fail(folder):
    """State outside of buffers is lost on a round trip."""
    text = (folder / f"{NAME}.py").read_text()
    broken = text.replace('self.register_buffer("recent", ', "self.recent = (")
    assert broken != text
    (folder / f"{NAME}.py").write_text(broken)
    population = make_population(torch.tensor([0, 0, 0, 1, 1, 2, 4]), 7, 1.0)
    with pytest.raises(AssertionError):
        CHECKS["state round trip"](Listed(f"{NAME}:MovingMean"), population, 0)


def test_it_trains_and_resumes_by_the_command_line(folder, gramrun, corpus_path):
    """A resumed run ends with the same bits."""
    options = settings(
        *SMALL,
        f"data.path={corpus_path}",
        f"estimator.name={NAME}:MovingMean",
        f"gram_error.estimators=[{{name: {NAME}:MovingMean, gramian_batch_size: 32}}]",
    )
    for arguments in (
        ["train", "--config", CONFIG, "--output", "whole", *options],
        ["train", "--config", CONFIG, "--output", "parts", *options, "--set", "train.steps=20"],
        ["train", "--resume", "--output", "parts", "--set", "train.steps=40"],
        ["evaluate", "whole"],
        ["gram-error", "--config", CONFIG, "--output", "errors", *options, "--set", "train.steps=20"],
        ["plot", "gram-error", "errors", "--output", "errors.png"],
        ["doctor", "--config", CONFIG, *options],
    ):
        code, _, err = gramrun(*arguments)
        assert code == 0, err
    whole, parts = (
        torch.load(folder / run / "checkpoints" / "step-000000040.pt", weights_only=True)["trainer"]
        for run in ("whole", "parts")
    )
    assert torch.equal(whole["left_estimator"]["recent"], parts["left_estimator"]["recent"])
    for name, rows in whole["model"].items():
        assert torch.equal(rows, parts["model"][name]), name


REFUSED = {
    "nowhere_at_all:Mean": "nowhere_at_all",
    f"{NAME}:Median": "Median",
    "broken:Mean": "SyntaxError",
    "other:takes_nothing": "TypeError",
    "other:refuses": "ValueError: not today",
    "other:gives_text": "gives a str",
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unusable_estimator_is_refused_in_one_line_and_writes_nothing(folder, gramrun, corpus_path, name):
    (folder / "broken.py").write_text("class Mean(\n")
    (folder / "other.py").write_text(
        "def takes_nothing(): ...\n"
        "def gives_text(**given): return 'no'\n"
        "def refuses(**given): raise ValueError('not today')\n"
    )
    options = ["--config", CONFIG, *settings(f"data.path={corpus_path}", f"estimator.name={name}")]
    code, _, err = gramrun("train", *options, "--output", "run")
    assert (code, err.count("\n")) == (2, 1)
    assert REFUSED[name] in err
    assert not (folder / "run").exists()


@pytest.mark.parametrize("name", ["a:", ":b", "a:b:c", "a b:c", "a/b:c"])
def test_a_name_that_is_no_module_and_class_is_a_config_error(name, corpus_path):
    with pytest.raises(ConfigError, match=r"estimator\.name"):
        load_config(RunConfig, CONFIG, [f"data.path={corpus_path}", f"estimator.name='{name}'"])


def test_a_config_can_be_read_where_its_estimator_is_not_installed(make_config, corpus):
    config = make_config("estimator.name=nowhere_at_all:Mean")
    assert config_hash(config) != config_hash(make_config())
    with pytest.raises(ConfigError, match="nowhere_at_all"):
        Trainer(config, corpus)
