"""Fractal expansions: the Kronecker product in expectation, draws by hash, features, and `prepare`."""

from __future__ import annotations

import errno
import os
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, chi2
from small_wiki import write_wiki

from gramrun.base.errors import InputError
from gramrun.config.prepare import WikipediaSection
from gramrun.data import synthetic
from gramrun.data.corpus import Corpus, Side, one_hot
from gramrun.data.expansion import (
    Expansion,
    block_probabilities,
    draw_pairs,
    expand,
    reduced_matrix,
    with_mean,
)
from gramrun.data.shards import open_corpus
from gramrun.data.split import SEEDS, divide, joined, split_corpus
from gramrun.data.wikipedia.features import read
from gramrun.data.wikipedia.xml_wiki import XmlWiki

FALSE_ALARM = 1e-6  # of each test of a distribution, were its seeds drawn anew


@pytest.fixture(scope="module")
def wiki(tmp_path_factory) -> Corpus:
    """60 pages: both sides are one set of items."""
    path = write_wiki(tmp_path_factory.mktemp("wiki") / "wiki.xml", pages=60)
    return read(XmlWiki("w", path), WikipediaSection())


@pytest.fixture(scope="module")
def two_sides() -> Corpus:
    """40 left and 25 right items, with targets."""
    base = synthetic.generate(
        left_items=40, right_items=25, pairs_per_left_item=6, rank=4, popularity_exponent=0.8, seed=0
    )
    target = (1 + np.arange(len(base.pair_left)) % 5).astype(np.float32)
    return Corpus(
        base.name, base.left, base.right, base.vocabularies, base.pair_left, base.pair_right, target
    )


def dense(left, right, shape):
    matrix = np.zeros(shape)
    matrix[left, right] = 1
    return matrix


