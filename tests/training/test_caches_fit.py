"""Caches that do not fit are refused before the first step, with the figures, and nothing is written."""

from pathlib import Path

import pytest

from gramrun.base import capacity as room
from gramrun.base.errors import ConfigError
from gramrun.training import setup
from gramrun.training.caches import cache_bytes, check_caches
from gramrun.training.objective import companion_dim
from gramrun.training.trainer import Trainer

PAIRS = ("train.gamma_left=1", "train.gamma_right=1", "estimator.name=sagram", "estimator.cache=pair")


def test_what_caches_occupy_is_what_they_hold(make_config, corpus):
    for overrides in (
        PAIRS,
        ("estimator.name=sagram",),
        ("estimator.name=sagram", "estimator.cache_dtype=bfloat16"),
        ("estimator.name=control-variate", "estimator.cache=item"),
        ("estimator.name=sogram", "estimator.cache=item"),
        ("estimator.name=sogram",),
        (*PAIRS, "train.prior.name=svd", "train.prior.rank=7"),
        ("estimator.name=sagram", "estimator.cache_dtype=bfloat16", "train.prior.name=popularity"),
        ("estimator.name=sagram", "train.objective=taylor-softmax", "train.gamma_left=1"),
    ):
        config = make_config(*overrides)
        trainer = Trainer(config, corpus)
        held = sum(
            buffer.nbytes
            for estimator in (trainer.left_estimator, trainer.right_estimator)
            for name, buffer in estimator.named_buffers()
            if name.endswith("cache")
        )
        assert cache_bytes(config, config.estimator, corpus, trainer.objective.companion_dim) == held
        assert companion_dim(config, corpus) == trainer.objective.companion_dim
        assert bool(held) == (config.estimator.cache_entry is not None)


def test_caches_beyond_memory_are_refused(make_config, corpus, monkeypatch):
    config = make_config(*PAIRS)
    need = cache_bytes(config, config.estimator, corpus, 0)
    monkeypatch.setattr(room, "available_memory", lambda: need - 1)
    with pytest.raises(
        ConfigError,
        match=r"Gramian caches need [\d.]+ KB of memory, [\d.]+ KB are available; set cache: item",
    ):
        Trainer(config, corpus)
    monkeypatch.setattr(room, "available_memory", lambda: need)
    Trainer(config, corpus)


def test_caches_beyond_the_disk_are_refused(make_config, corpus, monkeypatch, tmp_path):
    config = make_config(*PAIRS, f"estimator.cache_folder={tmp_path}")
    monkeypatch.setattr(room, "available_memory", lambda: 0)  # not needed: they are on the disk
    Trainer(config, corpus)
    monkeypatch.setattr(room, "available_disk", lambda path: 1000)
    with pytest.raises(ConfigError, match=f"need .* of disk, 1.0 KB are available for {tmp_path}"):
        Trainer(config, corpus)


def test_a_folder_that_is_none_is_named(make_config, corpus, tmp_path):
    with pytest.raises(ConfigError, match=r"cache_folder: .*absent is no folder"):
        Trainer(make_config(*PAIRS, f"estimator.cache_folder={tmp_path / 'absent'}"), corpus)


def test_watching_caches_are_counted_together(make_config, corpus, monkeypatch):
    both = "gram_error.estimators=[{name: sagram, gramian_batch_size: 64}, {name: sogram, cache: item, gramian_batch_size: 64}]"
    config = make_config(both)
    need = sum(cache_bytes(config, section, corpus, 0) for section in config.gram_error.estimators)
    monkeypatch.setattr(room, "available_memory", lambda: need - 1)
    with pytest.raises(ConfigError, match="Gramian caches need"):
        check_caches(config, config.gram_error.estimators, corpus, 0)


def test_a_refused_run_leaves_nothing(gramrun, corpus_path, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "available_memory", lambda: 100)
    settings = [part for key in (f"data.path={corpus_path}", *PAIRS) for part in ("--set", key)]
    config = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"
    code, _, error = gramrun("train", "--config", config, *settings, "--output", tmp_path / "run")
    assert code == 2
    assert "Gramian caches need" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_refused_watch_leaves_nothing(gramrun, corpus_path, tmp_path):
    config = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"
    watching = "gram_error.estimators=[{name: sagram, cache_folder: /absent}]"
    settings = ("--set", f"data.path={corpus_path}", "--set", watching, "--output", tmp_path / "run")
    code, _, error = gramrun("gram-error", "--config", config, *settings)
    assert code == 2
    assert error == "gramrun: cache_folder: /absent is no folder; make it or name another\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.prior={name: svd, rank: 500}", "train.prior.rank is 500"),
        ("train.prior={name: file, path: absent.npz}", "absent.npz"),
        ("estimator={name: sagram, cache_folder: /absent}", "/absent is no folder"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(gramrun, corpus_path, setting, message):
    config = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"
    settings = ("--set", f"data.path={corpus_path}", "--set", setting)
    code, _, error = gramrun("train", "--config", config, *settings, "--dry-run")
    assert code == 2
    assert message in error


def test_doctor_refuses_what_gram_error_would_and_a_rehearsal_of_training_does_not(gramrun, corpus_path):
    config = Path(__file__).parents[2] / "configs" / "synthetic" / "sogram.yaml"
    watching = "gram_error.estimators=[{name: sagram, cache_folder: /absent}]"
    line = ("--config", config, "--set", f"data.path={corpus_path}", "--set", watching)
    code, _, error = gramrun("doctor", *line)
    assert (code, "/absent is no folder" in error) == (2, True)
    assert gramrun("train", *line, "--dry-run")[0] == 0


def test_checkpoints_that_will_not_fit_are_refused_before_the_first_step(
    make_config, corpus, monkeypatch, tmp_path
):
    trainer = Trainer(make_config("estimator.name=sagram"), corpus)
    monkeypatch.setattr(room, "available_disk", lambda path: 10_000)
    with pytest.raises(ConfigError, match=r"checkpoints need [\d.]+ KB of disk, 10.0 KB are available for"):
        setup.check_disk(tmp_path / "run", trainer)


def test_an_unused_folder_is_no_matter(make_config, corpus):
    Trainer(make_config("estimator.name=sampling", "estimator.cache_folder=/absent"), corpus)
