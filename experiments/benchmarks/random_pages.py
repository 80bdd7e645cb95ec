"""Random corpora of the sizes of the paper's Wikipedias, for timings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from gramrun.data import shards
from gramrun.data.corpus import Corpus, Feature, Side, SplitCorpus, one_hot


def pages_corpus(
    folder: Path,
    *,
    pages: int = 85_000,
    links: int = 4_600_000,
    ngrams: int = 8300,
    categories: int = 6100,
) -> SplitCorpus:
    """Write a corpus into `folder`, which must not exist; by default of the size of Simple Wikipedia.

    Both sides are the same pages with the same features (an id, 10 title n-grams and 4 categories a page), so
    that the towers share every table.

    Args:
        folder: where the shards go.
        pages: how many pages.
        links: how many links are drawn; repeated ones are dropped.
        ngrams: how many title n-grams there are.
        categories: how many categories.
    """
    random = np.random.default_rng(0)

    def bag(name: str, vocabulary: int, values: int) -> Feature:
        offsets = np.arange(pages + 1, dtype=np.int64) * values
        return Feature(name, name, offsets, random.integers(vocabulary, size=pages * values, dtype=np.int32))

    sizes = {"page": pages, "ngram": ngrams, "category": categories}
    features = (
        one_hot("page", "page", np.arange(pages)),
        bag("ngram", ngrams, 10),
        bag("category", categories, 4),
    )
    popular = (pages * random.random(links) ** 3).astype(np.int64)  # a few pages receive most links
    pairs = np.unique(random.integers(pages, size=links) * pages + popular)
    left, right = np.divmod(pairs, pages)
    corpus = Corpus(
        name="pages",
        left=Side("page", pages, features),
        right=Side("page", pages, features),
        vocabularies={name: pd.DataFrame({"key": np.arange(n).astype(str)}) for name, n in sizes.items()},
        pair_left=left.astype(np.int32),
        pair_right=right.astype(np.int32),
    )
    shards.write_corpus(corpus, folder, validation_fraction=0.1, split_seed=0, origin={})
    return shards.open_corpus(folder)
