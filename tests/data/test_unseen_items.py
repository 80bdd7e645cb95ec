"""Splits by items: a held-out item has no training pair, on either side, and only validation pairs on its own."""

import numpy as np
import pytest
from helpers import made_corpus, made_side
from same import assert_same

from gramrun.base.errors import InputError
from gramrun.base.files import read_json, write_json
from gramrun.data import shards
from gramrun.data.corpus import bags
from gramrun.data.preparation import prepare_corpus
from gramrun.data.split import divide, held_out_mask, split_corpus, tuning_seed, without_validation

USERS, MOVIES, PAGES = 60, 50, 70


def two_kinds(target=False):
    random = np.random.default_rng(1)
    pairs = np.unique(random.integers(USERS * MOVIES, size=900))
    genres = bags("genres", "genre", [[i % 4] for i in range(MOVIES)])
    sides = made_side("user", USERS), made_side("movie", MOVIES, genres)
    targets = random.random(len(pairs)).astype(np.float32) if target else None
    return made_corpus(*sides, np.divmod(pairs, MOVIES), {"genre": 4}, target=targets)


def one_kind():
    pairs = np.unique(np.random.default_rng(2).integers(PAGES * PAGES, size=1200))
    side = made_side("page", PAGES)
    return made_corpus(side, side, np.divmod(pairs, PAGES), summary={"links": len(pairs)})


def as_set(left, right):
    return set(zip(left.tolist(), right.tolist(), strict=True))


BOTH = pytest.mark.parametrize("by", ["right-items", "left-items"])


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_the_pairs_of_held_out_items_are_the_validation_pairs(by, seed):
    corpus = two_kinds(target=True)
    split = split_corpus(corpus, 0.3, seed, by)
    own, items = ("right", MOVIES) if by == "right-items" else ("left", USERS)
    held_out = set(np.flatnonzero(held_out_mask(items, 0.3, seed)).tolist())
    every = zip(
        getattr(corpus, f"pair_{own}").tolist(),
        zip(corpus.pair_left, corpus.pair_right, corpus.target, strict=True),
        strict=True,
    )
    expected = {"train": set(), "validation": set()}
    for item, pair in every:
        expected["validation" if item in held_out else "train"].add(pair)
    for name, pairs in expected.items():
        got = split.pairs(name)
        assert set(zip(got.left, got.right, got.target, strict=True)) == pairs and pairs
    frequency = split.right_frequency if own == "right" else split.left_frequency
    assert not frequency[sorted(held_out)].any()


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_a_held_out_page_is_in_no_training_pair_of_either_side(by, seed):
    corpus = one_kind()
    split = split_corpus(corpus, 0.2, seed, by)
    held_out = set(np.flatnonzero(held_out_mask(PAGES, 0.2, seed)).tolist())
    train, validation = (as_set(p.left, p.right) for p in (split.train, split.validation))
    every = as_set(corpus.pair_left, corpus.pair_right)
    assert train == {(x, y) for x, y in every if x not in held_out and y not in held_out}
    known = (lambda x, y: x) if by == "right-items" else (lambda x, y: y)
    new = (lambda x, y: y) if by == "right-items" else (lambda x, y: x)
    assert validation == {p for p in every if new(*p) in held_out and known(*p) not in held_out}
    dropped = len(every) - len(train) - len(validation)
    assert split.manifest["counts"]["pairs_of_held_out_items_dropped"] == dropped > 0
    assert split.manifest["corpus"]["links"] == split.manifest["corpus"]["pairs"] == len(every) - dropped


def test_items_are_held_out_in_their_share_and_by_the_seed_alone():
    mask = held_out_mask(100_000, 0.2, 5)
    assert abs(mask.mean() - 0.2) < 5 * (0.2 * 0.8 / 100_000) ** 0.5
    assert np.array_equal(held_out_mask(1000, 0.2, 5), mask[:1000])
    assert (mask <= held_out_mask(100_000, 0.3, 5)).all()
    other = held_out_mask(100_000, 0.2, 6)
    assert abs(other[mask].mean() - 0.2) < 0.02
    # Pinned: a split that moves would silently turn training pairs into validation pairs.
    assert np.flatnonzero(held_out_mask(20, 0.3, 42)).tolist() == PINNED


