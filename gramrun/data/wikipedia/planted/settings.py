"""What is planted: the sizes of a made wiki and the shares of its traps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gramrun.base.errors import InputError


@dataclass(frozen=True)
class PlantedWiki:
    """A made wiki; the same settings make the same bytes.

    Attributes:
        pages: articles: pages of namespace 0 that are no redirects.
        links: distinct links between articles, redirects resolved, without self-links.
        words: distinct 1- and 2-grams of the articles' titles that stand in `minimum_count` titles.
        categories: visible categories with at least `minimum_count` articles.
        topics: the rank of the planted link probabilities.
        popularity_exponent: of the Zipf law of a page's popularity within its topics.
        seed: of everything drawn.
        minimum_count: the count from which on a word or a category is counted above.
        redirects: redirecting pages for each article.
        other_pages: pages of other namespaces for each article, besides category pages.
        hostile_titles: the share of articles with titles that break parsers.
        case_twins: the share of articles whose title differs from another's by case only.
        through_redirects: the share of links that are written via a redirect, where one leads there.
        duplicate_links: the share of links that are written twice, once via a redirect, likewise.
        self_links: the share of articles that link to themselves, directly or via a redirect.
        red_links: links to missing pages, for each link.
        links_to_other_namespaces: likewise.
        links_to_broken_redirects: likewise.
        links_without_target: likewise; only where links are by number.
    """

    pages: int
    links: int
    words: int
    categories: int
    topics: int
    popularity_exponent: float = 0.8
    seed: int = 0
    minimum_count: int = 10
    redirects: float = 0.3
    other_pages: float = 0.5
    hostile_titles: float = 0.002
    case_twins: float = 0.005
    through_redirects: float = 0.1
    duplicate_links: float = 0.03
    self_links: float = 0.02
    red_links: float = 0.08
    links_to_other_namespaces: float = 0.04
    links_to_broken_redirects: float = 0.003
    links_without_target: float = 0.001

    def __post_init__(self) -> None:
        smallest = self.pages // max(1, self.topics)
        phrases, categories = self.words - self.single_words, self.categories
        least = self.minimum_count * max(
            -(-max(1, n) // max(1, self.topics)) + 2 * (self.topics > 1) for n in (phrases, categories)
        )
        rules = {
            "topics must be at least 1": self.topics >= 1,
            "pages must be at least 20": self.pages >= 20,
            "popularity_exponent must lie between 0 and 1.2": 0 <= self.popularity_exponent <= 1.2,
            "minimum_count must be at least 1": self.minimum_count >= 1,
            "categories must be at least topics": self.categories >= self.topics,
            f"words must be at least {max(10, 3 * self.topics)}": self.words >= max(10, 3 * self.topics),
            "other_pages must lie between 0.1 and 1": 0.1 <= self.other_pages <= 1,
            "redirects must lie between 0.1 and 1, and come to 12": 0.1 <= self.redirects <= 1
            and self.redirects * self.pages >= 12,  # one of each kind, and some that lead to articles
            f"each of {self.topics} topics needs {least} pages for its words and categories to be frequent, "
            f"and has {smallest}": smallest >= least,
            "links must be at least pages": self.links >= self.pages,
        }
        for rule, holds in rules.items():
            if not holds:
                raise InputError(f"planted wiki: {rule}; change one of them")

    @property
    def single_words(self) -> int:
        """How many of `words` are 1-grams; the others are 2-grams of these."""
        return round(0.4 * self.words)

    def random(self, part: int) -> np.random.Generator:
        """The random numbers of one part, so that no part's draws depend on another's."""
        return np.random.default_rng([self.seed, part])


# The sizes of simple and French Wikipedia in the paper's table of corpora, and English's.
SIZES: Mapping[str, PlantedWiki] = {
    "simple-scale": PlantedWiki(85_000, 4_600_000, 8_300, 6_100, 64),
    "fr-scale": PlantedWiki(1_800_000, 142_000_000, 167_400, 125_300, 256),
    "en-scale": PlantedWiki(5_300_000, 490_000_000, 501_000, 403_400, 512),
}
