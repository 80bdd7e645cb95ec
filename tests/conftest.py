"""Fixtures that several rooms share: a small prepared corpus and a config that trains on it in moments."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The suite runs one process a core: more threads than that only wait for one another. Set before torch loads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from helpers import CONFIG
from hypothesis import settings

from gramrun import cli
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data import shards, synthetic
from gramrun.data.corpus import Corpus, SplitCorpus
from gramrun.data.split import split_corpus

# The first call of a compiled function takes as long as its compilation.
settings.register_profile("gramrun", deadline=None)
settings.load_profile("gramrun")


def small_corpus() -> Corpus:
    return synthetic.generate(
        left_items=120, right_items=80, pairs_per_left_item=12, rank=4, popularity_exponent=0.8, seed=0
    )


@pytest.fixture(scope="session")
def corpus() -> SplitCorpus:
    """The small corpus in memory."""
    return split_corpus(small_corpus(), 0.2)


@pytest.fixture(scope="session")
def corpus_path(tmp_path_factory) -> Path:
    """The small corpus as a prepared folder."""
    path = tmp_path_factory.mktemp("corpus") / "synthetic"
    shards.write_corpus(small_corpus(), path, validation_fraction=0.2, split_seed=0, origin={})
    return path


@pytest.fixture(scope="session")
def make_config(corpus_path):
    """Make a config for the small corpus; overrides as on the command line."""

    def make(*overrides: str) -> RunConfig:
        small = (
            f"data.path={corpus_path}",
            "train.steps=40",
            "train.batch_size=64",
            "train.checkpoint_every=0",
            "estimator.gramian_batch_size=32",
            "evaluation.every=20",
            "gram_error.every=10",
            "gram_error.estimators=[{name: sampling, gramian_batch_size: 16}, {name: sogram, alpha: 0.1, "
            "gramian_batch_size: 64}, {name: sagram, beta: 1/n, gramian_batch_size: 64}, {name: sagram, "
            "beta: 1, gramian_batch_size: 64}, {name: exact}]",
        )
        return load_config(RunConfig, CONFIG, [*small, *overrides])

    return make


@pytest.fixture
def gramrun(tmp_path, monkeypatch, capsys):
    """Run one command in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAMRUN_RAW", raising=False)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gramrun", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return left.value.code or 0, captured.out, captured.err

    return run