def splitmix64(value):
    """SplitMix64 in Python's integers."""
    mask = 2**64 - 1
    value = (value + 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


@pytest.mark.parametrize("corpus", ["wiki", "two_sides"])
def test_the_pairs_are_those_of_the_literal_kronecker_product(corpus, request):
    """numpy.kron of R̂ and R, and below it the same hash for every entry."""
    base = request.getfixturevalue(corpus)
    one_set = base.left.item == base.right.item
    expansion = Expansion(3, 3 if one_set else 2, 1, 2 * len(base.pair_left), seed=7)
    probabilities = block_probabilities(base, expansion)
    law = np.kron(probabilities, dense(base.pair_left, base.pair_right, (base.left.items, base.right.items)))
    seed = splitmix64(2 * SEEDS + 7)
    kept = []
    for x, y in np.argwhere(law > 0).tolist():
        first, second = sorted((x, y)) if one_set else (x, y)
        if splitmix64((first << 32 | second) ^ seed) / 2**64 < law[x, y]:
            kept.append((x, y))
    left, right, target = draw_pairs(base, probabilities, 7)
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == kept
    if target is not None:
        rating = {(a, b): t for a, b, t in zip(base.pair_left, base.pair_right, base.target, strict=True)}
        assert [rating[x % 40, y % 25] for x, y in kept] == target.tolist()


def test_each_pair_is_kept_with_its_blocks_probability(two_sides):
    """Over seeds, the pairs in each block are binomial: a chi-square over the blocks, and the extremes."""
    probabilities = np.array([[0.0, 0.03, 0.2], [0.5, 0.8, 1.0]])
    seeds, pairs = 200, len(two_sides.pair_left)
    counts = np.zeros((2, 3))
    for seed in range(seeds):
        left, right, _ = draw_pairs(two_sides, probabilities, seed)
        counts += np.bincount(left // 40 * 3 + right // 25, minlength=6).reshape(2, 3)
    assert counts[0, 0] == 0 and counts[1, 2] == seeds * pairs
    inner = (probabilities > 0) & (probabilities < 1)
    p, trials = probabilities[inner], seeds * pairs
    statistic = np.sum((counts[inner] - trials * p) ** 2 / (trials * p * (1 - p)))
    assert chi2.sf(statistic, len(p)) > FALSE_ALARM


def test_a_link_and_its_reverse_share_one_draw(wiki):
    left, right, _ = draw_pairs(wiki, np.full((2, 2), 0.5), 0)
    links = set(zip(left.tolist(), right.tolist(), strict=True))
    base = set(zip(wiki.pair_left.tolist(), wiki.pair_right.tolist(), strict=True))
    mutual = [(x, y) for x, y in links if (y % 60, x % 60) in base]
    assert len(mutual) > 50
    assert all((y, x) in links for x, y in mutual)


def test_the_expected_singular_values_are_products(wiki):
    expansion = Expansion(3, 3, 2, 12 * len(wiki.pair_left))
    probabilities = block_probabilities(wiki, expansion)
    base = dense(wiki.pair_left, wiki.pair_right, (60, 60))
    products = np.outer(*(np.linalg.svd(m, compute_uv=False) for m in (probabilities, base))).ravel()
    values = np.linalg.svd(np.kron(probabilities, base), compute_uv=False)
    np.testing.assert_allclose(values, -np.sort(-products), atol=1e-9)
    assert probabilities.shape == (9, 9)


def test_the_reduced_matrix_has_the_bases_largest_singular_values(wiki):
    """The literal twin, by a full SVD and loops, has them exactly; the rescaled matrices are equal."""
    base = dense(wiki.pair_left, wiki.pair_right, (60, 60))
    u, values, vt = np.linalg.svd(base)

    def resized(vectors):
        means = np.array([vectors[start : start + 15].mean(axis=0) for start in range(0, 60, 15)])
        left, _, right = np.linalg.svd(means, full_matrices=False)
        return left @ right

    expected = resized(u[:, :4]) * values[:4] @ resized(vt[:4].T).T
    np.testing.assert_allclose(np.linalg.svd(expected, compute_uv=False), values[:4])
    found = reduced_matrix(wiki.pair_left, wiki.pair_right, (60, 60), (4, 4))
    low, high = expected.min(), expected.max()
    np.testing.assert_allclose(found, (expected - low) / (high - low), atol=1e-8)


@pytest.mark.parametrize("mean", [0.07, 0.3, 0.5, 0.9, 1.0])
def test_a_power_keeps_the_order_and_gives_the_mean(mean):
    matrix = np.random.default_rng(0).random((4, 5))
    matrix.flat[:2] = 0, 1
    found = with_mean(matrix, mean)
    assert found.mean() == pytest.approx(mean, rel=1e-9)
    assert found.min() >= 0 and found.max() == 1
    if mean < 1:
        np.testing.assert_array_equal(np.argsort(found, axis=None), np.argsort(matrix, axis=None))


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_fewest_pairs_that_a_message_names_can_be_had(levels):
    """Also of mutual links, whose reduced matrix has its largest value twice, but for rounding."""
    for seed in range(20):
        linked = np.triu(np.random.default_rng(seed).random((40, 40)) < 0.3, 1)
        left, right = (column.astype(np.int32) for column in np.nonzero(linked | linked.T))
        side = Side("page", 40, (one_hot("page", "page", np.arange(40)),))
        base = Corpus(
            "c", side, side, {"page": pd.DataFrame({"key": list(map(str, range(40)))})}, left, right
        )
        with pytest.raises(InputError, match="can have") as caught:
            block_probabilities(base, Expansion(4, 4, levels, 1))
        least = int(re.search(r"can have ([\d,]+) to", str(caught.value))[1].replace(",", ""))
        probabilities = block_probabilities(base, Expansion(4, 4, levels, least))
        assert len(left) * probabilities.sum() == pytest.approx(least)


def test_the_number_of_pairs_is_the_expected_one(two_sides):
    for seed in range(5):
        corpus = expand("x", two_sides, Expansion(4, 3, 2, 8_000, seed))
        candidates = 144 * len(two_sides.pair_left)
        share = 8_000 / candidates
        tail = binom.cdf(min(len(corpus.pair_left), 16_000 - len(corpus.pair_left)), candidates, share)
        assert tail > FALSE_ALARM


def bag(feature, item):
    return feature.indices[feature.offsets[item] : feature.offsets[item + 1]].tolist()


def test_features_are_those_of_both_factors(wiki):
    corpus = expand("x", wiki, Expansion(2, 2, 1, 3 * len(wiki.pair_left)))
    assert corpus.left is corpus.right and corpus.left.items == 120
    assert corpus.summary["pages"] == 120 and corpus.summary["links"] == len(corpus.pair_left)
    for base, feature in zip(wiki.left.features, corpus.left.features, strict=True):
        keys = corpus.vocabularies[feature.vocabulary]["key"].tolist()
        known = wiki.vocabularies[feature.vocabulary]["key"].tolist()
        for item in range(120):
            block, i = divmod(item, 60)
            found = [keys[value] for value in bag(feature, item)]
            if feature.vocabulary == "page":
                assert found == [f"{known[i]} (block {block})"]
            else:
                assert found == [*(known[value] for value in bag(base, i)), f"page block {block}"]
    assert (
        corpus.vocabularies["page"]["page_id"].tolist() == 2 * wiki.vocabularies["page"]["page_id"].tolist()
    )


def test_both_sides_have_blocks_of_their_own(two_sides):
    corpus = expand("x", two_sides, Expansion(3, 2, 1, 600))
    assert (corpus.left.items, corpus.right.items) == (120, 50)
    assert corpus.vocabularies["tag"]["key"].tolist()[-2:] == ["destination block 0", "destination block 1"]


def test_equal_settings_give_equal_corpora_and_other_seeds_others(two_sides, tmp_path):
    """In memory or in a file."""

    def hashed(seed, folder=None):
        corpus = expand("x", two_sides, Expansion(3, 2, 1, 600, seed), folder=folder)
        return split_corpus(corpus, 0.2).content_hash

    assert hashed(0) == hashed(0, tmp_path) != hashed(1)
    assert hashed(0) == "cf71f968c31223b62c892088d0c1f743cd30f14cc20784ff46d4875ba337c19b"
    assert not any(tmp_path.iterdir())


def test_a_full_disk_is_refused_before_pairs_are_drawn(gramrun, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_wiki(tmp_path / "wiki")
    monkeypatch.setattr(os, "posix_fallocate", full)
    settings = ["--set", "expansion.left_blocks=3", "--set", "expansion.pairs=3000"]
    code, _, error = gramrun("prepare", "simple-scale", "--source", "wiki", *settings, "--output", "out")
    assert code == 2 and "No space left on device" in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_the_split_of_an_expansion_does_not_depend_on_its_draws(two_sides):
    """Both are hashes of the same items; were they one hash, validation pairs would be the surest ones."""
    corpus = expand("x", two_sides, Expansion(3, 2, 1, 700))
    share = divide(corpus, 0.2, 0).in_validation.mean()
    assert binom.cdf(int(len(corpus.pair_left) * min(share, 0.4 - share)), len(corpus.pair_left), 0.2) > 1e-3


def test_a_split_corpus_is_joined_again(two_sides):
    again = joined(split_corpus(two_sides, 0.3))
    for name in ("pair_left", "pair_right", "target"):
        np.testing.assert_array_equal(getattr(again, name), getattr(two_sides, name))
    assert again.summary == two_sides.summary


@pytest.mark.parametrize(
    ("expansion", "message"),
    [
        (Expansion(3, 2, 1, 1_000), "left_blocks equal to right_blocks"),
        (Expansion(60, 60, 1, 1_000), "60 left and 60 right items only"),
        (Expansion(2, 2, 1, 10**6), "can have .* pairs, not 1,000,000"),
        (Expansion(2, 2, 1, 5), "can have .* pairs, not 5"),
        (Expansion(8, 8, 16, 10**6), "2.31 items or more"),
    ],
)
def test_impossible_expansions_are_refused(wiki, expansion, message):
    with pytest.raises(InputError, match=message) as refused:
        expand("x", wiki, expansion)
    assert "--set expansion.KEY=VALUE" in str(refused.value) and "\n" not in str(refused.value)


def test_prepare_expands_raw_data_and_prepared_corpora(gramrun, tmp_path):
    write_wiki(tmp_path / "wiki")
    settings = ["--set", "expansion.left_blocks=3", "--set", "expansion.pairs=3000"]
    code, _, error = gramrun("prepare", "simple-scale", "--source", "wiki", *settings, "--output", "direct")
    assert code == 0, error
    assert gramrun("prepare", "enwik8", "--source", "wiki", "--output", "base")[0] == 0
    code, output, error = gramrun("prepare", "simple-scale", "--source", "base", *settings, "--output", "out")
    assert code == 0, error
    corpus = open_corpus(tmp_path / "out")
    assert corpus.name == "simple-scale" and corpus.manifest["corpus"]["pages"] == 360
    assert corpus.content_hash == open_corpus(tmp_path / "direct").content_hash
    code, output, _ = gramrun("prepare", "simple-scale", "--source", "base", *settings, "--output", "out")
    assert code == 0 and "up to date" in output


def test_prepare_refuses_what_cannot_be_expanded_in_one_line(gramrun, tmp_path):
    write_wiki(tmp_path / "wiki")
    for settings, message in (
        (["expansion.base=fr-scale"], "is an expansion itself"),
        (["expansion.base=nothing"], "no corpus is called nothing"),
        (["expansion.left_blocks=0"], "expansion.left_blocks"),
        (["expansion.left_blocks=500", "expansion.pairs=1000"], "items only"),
    ):
        options = [word for setting in settings for word in ("--set", setting)]
        code, _, error = gramrun("prepare", "simple-scale", "--source", "wiki", *options, "--output", "out")
        assert code == 2
        assert message in error and len(error.strip().splitlines()) <= 2, error
        assert not (tmp_path / "out").exists()
