"""Everything that a planted wiki is, before it is written: pages, titles, link targets, categories."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gramrun.data.byte_strings import ByteStrings
from gramrun.data.sql_writer import Literals, quoted
from gramrun.data.wikipedia.planted.categories import plant_categories
from gramrun.data.wikipedia.planted.links import LinkPlan, Shares
from gramrun.data.wikipedia.planted.pages import (
    ARTICLE,
    CATEGORY_TITLE,
    OTHER,
    RESOLVED,
    case_variants,
    lay_out,
    other_pages,
    plant_redirects,
)
from gramrun.data.wikipedia.planted.settings import PlantedWiki
from gramrun.data.wikipedia.planted.titles import HOSTILE, Words, article_titles, joined
from gramrun.data.wikipedia.planted.topics import out_degrees, plant_topics
from gramrun.data.wikipedia.records import CATEGORIES

_RED_TITLES = 0.4  # for each article
_WITH_PAGE = 0.8  # the share of visible and rare categories that have a page
# Pages that exist in no table: special pages, files of elsewhere, and user talk nobody has written.
_PAGELESS = np.array([-1, -1, -2, 3, 6])


@dataclass(frozen=True)
class Titles:
    """All titles that links can name, kind after kind (`pages.ARTICLE_TITLE` and following), then numbers.

    Attributes:
        texts: a title for each; for a number that stands in no table, an empty one.
        literals: the same as SQL literals.
        namespaces: int64, shape (titles,).
        begins: int64, shape (7,). Where each kind begins; unknown numbers last; then the end.
        slots: int64, shape (titles,). The place of each in the order of `numbers`.
        numbers: int64, shape (titles,). lt_id by slot, ascending.
        order: int64, shape (titles,). The title at each slot.
    """

    texts: ByteStrings
    literals: ByteStrings
    namespaces: np.ndarray
    begins: np.ndarray
    slots: np.ndarray
    numbers: np.ndarray
    order: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """Whether the slot's number stands in ``linktarget``: bool, shape (titles,)."""
        known: np.ndarray = self.order < self.begins[-2]
        return known

    def of_kind(self, kind: int) -> ByteStrings:
        """The titles of one kind."""
        begin, end = self.begins[kind], self.begins[kind + 1]
        offsets = self.texts.offsets[begin : end + 1]
        return ByteStrings(offsets - offsets[0], self.texts.data[offsets[0] : offsets[-1]])


