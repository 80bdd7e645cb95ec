r"""Planted corpora of any size whose best ranking is known: topics, and popularity within them.

A right item belongs to one topic c(y) and has a popularity by Zipf's law; a left item has a few topics of
unequal weight. A link of left item x is a draw from

    P(y | x) = P(c(y) | x) · pop(y) / sum_{y': c(y') = c(y)} pop(y'),     pop(y) = (1 + rank of y)^(−exponent)

a matrix whose rank is the number of topics, so that it is known exactly and costs (items × topics) numbers.
Of `draws` such links the distinct ones are kept. A link is then the likelier the greater P(y | x), so that
to rank by P(y | x) is what a model can learn at best; its MAP@10 is `optimum`.

The number of topics does not grow with the corpus: at every size a topic is the same share of all items, the
optimal scores have the same rank, and an item has as many links: of the corpora, nothing but size differs.
What is done with them may differ too: in as many epochs a larger one is trained for more steps, for example.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from gramrun.base.compiled import compiled
from gramrun.config import EvaluationSection
from gramrun.data import shards, split
from gramrun.data.corpus import Corpus, Side, SplitCorpus, one_hot
from gramrun.evaluation.protocol import measure, ranking_task

VALIDATION_FRACTION = 0.1  # as of the paper's Wikipedias
TUNING_FRACTION = 0.1
TOPICS_OF_LEFT = 3
_ROWS_AT_ONCE = 65536  # left items whose links are drawn at once; bounds memory, not a result


@dataclass(frozen=True)
class Planted:
    """What decides a corpus.

    Attributes:
        items: of each side.
        topics: how many there are, the rank of P(y | x).
        draws: of each left item; repeated ones count once.
        exponent: of the Zipf law of popularity.
        seed: of everything drawn.
    """

    items: int
    topics: int = 64
    draws: int = 20
    exponent: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Truth:
    """P(y | x), in factors.

    Attributes:
        topic: int32 (right items,): c(y).
        share: float64 (right items,): pop(y) / pop(c(y)), which sums to 1 in each topic.
        weights: float32 (left items, topics): P(c | x).
    """

    topic: np.ndarray
    share: np.ndarray
    weights: np.ndarray

    def right_factors(self) -> np.ndarray:
        """The right factor of P = weights · right_factorsᵀ: float32 (right items, topics)."""
        factors = np.zeros((len(self.topic), self.weights.shape[1]), dtype=np.float32)
        factors[np.arange(len(self.topic)), self.topic] = self.share
        return factors


def plant(planted: Planted) -> Truth:
    """Draw topics and popularities; every topic has at least one right item.

    Raises:
        ValueError: when there are fewer items than topics.
    """
    if planted.items < planted.topics:
        raise ValueError(f"{planted.items} items are too few for {planted.topics} topics")
    random = np.random.default_rng((planted.seed, 0))
    # As equal as can be: a topic's size would else vary more on a small corpus than on a large one.
    topic = random.permutation(np.arange(planted.items) % planted.topics).astype(np.int32)
    popularity = (1.0 + random.permutation(planted.items)) ** -planted.exponent
    share = popularity / np.bincount(topic, popularity, planted.topics)[topic]
    chosen = random.integers(planted.topics, size=(planted.items, TOPICS_OF_LEFT))
    part = random.dirichlet(np.ones(TOPICS_OF_LEFT), planted.items).astype(np.float32)
    weights = np.zeros((planted.items, planted.topics), dtype=np.float32)
    for column in range(TOPICS_OF_LEFT):  # a topic that was chosen twice weighs both
        weights[np.arange(planted.items), chosen[:, column]] += part[:, column]
    return Truth(topic, share, weights)


def draw_links(truth: Truth, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw links from P(y | x), sorted by (left, right), without repetitions.

    Args:
        truth: P(y | x).
        draws: of each left item.
        seed: of the draws.

    Returns:
        ``left`` and ``right``, int32.
    """
    random = np.random.default_rng((seed, 1))
    order = np.argsort(truth.topic, kind="stable").astype(np.int32)  # right items, topic by topic
    # Topic c's shares add up from c to c + 1, so that one sorted array holds all topics.
    cumulative = np.cumsum(truth.share[order])
    topics = truth.weights.shape[1]
    starts = np.searchsorted(truth.topic[order], np.arange(topics + 1)).astype(np.int64)
    lengths, links = [], []
    for first in range(0, len(truth.weights), _ROWS_AT_ONCE):
        weights = truth.weights[first : first + _ROWS_AT_ONCE]
        drawn = np.empty((len(weights), draws), dtype=np.int32)
        _draw(weights, random.random((len(weights), draws, 2)), cumulative, starts, order, drawn)
        drawn.sort(axis=1)
        is_new = np.diff(drawn, axis=1, prepend=-1) > 0
        lengths.append(is_new.sum(axis=1))
        links.append(drawn[is_new])
    left = np.repeat(np.arange(len(truth.weights), dtype=np.int32), np.concatenate(lengths))
    return left, np.concatenate(links)


