"""The tables of a wiki from its export XML, read from the wikitext in one pass.

Every title, of a page or a target, gets a number when it is first met, so that a link is one int32.
`gramrun.data.wikipedia.wikitext` defines what a link is. Templates are not expanded, so links and categories
that only they contain are missing, among them the mark of most hidden categories. Links and categories of
redirects and of pages in other namespaces are not read, as no corpus uses them.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from gramrun.base.errors import InputError
from gramrun.data.wikipedia.byte_strings import offsets_of
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
_BATCH = 1 << 20  # links, about
_REMEMBERED = 1 << 20  # targets in the cache, which is then emptied


class XmlWiki:
    """The tables of one wiki, read from a dump when the object is made.

    Attributes:
        name: the corpus's name.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        allow_cut_off: bool = False,
        on_read: Callable[[int], object] | None = None,
    ) -> None:
        """Read the dump.

        Args:
            name: the corpus's name.
            path: the file, packed or not.
            allow_cut_off: whether to read the whole pages of a file that ends within a page.
            on_read: called with the number of bytes of the file read since its last call.

        Raises:
            InputError: as from `read_pages`; or two pages have one id.
        """
        self.name = name
        site, pages = read_pages(path, allow_cut_off=allow_cut_off, on_read=on_read)
        rows = _Rows(site)
        for page in pages:
            rows.add(page)
        self._titles, self._title_namespaces = rows.titles.columns()
        self._numbers, self._page_titles = np.array(rows.numbers), np.array(rows.page_titles)
        self._is_redirect = np.array(rows.is_redirect, dtype=bool)
        self._redirects = np.array(rows.redirects, dtype=np.int64).reshape(-1, 3)
        self._sources, self._codes = np.array(rows.sources), np.frombuffer(rows.codes, dtype=np.int32)
        self._offsets = offsets_of(np.array(rows.lengths))
        self._hidden = np.array(rows.hidden)
        self._refuse_double_numbers(path)
        self._dropped = self._double_titles(path)  # page_ids

    def pages(self) -> Iterator[Pages]:
        """All pages."""
        kept = ~np.isin(self._numbers, self._dropped)
        titles = self._page_titles[kept]
        yield Pages(
            self._numbers[kept],
            self._title_namespaces[titles],
            self._titles.take(pa.array(titles)),
            self._is_redirect[kept],
        )

    def redirects(self) -> Iterator[Redirects]:
        """The targets of redirecting pages; a redirect to an impossible title has no row."""
        sources, titles, interwiki = self._redirects[~np.isin(self._redirects[:, 0], self._dropped)].T
        targets = ByTitle(self._title_namespaces[titles], self._titles.take(pa.array(titles)))
        yield Redirects(sources, targets, interwiki.astype(bool))

    def link_targets(self) -> Iterator[LinkTargets]:
        """All titles that are a page's or a target's."""
        numbers = np.arange(len(self._titles), dtype=np.int64)
        yield LinkTargets(numbers, self._title_namespaces, self._titles)

    def links(self) -> Iterator[Links]:
        """Links of articles, repetitions included."""
        for sources, codes in self._batches():
            kept = codes > _NOTHING
            yield Links(sources[kept], ByNumber(codes[kept].astype(np.int64)))

    def category_links(self) -> Iterator[Links]:
        """Memberships of articles, repetitions included."""
        for sources, codes in self._batches():
            kept = codes < _NOTHING
            yield Links(sources[kept], ByNumber(_NOTHING - 1 - codes[kept].astype(np.int64)))

    def hidden_categories(self) -> Iterator[np.ndarray]:
        """page_ids of the category pages whose wikitext has ``__HIDDENCAT__``."""
        yield self._hidden[~np.isin(self._hidden, self._dropped)]

    def _batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Sources (int64) and codes (int32) of the links of articles, in batches of whole articles."""
        total = len(self._codes)
        bounds = np.searchsorted(self._offsets, [*range(0, total, _BATCH), total])
        for first, last in pairwise(bounds.tolist()):
            lengths = np.diff(self._offsets[first : last + 1])
            sources = np.repeat(self._sources[first:last], lengths)
            kept = ~np.isin(sources, self._dropped)
            yield sources[kept], self._codes[self._offsets[first] : self._offsets[last]][kept]

    def _refuse_double_numbers(self, path: Path) -> None:
        numbers = np.sort(self._numbers)
        doubles = numbers[1:][numbers[1:] == numbers[:-1]]
        if len(doubles):
            raise InputError(f"{path}: holds two pages with the id {doubles[0]}; give one whole dump")

    def _double_titles(self, path: Path) -> np.ndarray:
        """The page_ids to drop: of pages with equal titles, all but the first that is no redirect.

        A page that is moved while the dump is written appears twice, the second time as a redirect.
        """
        order = np.lexsort((self._is_redirect, self._page_titles))  # stable: the file's order last
        follows = self._page_titles[order[1:]] == self._page_titles[order[:-1]]
        dropped: np.ndarray = self._numbers[order[1:][follows]]
        if len(dropped):
            _logger.warning("%s: %d pages have the title of another and are left out", path, len(dropped))
        return dropped


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

    def columns(self) -> tuple[pa.Array, np.ndarray]:
        """The titles and their namespaces (int64) by number; forgets them."""
        namespaces = np.empty(self._count, dtype=np.int64)
        order = np.empty(self._count, dtype=np.int64)  # rows of the parts below by number
        parts, row = [pa.array([], pa.large_binary())], 0
        while self._numbers:
            namespace, known = self._numbers.popitem()
            numbers = np.fromiter(known.values(), dtype=np.int64, count=len(known))
            namespaces[numbers] = namespace
            order[numbers] = np.arange(row, row + len(known))
            row += len(known)
            parts.append(pa.array([title.encode() for title in known], pa.large_binary()))
        return pa.concat_arrays(parts).take(pa.array(order)), namespaces


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


class _Rows:
    """Collects the rows of all tables."""

    def __init__(self, site: SiteInfo) -> None:
        self._site = site
        self.titles = _Titles()
        self._code_of = _Codes(site, self.titles)
        self.numbers, self.page_titles, self.is_redirect = array("q"), array("i"), array("b")
        self.redirects: list[tuple[int, int, bool]] = []  # page_id, title, whether in another wiki
        self.sources, self.lengths, self.codes = array("q"), array("q"), array("i")
        self.hidden = array("q")

    def add(self, page: Page) -> None:
        self.numbers.append(page.number)
        self.page_titles.append(self.titles.number(page.namespace, page.title))
        self.is_redirect.append(page.redirect is not None)
        if page.redirect is not None:
            target = parse_target(page.redirect, self._site) if page.redirect else None
            if target is not None:
                title = self.titles.number(target.namespace, target.title)
                self.redirects.append((page.number, title, bool(target.interwiki)))
        elif page.namespace == ARTICLES:
            codes = [self._code_of[raw] for raw in raw_targets(searched(page.text))]
            self.sources.append(page.number)
            self.lengths.append(len(codes))
            self.codes.extend(codes)
        elif page.namespace == CATEGORIES and HIDDEN_CATEGORY in searched(page.text):
            self.hidden.append(page.number)