PINNED = [4, 10, 13, 17, 19]


@BOTH
@pytest.mark.parametrize("source", [two_kinds, one_kind])
def test_a_tuning_corpus_holds_out_items_of_the_training_split(by, source):
    corpus = source()
    outer = split_corpus(corpus, 0.3, 0, by)
    tuning = split_corpus(without_validation(corpus, 0.3, 0, by), 0.3, tuning_seed(0), by)
    train = as_set(outer.train.left, outer.train.right)
    inner = (
        as_set(tuning.train.left, tuning.train.right),
        as_set(tuning.validation.left, tuning.validation.right),
    )
    assert inner[0] | inner[1] <= train and not inner[0] & inner[1]
    assert tuning.manifest["counts"]["held_out_pairs_dropped"] == len(outer.validation)
    if source is two_kinds:
        assert inner[0] | inner[1] == train
    side = 1 if by == "right-items" else 0
    assert not {pair[side] for pair in inner[0]} & {pair[side] for pair in inner[1]}


@pytest.mark.parametrize("by", ["pairs", "right-items", "left-items"])
def test_memory_equals_disk_and_the_manifest_says_how_the_split_was_made(tmp_path, by):
    corpus = one_kind()
    shards.write_corpus(corpus, tmp_path / "c", validation_fraction=0.2, split_seed=3, split_by=by, origin={})
    stored, memory = shards.open_corpus(tmp_path / "c"), split_corpus(corpus, 0.2, 3, by)
    assert stored.content_hash == memory.content_hash
    assert_same(stored.validation, memory.validation)
    division = divide(corpus, 0.2, 3, by)
    said = {"by": by, "fraction": 0.2, "seed": 3}
    if by != "pairs":
        held_out = memory.validation.right if by == "right-items" else memory.validation.left
        said["held_out_items"] = len(set(held_out.tolist()))
    assert stored.manifest["split"] == memory.manifest["split"] == division.manifest == said


def test_a_corpus_of_an_older_version_opens_as_before(tmp_path):
    """Its manifest has no key ``split``; the hash and the fingerprint do not know of it either."""
    made = shards.write_corpus(
        two_kinds(), tmp_path / "c", validation_fraction=0.2, split_seed=0, origin={"fingerprint": "f"}
    )
    path = tmp_path / "c" / "manifest.json"
    old = read_json(path, "")
    del old["split"]
    write_json(path, old)
    assert shards.open_corpus(tmp_path / "c").content_hash == made["content_hash"]


def test_prepare_takes_the_key_and_says_when_it_cannot(tmp_path):
    manifest, _ = prepare_corpus("synthetic", tmp_path / "c", None, ["split.by=right-items"])
    corpus = shards.open_corpus(tmp_path / "c")
    assert manifest["split"]["by"] == "right-items" == manifest["origin"]["settings"]["split"]["by"]
    assert not (corpus.right_frequency[corpus.validation.right] > 0).any()
    ordinary, _ = prepare_corpus("synthetic", tmp_path / "o", None, [])
    assert "by" not in ordinary["origin"]["settings"]["split"] and ordinary["split"]["by"] == "pairs"
    with pytest.raises(InputError, match="other inputs, settings"):
        prepare_corpus("synthetic", tmp_path / "o", None, ["split.by=left-items"])
    few = ["split.by=right-items", "split.validation_fraction=0.0001"]
    with pytest.raises(InputError, match=r"too few for a validation share of 0.0001 of its right items"):
        prepare_corpus("synthetic", tmp_path / "few", None, few)


def test_a_wrong_value_is_refused_in_one_line(gramrun):
    code, _, error = gramrun("prepare", "synthetic", "--output", "c", "--set", "split.by=items")
    assert code == 2 and error.count("\n") == 1 and "split.by" in error and "right-items" in error
