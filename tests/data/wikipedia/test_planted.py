"""A planted wiki, read back literally: the tables tell the planted truth, in every generation."""

import dataclasses
import itertools
import re
from collections import Counter

import numpy as np
import pytest
from literal_wiki import read_literally, tables
from scipy.stats import chi2

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.planted import SIZES, PlantedWiki, write_tables
from gramrun.data.wikipedia.planted.links import CLASSES, draw_links
from gramrun.data.wikipedia.planted.pages import FATES
from gramrun.data.wikipedia.planted.titles import HOSTILE
from gramrun.data.wikipedia.planted.topics import out_degrees, plant_topics
from gramrun.data.wikipedia.planted.world import World
from gramrun.data.wikipedia.schemas import GENERATIONS, column_names

WIKI = PlantedWiki(
    pages=300,
    links=2_500,
    words=36,
    categories=9,
    topics=3,
    seed=5,
    through_redirects=0.3,
    duplicate_links=0.2,
    self_links=0.2,
    links_to_broken_redirects=0.02,
    links_without_target=0.02,
)
FALSE_ALARM = 1e-6  # of each chi-square test, were its seeds drawn anew


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder and the truth of each generation."""
    found = {}
    for generation in GENERATIONS:
        folder = tmp_path_factory.mktemp(generation)
        found[generation] = (folder, write_tables(WIKI, folder, generation=generation, compression=""))
    return found


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_tables_tell_the_planted_truth(written, generation):
    folder, truth = written[generation]
    found = tables(folder)
    for name, rows in found.items():
        assert list(rows[0]) == column_names(GENERATIONS[generation][name])
    pairs, titles, visible, count = read_literally(found, WIKI.minimum_count)
    assert sorted(pairs) == [tuple(pair) for pair in truth.pairs.tolist()]
    assert {name: n for name, n in truth.counts.items() if n} == {name: n for name, n in count.items() if n}
    assert sorted(titles) == truth.articles.tolist()
    assert [titles[page] for page in sorted(titles)] == list(truth.titles)
    offsets, categories, names = truth.categories
    for row, page in enumerate(truth.articles.tolist()):
        planted = {names[c] for c in categories[offsets[row] : offsets[row + 1]]}
        assert planted == {name for name, inside in visible.items() if page in inside}


NO_TRAPS = dict.fromkeys(
    ["through_redirects", "duplicate_links", "self_links", "red_links", "links_to_other_namespaces"], 0.0
)
ONLY_TRAPS = dict.fromkeys(["through_redirects", "duplicate_links", "self_links", "case_twins"], 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"topics": 1, "popularity_exponent": 0.0, **NO_TRAPS},
        {"pages": 40, "links": 200, "minimum_count": 1, "redirects": 1.0, **ONLY_TRAPS},
        {"pages": 120, "links": 1_500, "minimum_count": 2, "hostile_titles": 0.5, "red_links": 1.0},
    ],
)
def test_extreme_wikis_are_told_right_too(tmp_path, change):
    wiki = dataclasses.replace(WIKI, **change)
    truth = write_tables(wiki, tmp_path, generation="2026", compression="")
    pairs, titles, _, count = read_literally(tables(tmp_path), wiki.minimum_count)
    assert sorted(pairs) == [tuple(pair) for pair in truth.pairs.tolist()]
    assert [titles[page] for page in sorted(titles)] == list(truth.titles)
    assert {name: n for name, n in truth.counts.items() if n} == {name: n for name, n in count.items() if n}


def test_all_generations_tell_the_same_graph(written):
    truths = [truth for _, truth in written.values()]
    for truth in truths[1:]:
        np.testing.assert_array_equal(truth.pairs, truths[0].pairs)
        assert list(truth.titles) == list(truths[0].titles)
        for mine, first in zip(truth.categories[:2], truths[0].categories[:2], strict=True):
            np.testing.assert_array_equal(mine, first)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_each_row_has_one_class_and_each_trap_is_there(written, generation):
    counts = written[generation][1].counts
    assert counts["links_read"] == sum(counts[name] for name in CLASSES)
    assert counts["redirects"] == sum(counts[name] for name in FATES)
    assert counts["distinct_links"] == WIKI.links and counts["articles"] == WIKI.pages
    assert counts["visible_categories"] == WIKI.categories
    by_title = {
        "links_without_target": generation in ("2013", "2016", "2023"),
        "category_rows_without_target": generation != "2026",
    }
    assert {name for name, n in counts.items() if n == 0} == {name for name, none in by_title.items() if none}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_new_dumps_begin_with_the_sandbox_comment(written, generation):
    text = (written[generation][0] / "plantedwiki-20260101-page.sql").read_bytes()
    assert text.startswith(b"/*M!999999\\- enable the sandbox mode */") == (generation in ("2025", "2026"))


def test_titles_are_hostile_and_some_differ_by_case_only(written):
    titles = list(written["2026"][1].titles)
    assert set(HOSTILE) <= set(titles)
    assert all(0 < len(title) <= 255 for title in titles) and max(map(len, titles)) == 255
    lower = Counter(title.decode().lower() for title in titles)
    assert len(set(titles)) == len(titles) and max(lower.values()) == 2


def test_links_come_in_shuffled_blocks(written):
    folder, _ = written["2016"]
    sources = np.array([row["pl_from"] for row in tables(folder)["pagelinks"]])
    falls = np.count_nonzero(np.diff(sources) < 0)
    assert 3 <= falls <= 20  # 16 blocks, each in order


def test_features_tell_the_topic(written):
    # Two pages that share a phrase have the same home topic; hostile titles have no phrase.
    truth = written["2026"][1]
    home = truth.factors.mixture_topics[:, 0]
    topics = {}
    for title, topic in zip(truth.titles, home.tolist(), strict=True):
        if title not in HOSTILE:
            words = re.findall(r"[^\W_]+", title.decode().lower())
            topics.setdefault(tuple(words[:2]), set()).add(topic)
    shared = [found for phrase, found in topics.items() if not any(len(w) > 6 for w in phrase)]
    assert len(shared) > WIKI.topics and all(len(found) == 1 for found in shared)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(tmp_path):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        write_tables(dataclasses.replace(WIKI, seed=seed), tmp_path / name, generation="2025")
    a, b, c = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
        for name in "abc"
    )
    assert a == b and set(a) == set(c)
    assert {name for name in a if a[name] == c[name]} == set()


def test_a_second_call_does_nothing_and_a_broken_off_one_goes_on(tmp_path):
    write_tables(WIKI, tmp_path, generation="2024")
    files = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*") if path.is_file()
    }
    write_tables(WIKI, tmp_path, generation="2024")
    assert {path: path.stat().st_mtime_ns for path in files} == {
        path: time for path, (_, time) in files.items()
    }

    # As after a kill: the truth is not there, nor are the last tables.
    missing = {*(tmp_path / "truth").iterdir(), tmp_path / "plantedwiki-20260101-pagelinks.sql.gz"}
    for path in missing:
        path.unlink()
    (tmp_path / "truth").rmdir()
    write_tables(WIKI, tmp_path, generation="2024")
    for path, (data, time) in files.items():
        assert path.read_bytes() == data
        assert (path.stat().st_mtime_ns == time) == (path not in missing), path


def test_another_wiki_in_the_folder_is_refused(tmp_path):
    write_tables(WIKI, tmp_path, generation="2024")
    with pytest.raises(InputError, match="holds a made wiki of other settings"):
        write_tables(WIKI, tmp_path, generation="2025")


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
def test_impossible_wikis_are_refused(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        write_tables(dataclasses.replace(WIKI, **change), tmp_path, generation="2026")
    assert list(tmp_path.iterdir()) == []  # the next try is free to use the folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generation": "2014"}, "generation '2014': unknown; choose one of 2013, 2016"),
        ({"compression": "bz2"}, "compression 'bz2': unknown"),
        ({"date": "latest"}, "date 'latest': is not of the form YYYYMMDD"),
    ],
)
def test_impossible_options_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        write_tables(WIKI, tmp_path / "new", **{"generation": "2026", **options})
    assert not (tmp_path / "new").exists()


TINY = PlantedWiki(pages=20, links=40, words=10, categories=3, topics=3, minimum_count=1, redirects=1.0)


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
    wiki = dataclasses.replace(WIKI, pages=400, topics=topics)
    p = dense_probabilities(plant_topics(wiki))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert np.linalg.matrix_rank(p) == topics


def test_draws_follow_the_planted_law():
    """Two links of each page: the first has p(y | x) / (1 - p(x | x)), the second the same without the first."""
    topics = plant_topics(TINY)
    p = dense_probabilities(topics)
    np.fill_diagonal(p, 0)
    p /= p.sum(axis=1, keepdims=True)
    degrees, n, seeds = np.full(20, 2), 20, 6_000
    seen = np.zeros((n, n, n))
    for seed in range(seeds):
        first, second = draw_links(topics, degrees, seed).reshape(n, 2).T
        seen[np.arange(n), first, second] += 1
    law = p[:, :, None] * p[:, None, :] / (1 - p[:, :, None])
    law[:, np.arange(n), np.arange(n)] = 0
    np.testing.assert_allclose(law.sum(axis=(1, 2)), 1, rtol=1e-12)
    assert not seen[law == 0].any()
    statistic, freedom = 0.0, 0
    for expected, observed in zip(seeds * law.reshape(n, -1), seen.reshape(n, -1), strict=True):
        common = expected >= 5  # the others together make one cell
        cells = [(observed[common], expected[common]), (observed[~common].sum(), expected[~common].sum())]
        statistic += sum(float(np.sum((o - e) ** 2 / e)) for o, e in cells)
        freedom += np.count_nonzero(common)
    assert freedom > 1_000
    assert chi2.sf(statistic, freedom) > FALSE_ALARM


def test_the_written_links_are_the_drawn_ones(written):
    truth = written["2016"][1]
    topics = truth.factors
    degrees = out_degrees(WIKI, topics)
    drawn = draw_links(topics, degrees, WIKI.seed)
    pairs = np.stack([np.repeat(truth.articles, degrees), truth.articles[drawn]], axis=1)
    np.testing.assert_array_equal(pairs[np.lexsort(pairs.T[::-1])], truth.pairs)


@pytest.mark.parametrize("links", [300, 301, 2_500, 9_000])
def test_degrees_sum_exactly_and_have_a_tail(links):
    wiki = dataclasses.replace(WIKI, links=links)
    degrees = out_degrees(wiki, plant_topics(wiki))
    assert degrees.sum() == links and degrees.min() >= 1
    if links == 2_500:
        assert degrees.max() > 4 * np.median(degrees)


def test_simple_scale_has_the_ngrams_and_categories_of_the_paper():
    wiki = SIZES["simple-scale"]
    world = World(wiki)
    grams = Counter()
    for title in world.titles.of_kind(0):
        words = re.findall(r"[^\W_]+", title.decode().lower())
        grams.update({*words, *itertools.pairwise(words)})
    frequent = sum(count >= wiki.minimum_count for count in grams.values())
    assert frequent == pytest.approx(wiki.words, rel=0.05)
    sizes = np.bincount(world.memberships.categories)[: wiki.categories]
    assert len(sizes) == wiki.categories and sizes.min() >= wiki.minimum_count
