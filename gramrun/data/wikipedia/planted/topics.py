"""The planted two-tower model: who links to whom, with a known optimum.

    p(y | x) = ⟨u_x, v_y⟩,     v_y(t) = p(y | topic t) ∝ popularity(y) · membership(y, t)

u_x is a mixture of a few topics that sums to 1, and each v(t) sums to 1 over the articles, so p(· | x) is a
distribution of rank `topics`. A page x with n links has n successive draws from p(· | x) that differ from
each other and from x.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.base.errors import InputError
from gramrun.data.wikipedia.planted.settings import PlantedWiki

_SECOND_MEMBERSHIP = 0.3  # of an article in its second topic; 1 in its home
_SPREAD = 1.1  # of the logarithm of the number of links; real wikis have a tail of about this weight


class Topics(NamedTuple):
    """The planted factors. A named tuple, which compiled code reads.

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


def plant_topics(wiki: PlantedWiki) -> Topics:
    """Draw the factors."""
    random = wiki.random(1)
    mixture = _mixture(wiki, random)
    a, b = random.uniform(0.5, 0.9, (2, wiki.pages))
    weights = np.stack([a, (1 - a) * b, (1 - a) * (1 - b)], axis=1)[:, : mixture.shape[1]]
    weights /= weights.sum(axis=1, keepdims=True)

    popularity = (1.0 + random.permutation(wiki.pages)) ** -wiki.popularity_exponent
    topic_of, shares = [mixture[:, 0]], [popularity]
    if wiki.topics > 1:
        topic_of.append(mixture[:, 1])
        shares.append(_SECOND_MEMBERSHIP * popularity)
    topic, share = np.concatenate(topic_of), np.concatenate(shares)
    order = np.argsort(topic, kind="stable")
    starts = np.searchsorted(topic[order], np.arange(wiki.topics + 1))
    members = (order % wiki.pages).astype(np.int32)
    probabilities = share[order]
    probabilities /= np.repeat(np.add.reduceat(probabilities, starts[:-1]), np.diff(starts))
    acceptance, aliases = np.ones(len(members)), np.arange(len(members), dtype=np.int32)
    _make_aliases(starts, probabilities, acceptance, aliases)
    return Topics(mixture, weights, starts, members, probabilities, acceptance, aliases)


def _mixture(wiki: PlantedWiki, random: np.random.Generator) -> np.ndarray:
    """Up to three different topics for each article; homes are of equal sizes."""
    topics = wiki.topics
    home = random.permutation(wiki.pages) % topics
    chosen = [home]
    if topics > 1:
        step = random.integers(1, topics, wiki.pages)
        chosen.append((home + step) % topics)
    if topics > 2:
        third = random.integers(1, topics - 1, wiki.pages)
        chosen.append((home + third + (third >= step)) % topics)
    return np.stack(chosen, axis=1)


def out_degrees(wiki: PlantedWiki, topics: Topics) -> np.ndarray:
    """How many articles each article links to: int64, shape (articles,); sums to `wiki.links` exactly.

    Log-normal, at least 1, and at most a third of what the home topic holds, so that draws without
    replacement do not starve.

    Raises:
        InputError: there are more links than these limits allow.
    """
    random = wiki.random(2)
    most = np.maximum(1, np.diff(topics.starts)[topics.mixture_topics[:, 0]] // 3)
    if most.sum() < wiki.links:
        raise InputError(
            f"planted wiki: {wiki.links:,} links are more than the {most.sum():,} that "
            f"{wiki.pages:,} pages in {wiki.topics} topics can hold; use more pages or fewer topics"
        )
    shape = np.exp(_SPREAD * random.normal(size=wiki.pages))
    low, high = 0.0, float(wiki.links)
    for _ in range(60):
        middle = (low + high) / 2
        total = np.clip(shape * middle, 1, most).astype(np.int64).sum()
        low, high = (middle, high) if total <= wiki.links else (low, middle)
    degrees = np.clip(shape * low, 1, most).astype(np.int64)
    while (missing := wiki.links - int(degrees.sum())) > 0:
        growing = random.permutation(np.flatnonzero(degrees < most))[:missing]
        degrees[growing] += 1
    return degrees


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
