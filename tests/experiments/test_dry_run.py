"""Dry runs: predictions follow their shapes, need no data, and write nothing."""

import re
from pathlib import Path

import pytest

from experiments.reproduce import dry_run
from experiments.reproduce.dry_run import PAPER, cost
from experiments.reproduce.jobs import kept_manifest
from experiments.reproduce.plans import load_profile
from gramrun.base.files import write_json
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data import shards

ROOT = Path(__file__).parents[2]


def config_of(name, *settings, dataset="wikipedia-simple"):
    return load_config(RunConfig, ROOT / "configs" / dataset / f"{name}.yaml", settings)


@pytest.mark.parametrize(("name", "gigabytes"), [("wikipedia-fr", 5.5), ("wikipedia-en", 15.6)])
def test_memory_is_near_the_exact_prediction(name, gigabytes):
    """What `gramrun train --dry-run` predicts on a corpus of these sizes."""
    found = cost("train", config_of("paper-sampling", dataset=name), PAPER[name])
    assert found.memory == pytest.approx(gigabytes * 1e9, rel=0.1)


def test_a_corpus_that_was_prepared_elsewhere_has_sizes_and_no_download(corpus_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept, manifest = kept_manifest(Path("data/toy")), shards.read_manifest(corpus_path)
    kept.parent.mkdir(parents=True)
    write_json(kept, manifest)
    assert dry_run.sizes_of("toy").pairs == manifest["corpus"]["train_pairs"]
    assert dry_run._unprepared({"toy": dry_run.sizes_of("toy")})[-1] == "- toy: not known"


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


@pytest.mark.parametrize("profile", ["quick", "standard", "paper"])
def test_no_profile_needs_data_or_writes_anything_in_a_dry_run(profile, tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    text = dry_run.dry_run(load_profile(profile, tmp_path / "results"))
    assert [path.name for path in tmp_path.iterdir()] == ["configs"]
    if profile == "paper":
        assert "| train paper-sogram-every-5-minutes-alpha-0.01 | 3 | 0 | 80,859 |" in text
        assert "- wikipedia-en: about 20.0 GB to download" in text and "105 runs, 0 of them done." in text
        assert re.search(r"Time: [\d,.]+ h on one core, at least [\d,.]+ h on these", text)
    else:
        assert "- enwik8: not known" in text
        assert ("### scripts" in text) == (profile == "standard")
