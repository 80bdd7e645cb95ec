"""Export XML: damaged dumps, any tokens, deep and endless elements; pages equal those of a DOM."""

from __future__ import annotations

import bz2
import re
from pathlib import Path
from typing import Any
from xml.dom import expatbuilder

import pytest
from fuzzing import Refused, budgets, changed, changes, inputs, outcome
from hypothesis import given
from hypothesis import strategies as st
from wiki_twin import read_all

from gramrun.data.wikipedia.xml_dump import read_pages
from gramrun.data.wikipedia.xml_wiki import XmlWiki

_SITE = "<siteinfo><dbname>w</dbname><base>http://en.w.org/</base><case>first-letter</case><namespaces>"
_SITE += '<namespace key="-1">Special</namespace><namespace key="0" /><namespace key="1">Talk</namespace>'
_SITE += '<namespace key="14" case="case-sensitive">Category</namespace></namespaces></siteinfo>\n'


def _page(title: str, number: int, text: str, more: str = "") -> str:
    return (
        f"<page><title>{title}</title>{more}<id>{number}</id><revision><id>7</id><contributor><id>3</id>"
        f'</contributor><text bytes="{len(text)}" xml:space="preserve">{text}</text></revision></page>\n'
    )


_OLD = (
    _page("A", 1, "[[B]] [[C|c]] [[Category:X]]")
    + _page("B", 2, "#REDIRECT [[A]]")
    + _page("Talk:A", 3, "[[A]]")
)
_OLD += _page("C é", 4, "&lt;!-- [[A]] --&gt; [[B]] [[c é]] &amp;amp; <![CDATA[[[A]]]]>") + _page(
    "Category:X", 5, "__HIDDENCAT__"
)
_NEW = _page("A", 1, "[[B]] [[C]]", "<ns>0</ns>") + _page("B", 2, "x", '<ns>0</ns><redirect title="A" />')
_NEW += _page("C", 9, "[[A]] {{t|[[B]]}}", "<ns>0</ns>")
DUMPS = [
    f'<mediawiki version="0.3" xml:lang="en">{_SITE}{_OLD}</mediawiki>\n'.encode(),
    f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">{_SITE}{_NEW}</mediawiki>\n'.encode(),
    f'<?xml version="1.0" encoding="utf-8"?>\n<mediawiki version="0.11">{_NEW}</mediawiki>\n'.encode(),
]
TOKENS = b"<page> </page> < > /> & &lt; &amp; &#0; &#x110000; &#65; &x; <![CDATA[ ]]> <!-- --> <?x?> <id> </id>".split()
TOKENS += (
    b"<ns>14</ns> <text> </text> <redirect/> <siteinfo> [[ ]] {{ | # <revision> </revision> <title>".split()
)
TOKENS += [
    b"<!DOCTYPE a>",
    b'<!DOCTYPE a [<!ENTITY x "y">]>',
    b'version="0.2"',
    b"<nowiki>",
    b"[[a]]",
    b"Talk:",
]


def pages_of(path: Path) -> list[tuple[int, str, str]]:
    return [(page.number, page.title, page.text) for page in read_pages(path)[1]]


def twin(data: bytes) -> list[tuple[int, str]]:
    """Each page's id and text from a DOM; the encoding is UTF-8 whatever the document declares."""
    root = expatbuilder.parseString(re.sub(rb"^<\?xml[^>]*\?>", b"", data), namespaces=False).documentElement
    assert root.tagName == "mediawiki"
    rows = []
    for page in children(root, "page"):
        number = children(page, "id")[-1]
        texts = [text for part in page.childNodes for text in children(part, "text")]
        rows.append((int(content(number)), content(texts[-1]) if texts else ""))
    return rows


def children(element: Any, name: str) -> list[Any]:
    return [child for child in element.childNodes if getattr(child, "tagName", None) == name]


def content(node: Any) -> str:
    if node.nodeType in (node.TEXT_NODE, node.CDATA_SECTION_NODE):
        return str(node.data)
    return "".join(map(content, node.childNodes)) if node.nodeType == node.ELEMENT_NODE else ""


@budgets(fast=40, slow=2_000)
def test_damaged_dumps_are_read_as_a_tree_or_refused(examples, tmp_path):
    path = tmp_path / "w.xml"

    @inputs(examples)
    @given(st.sampled_from(DUMPS), changes(TOKENS), st.booleans())
    def check(dump, made, cut_off):
        data = changed(dump, made)
        path.write_bytes(data)
        found = outcome(pages_of, path)
        if not isinstance(found, Refused):
            assert [(number, text) for number, _, text in found] == twin(data)
        outcome(lambda: read_all(XmlWiki("w", path, allow_cut_off=cut_off), "titles" if cut_off else "pages"))

    check()


ENDLESS = {
    "external entity": (
        b'<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/passwd">]><mediawiki>&x;</mediawiki>',
        1,
        "document type",
    ),
    "nested": (b"<mediawiki>" + b"<a>" * 1_000, 1_000, "nests its elements deeper than 100"),
    "text": (b"<mediawiki><page><title>" + b"x" * (1 << 20), 150, "text or tag of more than 64 MiB"),
    "tag": (b'<mediawiki><page a="' + b"x" * (1 << 20), 150, "text or tag of more than 64 MiB"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name not in ("nested", "text") else name
        for name in ENDLESS
    ],
)
def test_what_has_no_end_is_refused_in_little_memory(name, tmp_path, peak_of_prepare):
    """Packed to kilobytes; unpacked up to 150 MB."""
    head, times, message = ENDLESS[name]
    path = tmp_path / "w.xml.bz2"
    packer = bz2.BZ2Compressor()
    with path.open("wb") as file:
        file.write(packer.compress(head))
        for _ in range(times):
            file.write(
                packer.compress(head[-(1 << 20) :] if times == 150 else b"<a>" * 1_000 if times > 1 else b"")
            )
        file.write(packer.flush())
    peak, line = peak_of_prepare("wikipedia-xml", path)
    assert message in line
    assert peak < 700 << 20
