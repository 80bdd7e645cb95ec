"""The pages of a MediaWiki export XML file, of every version since 0.3 (2005), one by one.

The versions differ, and the reader uses the elements that are there:

- ``<ns>`` since 0.6; before, the namespace is the title's prefix, by the names in ``<siteinfo>``;
- ``<redirect/>`` since 0.4, with the target since 0.6; before, and where the target is missing, the text;
- ``case`` per namespace since 0.4; before, one for all;
- ``<content>`` with further texts of a page since 0.11: only the main one counts.

No dump has a document type declaration. It is refused, and with it entities that could expand to gigabytes.
Elements that are nested too deeply or too long are refused too.

Reference: https://www.mediawiki.org/xml/export-0.11.xsd and its predecessors.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.parsers import expat

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.compressed import read_chunks
from gramrun.data.wikipedia.titles import (
    CANONICAL_NAMESPACES,
    CASE_SENSITIVE,
    FIRST_LETTER,
    SiteInfo,
    parse_target,
)
from gramrun.data.wikipedia.wikitext import raw_redirect

_BUFFER_BYTES = 1 << 20  # the size of the pieces of text from expat
_LARGEST_DEPTH = 100  # of elements in one another; a dump has 5
# Of an element's text, or of a tag or comment: MediaWiki takes pages of 2 MB (``$wgMaxArticleSize``).
_LARGEST_ELEMENT_BYTES = 64 << 20
_WHOLE = "get it again"
_WITHOUT_REDIRECT = ("", "0.1", "0.2", "0.3")  # the versions that have no element for it
# Elements whose text is read, by depth: children of siteinfo and page, then of namespaces and revision.
_READ = {
    *((2, name) for name in ("base", "case", "title", "ns", "id", "redirect")),
    *((3, name) for name in ("namespace", "text")),
}
_CUT_OFF = {
    expat.errors.codes[message]
    for message in (
        expat.errors.XML_ERROR_NO_ELEMENTS,
        expat.errors.XML_ERROR_UNCLOSED_TOKEN,
        expat.errors.XML_ERROR_PARTIAL_CHAR,
        expat.errors.XML_ERROR_UNCLOSED_CDATA_SECTION,
    )
}

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """A page with its newest revision.

    Attributes:
        number: its id.
        namespace: the namespace's number.
        title: as in the tables: underscores for blanks, without the namespace's name.
        redirect: where to, as the dump or the text has it (`titles.parse_target` reads it); ""
            for a redirect whose target cannot be found; None for a page that does not redirect.
        text: the wikitext of the last revision in the file, which is the newest.
    """

    number: int
    namespace: int
    title: str
    redirect: str | None
    text: str


def read_pages(
    path: Path, *, allow_cut_off: bool = False, on_read: Callable[[int], object] | None = None
) -> tuple[SiteInfo, Iterator[Page]]:
    """Read a dump, packed or not, page by page in bounded memory.

    Args:
        path: the file.
        allow_cut_off: whether to accept text that ends within a page: its whole pages are read, with a
            warning. A packed file must be whole in any case.
        on_read: called with the number of bytes of the file read since its last call.

    Returns:
        The site information, and an iterator over the pages in file order, which may raise too.

    Raises:
        InputError: the file cannot be read; is no export XML, damaged or cut off; has a document type; says
            nothing of namespaces where they are needed; holds pages without texts ("stub" dumps).
    """
    document = _Document(path, allow_cut_off)
    pages = document.pages(read_chunks(path, on_read=on_read))
    first = list(itertools.islice(pages, 1))  # siteinfo stands before the first page
    return document.site, itertools.chain(first, pages)


class _Document:
    """The state of one parse; expat calls `_start` and `_end` for every element."""

    def __init__(self, path: Path, allow_cut_off: bool) -> None:
        self._path, self._allow_cut_off = path, allow_cut_off
        self._depth, self._root, self._version = 0, "", ""
        self._fields: dict[str, str] = {}  # of the section that is being read, siteinfo or page
        self._attributes: dict[str, dict[str, str]] = {}
        self._pieces: list[str] = []
        self._length = 0  # of these pieces
        self._fed = 0  # bytes
        self._namespaces: dict[int, str] = {}
        self._cases: dict[int, str] = {}
        self._site: SiteInfo | None = None
        self._pages: list[Page] = []
        self._texts = self._missing_texts = 0
        # Every dump is UTF-8, whatever a damaged first line says; other encodings would run Python's codecs.
        self._parser = expat.ParserCreate("utf-8")
        self._parser.buffer_text, self._parser.buffer_size = True, _BUFFER_BYTES
        self._parser.StartElementHandler, self._parser.EndElementHandler = self._start, self._end
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype

    @property
    def site(self) -> SiteInfo:
        if self._site is None:
            # Excerpts may lack it. With <ns> on every page they need no more than the names of all wikis.
            if "page" in self._fields and "ns" not in self._fields:
                raise self._error("holds no <siteinfo> before its pages, so their namespaces are unknown")
            self._site = SiteInfo(CANONICAL_NAMESPACES, {})
        return self._site

    def pages(self, chunks: Iterable[bytes]) -> Iterator[Page]:
        head = b""
        # Newer expats keep back what they may have to read twice, so the last step can bring pages too.
        for chunk in itertools.chain(chunks, [b""]):
            head = head or chunk.lstrip()[:14].lower()
            if head.startswith((b"<!doctype html", b"<html")):
                raise InputError(f"{self._path}: is an HTML page, not a dump; {_WHOLE}")
            self._parse(chunk, last=not chunk)
            yield from self._pages
            self._pages.clear()
        if self._texts and self._texts == self._missing_texts:
            raise InputError(f"{self._path}: holds no texts (a stub dump?); give pages-articles.xml")

    def _parse(self, chunk: bytes, last: bool) -> None:
        try:
            self._parser.Parse(chunk, last)
            self._fed += len(chunk)
            if self._fed - max(self._parser.CurrentByteIndex, 0) > _LARGEST_ELEMENT_BYTES:
                raise self._too_long()
        except expat.ExpatError as error:
            if not self._root:
                raise InputError(f"{self._path}: is not XML ({error}); {_WHOLE}") from error
            if not last or error.code not in _CUT_OFF:
                raise InputError(f"{self._path}: is damaged: {error}; {_WHOLE}") from error
            title = self._fields.get("title")
            place = f'in the middle of page "{title}"' if title else "between two pages"
            if not self._allow_cut_off:
                raise InputError(f"{self._path}: is cut off {place}; {_WHOLE}") from error
            _logger.warning("%s: is cut off %s", self._path, place)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        depth, self._depth = self._depth, self._depth + 1
        if depth > _LARGEST_DEPTH:
            raise self._error(f"nests its elements deeper than {_LARGEST_DEPTH}")
        if (depth, name) in _READ:
            self._pieces, self._length = [], 0
            self._attributes[name] = attributes
            self._parser.CharacterDataHandler = self._add_text
        elif depth == 1:
            self._fields, self._attributes = {name: ""}, {}
        elif depth == 0:
            self._root, self._version = name, attributes.get("version", "")
            if name != "mediawiki":
                raise self._error(f"is XML of another kind: begins with <{name}>, not <mediawiki>")

    def _end(self, name: str) -> None:
        self._depth -= 1
        if (self._depth, name) in _READ:
            self._parser.CharacterDataHandler = None
            self._fields[name] = "".join(self._pieces)
            if name == "namespace":
                self._add_namespace()
        elif self._depth == 1:
            if name == "page":
                self._pages.append(self._page())
            elif name == "siteinfo":
                self._site = self._site_info()
            self._fields = {}

    def _add_text(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > _LARGEST_ELEMENT_BYTES:
            raise self._too_long()

    def _add_namespace(self) -> None:
        attributes = self._attributes["namespace"]
        number = self._number(attributes.get("key", ""), "namespace")
        self._namespaces[number] = self._fields["namespace"]
        self._cases[number] = attributes.get("case", self._fields.get("case", FIRST_LETTER))

    def _site_info(self) -> SiteInfo:
        fields = self._fields
        if not self._namespaces:
            raise self._error("names no namespaces in its <siteinfo>")
        cases = {n: CASE_SENSITIVE if c == CASE_SENSITIVE else FIRST_LETTER for n, c in self._cases.items()}
        prefix = (urlsplit(fields.get("base", "").strip()).hostname or "").partition(".")[0]
        return SiteInfo(self._namespaces, cases, prefix)

    def _page(self) -> Page:
        fields, site = self._fields, self.site
        if not fields.get("title") or "id" not in fields:
            raise self._error("holds a <page> without a title or an id")
        if "ns" in fields:
            namespace = self._number(fields["ns"], "ns")
            # A namespace's name holds no colon; a title of namespace 0 may.
            full = fields["title"].replace(" ", "_")
            title = full.partition(":")[2] if namespace and ":" in full else full
        else:
            namespace, title = site.split(fields["title"])
        text = fields.get("text", "")
        self._count_text(text)
        return Page(self._number(fields["id"], "id"), namespace, title, self._redirect(text, site), text)

    def _redirect(self, text: str, site: SiteInfo) -> str | None:
        if "redirect" in self._fields:
            return self._attributes["redirect"].get("title") or raw_redirect(text, flagged=True) or ""
        if self._version not in _WITHOUT_REDIRECT:
            return None
        raw = raw_redirect(text)
        return raw if raw and parse_target(raw, site) else None

    def _count_text(self, text: str) -> None:
        """Count texts that are announced but missing: one may be lost, but not all."""
        attributes = self._attributes.get("text", {})
        if attributes.get("bytes", "0") != "0" and "deleted" not in attributes:
            self._texts += 1
            self._missing_texts += not text

    def _number(self, value: str, name: str) -> int:
        if not re.fullmatch(r"\s*-?[0-9]{1,9}\s*", value):
            raise self._error(f"has {value!r} where <{name}> needs a number of at most nine digits")
        return int(value)

    def _refuse_doctype(self, *_: object) -> None:
        raise self._error("declares a document type, which no dump does")

    def _too_long(self) -> InputError:
        return self._error(f"has a text or tag of more than {_LARGEST_ELEMENT_BYTES >> 20} MiB")

    def _error(self, what: str) -> InputError:
        return InputError(f"{self._path}: line {self._parser.CurrentLineNumber}: {what}; {_WHOLE}")
