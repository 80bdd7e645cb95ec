"""A seeded permutation of 0 … n − 1, computed point by point, so that no permutation is stored.

A position p is written in two digits, p = l·b + r with l < a, r < b, and each round changes one digit by a
hash of the other, alternately:

    l ← (l + F_1(r)) mod a,   r ← (r + F_2(l)) mod b,   l ← (l + F_3(r)) mod a,   …

Each round is invertible, so together they permute the a·b ≥ n numbers. A result of n or more goes through the
rounds again until it is below n (cycle walking); this permutes 0 … n − 1.

- a is the least integer with a(a + 1) ≥ n, and b = a + 1: for n ≥ 3 a walk takes a·b/n ≤ 1 + 2/√n turns on
  average. One of a and b is even, so that a round can be an odd permutation; with a = b odd none would be.
- F_j(x) is MurmurHash3's finaliser of x xor a key of 64 bits, scaled to the digit.
- For ideal F_j, the places of two positions are uniform up to a total variation distance of at most
  a^(1 − rounds/2). The number of rounds makes this at most 2⁻³²: 8 rounds from 2.7 million elements on.

The permutation is not for cryptography.

Reference: J. Black and P. Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002 (methods 2, cycle
walking, and 3, the generalised Feistel network); M. Luby and C. Rackoff, How to Construct Pseudorandom
Permutations from Pseudorandom Functions, SIAM J. Comput. 17(2), 1988; A. Appleby, MurmurHash3 (fmix64), 2011.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gramrun.base.compiled import compiled, inlined

LARGEST = 2**62  # so that digits are scaled and combined within 64 bits

_DISTANCE_BITS = 32  # to observe a distance of 2^-32 takes 2^64 pairs of places
_FEWEST_ROUNDS = 8  # twice Luby and Rackoff's, whose bound is about pairs of places only


def round_keys(seed: Sequence[int], size: int) -> np.ndarray:
    """The keys of one permutation.

    Args:
        seed: non-negative integers; other seeds of the same length give independent keys.
        size: n, from 1 to `LARGEST`.

    Returns:
        One key per round: uint64, shape (rounds,); the number of rounds is even.

    Raises:
        ValueError: when `size` is out of bounds.
    """
    if not 1 <= size <= LARGEST:
        raise ValueError(f"a permutation has from 1 to 2^62 elements, not {size}")
    return np.random.SeedSequence(seed).generate_state(_rounds(size), np.uint64)


def permuted(positions: np.ndarray, size: int, keys: np.ndarray) -> np.ndarray:
    """The images of positions under the permutation of 0 … size − 1 with these keys.

    Args:
        positions: int64, shape (m,), each in 0 … size − 1 (not checked).
        size: n.
        keys: of `round_keys` for this size.

    Returns:
        int64, shape (m,), in 0 … size − 1.
    """
    places = np.empty(len(positions), dtype=np.int64)
    _permute(positions, np.uint64(size), np.uint64(_side(size)), keys, places)
    return places


def _side(size: int) -> int:
    """The least a ≥ 2 with a(a + 1) ≥ size."""
    floor = math.isqrt(size)
    return max(2, floor if floor * (floor + 1) >= size else floor + 1)


def _rounds(size: int) -> int:
    return max(_FEWEST_ROUNDS, 2 + 2 * math.ceil(_DISTANCE_BITS / math.log2(_side(size))))


@compiled
def _permute(
    positions: np.ndarray, size: np.uint64, side: np.uint64, keys: np.ndarray, places: np.ndarray
) -> None:
    other = side + np.uint64(1)
    left = np.empty(len(positions), dtype=np.uint64)
    right = np.empty(len(positions), dtype=np.uint64)
    for i in range(len(positions)):
        position = np.uint64(positions[i])
        left[i] = position // other
        right[i] = position - left[i] * other
    _go_through_rounds(left, right, side, keys)
    for i in range(len(positions)):
        place = left[i] * other + right[i]
        while place >= size:
            _go_through_rounds(left[i : i + 1], right[i : i + 1], side, keys)
            place = left[i] * other + right[i]
        places[i] = place


@compiled
def _go_through_rounds(left: np.ndarray, right: np.ndarray, side: np.uint64, keys: np.ndarray) -> None:
    """Apply each round to all positions, in place, so that the inner loop is vectorised."""
    other = side + np.uint64(1)
    for pair in range(0, len(keys), 2):
        left_key, right_key = keys[pair], keys[pair + 1]
        for i in range(len(left)):
            new_left = left[i] + _hash_below(side, right[i] ^ left_key)
            new_left = min(
                new_left, new_left - side
            )  # mod side: a negative difference wraps to a large number
            left[i] = new_left
            new_right = right[i] + _hash_below(other, new_left ^ right_key)
            right[i] = min(new_right, new_right - other)


@inlined
def _hash_below(bound: np.uint64, value: np.uint64) -> np.uint64:
    """Scale the upper half of MurmurHash3's finaliser; its last shift changes only the lower half."""
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return ((value >> np.uint64(32)) * bound) >> np.uint64(32)
