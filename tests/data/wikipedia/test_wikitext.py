"""Links, categories and redirects of wikitext: MediaWiki's rules case by case, a twin, and real tables."""

import gzip
import re
import time
from collections import Counter, defaultdict

import mwparserfromhell
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from page_links import find_categories, find_links

from gramrun.data.wikipedia.titles import CANONICAL_NAMESPACES, SiteInfo, Target, parse_target
from gramrun.data.wikipedia.wikitext import is_membership, raw_redirect, searched
from gramrun.data.wikipedia.xml_dump import read_pages

ENGLISH = SiteInfo({**CANONICAL_NAMESPACES, 4: "Wikipedia", 100: "Portal"}, {}, "en")
FRENCH = SiteInfo({0: "", 6: "Fichier", 14: "Catégorie", 4: "Wikipédia"}, {}, "fr")
WIKTIONARY = SiteInfo(CANONICAL_NAMESPACES, {0: "case-sensitive"}, "en")
TURKISH = SiteInfo(CANONICAL_NAMESPACES, {}, "tr")


def article(title):
    return Target(0, title)


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        ("foo bar", article("Foo_bar")),
        ("  foo _ bar_ ", article("Foo_bar")),
        ("foo\u00a0\u2003bar\u200e", article("Foo_bar")),
        ("foo#section", article("Foo")),
        ("foo #a#b", article("Foo")),
        ("Foo%20bar%C3%A9", article("Foo_baré")),
        ("100%", article("100%")),
        ("Caf&eacute; &amp; bar", article("Café_&_bar")),
        ("e&#x301;", article("É")),
        ("a&#35;b", article("A")),
        ("AT&T", article("AT&T")),
        ("élan", article("Élan")),
        ("ßx", article("ßx")),
        ("ǆx", article("Ǆx")),
        ("ა", article("ა")),
        ("/sub", article("/sub")),
        (".NET", article(".NET")),
        ("A/..x", article("A/..x")),
        ("CSI: Miami", article("CSI:_Miami")),
        ("3:10 to Yuma", article("3:10_to_Yuma")),
        ("WP:Foo", article("WP:Foo")),
        (":foo", article("Foo")),
        ("::foo", article("Foo")),
        ("Category:foo bar", Target(14, "Foo_bar")),
        (":cAtEgOrY : foo", Target(14, "Foo")),
        ("_Category_:_foo_", Target(14, "Foo")),
        ("Image:a.jpg", Target(6, "A.jpg")),
        ("Image_talk:a", Target(7, "A")),
        ("Project:x", Target(4, "X")),
        ("wikipedia:x", Target(4, "X")),
        ("Portal:x", Target(100, "X")),
        ("User talk:x:y", Target(3, "X:y")),
        ("Special:Search", Target(-1, "Search")),
        ("de:Foo", Target(0, "Foo", "de")),
        (":Wikt: foo bar#x", Target(0, "foo_bar", "wikt")),
        ("zh-min-nan:x", Target(0, "x", "zh-min-nan")),
        ("en:foo", article("Foo")),
        (":en:Category:foo", Target(14, "Foo")),
        ("a" * 255, article("A" + "a" * 254)),
    ],
)
def test_targets(raw, target):
    assert parse_target(raw, ENGLISH) == target


# fmt: off
NO_TARGETS = [
    "", " ", "#section", ":", ":::a", "Category:", "Category: #x", "a" * 256, "é" * 128, "a[b", "a{{b}}", "a<b",
    "a\nb", "a&lt;b", "a%7Cb", "a%FF", "a&#xFFFF;", "a&#xD800;", "a%2541", "a&amp;nbsp;", "a~~~~", ".", "..", "./a",
    "a/../b", "a/.", "//example.org", "http://example.org", "Mailto:a@b", "en:de:x", "a\x7fb",
]
TOKENS = [
    "[[", "]]", "[", "]", "|", "{{", "}}", "<!--", "-->", "<nowiki>", "</nowiki>", "<nowiki", "/>", ">", "<pre>",
    "</pre>", "<includeonly>", "</includeonly>", "Category:", "File:", "de:", "en:", ":", "#", "a", "B c", "é", "_",
    " ", "\n", "%41", "%", "&amp;", "&#65;", "\x7f", "/", "..", "\ufffd", "\u200e",
]
# fmt: on


@pytest.mark.parametrize("raw", NO_TARGETS)
def test_what_is_no_target(raw):
    assert parse_target(raw, ENGLISH) is None