@compiled
def _draw(
    weights: np.ndarray,
    uniform: np.ndarray,
    cumulative: np.ndarray,
    starts: np.ndarray,
    order: np.ndarray,
    drawn: np.ndarray,
) -> None:
    """Turn pairs of uniform numbers into right items: one chooses the topic, one the item in it."""
    rows, draws = drawn.shape
    topics = weights.shape[1]
    sums = np.empty(topics)
    for row in range(rows):
        total = 0.0
        for topic in range(topics):
            total += weights[row, topic]
            sums[topic] = total
        for draw in range(draws):
            topic = min(np.searchsorted(sums, uniform[row, draw, 0] * total, side="right"), topics - 1)
            first, end = starts[topic], starts[topic + 1]
            within = cumulative[first:end]
            below = cumulative[first - 1] if first > 0 else 0.0
            wanted = below + uniform[row, draw, 1] * (within[-1] - below)
            place = min(np.searchsorted(within, wanted, side="right"), len(within) - 1)
            drawn[row, draw] = order[first + place]


def make_corpus(planted: Planted, truth: Truth) -> Corpus:
    """The corpus: items have an id and nothing else."""
    left, right = draw_links(truth, planted.draws, planted.seed)
    keys = pd.DataFrame({"key": np.arange(planted.items).astype(str)})

    def side(name: str) -> Side:
        return Side(name, planted.items, (one_hot(name, name, np.arange(planted.items)),))

    return Corpus(
        name=f"planted-clusters-{planted.items}",
        left=side("source"),
        right=side("destination"),
        vocabularies={"source": keys, "destination": keys},
        pair_left=left,
        pair_right=right,
        counts={"repeated_draws_dropped": planted.items * planted.draws - len(left)},
    )


def prepare(planted: Planted, folder: Path, *, tuning: bool = False) -> None:
    """Write the shards of a corpus, if `folder` does not hold them already.

    Args:
        planted: what corpus.
        folder: where.
        tuning: drop its validation pairs, and hold out a part of its training pairs in their place.
    """
    fingerprint = f"planted-clusters 1 {planted} {tuning}"
    if folder.exists() and shards.read_manifest(folder)["origin"]["fingerprint"] == fingerprint:
        return
    corpus = make_corpus(planted, plant(planted))
    fraction, seed = VALIDATION_FRACTION, 0
    if tuning:
        corpus = split.without_validation(corpus, fraction, seed)
        fraction, seed = TUNING_FRACTION, split.tuning_seed(seed)
    origin = {"fingerprint": fingerprint, "verified": True}
    shards.write_corpus(corpus, folder, validation_fraction=fraction, split_seed=seed, origin=origin)


def optimum(planted: Planted, corpus: SplitCorpus, settings: EvaluationSection) -> float:
    """Validation MAP@10 of the ranking by P(y | x): same left items, candidates and rules as a model's."""
    truth = plant(planted)
    task = ranking_task(corpus, "validation", settings)
    left = torch.from_numpy(truth.weights[task.left_items])
    right = torch.from_numpy(truth.right_factors())
    return float(measure(task, left, right, settings.seed)["map@10"])
