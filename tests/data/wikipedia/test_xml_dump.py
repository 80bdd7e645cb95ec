"""Export XML of every version, whole, cut off and hostile; real dumps counted by other means."""

import bz2
import hashlib
import re
from xml.sax.saxutils import escape, quoteattr

import pytest

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.xml_dump import read_pages

VERSIONS = ["0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.10", "0.11"]
NAMES = {-2: "Media", -1: "Special", 0: "", 1: "Talk", 4: "Wiki <P>", 6: "Image", 14: "Catégorie"}
TEXTS = {
    (1, 0, "Ünder scored"): ("", "a [[link]] & <b>\n" + "x" * 3000),
    (2, 1, "Ünder scored"): ("", ""),
    (3, 0, "No:namespace: here"): ("", "#not a [[redirect]]"),
    (5, 14, "Ä: b"): ("", "[[Catégorie:C]]"),
    (9, 0, "R"): ("Ünder scored", "#REDIRECT [[Ünder scored]] [[x]]"),
    (7, 4, "S"): ("Catégorie:Ä: b", "#Weiterleitung : [[Catégorie:Ä: b|label]]"),
}


def has(version, since):
    return int(version.partition(".")[2]) >= int(since.partition(".")[2])


def head(version):
    case = ' case="first-letter"' if has(version, "0.4") else ""
    sensitive = ' case="case-sensitive"' if has(version, "0.4") else ""
    spaces = "".join(
        f'<namespace key="{n}"{sensitive if n == 14 else case}>{escape(name)}</namespace>\n'
        for n, name in NAMES.items()
    )
    return (
        f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}" xml:lang="fr">\n'
        f"<siteinfo><sitename>Wikipédia</sitename>{'<dbname>frwiki</dbname>' if has(version, '0.9') else ''}\n"
        f"<base>http://fr.wikipedia.org/wiki/Accueil</base><generator>g</generator><case>first-letter</case>\n"
        f"<namespaces>{spaces}</namespaces></siteinfo>\n"
    )


def revision(version, text):
    main = f'<text xml:space="preserve">{escape(text)}</text>'
    more = "<content><role>other</role><text>never this</text></content>" if has(version, "0.11") else ""
    return f"<revision><id>5</id><contributor><username>u</username><id>6</id></contributor>{main}{more}</revision>"


def page(version, number, namespace, title, redirect, text):
    full = f"{NAMES[namespace]}:{title}" if namespace else title
    ns = f"<ns>{namespace}</ns>" if has(version, "0.6") else ""
    element = ""
    if redirect and has(version, "0.4"):
        element = f"<redirect title={quoteattr(redirect)} />" if has(version, "0.6") else "<redirect />"
    return (
        f"<page><title>{escape(full)}</title>{ns}<id>{number}</id>{element}\n"
        f"{revision(version, 'an old text')}{revision(version, text)}</page>\n"
    )


def document(version):
    pages = (page(version, *key, *value) for key, value in TEXTS.items())
    return f"{head(version)}{''.join(pages)}</mediawiki>\n".encode()


def read(path, data, **options):
    path.write_bytes(data)
    site, pages = read_pages(path, **options)
    return site, list(pages)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_says_the_same_of_its_pages(version, tmp_path):
    site, pages = read(tmp_path / "dump.xml", document(version))
    assert site.prefix == "fr"
    assert site.namespaces == NAMES
    assert site.cases[0] == "first-letter"
    assert site.cases[14] == ("case-sensitive" if has(version, "0.4") else "first-letter")
    assert [(p.number, p.namespace, p.title.replace("_", " ")) for p in pages] == list(TEXTS)
    assert [p.text for p in pages] == [text for _, text in TEXTS.values()]
    assert [p.redirect or "" for p in pages] == [redirect for redirect, _ in TEXTS.values()]
    assert all(p.redirect != "" and " " not in p.title for p in pages)


def test_pages_come_before_the_file_is_read_to_its_end(tmp_path):
    many = "".join(page("0.10", n, 0, f"T{n}", "", "é<" * 5000) for n in range(1000))
    path = tmp_path / "dump.xml"
    path.write_text(f"{head('0.10')}{many}</mediawiki>")
    read_bytes = []
    _, pages = read_pages(path, on_read=read_bytes.append)
    first = next(pages)
    assert sum(read_bytes) < path.stat().st_size / 2
    assert {len(p.text) for p in [first, *pages]} == {10_000}  # whole across chunks and expat's buffers