def test_each_wiki_has_its_own_names_and_cases():
    assert parse_target("Category:x", FRENCH) == parse_target("catégorie:x", FRENCH) == Target(14, "X")
    assert parse_target("Image:x", FRENCH) == parse_target("FICHIER:x", FRENCH) == Target(6, "X")
    assert parse_target("en:x", FRENCH) == Target(0, "x", "en")
    assert parse_target("foo", WIKTIONARY) == article("foo")
    assert parse_target("category:foo", WIKTIONARY) == Target(14, "Foo")
    assert parse_target("istanbul", TURKISH) == article("İstanbul")


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("[[a]] [[b|c]]d [[a]]", ["A", "B", "A"]),
        ("[[a|b]c]] [[d|[e]]] [[f|g\nh]]", ["A", "D", "F"]),
        ("[[a|b [[c]] d]]", ["C"]),
        ("[[File:a.jpg|thumb|see [[Foo]] and [[bar|baz]]]]", ["A.jpg", "Foo", "Bar"]),
        ("[[:File:a.jpg|see [[Foo]]]]", ["Foo"]),
        ("[[Category:a]] [[:Category:b]] [[ Category:c|k]]", ["B"]),
        ("[[de:a]] [[:de:a]] [[Special:x]] [[Media:y]]", []),
        ("[[a|]] [[]] [[|b]] [[a\nb]] [[a<br>]] [[{{a}}]] [[a|b]", []),
        ("[[[a]]] [[[[b]]]] [[[http://c [[d]]]]]", ["B", "D"]),
        ("{{t|[[a]]|x=[[b|c]]|{{u|[[d]]}}}} {| [[e]] |}", ["A", "B", "D", "E"]),
        ("<!-- [[a]] --> [[b<!-- x -->c|d]] <!-->[[e]]--> [[f]]", ["Bc", "F"]),
        ("[[a]] <!-- [[b]]", ["A"]),
        ("<nowiki>[[a]]</nowiki> <NOWIKI >[[a]]</noWiki > <nowiki/>[[b]] <nowiki />[[c]]", ["B", "C"]),
        ("[[a<nowiki/>b]] [[c|<nowiki>]]</nowiki>]]", ["C"]),
        ("<nowiki>[[a]] <nowikis>[[b]]</nowikis> <nowiki [[c]]", ["A", "B", "C"]),
        ("<pre>[[a]]</pre><math x='y'>[[a]]</math><source lang=c>[[a]]</source>", []),
        ("<syntaxhighlight>[[a]]</syntaxhighlight> <pre><nowiki></pre>[[b]]</nowiki>", ["B"]),
        ("<nowiki><!--</nowiki>[[a]]<nowiki>--></nowiki> <!--<nowiki>-->[[b]]<!--</nowiki>-->", ["A", "B"]),
        ("<ref>[[a]]</ref><gallery>\nFile:x.jpg|[[b]]\n</gallery><poem>[[c]]</poem>", ["A", "B", "C"]),
        ("<includeonly>[[a]]</includeonly>[[b]]<noinclude>[[c]]</noinclude><includeonly>[[d]]", ["B", "C"]),
        ("[[#s]] [[/sub]] [[a#b|c]]", ["/sub", "A"]),
    ],
)
def test_links(text, titles):
    assert [target.title for target in find_links(text, ENGLISH)] == titles


def test_categories_are_memberships_and_no_links():
    text = (
        "[[Category:a b|key]] [[:Category:c]] {{t|[[category : d]]}} <!--[[Category:e]]--> [[Category:a b]]"
    )
    assert find_categories(text, ENGLISH) == ["A_b", "D", "A_b"]
    assert find_links(text, ENGLISH) == [Target(14, "C")]
    assert find_categories("[[Catégorie:x]] [[Category:y]]", FRENCH) == ["X", "Y"]


MARKUP = st.lists(st.sampled_from(TOKENS) | st.text(max_size=4), max_size=30).map("".join)


@given(MARKUP)
@example("[[\u0130]]")  # its small letter is two characters
def test_any_text_gives_valid_titles(text):
    for target in find_links(text, ENGLISH):
        assert target.title
        assert len(target.title.encode()) <= 255
        assert not re.search(r"[ \u00a0\u2003\[\]{}|<>#\x00-\x1f\x7f]|^[_:]|_$|__", target.title)
        name = ENGLISH.namespaces[target.namespace]
        assert parse_target(f":{name}:{target.title}" if name else f":{target.title}", ENGLISH) == target
    assert "<!--" not in searched(text) or "<!--" in re.sub(r"<!--.*?(-->|\Z)", "", text, flags=re.S)


@given(st.text("aZ09,'()! -", max_size=12))
def test_plain_targets_need_no_rule_but_blanks_and_capitals(raw):
    assert parse_target(raw, ENGLISH) == parse_target(f":{raw}", ENGLISH)  # the colon bars the short way


PIECES = "[[|[[a||[[a|b]|[|]]|[[File:a%|<nowiki|<nowiki>|<nowiki |<!--|<!---->|{{|[[a%[|<pre><nowiki>|</nowiki>|&|%4"


