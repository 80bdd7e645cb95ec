"""Planted corpora of any size whose best ranking is known: topics, and popularity within topics.

A right item y has one topic c(y) and a popularity by Zipf's law. A left item x has a few weighted topics. A
link of x is a draw from

    P(y | x) = P(c(y) | x) · pop(y) / sum_{y': c(y') = c(y)} pop(y'),     pop(y) = (1 + rank of y)^(−exponent)

The rank of this matrix is the number of topics, so the exact matrix takes (items × topics) numbers. Each left
item makes `draws` links; repeated links count once. The probability of a link grows with P(y | x), so no
model can rank better than P(y | x) on average; `optimum` is the MAP@10 of that ranking.

The number of topics, the share of items in each and the links of an item do not depend on the corpus size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from experiments.reproduce.corpora import TUNING_FRACTION
from gramrun.base.compiled import compiled
from gramrun.config import EvaluationSection
from gramrun.data import shards, split
from gramrun.data.corpus import Corpus, Side, SplitCorpus, one_hot
from gramrun.evaluation.protocol import measure_embeddings, ranking_task

VALIDATION_FRACTION = 0.1  # as for the paper's Wikipedias
TOPICS_OF_LEFT = 3
_ROWS_AT_ONCE = 65536  # left items whose links are drawn at once; bounds memory, and does not change results


@dataclass(frozen=True)
class Planted:
    """The parameters of a corpus.

    Attributes:
        items: number of items of each side.
        topics: number of topics, the rank of P(y | x).
        draws: links drawn for each left item; repeated links count once.
        exponent: exponent of the Zipf law of popularity.
        seed: seed of all draws.
    """

    items: int
    topics: int = 64
    draws: int = 20
    exponent: float = 0.8
    seed: int = 0


@dataclass(frozen=True)
class Truth:
    """The factors of P(y | x).

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
        ValueError: there are fewer items than topics.
    """
    if planted.items < planted.topics:
        raise ValueError(f"{planted.items} items are too few for {planted.topics} topics")
    random = np.random.default_rng((planted.seed, 0))
    # Equal sizes: random sizes would vary more on a small corpus than on a large one.
    topic = random.permutation(np.arange(planted.items) % planted.topics).astype(np.int32)
    popularity = (1.0 + random.permutation(planted.items)) ** -planted.exponent
    share = popularity / np.bincount(topic, popularity, planted.topics)[topic]
    chosen = random.integers(planted.topics, size=(planted.items, TOPICS_OF_LEFT))
    part = random.dirichlet(np.ones(TOPICS_OF_LEFT), planted.items).astype(np.float32)
    weights = np.zeros((planted.items, planted.topics), dtype=np.float32)
    for column in range(TOPICS_OF_LEFT):  # a topic chosen twice gets both weights
        weights[np.arange(planted.items), chosen[:, column]] += part[:, column]
    return Truth(topic, share, weights)


def draw_links(truth: Truth, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw links from P(y | x), sorted by (left, right), without repetitions.

    Args:
        truth: P(y | x).
        draws: number of draws for each left item.
        seed: seed of the draws.

    Returns:
        ``left`` and ``right``, int32.
    """
    random = np.random.default_rng((seed, 1))
    order = np.argsort(truth.topic, kind="stable").astype(np.int32)  # right items, topic by topic
    # The cumulative shares of topic c run from c to c + 1, so one sorted array serves all topics.
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
    """Turn pairs of uniform numbers into right items: the first chooses the topic, the second the item."""
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
    """Draw the corpus; the only feature of an item is its id."""
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
    """Write the shards of a corpus, unless `folder` already holds them.

    Args:
        planted: the parameters of the corpus.
        folder: the folder of the shards.
        tuning: drop the validation pairs, and hold out some training pairs instead.
    """
    fingerprint = f"planted-clusters 1 {planted} {tuning}"
    if folder.exists() and shards.read_manifest(folder)["origin"]["fingerprint"] == fingerprint:
        return
    corpus = make_corpus(planted, plant(planted))
    fraction, seed = VALIDATION_FRACTION, 0
    if tuning:
        corpus = split.without_validation(corpus, fraction, seed)
        fraction, seed = TUNING_FRACTION, split.tuning_seed(seed)
    origin = {"fingerprint": fingerprint}
    shards.write_corpus(corpus, folder, validation_fraction=fraction, split_seed=seed, origin=origin)


def optimum(planted: Planted, corpus: SplitCorpus, settings: EvaluationSection) -> float:
    """Validation MAP@10 of the ranking by P(y | x), with the left items, candidates and rules of a model."""
    truth = plant(planted)
    task = ranking_task(corpus, "validation", settings)
    left = torch.from_numpy(truth.weights[task.left_items])
    right = torch.from_numpy(truth.right_factors())
    return float(measure_embeddings(task, left, right, settings.seed)["map@10"])
