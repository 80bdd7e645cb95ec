"""Synthetic wikis follow their law and sizes; their tables and traps, read back, tell the same graph."""

import dataclasses
import itertools
import re
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from experiments.benchmarks.mysqldump import write_tables
from gramrun.base.errors import InputError
from gramrun.data.preparation import prepare_corpus
from gramrun.data.wikipedia.synthetic import SIZES, SyntheticWiki, draw_categories
from gramrun.data.wikipedia.synthetic_links import WikiSize, draw_degrees, draw_links, draw_topics

SIZE = WikiSize(pages=300, links=2_500, words=36, categories=9, topics=3, seed=5)
FALSE_ALARM = 1e-6  # of each chi-square test, were its seeds drawn anew


def dense_probabilities(topics):
    """p(y | x) as a matrix of articles by articles."""
    u = np.zeros((len(topics.mixture_topics), len(topics.starts) - 1))
    np.put_along_axis(u, topics.mixture_topics, topics.mixture_weights, axis=1)
    v = np.zeros_like(u)
    np.add.at(
        v, (topics.members, np.repeat(np.arange(v.shape[1]), np.diff(topics.starts))), topics.probabilities
    )
    return u @ v.T


@pytest.mark.parametrize("topics", [1, 2, 3, 5])
def test_link_probabilities_sum_to_one_and_have_rank_topics(topics):
    p = dense_probabilities(draw_topics(dataclasses.replace(SIZE, pages=400, topics=topics)))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert np.linalg.matrix_rank(p) == topics


def test_draws_follow_the_law():
    """Two links of each page: the first has p(y | x) / (1 - p(x | x)), the second the same without the first."""
    n, seeds = 40, 3_000
    topics = draw_topics(WikiSize(pages=n, links=80, words=10, categories=3, topics=3, minimum_count=1))
    p = dense_probabilities(topics)
    np.fill_diagonal(p, 0)
    p /= p.sum(axis=1, keepdims=True)
    degrees = np.full(n, 2)
    seen = np.zeros((n, n, n))
    for seed in range(seeds):
        drawn = draw_links(topics, degrees, seed, 0, n, np.full(n, -1, np.int32))
        first, second = drawn.reshape(n, 2).T
        seen[np.arange(n), first, second] += 1
    law = p[:, :, None] * p[:, None, :] / (1 - p[:, :, None])
    law[:, np.arange(n), np.arange(n)] = 0
    np.testing.assert_allclose(law.sum(axis=(1, 2)), 1, rtol=1e-12)
    assert not seen[law == 0].any()
    statistic, freedom = 0.0, 0
    for mean, observed in zip(seeds * law.reshape(n, -1), seen.reshape(n, -1), strict=True):
        common = mean >= 5  # the others together make one cell
        cells = [(observed[common], mean[common]), (observed[~common].sum(), mean[~common].sum())]
        statistic += sum(float(np.sum((o - e) ** 2 / e)) for o, e in cells)
        freedom += np.count_nonzero(common)
    assert freedom > 1_000
    assert chi2.sf(statistic, freedom) > FALSE_ALARM


def test_links_do_not_depend_on_the_batches():
    topics = draw_topics(SIZE)
    degrees = draw_degrees(SIZE, topics)

    def drawn(bounds):
        seen = np.full(SIZE.pages, -1, np.int32)
        parts = [draw_links(topics, degrees, SIZE.seed, a, b, seen) for a, b in itertools.pairwise(bounds)]
        return np.concatenate(parts)

    np.testing.assert_array_equal(drawn([0, 300]), drawn([0, 1, 120, 300]))


@pytest.mark.parametrize("links", [300, 2_500, 9_000])
def test_degrees_sum_exactly_and_have_a_tail(links):
    size = dataclasses.replace(SIZE, links=links)
    degrees = draw_degrees(size, draw_topics(size))
    assert degrees.sum() == links and degrees.min() >= 1
    if links == 2_500:
        assert degrees.max() > 4 * np.median(degrees)


def test_simple_scale_has_the_ngrams_and_categories_of_the_paper():
    size = SIZES["simple-scale"]
    wiki = SyntheticWiki("w", size)
    (pages,) = wiki.pages()
    grams = Counter()
    for title in pages.titles:
        words = re.findall(r"[^\W_]+", title.decode().lower())
        grams.update({*words, *itertools.pairwise(words)})
    frequent = sum(count >= size.minimum_count for count in grams.values())
    assert frequent == pytest.approx(size.words, rel=0.05)
    _, categories = draw_categories(size, wiki.topics)
    sizes = np.bincount(categories)
    assert len(sizes) == size.categories and sizes.min() >= size.minimum_count


def test_the_corpus_is_the_one_of_published_measurements_also_by_way_of_tables(tmp_path):
    sizes = {"pages": 2_000, "links": 30_000, "words": 300, "categories": 100, "topics": 5, "seed": 7}
    settings = [f"planted.{key}={value}" for key, value in sizes.items()]
    manifest, _ = prepare_corpus("simple-scale", tmp_path / "out", None, settings)
    assert manifest["content_hash"] == "9b2005a0c48c2de83bc8fd2b0ba1a166634e92e785396ebe310aaaaac699d18d"
    assert {key: manifest["corpus"][key] for key in ("pages", "links")} == {"pages": 2_000, "links": 30_000}
    dump = write_tables(SyntheticWiki("syntheticwiki", WikiSize(**sizes)), tmp_path / "dump", "2026")
    again, _ = prepare_corpus("wikipedia-sql", tmp_path / "again", dump, [])
    assert again["content_hash"] == manifest["content_hash"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": 9}, "words must be at least 10"),
        ({"links": 299}, "links must be at least pages"),
        ({"links": 50_000}, "50,000 links are more than the"),
        ({"categories": 90}, "each of 3 topics needs 320 pages"),
        ({"popularity_exponent": 3.0}, "popularity_exponent must lie between 0 and 1.2"),
    ],
)
def test_impossible_wikis_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        SyntheticWiki("w", dataclasses.replace(SIZE, **change))
