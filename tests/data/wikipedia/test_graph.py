"""Tables → corpus, against a literal twin, on wikis that hypothesis makes as crooked as it can."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import values_of
from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same
from wiki_twin import ListWiki, expected, links_of, read_all, titles_of

from gramrun.base.errors import InputError
from gramrun.config.prepare import WikipediaSection
from gramrun.data.wikipedia.features import read

TITLES = [b"A", b"a", b"B", b"Foo_bar", b"Foo_Bar", b"bar_(a),(b)", "É".encode(), b"no_page", b"red"]
TITLE = st.sampled_from(TITLES)
NAMESPACE = st.sampled_from([0, 0, 0, 0, 1, 14, -1])
NUMBER = st.integers(1, 14)


@st.composite
def wikis(draw):
    titles = draw(st.lists(st.tuples(NAMESPACE, TITLE), min_size=1, max_size=12, unique=True))
    numbers = draw(st.lists(NUMBER, min_size=len(titles), max_size=len(titles), unique=True))
    flags = draw(st.lists(st.booleans(), min_size=len(titles), max_size=len(titles)))
    pages = [(number, *title, flag) for number, title, flag in zip(numbers, titles, flags, strict=True)]
    redirect = st.tuples(NUMBER, NAMESPACE, TITLE, st.sampled_from([False, False, False, True]))
    return ListWiki(
        page_rows=pages,
        redirect_rows=draw(st.lists(redirect, max_size=8, unique_by=lambda row: row[0])),
        link_rows=draw(st.lists(st.tuples(NUMBER, NAMESPACE, TITLE), max_size=40)),
        member_rows=draw(st.lists(st.tuples(NUMBER, TITLE), max_size=12)),
        hidden_numbers=draw(st.lists(NUMBER, max_size=3)),
        numbered=draw(st.booleans()),
    )


def sets_of(corpus, side, name):
    return [set(bag) for bag in values_of(corpus, side, name)]


@settings(max_examples=40)
@given(wikis(), st.integers(0, 3), st.integers(1, 2), st.integers(1, 2), st.booleans())
def test_the_corpus_is_the_twins(wiki, min_links, min_ngrams, min_members, titles):
    twin = expected(wiki, min_links=min_links, min_ngrams=min_ngrams, min_members=min_members, titles=titles)
    section = WikipediaSection(
        graph="titles" if titles else "pages",
        min_links=min_links,
        min_ngram_count=min_ngrams,
        min_category_count=min_members,
    )
    if not any(namespace == 0 for _, namespace, _, _ in wiki.page_rows) or not twin.links:
        with pytest.raises(InputError, match=r"no page of namespace 0|no link between articles"):
            read(wiki, section)
        return
    corpus = read(wiki, section)
    left, right = titles_of(corpus, corpus.left), titles_of(corpus, corpus.right)
    assert list(zip(corpus.vocabularies["page"]["page_id"], left, strict=True)) == twin.pages
    assert right == twin.targets
    assert links_of(corpus) == twin.links
    counted = {name: count for name, count in corpus.counts.items() if count}
    for name, count in twin.counts.items():
        assert counted.get(name, 0) == count, name
    assert sets_of(corpus, corpus.left, "ngrams") == [twin.ngrams[title] for title in left]
    assert sets_of(corpus, corpus.left, "categories") == [
        {name.decode() for name in twin.categories[title]} for title in left
    ]
    assert sets_of(corpus, corpus.right, "ngrams") == [twin.ngrams[title] for title in right]
    assert corpus.summary == {
        "pages": len(left),
        "links": len(twin.links),
        "ngrams": len(set().union(*twin.ngrams.values())),
        "categories": len(set().union(*twin.categories.values())),
    }


@settings(max_examples=25)
@given(wikis(), st.sampled_from(["pages", "titles"]), st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_the_way_to_name_targets_matters(wiki, graph, random):
    def shuffled(rows):
        return random.sample(rows, len(rows))

    other = replace(
        wiki,
        page_rows=shuffled(wiki.page_rows),
        redirect_rows=shuffled(wiki.redirect_rows),
        link_rows=shuffled(wiki.link_rows),
        member_rows=shuffled(wiki.member_rows),
        numbered=not wiki.numbered,
        batch=5,
    )
    corpora = []
    for one in (wiki, other):
        try:
            corpora.append(read_all(one, graph))
        except InputError as error:
            corpora.append(str(error))
    assert_same(*corpora)


def test_every_row_of_pagelinks_is_kept_or_in_one_class():
    wiki = ListWiki(
        page_rows=[(1, 0, b"A", False), (2, 0, b"B", False), (3, 0, b"R", True), (4, 1, b"A", False)],
        redirect_rows=[(3, 0, b"B", False)],
        link_rows=[
            (1, 0, b"B"),
            (1, 0, b"R"),
            (1, 0, b"A"),
            (3, 0, b"B"),
            (4, 0, b"A"),
            (9, 0, b"A"),
            (2, 0, b"red"),
            (2, 1, b"A"),
        ],
    )
    counts = read_all(wiki).counts
    classes = [name for name in counts if name.startswith(("links_", "self", "dup"))]
    dropped = sum(
        counts[name]
        for name in classes
        if name not in ("links_read", "links_through_redirects", "links_of_these")
    )
    assert counts["links_read"] == 8 == dropped + 1
    assert counts["links_through_redirects"] == counts["duplicate_links"] == counts["self_links"] == 1


def page(number, title):
    return (number, 0, title, False)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([page(1, b"A"), page(1, b"B")], "page_id 1 stands twice in the table page"),
        ([page(1, b"A"), page(2, b"A")], "page_id 2 has the title of another page, b'A'"),
        ([page(1, b"A"), page(2, b"\xff")], "the title of page_id 2, .* is not UTF-8"),
        ([page(-1, b"A")], "page_id -1 is no number of a wiki"),
        ([page(2**40, b"A")], "page_id 1099511627776 is no number of a wiki"),
        ([(1, 1, b"A", False)], "holds no page of namespace 0"),
        ([], "holds no page of namespace 0"),
        ([page(1, b"A")], "listwiki: no link between articles is left of 0 rows"),
    ],
)
def test_impossible_tables_are_refused(rows, message):
    with pytest.raises(InputError, match=message):
        read_all(ListWiki(rows))


def test_a_category_that_is_not_text_is_refused():
    wiki = ListWiki([page(1, b"A"), page(2, b"B")], [], [(1, 0, b"B")], [(1, b"\xff")])
    with pytest.raises(InputError, match=r"category .* is not UTF-8"):
        read_all(wiki)


def test_long_chains_and_large_loops_of_redirects_take_linear_time():
    n = 50_000
    pages = [(i + 1, 0, b"%d" % i, i != 0) for i in range(n)] + [(n + 1, 0, b"x", False)]
    redirects = [(i + 1, 0, b"%d" % (i - 1), False) for i in range(1, n)]
    wiki = ListWiki(pages, redirects, [(n + 1, 0, b"%d" % (n - 1))], batch=n)
    counts = read_all(wiki).counts
    assert counts["redirects_resolved"] == n - 1
    assert counts["redirects_chained"] == n - 2
    looped = replace(
        wiki,
        page_rows=[(i + 1, 0, b"%d" % i, True) for i in range(n)] + pages[-1:],
        redirect_rows=[*redirects, (1, 0, b"%d" % (n - 1), False)],
    )
    with pytest.raises(InputError, match="no link between articles"):
        read_all(looped)
