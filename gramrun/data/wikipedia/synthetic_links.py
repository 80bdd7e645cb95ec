"""The link model of synthetic wikis: factors of low rank, numbers of links, and the draws.

    p(y | x) = ⟨u_x, v_y⟩,     v_y(t) = p(y | topic t) ∝ popularity(y) · membership(y, t)

u_x is a mixture of up to three topics that sums to 1, and v(t) sums to 1 over the articles for each topic t,
so p(· | x) is a distribution of rank `topics`. An article x with n links has n successive draws from p(· | x)
that differ from each other and from x.

Reference of the random numbers: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014 (SplitMix64).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.data.wikipedia.synthetic_titles import Phrases

_SECOND_MEMBERSHIP = 0.3  # of an article in its second topic; 1 in its home topic
_SPREAD = 1.1  # of the logarithm of the number of links; real wikis have a tail of about this weight

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


@dataclass(frozen=True)
class WikiSize:
    """The size of a synthetic wiki; equal sizes give equal wikis.

    Attributes:
        pages: articles.
        links: distinct links between articles, without self-links.
        words: distinct 1-grams and 2-grams that occur in `minimum_count` titles or more (about).
        categories: categories; each has `minimum_count` articles or more.
        topics: the rank of the link probabilities.
        seed: of everything drawn.
        popularity_exponent: of the Zipf law of an article's popularity within its topics.
        minimum_count: see `words` and `categories`.

    Raises:
        InputError: no wiki has such a size.
    """

    pages: int
    links: int
    words: int
    categories: int
    topics: int
    seed: int = 0
    popularity_exponent: float = 0.8
    minimum_count: int = 10

    def __post_init__(self) -> None:
        smallest = self.pages // max(1, self.topics)
        needed = self.minimum_count * max(
            -(-max(1, n) // max(1, self.topics)) + 2 * (self.topics > 1)
            for n in (self.phrases.count, self.categories)
        )
        rules = {
            "topics must be at least 1": self.topics >= 1,
            "pages must be at least 40": self.pages >= 40,
            "popularity_exponent must lie between 0 and 1.2": 0 <= self.popularity_exponent <= 1.2,
            "categories must be at least topics": self.categories >= self.topics,
            f"words must be at least {max(10, 3 * self.topics)}": self.words >= max(10, 3 * self.topics),
            f"each of {self.topics} topics needs {needed} pages for its words and categories to be frequent, "
            f"and has {smallest}": smallest >= needed,
            "links must be at least pages": self.links >= self.pages,
        }
        for rule, holds in rules.items():
            if not holds:
                raise InputError(f"synthetic wiki: {rule}; change one of them with --set planted.KEY=VALUE")

    @property
    def phrases(self) -> Phrases:
        """The frequent words."""
        return Phrases(self.words, self.topics)

    def random(self, part: int) -> np.random.Generator:
        """The random numbers of one part, so that no part's draws depend on another's."""
        return np.random.default_rng([self.seed, part])


class Topics(NamedTuple):
    """The factors u and v. A named tuple, which compiled code reads.

    Attributes:
        mixture_topics: int64, shape (articles, k). The topics of u_x; the first is the home topic.
        mixture_weights: float64, shape (articles, k). Their weights in u_x; rows sum to 1.
        starts: int64, shape (topics + 1,). Topic t has the members starts[t] to starts[t + 1].
        members: int32, shape (memberships,). Articles.
        probabilities: float64, shape (memberships,). v_y(t) of these; sums to 1 over each topic.
        acceptance: float64, shape (memberships,), of the alias table of each topic.
        aliases: int32, shape (memberships,). Positions in `members`, of the alias table.
    """

    mixture_topics: np.ndarray
    mixture_weights: np.ndarray
    starts: np.ndarray
    members: np.ndarray
    probabilities: np.ndarray
    acceptance: np.ndarray
    aliases: np.ndarray


def draw_topics(size: WikiSize) -> Topics:
    """Draw the factors."""
    random = size.random(1)
    mixture = _mixture(size, random)
    a, b = random.uniform(0.5, 0.9, (2, size.pages))
    weights = np.stack([a, (1 - a) * b, (1 - a) * (1 - b)], axis=1)[:, : mixture.shape[1]]
    weights /= weights.sum(axis=1, keepdims=True)

    popularity = (1.0 + random.permutation(size.pages)) ** -size.popularity_exponent
    topic_of, shares = [mixture[:, 0]], [popularity]
    if size.topics > 1:
        topic_of.append(mixture[:, 1])
        shares.append(_SECOND_MEMBERSHIP * popularity)
    topic, share = np.concatenate(topic_of), np.concatenate(shares)
    order = np.argsort(topic, kind="stable")
    starts = np.searchsorted(topic[order], np.arange(size.topics + 1))
    members = (order % size.pages).astype(np.int32)
    probabilities = share[order]
    probabilities /= np.repeat(np.add.reduceat(probabilities, starts[:-1]), np.diff(starts))
    acceptance, aliases = np.ones(len(members)), np.arange(len(members), dtype=np.int32)
    _make_aliases(starts, probabilities, acceptance, aliases)
    return Topics(mixture, weights, starts, members, probabilities, acceptance, aliases)


def _mixture(size: WikiSize, random: np.random.Generator) -> np.ndarray:
    """Up to three different topics for each article; home topics are of equal sizes."""
    topics = size.topics
    home = random.permutation(size.pages) % topics
    chosen = [home]
    if topics > 1:
        step = random.integers(1, topics, size.pages)
        chosen.append((home + step) % topics)
    if topics > 2:
        third = random.integers(1, topics - 1, size.pages)
        chosen.append((home + third + (third >= step)) % topics)
    return np.stack(chosen, axis=1)


def draw_degrees(size: WikiSize, topics: Topics) -> np.ndarray:
    """How many articles each article links to: int64, shape (articles,); sums to `links` exactly.

    Log-normal, at least 1, and at most a third of the articles of the home topic, so that draws without
    replacement end.

    Raises:
        InputError: there are more links than these limits allow.
    """
    random = size.random(2)
    most = np.maximum(1, np.diff(topics.starts)[topics.mixture_topics[:, 0]] // 3)
    if most.sum() < size.links:
        raise InputError(
            f"synthetic wiki: {size.links:,} links are more than the {most.sum():,} that {size.pages:,} "
            f"pages in {size.topics} topics can hold; set more planted.pages or fewer planted.topics"
        )
    shape = np.exp(_SPREAD * random.normal(size=size.pages))
    low, high = 0.0, float(size.links)
    for _ in range(60):
        middle = (low + high) / 2
        total = np.clip(shape * middle, 1, most).astype(np.int64).sum()
        low, high = (middle, high) if total <= size.links else (low, middle)
    degrees = np.clip(shape * low, 1, most).astype(np.int64)
    while (missing := size.links - int(degrees.sum())) > 0:
        growing = random.permutation(np.flatnonzero(degrees < most))[:missing]
        degrees[growing] += 1
    return degrees


@compiled
def draw_links(
    topics: Topics, degrees: np.ndarray, seed: int, first: int, last: int, seen: np.ndarray
) -> np.ndarray:
    """The articles that the articles `first` to `last` (exclusive) link to, one after the other: int64.

    Each article has random numbers of its own, seeded by its position, so its links do not depend on the
    batches. `seen` is int32, shape (articles,), and -1 before the first call.
    """
    state = np.zeros(1, dtype=np.uint64)
    out = np.empty(degrees[first:last].sum(), dtype=np.int64)
    start = 0
    for article in range(first, last):
        _seed(state, seed, article)
        _draw(article, topics, seen, state, out[start : start + degrees[article]])
        start += degrees[article]
    return out


@compiled
def _draw(article: int, topics: Topics, seen: np.ndarray, state: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with draws from p(· | article) that differ from each other and from the article."""
    seen[article] = article
    count = 0
    while count < len(out):
        u, k = _uniform(state), 0
        while k < topics.mixture_weights.shape[1] - 1 and u >= topics.mixture_weights[article, k]:
            u -= topics.mixture_weights[article, k]
            k += 1
        t = topics.mixture_topics[article, k]
        begin, size = topics.starts[t], topics.starts[t + 1] - topics.starts[t]
        position = begin + int(_uniform(state) * size)
        if _uniform(state) >= topics.acceptance[position]:
            position = topics.aliases[position]
        y = topics.members[position]
        if seen[y] != article:
            seen[y] = article
            out[count] = y
            count += 1