class World:
    """A planted wiki in memory.

    Attributes:
        wiki: the settings.
        topics: the planted factors.
        degrees: int64, shape (articles,). Planted links of each article.
        memberships: who is in which category.
        others: pages of other namespaces.
        redirects: redirecting pages of namespace 0.
        layout: the ids of all pages.
        titles: all titles that links can name.
    """

    def __init__(self, wiki: PlantedWiki) -> None:
        self.wiki = wiki
        self.topics = plant_topics(wiki)
        self.degrees = out_degrees(wiki, self.topics)
        self.memberships = plant_categories(wiki, self.topics)
        self.others = other_pages(wiki, self._described())
        red = max(8, round(_RED_TITLES * wiki.pages))
        plain_others = len(self.others.articles)
        pageless = max(len(_PAGELESS), plain_others // 10)
        self.redirects = plant_redirects(wiki, red, plain_others + pageless)
        self.layout = lay_out(wiki, len(self.redirects.fates), len(self.others.namespaces))
        self.titles = self._titles(red, pageless)

    def _described(self) -> np.ndarray:
        """The categories that have a page: all hidden ones, else they could not be hidden."""
        shown = self.memberships.visible + self.memberships.rare
        with_page = self.wiki.random(8).random(shown) < _WITH_PAGE
        return np.concatenate([np.flatnonzero(with_page), np.arange(shown, self.memberships.count)])

    def _titles(self, red: int, pageless: int) -> Titles:
        wiki, words = self.wiki, Words(self.wiki)
        random = wiki.random(9)
        articles = article_titles(wiki, words, self.topics.mixture_topics[:, 0])
        count = len(self.redirects.fates)
        of_redirects = random.integers(0, words.phrases, count)
        leads = self.redirects.articles >= 0
        of_redirects[leads] = articles.phrases[self.redirects.articles[leads]]
        redirects = words.plain_titles(of_redirects, wiki.pages + np.arange(count))

        plain = articles.titles.take(np.flatnonzero(articles.ordinary))
        plain = plain.take(plain.data[plain.offsets[1:] - 1] != ord(")"))
        variants = case_variants(plain.take(random.permutation(len(plain))[: red // 8]))
        own = wiki.pages + count + np.arange(red - len(variants))
        reds = [variants, words.plain_titles(random.integers(0, words.phrases, len(own)), own)]

        others = articles.titles.take(self.others.articles)
        unwritten = random.choice(_PAGELESS, pageless)
        of_nowhere = words.plain_titles(
            random.integers(0, words.phrases, pageless), wiki.pages + count + red + np.arange(pageless)
        )
        described = len(self.others.categories)
        parts = [articles.titles, redirects, *reds, others, of_nowhere, self._category_titles(words)]
        namespaces = [
            np.zeros(wiki.pages + count + red, dtype=np.int64),
            self.others.namespaces[described:],
            unwritten,
            np.full(self.memberships.count, CATEGORIES),
        ]
        unknown = max(5, wiki.pages // 100)
        sizes = [wiki.pages, count, red, len(others) + pageless, self.memberships.count, unknown]
        texts = ByteStrings.concatenate([*parts, ByteStrings.of([b""] * unknown)])
        order = random.permutation(len(texts))
        slots = np.empty_like(order)
        slots[order] = np.arange(len(order))
        return Titles(
            texts,
            quoted(texts),
            np.concatenate([*namespaces, np.zeros(unknown, dtype=np.int64)]),
            np.concatenate([[0], np.cumsum(sizes)]),
            slots,
            1 + np.cumsum(random.choice([1, 1, 2, 5], len(order))),
            order,
        )

    def _category_titles(self, words: Words) -> ByteStrings:
        """Names of their topics' words; every 50th with something hostile in it."""
        topic_of_phrase = words.topics_of_phrases()
        by_topic = np.argsort(topic_of_phrase, kind="stable")
        starts = np.searchsorted(topic_of_phrase[by_topic], np.arange(self.wiki.topics + 1))
        topics, number = self.memberships.topics, np.arange(self.memberships.count)
        phrases = by_topic[starts[topics] + number % np.diff(starts)[topics]]
        fragments = ByteStrings.of([b"", *(b"_" + title for title in HOSTILE if len(title) < 100)])
        chosen = np.where(number % 50 == 7, 1 + number // 50 % (len(fragments) - 1), 0)
        return joined([Literals(words.plain_titles(phrases, number), number), Literals(fragments, chosen)])

    @cached_property
    def article_numbers(self) -> np.ndarray:
        """The page_ids of the articles, ascending: int64, shape (articles,)."""
        return self.layout.of_kind(ARTICLE)

    @cached_property
    def page_namespaces(self) -> np.ndarray:
        """Of each page of the layout; 0 for missing ones: int64, shape (pages,)."""
        namespaces = np.zeros(len(self.layout.kinds), dtype=np.int64)
        other = self.layout.kinds == OTHER
        namespaces[other] = self.others.namespaces[self.layout.rows[other]]
        return namespaces

    def redirect_titles(self) -> np.ndarray:
        """The title that each redirect's row names, -1 without row: int64, shape (redirects,)."""
        targets = self.redirects.targets
        return np.where(targets >= 0, self.titles.begins[self.redirects.target_kinds] + targets, -1)

    def link_plan(self) -> LinkPlan:
        """What the links are written from."""
        begins = np.delete(self.titles.begins, CATEGORY_TITLE)  # names of categories are other titles too
        resolved = np.flatnonzero(self.redirects.fates == RESOLVED)
        resolved = resolved[np.argsort(self.redirects.articles[resolved], kind="stable")]
        # MediaWiki keeps links to other wikis in a table of its own.
        return LinkPlan(
            self.layout.kinds.astype(np.int64),
            self.layout.rows,
            self.degrees,
            self.titles.slots,
            begins,
            np.searchsorted(self.redirects.articles[resolved], np.arange(self.wiki.pages + 1)),
            resolved,
            np.flatnonzero(self.redirects.fates != RESOLVED),
            np.where(self.redirects.interwiki, -1, self.redirect_titles()),
        )

    def shares(self, *, by_number: bool) -> Shares:
        """How often each trap of links occurs; a link by title cannot lack its target."""
        wiki = self.wiki
        return Shares(
            wiki.through_redirects,
            wiki.duplicate_links,
            wiki.self_links,
            wiki.red_links,
            wiki.links_to_other_namespaces,
            wiki.links_to_broken_redirects,
            wiki.links_without_target if by_number else 0.0,
        )
