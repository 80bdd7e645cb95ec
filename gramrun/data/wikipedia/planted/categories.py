"""Categories of a planted wiki: visible ones by topic with known counts, rare ones and hidden ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gramrun.data.wikipedia.planted.settings import PlantedWiki
from gramrun.data.wikipedia.planted.titles import zipf_counts
from gramrun.data.wikipedia.planted.topics import Topics

_RARE, _HIDDEN = 0.5, 0.02  # rare and hidden categories for each visible one
_SECOND, _THIRD = 0.9, 0.6  # the shares of articles that draw a second and a third category
_IN_HIDDEN = 0.4  # the share of articles in a hidden category


@dataclass(frozen=True)
class Memberships:
    """Who is in which category. Categories are numbered: visible, then rare, then hidden ones.

    Attributes:
        visible: how many; each has at least `minimum_count` articles.
        rare: how many; each has at least one article, and fewer than that.
        hidden: how many; each has at least one article.
        topics: int64, shape (categories,). Whose words the names have.
        articles: int64, shape (n,), ascending.
        categories: int64, shape (n,). Ascending within an article.
    """

    visible: int
    rare: int
    hidden: int
    topics: np.ndarray
    articles: np.ndarray
    categories: np.ndarray

    @property
    def count(self) -> int:
        """All categories."""
        return self.visible + self.rare + self.hidden


def plant_categories(wiki: PlantedWiki, topics: Topics) -> Memberships:
    """Put each article into one to three visible categories of its topics, and some into others.

    A first category by the articles' home topics, dealt out so that each gets `minimum_count` articles,
    with a Zipf law above; a second and a third by Zipf's law within the second and third topic.
    """
    random = wiki.random(7)
    mixture = topics.mixture_topics
    visible = wiki.categories
    topic_of = np.arange(visible) * wiki.topics // visible
    starts = np.searchsorted(topic_of, np.arange(wiki.topics + 1))

    order = random.permutation(wiki.pages)
    order = order[np.argsort(mixture[order, 0], kind="stable")]
    sizes = np.bincount(mixture[:, 0], minlength=wiki.topics)
    counts = [zipf_counts(n, k, wiki.minimum_count) for n, k in zip(sizes, np.diff(starts), strict=True)]
    pairs = [(order, np.repeat(np.arange(visible), np.concatenate(counts)))]
    for slot, share in ((1, _SECOND), (2, _THIRD)):
        articles = np.flatnonzero(random.random(wiki.pages) < share)
        chosen = mixture[articles, min(slot, mixture.shape[1] - 1)]
        # The inverse of Zipf's distribution function, in its continuous form k^u.
        size = np.diff(starts)[chosen]
        rank = np.minimum(size - 1, size ** random.random(len(articles)) - 1 + random.random(len(articles)))
        pairs.append((articles, starts[chosen] + rank.astype(np.int64)))

    rare = round(_RARE * visible) if wiki.minimum_count > 1 else 0
    of_rare = np.repeat(visible + np.arange(rare), random.integers(1, max(2, wiki.minimum_count), rare))
    pairs.append((random.integers(0, wiki.pages, len(of_rare)), of_rare))

    hidden = max(2, round(_HIDDEN * visible))
    articles = np.concatenate(
        [random.integers(0, wiki.pages, hidden), np.flatnonzero(random.random(wiki.pages) < _IN_HIDDEN)]
    )
    rank = (hidden ** random.random(len(articles)) - 1).astype(np.int64)
    rank[:hidden] = np.arange(hidden)
    pairs.append((articles, visible + rare + np.minimum(rank, hidden - 1)))

    count = visible + rare + hidden
    key = np.unique(np.concatenate([articles * count + categories for articles, categories in pairs]))
    return Memberships(
        visible,
        rare,
        hidden,
        np.concatenate([topic_of, random.integers(0, wiki.topics, rare + hidden)]),
        key // count,
        key % count,
    )
