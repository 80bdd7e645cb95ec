"""An XML dump's tables: a small wiki row by row, real dumps against a slow twin, doubles refused."""

from collections import Counter
from xml.sax.saxutils import escape

import numpy as np
import pytest
from page_links import find_categories, find_links

from gramrun.base.errors import InputError
from gramrun.data.wikipedia import xml_wiki
from gramrun.data.wikipedia.records import ByNumber, ByTitle, Wiki
from gramrun.data.wikipedia.titles import parse_target
from gramrun.data.wikipedia.wikitext import raw_targets, searched
from gramrun.data.wikipedia.xml_dump import read_pages
from gramrun.data.wikipedia.xml_wiki import XmlWiki

HEAD = """<mediawiki version="0.3"><siteinfo><sitename>My Wiki (é)</sitename><base>http://en.wikipedia.org/wiki/x</base>
<case>first-letter</case><namespaces><namespace key="-1">Special</namespace><namespace key="0" />
<namespace key="1">Talk</namespace><namespace key="6">Image</namespace><namespace key="14">Category</namespace>
</namespaces></siteinfo>"""

PAGES = {
    "A": "[[b]] [[b]] [[B|label]] [[A]] [[Talk:A]] [[Missing]] [[Category:C]] [[:Category:C]] [[de:x]] [[Special:x]]",
    "B": "#REDIRECT [[A]] {{t|[[Missing]]}}",
    "Talk:A": "[[B]] [[Category:C]]",
    "Category:C": "__HIDDENCAT__ [[Category:D]]",
    "Category:D": "<nowiki>__HIDDENCAT__</nowiki>",
    "Away": "#redirect [[de:x y]]",
    "Ä b": "[[Category:D|k]] [[ä_b]]",
    "Talk:B": "#REDIRECT [[Talk:A]]",
    "Empty": "",
}


def write(folder, pages, first_id=10):
    body = "".join(
        f"<page><title>{escape(title)}</title><id>{first_id + n}</id>"
        f"<revision><text>{escape(text)}</text></revision></page>\n"
        for n, (title, text) in enumerate(pages)
    )
    path = folder / "dump.xml"
    path.write_text(f"{HEAD}{body}</mediawiki>")
    return path


def titles_by_number(wiki):
    return {
        int(n): (int(namespace), title.decode())
        for batch in wiki.link_targets()
        for n, namespace, title in zip(batch.numbers, batch.namespaces, batch.titles.to_pylist(), strict=True)
    }


def pairs(batches, titles):
    """Rows as (source, (namespace, title))."""
    rows = []
    for batch in batches:
        assert isinstance(batch.targets, ByNumber)
        assert batch.sources.dtype == batch.targets.numbers.dtype == np.int64
        numbers = batch.targets.numbers.tolist()
        rows += [(s, titles[n]) for s, n in zip(batch.sources.tolist(), numbers, strict=True)]
    return rows


def redirects(wiki):
    rows = []
    for batch in wiki.redirects():
        assert isinstance(batch.targets, ByTitle)
        columns = (
            batch.sources.tolist(),
            batch.targets.namespaces.tolist(),
            batch.targets.titles.to_pylist(),
        )
        rows += [(s, n, t.decode(), i) for s, n, t, i in zip(*columns, batch.interwiki.tolist(), strict=True)]
    return rows


def pages(wiki):
    return [
        (number, namespace, title.decode(), redirects)
        for batch in wiki.pages()
        for number, namespace, title, redirects in zip(
            batch.numbers.tolist(),
            batch.namespaces.tolist(),
            batch.titles.to_pylist(),
            batch.is_redirect.tolist(),
            strict=True,
        )
    ]


def test_a_small_wiki_row_by_row(tmp_path):
    wiki: Wiki = XmlWiki("w", write(tmp_path, PAGES.items()))
    titles = titles_by_number(wiki)
    assert len(set(titles.values())) == len(titles)
    assert pages(wiki) == [
        (10, 0, "A", False),
        (11, 0, "B", True),
        (12, 1, "A", False),
        (13, 14, "C", False),
        (14, 14, "D", False),
        (15, 0, "Away", True),
        (16, 0, "Ä_b", False),
        (17, 1, "B", True),
        (18, 0, "Empty", False),
    ]
    assert redirects(wiki) == [(11, 0, "A", False), (15, 0, "x_y", True), (17, 1, "A", False)]
    assert pairs(wiki.links(), titles) == [
        *[(10, (0, "B"))] * 3,
        (10, (0, "A")),
        (10, (1, "A")),
        (10, (0, "Missing")),
        (10, (14, "C")),
        (16, (0, "Ä_b")),
    ]
    assert pairs(wiki.category_links(), titles) == [(10, (14, "C")), (16, (14, "D"))]
    assert np.concatenate(list(wiki.hidden_categories())).tolist() == [13]
    assert pages(wiki) == pages(wiki)  # each call begins anew


