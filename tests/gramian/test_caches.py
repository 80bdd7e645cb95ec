"""Caches in memory and in files, in float32 and bfloat16; the online sum and its rebuild."""

import gc
import os
import tempfile
from pathlib import Path
from typing import get_args

import contracts
import enumeration as corpus
import pytest
import torch
from enumeration import GAMMAS, advance, definition, embeddings, mean, observing

from gramrun.base.errors import RunError
from gramrun.config.estimator import EstimatorSection
from gramrun.gramian import CacheOptions, make_estimator, sagram
from gramrun.gramian.cache import CACHE_DTYPES, CacheEntry, cache_tensor
from gramrun.gramian.population import make_population

PAIRS = torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4, 4, 5, 6])


def gramian_of_caches(estimator):
    """Ŝ by its definition, in float64, from what the caches hold."""
    rows = torch.cat([estimator.cache.double(), estimator.companion_cache.double()], 1)
    if estimator.entry == "pair":
        weights = torch.full((len(rows),), 1 / len(rows), dtype=torch.double)
    else:
        weights = estimator.population.item_weights.double()
    return (rows[:, : estimator.embedding_dim] * weights[:, None]).T @ rows


@pytest.mark.parametrize(("entry", "gamma"), [("item", g) for g in GAMMAS] + [("pair", 1.0)])
def test_saga_stays_unbiased_with_rounded_caches(entry, gamma):
    """bfloat16, stale: Ŝ is the Gramian of the rounded vectors, and so E Ĝ = G all the same."""
    theta, stale = embeddings(1).float(), embeddings(2).float()
    companions = embeddings(3, dim=2).float()
    estimator = make_estimator(
        "sagram",
        embedding_dim=corpus.DIM,
        population=corpus.population(gamma),
        companion_dim=2,
        project=False,
        cache=CacheOptions(entry, torch.bfloat16),
    )
    corpus.started(estimator, stale, companions)
    assert estimator.cache.dtype == torch.bfloat16
    assert (estimator.cache.float()[:1] - stale[:1]).abs().max() > 1e-4  # rounded indeed
    states = advance([(1.0, estimator)], corpus.draws(gamma, 2), observing(theta, companions))
    expected = definition(theta.double(), gamma, companions.double())
    torch.testing.assert_close(mean(states).double(), expected, atol=2e-6, rtol=0)
    for _, after in states:
        torch.testing.assert_close(after.cache_moments, gramian_of_caches(after), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", ["sag-item", "sag-pair", "saga-item", "saga-pair", "sag-pair-bfloat16"])
def test_the_online_sum_is_the_gramian_of_the_caches(name):
    """At every step, with companions, rebuilt or not."""
    population = make_population(PAIRS, 7, 1.0)
    listed = contracts.ESTIMATORS[name]
    trajectory = contracts.Trajectory(population, 2, steps=20, batch=4, seed=21)
    estimator = trajectory.start(listed.make(population, 2))
    for t in trajectory.steps:
        trajectory.observe(estimator, t)
        expected = gramian_of_caches(estimator)
        torch.testing.assert_close(estimator.cache_moments, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("entry", "gamma"), [("item", g) for g in GAMMAS] + [("pair", 1.0)])
def test_a_rebuild_sums_all_its_chunks(entry, gamma, monkeypatch):
    """Three chunks, the last one smaller."""
    monkeypatch.setattr(sagram, "_REBUILD_CHUNK", 3 if entry == "item" else 5)
    trajectory = contracts.Trajectory(make_population(PAIRS, 7, gamma), 2, steps=1, batch=4, seed=24)
    listed = contracts.Listed("sagram", {"cache": CacheOptions(entry)})
    estimator = trajectory.start(listed.make(trajectory.population, 2))
    torch.testing.assert_close(estimator.cache_moments, gramian_of_caches(estimator), atol=1e-13, rtol=1e-13)
    weights = trajectory.population.item_weights.double()[:, None]
    theta, companions = trajectory.theta[0].double(), trajectory.companions.double()
    expected = (theta * weights).T @ torch.cat([theta, companions], 1)
    torch.testing.assert_close(estimator.cache_moments, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("entry", ["item", "pair"])
def test_caches_in_a_folder_are_the_same_bits_and_leave_no_file(entry, dtype, tmp_path):
    """The file is unlinked while it is in use, so nothing is left however the process ends."""
    population = make_population(PAIRS, 7, 1.0)
    trajectory = contracts.Trajectory(population, 2, steps=10, batch=4, seed=22)
    arguments = {"embedding_dim": contracts.DIM, "population": population, "companion_dim": 2}
    memory, folder = (
        trajectory.start(
            make_estimator("sagram", **arguments, cache=CacheOptions(entry, dtype, where, rebuild_every=3))
        )
        for where in (None, tmp_path)
    )
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path) in maps.read_text(encoding="utf-8")
    for t in trajectory.steps:
        assert torch.equal(trajectory.observe(memory, t), trajectory.observe(folder, t))
        assert torch.equal(memory.cache, folder.cache)
        assert list(tmp_path.iterdir()) == []
    del folder
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    if maps.exists():
        assert str(tmp_path) not in maps.read_text(encoding="utf-8")


@pytest.fixture
def files(monkeypatch):
    """The unnamed files that caches are mapped to: a second handle of each, which outlives cache_tensor."""
    opened = []

    def temporary_file(**options):
        file = unnamed(**options)
        opened.append(os.dup(file.fileno()))
        return file

    unnamed = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", temporary_file)
    yield opened
    for handle in opened:
        os.close(handle)


def test_a_file_is_as_long_as_its_cache_and_has_its_room_on_the_disk_at_once(files, tmp_path):
    """Filling a hole on a full disk would kill the process by a signal."""
    cache_tensor(1000, 17, torch.float32, tmp_path)
    [status] = map(os.fstat, files)
    assert status.st_size == 1000 * 17 * 4
    if hasattr(os, "posix_fallocate"):
        assert status.st_blocks * 512 >= status.st_size  # POSIX: blocks of 512 bytes


def test_a_cache_that_is_empty_or_in_memory_opens_no_file(files, tmp_path):
    """An estimator without companions has an empty cache of them, and no file has a room of 0 bytes."""
    assert cache_tensor(3, 0, torch.float32, tmp_path).shape == (3, 0)
    assert cache_tensor(3, 2, torch.float32, None).shape == (3, 2)
    assert files == []


@pytest.mark.parametrize(("entry", "entries"), [("item", 7), ("pair", 12)])
def test_embeddings_and_companions_both_lie_in_the_folder(entry, entries, files, tmp_path):
    """Neither is held in memory."""
    make_estimator(
        "sagram",
        embedding_dim=5,
        population=make_population(PAIRS, 7, 1.0),
        companion_dim=3,
        cache=CacheOptions(entry, torch.bfloat16, tmp_path),
    )
    assert [os.fstat(file).st_size for file in files] == [entries * 5 * 2, entries * 3 * 4]


def test_the_words_of_a_config_are_those_of_the_caches():
    """A word that one of them knows and the other does not would be refused, or fail, in the middle of a run."""
    words = {name: field.annotation for name, field in EstimatorSection.model_fields.items()}
    assert set(get_args(words["cache_dtype"])) == set(CACHE_DTYPES)
    assert get_args(words["beta"]) == get_args(sagram.Beta) != ()
    [entries] = [part for part in get_args(words["cache"]) if part is not type(None)]
    assert set(get_args(entries)) == set(get_args(CacheEntry)) != set()
    for word, dtype in CACHE_DTYPES.items():
        assert str(dtype) == f"torch.{word}"


def test_a_missing_folder_is_an_error():
    with pytest.raises(RunError, match=r"/missing/folder: cannot be written: No such file"):
        cache_tensor(2, 2, torch.float32, Path("/missing/folder"))


def of_options(**options):
    return lambda population: contracts.Listed("sagram", {"cache": CacheOptions(**options)}).make(population)


@pytest.mark.parametrize(
    ("make", "rebuilt"),
    [
        (of_options(rebuild_every=3), {3, 6}),
        (of_options(), set()),
        (lambda population: sagram.SAGram(contracts.DIM, population, "1"), set()),
    ],
    ids=["every 3", "default options", "default"],
)
def test_the_sum_is_made_anew_as_often_as_asked_and_never_by_default(make, rebuilt):
    """Ŝ is falsified before every step: a step that sums it anew, and no other, mends it."""
    trajectory = contracts.Trajectory(make_population(PAIRS, 7, 1.0), 0, steps=7, batch=4, seed=25)
    estimator = trajectory.start(make(trajectory.population))
    mended = set()
    for t in trajectory.steps:
        estimator.cache_moments += torch.eye(contracts.DIM)
        trajectory.observe(estimator, t)
        if torch.allclose(estimator.cache_moments, gramian_of_caches(estimator), atol=1e-5):
            mended.add(t + 1)
    assert mended == rebuilt
    assert estimator.observed == 7
