"""Words and pairs of adjacent words in titles: the n-gram features of the paper (Section 4.1).

The paper does not define them. Here a word is a maximal run of letters, marks and digits, in lower case after
Unicode normalization (NFKC). An n-gram is a word or two adjacent words; a title has each of its n-grams once.
Languages written without blanks have long words, and thus few frequent n-grams.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gramrun.data.wikipedia.sparse_rows import RowBuilder, SparseRows

_THREADS = min(4, os.cpu_count() or 1)
_NOT_IN_WORDS = r"[^\p{L}\p{M}\p{N}]+"


def title_ngrams(titles: pa.Array, minimum: int) -> tuple[SparseRows, pa.Array]:
    """Find the n-grams (n = 1, 2) of at least `minimum` titles.

    Args:
        titles: n texts (`large_string`).
        minimum: the least number of titles that hold an n-gram.

    Returns:
        The n-grams of each title as rows of numbers, and their texts, sorted by code points.
    """
    rows, codes, words = _words(titles)
    frequent = _frequent(rows, codes, len(titles), len(words), minimum)

    follows = np.flatnonzero(rows[1:] == rows[:-1])
    follows = follows[frequent[codes[follows]] & frequent[codes[follows + 1]]]
    pairs, pair_codes = np.unique(
        codes[follows].astype(np.int64) * len(words) + codes[follows + 1], return_inverse=True
    )
    pair_codes = pair_codes.astype(np.int32)
    frequent_pairs = _frequent(rows[follows], pair_codes, len(titles), len(pairs), minimum)

    first, second = pairs[frequent_pairs] // max(len(words), 1), pairs[frequent_pairs] % max(len(words), 1)
    texts = pa.concat_arrays(
        [
            words.filter(pa.array(frequent)),
            pc.binary_join_element_wise(words.take(first), words.take(second), pa.scalar(" ", words.type)),
        ]
    )
    order = pc.sort_indices(texts).to_numpy()
    number = np.empty(len(texts), dtype=np.int32)
    number[order] = np.arange(len(texts), dtype=np.int32)
    singles = int(frequent.sum())
    word_number = np.full(len(words), -1, dtype=np.int32)
    word_number[frequent] = number[:singles]
    pair_number = np.full(len(pairs), -1, dtype=np.int32)
    pair_number[frequent_pairs] = number[singles:]

    builder = RowBuilder(len(titles))
    for of_rows, numbers in ((rows, word_number[codes]), (rows[follows], pair_number[pair_codes])):
        builder.add(of_rows[numbers >= 0], numbers[numbers >= 0])
    return builder.build(), texts.take(order)


def _words(titles: pa.Array) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """All words in order: their titles (int32), their codes (int32), and the text of each code."""
    bounds = np.linspace(0, len(titles), _THREADS + 1).astype(int).tolist()
    with ThreadPoolExecutor(_THREADS) as pool:  # Arrow's functions run without Python's lock
        parts = list(pool.map(lambda start, end: _split(titles[start:end]), bounds[:-1], bounds[1:]))
    rows = np.concatenate([rows + start for (rows, _), start in zip(parts, bounds[:-1], strict=True)])
    encoded = pc.dictionary_encode(pa.concat_arrays([words for _, words in parts]))
    return rows.astype(np.int32), encoded.indices.to_numpy().astype(np.int32), encoded.dictionary


def _split(titles: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """The words of some titles, with the number of the title of each."""
    plain = pc.utf8_lower(pc.utf8_normalize(titles, form="NFKC"))
    split = pc.split_pattern_regex(plain, pattern=_NOT_IN_WORDS)
    words, rows = pc.list_flatten(split), pc.list_parent_indices(split)
    real = pc.not_equal(words, pa.scalar("", words.type))  # at both ends of "(a)"
    return rows.filter(real).to_numpy(), words.filter(real)


def _frequent(rows: np.ndarray, codes: np.ndarray, titles: int, size: int, minimum: int) -> np.ndarray:
    """Whether each code is in at least `minimum` titles: bool, shape (size,)."""
    builder = RowBuilder(titles)
    builder.add(rows, codes)
    return builder.build().column_counts(size) >= minimum
