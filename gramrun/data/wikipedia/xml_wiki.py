"""The tables of a wiki from its export XML, read from the wikitext in one pass.

Every title, of a page or a target, gets a number when it is first met, so that a link is one int32.
`gramrun.data.wikipedia.wikitext` defines what a link is. Templates are not expanded, so links and categories
that only they contain are missing, among them the mark of most hidden categories. Links and categories of
redirects and of pages in other namespaces are not read, as no corpus uses them.
"""

from __future__ import annotations

import logging
import re
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.byte_strings import ByteStrings
from gramrun.data.wikipedia.records import (
    ARTICLES,
    CATEGORIES,
    ByNumber,
    ByTitle,
    Links,
    LinkTargets,
    Pages,
    Redirects,
)
from gramrun.data.wikipedia.titles import SiteInfo, parse_target
from gramrun.data.wikipedia.wikitext import HIDDEN_CATEGORY, is_membership, raw_targets, searched
from gramrun.data.wikipedia.xml_dump import Page, read_pages

_logger = logging.getLogger(__name__)

_NOTHING = -1  # the code of text that is no link; links have codes from 0 up, memberships from -2 down
_CHUNK = 1 << 20  # links in an array
_REMEMBERED = 1 << 20  # targets in the cache, which is then emptied


class XmlWiki:
    """The tables of one wiki, read from a dump when the object is made.

    Attributes:
        name: the database's name, or the site's in small letters, such as "enwiki" or "wikipedia".
        site: what the dump says of the wiki.
    """

    def __init__(
        self, path: Path, *, allow_cut_off: bool = False, on_read: Callable[[int], object] | None = None
    ) -> None:
        """Read the dump.

        Args:
            path: the file, packed or not.
            allow_cut_off: whether to read the whole pages of a file that ends within a page.
            on_read: called with the number of bytes of the file read since its last call.

        Raises:
            InputError: as from `read_pages`; or two pages have one id.
        """
        self.site, pages = read_pages(path, allow_cut_off=allow_cut_off, on_read=on_read)
        self.name = re.sub(r"\W+", "-", self.site.name.lower()).strip("-") or "wiki"
        titles = _Titles()
        codes = _Codes(self.site, titles)
        collected = _Collected()
        for page in pages:
            collected.add(page, codes, titles, self.site)
        self._titles, self._title_namespaces = titles.columns()
        self._pages = collected.page_columns()
        self._redirects = collected.redirect_columns(self._pages[0])
        self._links = collected.links.columns()
        self._hidden = np.array(collected.hidden)
        self._refuse_double_numbers(path)
        self._drop_double_titles(path)

    def pages(self) -> Iterator[Pages]:
        """All pages."""
        numbers, titles, is_redirect = self._pages
        yield Pages(numbers, self._title_namespaces[titles], self._titles.take(titles), is_redirect)

    def redirects(self) -> Iterator[Redirects]:
        """The targets of redirecting pages; a redirect to an impossible title has no row."""
        sources, titles, interwiki = self._redirects
        targets = ByTitle(self._title_namespaces[titles], self._titles.take(titles))
        yield Redirects(sources, targets, interwiki)

    def link_targets(self) -> Iterator[LinkTargets]:
        """All titles that are a page's or a target's."""
        numbers = np.arange(len(self._titles), dtype=np.int64)
        yield LinkTargets(numbers, self._title_namespaces, self._titles)

    def links(self) -> Iterator[Links]:
        """Links of articles, repetitions included."""
        for sources, codes in self._links:
            kept = codes >= 0
            yield Links(sources[kept], ByNumber(codes[kept].astype(np.int64)))

    def category_links(self) -> Iterator[Links]:
        """Memberships of articles, repetitions included."""
        for sources, codes in self._links:
            kept = codes < _NOTHING
            yield Links(sources[kept], ByNumber(_NOTHING - 1 - codes[kept].astype(np.int64)))

    def hidden_categories(self) -> Iterator[np.ndarray]:
        """page_ids of the category pages whose wikitext has ``__HIDDENCAT__``."""
        yield self._hidden

    def _refuse_double_numbers(self, path: Path) -> None:
        numbers = np.sort(self._pages[0])
        doubles = numbers[1:][numbers[1:] == numbers[:-1]]
        if len(doubles):
            raise InputError(f"{path}: holds two pages with the id {doubles[0]}; give one whole dump")

    def _drop_double_titles(self, path: Path) -> None:
        """Of pages with equal titles keep the first that is no redirect, or else the first.

        A page that is moved while the dump is written appears twice, the second time as a redirect.
        """
        numbers, titles, is_redirect = self._pages
        order = np.lexsort((is_redirect, titles))  # stable: the file's order last
        follows = titles[order[1:]] == titles[order[:-1]]
        if not follows.any():
            return
        rows = order[1:][follows]
        dropped = numbers[rows]
        _logger.warning("%s: %d pages have the title of another and are left out", path, len(rows))
        self._pages = (np.delete(numbers, rows), np.delete(titles, rows), np.delete(is_redirect, rows))
        kept = ~np.isin(self._redirects[0], dropped)
        self._redirects = (self._redirects[0][kept], self._redirects[1][kept], self._redirects[2][kept])
        self._hidden = self._hidden[~np.isin(self._hidden, dropped)]
        for i, (sources, codes) in enumerate(self._links):
            kept = ~np.isin(sources, dropped)
            self._links[i] = (sources[kept], codes[kept])