@pytest.mark.parametrize("version", ["0.3", "0.11"])
def test_a_cut_anywhere_is_noticed_and_allowed_on_demand(version, tmp_path):
    data = document(version).strip()
    _, whole = read(tmp_path / "whole.xml", data)
    begun = data.index(b">") + 1  # the root's opening tag
    ends = [m.end() for m in re.finditer(b"</page>", data)]
    for cut in range(begun, len(data), 61):
        with pytest.raises(InputError, match="cut off"):
            read(tmp_path / "cut.xml", data[:cut])
        if cut > data.index(b"</siteinfo>") + 11:
            _, pages = read(tmp_path / "cut.xml", data[:cut], allow_cut_off=True)
            assert pages == whole[: sum(end <= cut for end in ends)]


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>' + head("0.3")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("INSERT INTO `page` VALUES", "is not XML"),
        ("<!doctype html><html>", "HTML page"),
        ("<feed><doc/></feed>", "begins with <feed>, not <mediawiki>"),
        (BOMB, "declares a document type"),
        (head("0.3") + "<page><title>T</page>", "damaged: mismatched tag: line"),
        (head("0.3") + "<page><title>T</title></page></mediawiki>", "without a title or an id"),
        (head("0.3") + "<page><title>T</title><id>x</id></page></mediawiki>", "line 12: has 'x' where <id>"),
        ('<mediawiki version="0.3"><page><title>T</title><id>1</id></page></mediawiki>', "no <siteinfo>"),
        (
            head("0.10")
            + '<page><title>T</title><ns>0</ns><id>1</id><revision><text bytes="9" /></revision></page></mediawiki>',
            "stub dump",
        ),
    ],
)
def test_what_is_no_dump_is_refused_in_one_line(data, message, tmp_path):
    with pytest.raises(InputError, match=re.escape(message)) as error:
        read(tmp_path / "dump.xml", data.encode())
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "dump.xml"))


@pytest.mark.parametrize(
    ("text", "redirect"),
    [
        ("#REDIRECT [[A b]]", "A b"),
        ("#WEITERLEITUNG [[A#s]]", "A#s"),
        ("#перенаправление [[A]]", "A"),
        ("＃転送 [[A]]", "A"),
        ("#REDIRECT [[en:A]]", "en:A"),
        ("see #REDIRECT [[A]]", None),
        ("#REDIRECT [[#section]]", None),
        ("#REDIRECT [[A", None),
    ],
)
def test_before_version_04_the_text_tells_redirects(text, redirect, tmp_path):
    data = head("0.3") + page("0.3", 1, 0, "T", "", text) + "</mediawiki>"
    _, (found,) = read(tmp_path / "dump.xml", data.encode())
    assert found.redirect == redirect


def test_what_the_dump_says_of_redirects_comes_before_the_text(tmp_path):
    pages = [
        page("0.6", 1, 0, "A", "T", "#REDIRECT [[other]]"),
        page("0.6", 2, 0, "B", "", "#REDIRECT [[not by the dump]]"),
        page("0.5", 3, 0, "C", "x", "unknown word [[T]]"),
        page("0.5", 4, 0, "D", "x", "no link at all"),
    ]
    _, found = read(tmp_path / "dump.xml", f"{head('0.6')}{''.join(pages)}</mediawiki>".encode())
    assert [p.redirect for p in found] == ["T", None, "T", ""]


def test_an_excerpt_without_siteinfo_needs_the_namespaces_of_its_pages(tmp_path):
    text = '<mediawiki version="0.10">' + page("0.10", 1, 1, "T", "", "x") + "</mediawiki>"
    site, (found,) = read(tmp_path / "dump.xml", text.encode())
    assert (found.namespace, found.title, site.namespaces[14]) == (1, "T", "Category")


def base36_sha1(text):
    number, digits = int.from_bytes(hashlib.sha1(text.encode()).digest(), "big"), ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits.rjust(31, "0")


@pytest.mark.parametrize(
    ("name", "pages", "redirects", "edited"),
    [
        ("xml/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2", 206, 100, 0),
        ("xml/enwiki-table-markup.xml.bz2", 5, 0, 0),
        ("xml/wikipedia2vec/enwiki-pages-articles-sample.xml.bz2", 3, 1, 2),
        ("dkpro-jwpl/aawiki-20260101-pages-meta-current.xml.bz2", 507, 19, 0),
    ],
)
def test_real_dumps_hold_what_their_lines_and_checksums_say(name, pages, redirects, edited, wiki_fixtures):
    """`edited`: texts that whoever made the sample shortened, so that the dump's own SHA-1 is another's."""
    found = list(read_pages(wiki_fixtures / name)[1])
    lines = bz2.decompress((wiki_fixtures / name).read_bytes()).decode()  # one element a line
    assert len(found) == pages
    assert [p.number for p in found] == [int(n) for n in re.findall(r"^    <id>(\d+)</id>$", lines, re.M)]
    assert [p.namespace for p in found] == [int(n) for n in re.findall(r"^    <ns>(\d+)</ns>$", lines, re.M)]
    assert sum(p.redirect is not None for p in found) == lines.count("    <redirect title=") == redirects
    checksums = re.findall(r"<sha1>(\w+)</sha1>", lines)
    assert sum(base36_sha1(p.text) != c for p, c in zip(found, checksums, strict=True)) == edited


def test_dumps_of_2005_are_read(wiki_fixtures):
    folder = wiki_fixtures / "gitpan-Parse-MediaWikiDump"
    _, pages = read_pages(folder / "pages_test.xml")
    assert [(p.number, p.namespace, p.title, p.redirect) for p in pages] == [
        (1, 1, "Title_Test_Value", None),
        (2, 0, "Title_Test_Value_#2", "fooooo"),
        (3, 0, "Title_Test_Value_#3", "fooooo"),
        (4, 0, "NotANameSpace:Bar", None),
        (5, 0, "Moar_Tests", None),
    ]
    _, history = read_pages(folder / "revisions_test.xml")
    texts = re.findall(r"<page>.*?</page>", (folder / "revisions_test.xml").read_text(), re.S)
    newest = [re.findall(r"<text[^>]*?(?:/>|>(.*?)</text>)", text, re.S)[-1] for text in texts]
    assert [p.text for p in history] == newest