@compiled
def _uniform(state: np.ndarray) -> float:
    """The next random number in [0, 1)."""
    state[0] += _GAMMA
    z = state[0]
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return ((z ^ (z >> _31)) >> _11) * 2.0**-53  # type: ignore[no-any-return]


@compiled
def _seed(state: np.ndarray, seed: int, article: int) -> None:
    state[0] = np.uint64(seed)
    _uniform(state)
    state[0] ^= np.uint64(article) * _SECOND
    _uniform(state)
    _uniform(state)


@compiled
def _make_aliases(
    starts: np.ndarray, probabilities: np.ndarray, acceptance: np.ndarray, aliases: np.ndarray
) -> None:
    """Walker's alias table of each topic, by Vose's method (IEEE Trans. Softw. Eng. 17(9), 1991)."""
    for t in range(len(starts) - 1):
        begin, n = starts[t], starts[t + 1] - starts[t]
        scaled = probabilities[begin : begin + n] * n
        pending = np.empty(n, dtype=np.int64)  # small ones from the left, large ones from the right
        small, large = 0, n
        for i in range(n):
            if scaled[i] < 1:
                pending[small] = i
                small += 1
            else:
                large -= 1
                pending[large] = i
        while small > 0 and large < n:
            small -= 1
            poor, rich = pending[small], pending[large]
            acceptance[begin + poor] = scaled[poor]
            aliases[begin + poor] = begin + rich
            scaled[rich] -= 1 - scaled[poor]
            if scaled[rich] < 1:
                large += 1
                pending[small] = rich
                small += 1