@pytest.mark.parametrize(
    ("name", "chunk"),
    [
        ("xml/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2", 1 << 20),
        ("dkpro-jwpl/aawiki-20260101-pages-meta-current.xml.bz2", 7),
    ],
)
def test_the_tables_of_real_dumps_are_those_of_their_pages(name, chunk, wiki_fixtures, monkeypatch):
    """Against lists of Python's own; with chunks of any size, and with next to nothing remembered."""
    monkeypatch.setattr(xml_wiki, "_BATCH", chunk)
    monkeypatch.setattr(xml_wiki, "_REMEMBERED", chunk)
    wiki = XmlWiki("w", wiki_fixtures / name)
    titles = titles_by_number(wiki)
    site, found = read_pages(wiki_fixtures / name)
    found = list(found)
    assert pages(wiki) == [(p.number, p.namespace, p.title, p.redirect is not None) for p in found]
    targets = [(p.number, parse_target(p.redirect, site)) for p in found if p.redirect is not None]
    assert redirects(wiki) == [(n, t.namespace, t.title, bool(t.interwiki)) for n, t in targets]
    articles = [p for p in found if p.namespace == 0 and p.redirect is None]
    links = Counter((p.number, (t.namespace, t.title)) for p in articles for t in find_links(p.text, site))
    # A picture whose caption holds links is no target here: no corpus counts files.
    table = Counter(pairs(wiki.links(), titles))
    assert table <= links
    assert {namespace for _, (namespace, _) in links - table} <= {6}
    assert Counter(pairs(wiki.category_links(), titles)) == Counter(
        (p.number, (14, title)) for p in articles for title in find_categories(p.text, site)
    )
    assert len(articles) < 2 or sum(map(len, map(raw_targets, (searched(p.text) for p in articles)))) > 20_000


def test_an_id_that_stands_twice_is_refused(tmp_path):
    path = write(tmp_path, PAGES.items())
    path.write_text(path.read_text().replace("<id>12</id>", "<id>11</id>"))
    with pytest.raises(InputError, match=r"holds two pages with the id 11; give one whole dump"):
        XmlWiki("w", path)


def test_of_pages_with_one_title_the_first_that_does_not_redirect_is_kept(tmp_path, caplog):
    many = [
        ("A", "#REDIRECT [[B]]"),
        ("B", "[[A]] [[Category:C]]"),
        ("A", "[[B]] [[Category:D]]"),
        ("A", "[[x]]"),
        ("Category:C", "__HIDDENCAT__"),
        ("Category:C", "__HIDDENCAT__"),
        ("R", "#REDIRECT [[B]]"),
        ("R", "#REDIRECT [[A]]"),
    ]
    wiki = XmlWiki("w", write(tmp_path, many))
    assert "4 pages have the title of another" in caplog.text
    assert [(number, title) for number, _, title, _ in pages(wiki)] == [
        (11, "B"),
        (12, "A"),
        (14, "C"),
        (16, "R"),
    ]
    assert redirects(wiki) == [(16, 0, "B", False)]
    titles = titles_by_number(wiki)
    assert pairs(wiki.links(), titles) == [(11, (0, "A")), (12, (0, "B"))]
    assert pairs(wiki.category_links(), titles) == [(11, (14, "C")), (12, (14, "D"))]
    assert np.concatenate(list(wiki.hidden_categories())).tolist() == [14]


def test_enwik8_has_the_pages_and_links_that_are_known(raw_file):
    """The first 10^8 bytes of the English dump of March 2006, packed or not."""
    wiki = XmlWiki("w", raw_file("enwik8.gz", "enwik8"), allow_cut_off=True)
    rows = pages(wiki)
    assert len(rows) == 12_346  # and a last one, which is cut off
    assert sum(redirects for *_, redirects in rows) == 3_664
    articles = {title: number for number, namespace, title, away in rows if namespace == 0 and not away}
    assert len(articles) == 8_589

    titles = titles_by_number(wiki)
    links = set(pairs(wiki.links(), titles))
    assert len(links) == 677_174
    bipartite = {(source, title) for source, (namespace, title) in links if namespace == 0}
    assert len(bipartite) == 668_137
    assert len({title for _, title in bipartite}) == 260_931

    names = {number: title for number, namespace, title, _ in rows if namespace == 0}
    leads = {names[s]: t for s, n, t, away in redirects(wiki) if s in names and n == 0 and not away}
    resolved = set()
    for source, title in bipartite:
        seen = set()
        while title in leads and title not in seen:
            seen.add(title)
            title = leads[title]
        if title in articles:
            resolved.add((source, articles[title]))
    assert len(resolved) == 86_445
    assert sum(source != target for source, target in resolved) == 85_907
