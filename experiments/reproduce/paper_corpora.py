"""The paper's corpora by their sizes alone, for predictions before anything is downloaded.

Sizes are those of Table 1 and Appendix E. Not stated there, and taken here: 10 title n-grams and 4 categories
a page, as the made corpora of `experiments.benchmarks.random_pages` have (on the safe side of real titles);
100 years and 20
genres. Every item is taken to occur in every split, which bounds an evaluation from above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gramrun.data.corpus import Feature, Pairs, Side, SplitCorpus

_HEADER = 128  # bytes of a .npy file before its numbers
_KEY = 22  # bytes of a vocabulary's row on disk, as measured on a made wiki


@dataclass(frozen=True)
class FeatureSize:
    """One feature of one side: its name, its vocabulary, and how many values an item has on average."""

    name: str
    vocabulary: str
    values: float


@dataclass(frozen=True)
class CorpusSizes:
    """What of a corpus decides how long it trains and how much room it takes.

    Attributes:
        left_items, right_items: how many.
        train_pairs, validation_pairs: how many.
        left, right: the features of each side.
        vocabularies: rows of each.
        has_target: whether pairs carry one.
    """

    left_items: int
    right_items: int
    train_pairs: int
    validation_pairs: int
    left: tuple[FeatureSize, ...]
    right: tuple[FeatureSize, ...]
    vocabularies: Mapping[str, int]
    has_target: bool = False


def _wiki(pages: int, links: int, ngrams: int, categories: int) -> CorpusSizes:
    page = (
        FeatureSize("page", "page", 1),
        FeatureSize("ngrams", "ngram", 10),
        FeatureSize("categories", "category", 4),
    )
    vocabularies = {"page": pages, "ngram": ngrams, "category": categories}
    held_out = links // 10
    return CorpusSizes(pages, pages, links - held_out, held_out, page, page, vocabularies)


PAPER = {
    "wikipedia-simple": _wiki(85_000, 4_600_000, 8_300, 6_100),
    "wikipedia-fr": _wiki(1_800_000, 142_000_000, 167_400, 125_300),
    "wikipedia-en": _wiki(5_300_000, 490_000_000, 501_000, 403_400),
    "movielens-10m": CorpusSizes(
        72_000,
        10_000,
        8_000_000,
        2_000_000,
        (FeatureSize("user", "user", 1),),
        (FeatureSize("movie", "movie", 1), FeatureSize("year", "year", 1), FeatureSize("genres", "genre", 2)),
        {"user": 72_000, "movie": 10_000, "year": 100, "genre": 20},
        has_target=True,
    ),
}

# Bytes to download, rough: the six tables of a recent dump, which hold more than the articles of Table 1,
# and GroupLens's archive. What a dump says of itself is held against the disk before anything is fetched.
RAW_BYTES = {
    "wikipedia-simple": 300_000_000,
    "wikipedia-fr": 4_000_000_000,
    "wikipedia-en": 20_000_000_000,
    "movielens-10m": 66_000_000,
}


@dataclass(frozen=True)
class CountedPairs(Pairs):
    """Pairs of which only the number is real: `right` holds every item that occurs, once.

    So does `left` of the training pairs; that of the validation pairs holds each as often as they are even.
    """

    count: int

    def __len__(self) -> int:
        return self.count


def sizes_of(manifest: Mapping[str, Any]) -> CorpusSizes:
    """The sizes of a prepared corpus, from its ``manifest.json``."""
    corpus, files = manifest["corpus"], manifest["files"]

    def features(side: str) -> tuple[FeatureSize, ...]:
        items = corpus[f"{side}_items"]
        return tuple(
            FeatureSize(
                feature["name"],
                feature["vocabulary"],
                (files[f"{side}/{feature['name']}.indices.npy"]["bytes"] - _HEADER) / 4 / items,
            )
            for feature in manifest["sides"][side]["features"]
        )

    return CorpusSizes(
        *(corpus[key] for key in ("left_items", "right_items", "train_pairs", "validation_pairs")),
        features("left"),
        features("right"),
        manifest["vocabularies"],
        "pairs/train_target.npy" in files,
    )


def file_bytes(sizes: CorpusSizes) -> dict[str, int]:
    """The size of every shard, by its name."""
    files = {f"vocabularies/{name}.parquet": _KEY * rows for name, rows in sizes.vocabularies.items()}
    columns = ("left", "right", "target") if sizes.has_target else ("left", "right")
    for split, count in (("train", sizes.train_pairs), ("validation", sizes.validation_pairs)):
        files |= {f"pairs/{split}_{column}.npy": _HEADER + 4 * count for column in columns}
    sides = (("left", sizes.left_items, sizes.left), ("right", sizes.right_items, sizes.right))
    for side, items, features in sides:
        files[f"{side}/frequency.npy"] = _HEADER + 4 * items
        for feature in features:
            files[f"{side}/{feature.name}.offsets.npy"] = _HEADER + 8 * (items + 1)
            files[f"{side}/{feature.name}.indices.npy"] = _HEADER + round(4 * feature.values * items)
    return files


def stand_in(name: str, sizes: CorpusSizes) -> SplitCorpus:
    """A corpus without contents, for what reads its sizes only."""
    nothing = np.zeros(0, dtype=np.int32)

    def side(items: int, features: tuple[FeatureSize, ...]) -> Side:
        empty = tuple(Feature(f.name, f.vocabulary, nothing, nothing) for f in features)
        return Side(features[0].vocabulary, items, empty)

    def pairs(count: int, left: np.ndarray) -> CountedPairs:
        return CountedPairs(left, np.arange(min(sizes.right_items, count)), None, count)

    held_out = np.arange(sizes.validation_pairs, dtype=np.int64) * sizes.left_items // sizes.validation_pairs

    def even(items: int) -> np.ndarray:
        return np.broadcast_to(np.float64(sizes.train_pairs / items), (items,))

    return SplitCorpus(
        path=Path("data") / name,
        manifest={"name": name, "files": {f: {"bytes": size} for f, size in file_bytes(sizes).items()}},
        left=side(sizes.left_items, sizes.left),
        right=side(sizes.right_items, sizes.right),
        vocabularies={},
        vocabulary_sizes=sizes.vocabularies,
        train=pairs(sizes.train_pairs, np.arange(min(sizes.left_items, sizes.train_pairs))),
        validation=pairs(sizes.validation_pairs, held_out.astype(np.int32)),
        left_frequency=even(sizes.left_items),
        right_frequency=even(sizes.right_items),
    )
