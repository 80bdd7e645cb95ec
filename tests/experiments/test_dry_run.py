"""Dry runs: predictions follow their shapes, need no data, and write nothing."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.reproduce import corpora, dry_run, scheduler
from experiments.reproduce.dry_run import PAPER, cost, sizes_of
from experiments.reproduce.plans import Plan, load_profile, run_task
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.shards import open_corpus

ROOT = Path(__file__).parents[2]


def config_of(name, *settings, dataset="wikipedia-simple"):
    return load_config(RunConfig, ROOT / "configs" / dataset / f"{name}.yaml", settings)


@pytest.mark.parametrize(("name", "gigabytes"), [("wikipedia-fr", 4.7), ("wikipedia-en", 12.6)])
def test_memory_is_near_the_exact_prediction(name, gigabytes):
    """What `gramrun train --dry-run` predicts on a corpus of these sizes."""
    found = cost("train", config_of("paper-sampling", dataset=name), PAPER[name])
    assert found.memory == pytest.approx(gigabytes * 1e9, rel=0.2)


def test_a_step_takes_about_what_the_benchmark_measured():
    """16.1 ms for hidden towers and 1.4 ms for linear ones, one thread, results/reference/bench/step_time.md."""
    settings = ("evaluation.every=0", "train.epochs=null", "train.steps=100000", "evaluation.left_items=1")
    hidden = cost("train", config_of("paper-sogram", *settings), PAPER["wikipedia-simple"])
    assert hidden.seconds == pytest.approx(1610, rel=0.3)
    sizes = replace(PAPER["movielens-10m"], left=6040, right=3706)
    linear = cost("train", config_of("sogram", *settings, dataset="movielens-1m"), sizes)
    assert linear.seconds == pytest.approx(141, rel=0.5)


def test_costs_follow_their_shapes():
    sizes = PAPER["wikipedia-simple"]

    def seconds(name, *settings, command="train"):
        return cost(command, config_of(name, *settings), sizes).seconds

    once, twice = (seconds("paper-sampling", f"train.epochs={n}", "evaluation.every=0") for n in (10, 20))
    assert 1.7 < twice / once < 2
    assert seconds("paper-sagram") > seconds("paper-sampling")
    assert seconds("paper-sampling", "evaluation.every=1 minutes") > seconds("paper-sampling")
    watched = seconds("gram-error", command="gram-error")
    assert watched > seconds("gram-error", "gram_error.estimators=[]", command="gram-error")
    pair, item = (
        cost("train", config_of("paper-sagram", f"estimator.cache={kind}"), sizes).disk
        for kind in ("pair", "item")
    )
    assert pair > item


def test_sizes_are_read_from_a_manifest(tmp_path, monkeypatch, corpus_path):
    monkeypatch.chdir(tmp_path)
    assert sizes_of("toy") is None
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy").symlink_to(corpus_path)
    corpus, found = open_corpus(corpus_path), sizes_of("toy")
    assert (found.left, found.right, found.pairs) == (
        corpus.left.items,
        corpus.right.items,
        len(corpus.train),
    )
    assert found.rows == sum(corpus.vocabulary_sizes.values())
    values = [sum(len(f.indices) for f in side.features) / side.items for side in (corpus.left, corpus.right)]
    assert found.values == pytest.approx(values, rel=0.05)


@pytest.mark.parametrize("profile", ["quick", "standard", "paper"])
def test_no_profile_needs_data_or_writes_anything_in_a_dry_run(profile, tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    text = dry_run.dry_run(load_profile(profile, tmp_path / "results"))
    assert [path.name for path in tmp_path.iterdir()] == ["configs"]
    if profile == "paper":
        assert "| train paper-sogram-every-5-minutes-alpha-0.01 | 3 | 0 | 60,645 |" in text
        assert "- wikipedia-en: about 20.0 GB to download" in text and "105 runs, 0 of them done." in text
        assert re.search(r"Time: [\d,.]+ h on one core, at least [\d,.]+ h on these", text)
    else:
        assert "- enwik8: not known" in text and "### scripts" in text


def test_what_is_done_is_counted_and_tells_how_long_the_rest_takes(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "configs" / "synthetic", tmp_path / "configs" / "synthetic")
    monkeypatch.chdir(tmp_path)
    corpora.prepare(corpora.Dataset("synthetic", "synthetic", ("synthetic.left_items=100",)))
    settings = ("train.epochs=1", "train.batch_size=64", "estimator.gramian_batch_size=64")
    done, waiting = (run_task("train", "synthetic", "sogram", *settings, seed=seed) for seed in (0, 1))
    scheduler.run_all([done])
    plan = Plan("corpus_sizes", ("synthetic",), (0,), {}, tmp_path)
    monkeypatch.setattr("experiments.reproduce.items.corpus_sizes.tasks", lambda plan: [done, waiting])
    text = dry_run.dry_run([plan])
    assert re.search(r"\| train sogram-\S+ \| 2 \| 1 \| [\d,]+ \| .* s \| like runs \|", text)
    assert "2 runs, 1 of them done." in text
