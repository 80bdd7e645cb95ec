"""Synthetic Wikipedias of any size: links from a known model; titles and categories tell the topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from gramrun.data.wikipedia.byte_strings import ByteStrings
from gramrun.data.wikipedia.records import (
    ARTICLES,
    CATEGORIES,
    ByNumber,
    Links,
    LinkTargets,
    Pages,
    Redirects,
)
from gramrun.data.wikipedia.synthetic_links import Topics, WikiSize, draw_degrees, draw_links, draw_topics
from gramrun.data.wikipedia.synthetic_titles import article_titles, category_titles, zipf_counts

_SECOND_CATEGORY, _THIRD_CATEGORY = 0.9, 0.6  # the shares of articles in two and in three categories
# In a real wiki, pages that are no articles take the page_ids in between: redirects, pages of other
# namespaces, category pages, and deleted pages.
_REDIRECTS, _OTHERS, _DESCRIBED = 0.3, 0.5, 0.8
_LINKS_AT_ONCE = 1 << 19

# The sizes of simple and French Wikipedia in the paper's table of corpora, and of English Wikipedia.
SIZES: Mapping[str, WikiSize] = {
    "simple-scale": WikiSize(85_000, 4_600_000, 8_300, 6_100, 64),
    "fr-scale": WikiSize(1_800_000, 142_000_000, 167_400, 125_300, 256),
    "en-scale": WikiSize(5_300_000, 490_000_000, 501_000, 403_400, 512),
}


class SyntheticWiki:
    """A synthetic wiki (`gramrun.data.wikipedia.records.Wiki`): articles, links and categories, no errors.

    Args:
        name: the corpus's name.
        size: of the wiki.
        on_links: called with the number of links drawn since the last call.
    """

    def __init__(
        self, name: str, size: WikiSize, on_links: Callable[[int], object] = lambda links: None
    ) -> None:
        self.name = name
        self.size = size
        self._on_links = on_links
        self.topics = draw_topics(size)
        self.degrees = draw_degrees(size, self.topics)
        self.page_ids = _page_ids(size)
        self._titles = article_titles(
            size.phrases, self.topics.mixture_topics[:, 0], size.minimum_count, size.random(3)
        )

    def pages(self) -> Iterator[Pages]:
        """All articles, in one batch."""
        namespaces = np.full(self.size.pages, ARTICLES)
        is_redirect = np.zeros(self.size.pages, dtype=bool)
        yield Pages(self.page_ids, namespaces, _byte_strings(self._titles), is_redirect)

    def redirects(self) -> Iterator[Redirects]:
        """None."""
        return iter(())

    def link_targets(self) -> Iterator[LinkTargets]:
        """Article a has the number a + 1; the categories follow."""
        names = category_titles(self.size.phrases, _category_topics(self.size))
        namespaces = np.repeat([ARTICLES, CATEGORIES], [self.size.pages, self.size.categories])
        titles = _byte_strings(pa.concat_arrays([self._titles, names]))
        yield LinkTargets(1 + np.arange(len(titles)), namespaces, titles)

    def links(self) -> Iterator[Links]:
        """The links, in batches of articles."""
        seen = np.full(self.size.pages, -1, dtype=np.int32)
        bounds = np.searchsorted(
            np.cumsum(self.degrees), np.arange(_LINKS_AT_ONCE, self.size.links, _LINKS_AT_ONCE)
        )
        for first, last in zip([0, *bounds], [*bounds, self.size.pages], strict=True):
            drawn = draw_links(self.topics, self.degrees, self.size.seed, int(first), int(last), seen)
            sources = np.repeat(self.page_ids[first:last], self.degrees[first:last])
            yield Links(sources, ByNumber(1 + drawn))
            self._on_links(len(drawn))

    def category_links(self) -> Iterator[Links]:
        """Which articles are in which categories, in one batch."""
        articles, categories = draw_categories(self.size, self.topics)
        yield Links(self.page_ids[articles], ByNumber(1 + self.size.pages + categories))

    def hidden_categories(self) -> Iterator[np.ndarray]:
        """None."""
        return iter(())


def draw_categories(size: WikiSize, topics: Topics) -> tuple[np.ndarray, np.ndarray]:
    """Put each article into one to three categories of its topics.

    The first categories give each category `minimum_count` articles, with a Zipf law above; the others follow
    Zipf's law within the article's second and third topic.

    Returns:
        Articles and categories, int64, shape (memberships,); pairs are distinct.
    """
    random = size.random(7)
    mixture = topics.mixture_topics
    starts = np.searchsorted(_category_topics(size), np.arange(size.topics + 1))
    order = random.permutation(size.pages)
    order = order[np.argsort(mixture[order, 0], kind="stable")]
    articles_of = np.bincount(mixture[:, 0], minlength=size.topics)
    counts = [
        zipf_counts(n, k, size.minimum_count) for n, k in zip(articles_of, np.diff(starts), strict=True)
    ]
    pairs = [order * size.categories + np.repeat(np.arange(size.categories), np.concatenate(counts))]
    for slot, share in ((1, _SECOND_CATEGORY), (2, _THIRD_CATEGORY)):
        articles = np.flatnonzero(random.random(size.pages) < share)
        chosen = mixture[articles, min(slot, mixture.shape[1] - 1)]
        # The inverse of Zipf's distribution function, in its continuous form k^u.
        k = np.diff(starts)[chosen]
        rank = np.minimum(k - 1, k ** random.random(len(articles)) - 1 + random.random(len(articles)))
        pairs.append(articles * size.categories + starts[chosen] + rank.astype(np.int64))
    return np.divmod(np.unique(np.concatenate(pairs)), size.categories)


def _category_topics(size: WikiSize) -> np.ndarray:
    return np.arange(size.categories) * size.topics // size.categories


def _page_ids(size: WikiSize) -> np.ndarray:
    """The page_ids of the articles, ascending: int64, shape (articles,); with gaps, as in a real wiki."""
    rare, hidden = round(0.5 * size.categories), max(2, round(0.02 * size.categories))
    described = np.count_nonzero(size.random(8).random(size.categories + rare) < _DESCRIBED) + hidden
    others = described + round(_OTHERS * size.pages)
    counts = [size.pages, round(_REDIRECTS * size.pages), others, max(5, size.pages // 500)]
    random = size.random(4)
    kinds = random.permutation(np.repeat(np.arange(4), np.array(counts)))
    numbers = 2 + np.cumsum(random.choice([1, 1, 1, 2, 3, 7], len(kinds)))
    articles: np.ndarray = numbers[kinds == 0]
    return articles


def _byte_strings(texts: pa.Array) -> ByteStrings:
    _, offsets, data = texts.cast(pa.large_binary()).buffers()
    begins = np.frombuffer(offsets, dtype=np.int64)[: len(texts) + 1]
    return ByteStrings(begins, np.frombuffer(data, dtype=np.uint8)[: begins[-1]])