@pytest.mark.parametrize("piece", [piece.replace("%", "|") for piece in PIECES.split("|")])
def test_time_is_linear_on_hostile_text(piece):
    """Quadratic time would be minutes: 20,000 repetitions take 400,000,000 / 2 steps of it."""
    begun = time.process_time()
    for text in (piece * 20_000, f"[[{piece * 20_000}]]", f"#REDIRECT{piece * 20_000}", "#R" + " " * 20_000):
        find_links(text, ENGLISH)
        find_categories(text, ENGLISH)
        raw_redirect(text)
        raw_redirect(text, flagged=True)
    assert time.process_time() - begun < 5


DUMPS = [
    "xml/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2",
    "xml/enwiki-table-markup.xml.bz2",
    "xml/wikipedia2vec/enwiki-pages-articles-sample.xml.bz2",
    "dkpro-jwpl/aawiki-20260101-pages-meta-current.xml.bz2",
]


def twin(text, site):
    """Count targets by mwparserfromhell's tree of the whole markup, after the two rules that it does not know.

    It reads ``<includeonly>`` as any tag, and neither ``<gallery>`` nor ``<imagemap>``, whose captions link.
    """
    text = re.sub(r"<includeonly>.*?</includeonly>", "", text, flags=re.S)
    text = re.sub(r"</?(?:gallery|imagemap)\b[^>]*>", "\n", text, flags=re.I)
    tree = mwparserfromhell.parse(text, skip_style_tags=True)
    found = ((str(link.title), parse_target(str(link.title), site)) for link in tree.ifilter_wikilinks())
    return Counter(
        (is_membership(raw, target), target)
        for raw, target in found
        if target is not None and not target.interwiki and target.namespace >= 0
    )


@pytest.mark.parametrize("name", DUMPS)
def test_all_targets_of_real_pages_are_those_of_mwparserfromhell(name, wiki_fixtures):
    site, pages = read_pages(wiki_fixtures / name)
    # Of the long dump every fifth page, for time; all of them agree.
    pages = [page for page in pages if len(page.text) < 60_000 or page.number % 5 == 0]
    count = 0
    for page in pages:
        links = Counter((False, target) for target in find_links(page.text, site))
        links += Counter((True, Target(14, title)) for title in find_categories(page.text, site))
        assert links == twin(page.text, site), page.title
        count += links.total()
    assert count > 300


def rows(path):
    """Rows of three integers, or of a categorylinks table its first and last, of an SQL dump."""
    with gzip.open(path, "rt", errors="replace") as lines:
        statements = "".join(line for line in lines if line.startswith("INSERT"))
    if "categorylinks" in path.name:
        return [
            (int(a), int(b)) for a, b in re.findall(r"\((\d+),'.*?,\d+,(\d+)\)(?=[,;])", statements, re.S)
        ]
    return [(int(a), int(b)) for a, _, b in re.findall(r"\((\d+),(\d+),(\d+)\)", statements)]


def sources_of_targets(pairs):
    """For each target the set of pages that lead to it, without the targets' names: the tables have none."""
    sources = defaultdict(set)
    for source, target in pairs:
        sources[target].add(source)
    return Counter(map(frozenset, sources.values()))


def test_links_are_those_that_mediawiki_itself_put_into_the_tables(wiki_fixtures):
    """aawiki of 2026: of pages without templates, pagelinks and categorylinks must be what we find.

    By MediaWiki's rules embedded pictures are no page links, nor are a page's links to itself. Two prefixes of
    Wikimedia's interwiki map are not in ours, as they name no language or sister project. Two categories are
    MediaWiki's own for pages with ``__NOINDEX__`` (347) or a picture that is missing (338).
    """
    folder = wiki_fixtures / "dkpro-jwpl"
    site, pages = read_pages(folder / "aawiki-20260101-pages-meta-current.xml.bz2")
    pages = [page for page in pages if "{{" not in page.text]
    plain = {page.number for page in pages}
    links, memberships = [], []
    for page in pages:
        found = find_links(page.text, site)
        if page.redirect is not None:
            target = parse_target(page.redirect, site)
            found = [] if target is None or target.interwiki else [target]
        links += [
            (page.number, target)
            for target in found
            if (target.namespace != 6 or "[[:Image:" in page.text)
            and target != Target(page.namespace, page.title)
            and not target.title.startswith(("Betawiki:", "Wm2010:"))
        ]
        memberships += [(page.number, title) for title in find_categories(page.text, site)]
    pagelinks = [(a, b) for a, b in rows(folder / "aawiki-20260101-pagelinks.sql.gz") if a in plain]
    categorylinks = rows(folder / "aawiki-20260101-categorylinks.sql.gz")
    categorylinks = [(a, b) for a, b in categorylinks if a in plain and b not in (338, 347)]
    assert len(set(links)) == len(set(pagelinks)) > 100
    assert sources_of_targets(links) == sources_of_targets(pagelinks)
    assert len(set(memberships)) == len(set(categorylinks)) > 20
    assert sources_of_targets(memberships) == sources_of_targets(categorylinks)