class _Titles:
    """Numbers pairs of namespace and title in the order in which they are first looked up."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[str, int]] = {}
        self._count = 0

    def number(self, namespace: int, title: str) -> int:
        known = self._numbers.setdefault(namespace, {})
        number = known.setdefault(title, self._count)
        self._count += number == self._count
        return number

    def columns(self) -> tuple[ByteStrings, np.ndarray]:
        """The titles and their namespaces (int64) by number; forgets them."""
        namespaces = np.empty(self._count, dtype=np.int64)
        order = np.empty(self._count, dtype=np.int64)  # rows of the parts below by number
        parts, row = [], 0
        while self._numbers:
            namespace, known = self._numbers.popitem()
            numbers = np.fromiter(known.values(), dtype=np.int64, count=len(known))
            namespaces[numbers] = namespace
            order[numbers] = np.arange(row, row + len(known))
            row += len(known)
            parts.append(ByteStrings.of(title.encode() for title in known))
        return ByteStrings.concatenate(parts).take(order), namespaces


class _Codes(dict[str, int]):
    """Cache of the codes of link targets by their wikitext."""

    def __init__(self, site: SiteInfo, titles: _Titles) -> None:
        super().__init__()
        self._site, self._titles = site, titles

    def __missing__(self, raw: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        target = parse_target(raw, self._site) if raw else None
        if target is None or target.interwiki or target.namespace < 0:
            code = _NOTHING
        else:
            code = self._titles.number(target.namespace, target.title)
            if is_membership(raw, target):
                code = _NOTHING - 1 - code
        self[raw] = code
        return code


class _Links:
    """Sources (int64) and codes (int32) of links, in chunks."""

    def __init__(self) -> None:
        self._chunks: list[tuple[np.ndarray, np.ndarray]] = []
        self._codes = array("i")
        self._sources = array("q")
        self._lengths = array("q")

    def add(self, source: int, codes: list[int]) -> None:
        self._codes.extend(codes)
        self._sources.append(source)
        self._lengths.append(len(codes))
        if len(self._codes) >= _CHUNK:
            self._fix()

    def _fix(self) -> None:
        codes = np.array(self._codes, dtype=np.int32)
        sources = np.repeat(np.array(self._sources), np.array(self._lengths))
        self._chunks.append((sources[codes != _NOTHING], codes[codes != _NOTHING]))
        self._codes, self._sources, self._lengths = array("i"), array("q"), array("q")

    def columns(self) -> list[tuple[np.ndarray, np.ndarray]]:
        self._fix()
        return self._chunks


class _Collected:
    """Collects the rows of all tables."""

    def __init__(self) -> None:
        self.links = _Links()
        self.hidden = array("q")
        self._numbers, self._titles = array("q"), array("i")
        self._redirects: list[tuple[int, int, bool]] = []
        self._is_redirect = bytearray()

    def add(self, page: Page, codes: _Codes, titles: _Titles, site: SiteInfo) -> None:
        self._numbers.append(page.number)
        self._titles.append(titles.number(page.namespace, page.title))
        self._is_redirect.append(page.redirect is not None)
        if page.redirect is not None:
            target = parse_target(page.redirect, site) if page.redirect else None
            if target is not None:
                number = titles.number(target.namespace, target.title)
                self._redirects.append((len(self._numbers) - 1, number, bool(target.interwiki)))
        elif page.namespace == ARTICLES:
            self.links.add(page.number, [codes[raw] for raw in raw_targets(searched(page.text))])
        elif page.namespace == CATEGORIES and HIDDEN_CATEGORY in searched(page.text):
            self.hidden.append(page.number)

    def page_columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """page_ids (int64), numbers of titles (int32), and whether the pages redirect (bool)."""
        is_redirect = np.frombuffer(bytes(self._is_redirect), dtype=bool)
        return np.array(self._numbers), np.array(self._titles), is_redirect

    def redirect_columns(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """page_ids of sources (int64), numbers of target titles (int64), whether in another wiki (bool)."""
        rows = np.array(self._redirects, dtype=np.int64).reshape(-1, 3)
        return numbers[rows[:, 0]], rows[:, 1], rows[:, 2].astype(bool)
