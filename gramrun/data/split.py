"""The train/validation split: a hash of each pair decides, so nothing else can.

A pair goes to validation if hash(seed, left, right) < fraction · 2^64. The decision of one pair depends on
no other pair, on no row order and on no thread; it costs no memory and no sort. The validation share is
binomial around `fraction` (for a million pairs, ± 0.04 percentage points) instead of exact.
"""

from __future__ import annotations

import numpy as np


def validation_mask(left: np.ndarray, right: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Decide for each pair whether it belongs to the validation split.

    Args:
        left: integers below 2^32, shape (n,). Left item ids.
        right: integers below 2^32, shape (n,). Right item ids.
        fraction: the expected validation share, in (0, 1).
        seed: another seed gives an independent split.

    Returns:
        bool, shape (n,).
    """
    key = (left.astype(np.uint64) << np.uint64(32)) | right.astype(np.uint64)
    seeded = key ^ _splitmix64(np.array([seed], dtype=np.uint64))
    return _splitmix64(seeded) < np.uint64(int(fraction * 2**64))


def _splitmix64(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijective mix of 64 bits."""
    with np.errstate(over="ignore"):  # multiplication modulo 2^64 is the point
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
