"""Synthetic two-tower corpora: pairs drawn from known embeddings, with Zipf popularity.

Left item x and right item y have vectors a_x, b_y ~ N(0, I/√r) of rank r. Each left item links to
the top `pairs_per_left_item` right items by

    ⟨a_x, b_y⟩ √r + log popularity(y) + Gumbel noise,       popularity(y) ∝ (1 + rank of y)^(−exponent)

which is a draw without replacement from the softmax of the first two terms. The right items' tags are the
signs of their coordinates, so that features carry part of the structure.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gramrun.data.corpus import Corpus, Side, bags, one_hot

_ROWS_AT_ONCE = 1024  # bounds the dense score matrix to 1024 × right items


def generate(
    *,
    left_items: int,
    right_items: int,
    pairs_per_left_item: int,
    rank: int,
    popularity_exponent: float,
    seed: int,
) -> Corpus:
    """Draw a corpus; equal arguments give equal corpora.

    Args:
        left_items: how many left items.
        right_items: how many right items.
        pairs_per_left_item: links of each left item, at most `right_items`.
        rank: r, the dimension of the vectors; also the number of tags.
        popularity_exponent: of the Zipf law; 0 for no popularity.
        seed: of everything drawn.
    """
    random = np.random.default_rng(seed)
    left = random.normal(0, rank**-0.25, (left_items, rank))
    right = random.normal(0, rank**-0.25, (right_items, rank))
    log_popularity = -popularity_exponent * np.log1p(random.permutation(right_items))
    chosen = []
    for start in range(0, left_items, _ROWS_AT_ONCE):
        scores = left[start : start + _ROWS_AT_ONCE] @ right.T * np.sqrt(rank) + log_popularity
        scores += random.gumbel(size=scores.shape)
        top = np.argpartition(-scores, pairs_per_left_item - 1, axis=1)[:, :pairs_per_left_item]
        chosen.append(np.sort(top, axis=1))
    pair_right = np.concatenate(chosen).ravel().astype(np.int32)
    pair_left = np.repeat(np.arange(left_items, dtype=np.int32), pairs_per_left_item)
    tags = [np.flatnonzero(row > 0).tolist() for row in right]
    return Corpus(
        name="synthetic",
        left=Side("source", left_items, (one_hot("source", "source", np.arange(left_items)),)),
        right=Side(
            "destination",
            right_items,
            (one_hot("destination", "destination", np.arange(right_items)), bags("tags", "tag", tags)),
        ),
        vocabularies={
            "source": pd.DataFrame({"key": [f"source-{i}" for i in range(left_items)]}),
            "destination": pd.DataFrame({"key": [f"destination-{i}" for i in range(right_items)]}),
            "tag": pd.DataFrame({"key": [f"tag-{i}" for i in range(rank)]}),
        },
        pair_left=pair_left,
        pair_right=pair_right,
    )
