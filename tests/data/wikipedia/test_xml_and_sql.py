"""One wiki as export XML and as tables: the same corpus, but for what only wikitext or only tables hold."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape

from hypothesis import given, settings
from hypothesis import strategies as st
from same import assert_same
from wiki_twin import ListWiki, read_all

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.xml_wiki import XmlWiki

TITLES = ["A", "B", "Foo bar", "Foo Bar", "É (b),(c)", 'D\'E "f" & g', "Red", "Missing too"]
NAMESPACES = {0: "", 1: "Talk", 14: "Category"}
HEAD = """<mediawiki version="0.11"><siteinfo><sitename>W</sitename><dbname>w</dbname><base>http://x/wiki/A</base>
<case>first-letter</case><namespaces><namespace key="0" case="first-letter" />
<namespace key="1" case="first-letter">Talk</namespace><namespace key="14" case="first-letter">Category</namespace>
</namespaces></siteinfo>"""
TITLE = st.sampled_from(TITLES)
TARGET = st.tuples(st.sampled_from([0, 0, 0, 0, 1]), TITLE)


@st.composite
def wikis(draw):
    """Pages in order of their numbers: (namespace, title, redirect target or None, links, categories)."""
    names = draw(
        st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 14]), TITLE), min_size=2, max_size=10, unique=True)
    )
    pages = []
    for namespace, title in names:
        redirect = draw(st.none() | TARGET) if namespace == 0 else None
        links = draw(st.lists(TARGET, max_size=6))
        categories = draw(st.lists(TITLE, max_size=3, unique=True))
        pages.append((namespace, title, redirect, links, categories))
    return pages


def full(namespace, title):
    return f"{NAMESPACES[namespace]}:{title}" if namespace else title


def xml(pages):
    parts = [HEAD]
    for number, (namespace, title, redirect, links, categories) in enumerate(pages, 1):
        flag = f'<redirect title="{escape(full(*redirect))}" />' if redirect else ""
        if redirect:
            text = f"#REDIRECT [[{full(*redirect)}]]"
        else:
            text = " and ".join(f"[[{full(*link)}|label]]" for link in links)
            text += "".join(f"\n[[Category:{name}|key]]" for name in categories)
        parts.append(
            f"<page><title>{escape(full(namespace, title))}</title><ns>{namespace}</ns><id>{number}</id>{flag}"
            f"<revision><id>1</id><text>{escape(text)}</text></revision></page>"
        )
    return "".join([*parts, "</mediawiki>"])


def tables(pages):
    def key(title):
        return title.replace(" ", "_").encode()

    numbered = list(enumerate(pages, 1))
    return ListWiki(
        page_rows=[
            (n, space, key(title), redirect is not None) for n, (space, title, redirect, _, _) in numbered
        ],
        redirect_rows=[
            (n, redirect[0], key(redirect[1]), False) for n, (_, _, redirect, _, _) in numbered if redirect
        ],
        link_rows=[(n, space, key(t)) for n, (_, _, r, links, _) in numbered if not r for space, t in links],
        member_rows=[
            (n, key(name)) for n, (_, _, r, _, categories) in numbered if not r for name in categories
        ],
    )


@settings(max_examples=40)
@given(pages=wikis(), graph=st.sampled_from(["pages", "titles"]))
def test_both_give_the_same_corpus(tmp_path_factory, pages, graph):
    file = tmp_path_factory.mktemp("xml") / "w.xml"
    file.write_text(xml(pages), encoding="utf-8")
    corpora = []
    for wiki in (lambda: XmlWiki("w", file), lambda: tables(pages)):
        try:
            corpora.append(read_all(wiki(), graph))
        except InputError as error:
            corpora.append(re.sub(r"^\w+: |of \d+ rows", "", str(error)))  # but for what names the wiki
    first, second = corpora
    if isinstance(first, str) or isinstance(second, str):
        assert first == second
        return
    for name in ("articles", "redirects_resolved", "self_links", "links_to_missing_pages", "duplicate_links"):
        assert first.counts[name] == second.counts[name], name
    for corpus in corpora:  # what only one of the formats tells
        corpus.counts.clear()
    assert_same(replace(first, name=""), replace(second, name=""))
