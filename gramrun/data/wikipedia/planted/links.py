"""Rows of ``pagelinks`` of a planted wiki: the planted links, written with every trap, and their classes.

Pages are taken in blocks of ascending ids. Each page has random numbers of its own, seeded by its position:
what it links to depends neither on the blocks nor on the generation of the dump.

Reference of the random numbers: Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014 (SplitMix64).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.data.wikipedia.planted.pages import ARTICLE, OTHER, REDIRECT
from gramrun.data.wikipedia.planted.topics import Topics

# The classes of rows, each of which has exactly one; the names of the counts in the truth.
CLASSES = (
    "distinct_links",
    "duplicate_links",
    "self_links",
    "links_from_other_namespaces",
    "links_from_redirects",
    "links_from_missing_pages",
    "links_to_other_namespaces",
    "links_without_target",
    "links_to_missing_pages",
    "links_to_broken_redirects",
)
KEPT, DUPLICATE, SELF, FROM_OTHER, FROM_REDIRECT, FROM_MISSING = range(6)
TO_OTHER, WITHOUT_TARGET, TO_MISSING, TO_BROKEN = range(6, 10)
THROUGH = len(CLASSES)  # counted besides the class
_FROM_ELSEWHERE = 3  # links of a page of another namespace, and of a missing page

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


class Shares(NamedTuple):
    """How often each trap occurs; see `PlantedWiki`."""

    through: float
    duplicate: float
    itself: float
    red: float
    other: float
    broken: float
    without_target: float


class LinkPlan(NamedTuple):
    """What links are written from. A named tuple, which compiled code reads.

    Targets have slots: rows of ``linktarget`` in ascending order of their numbers. `slots` gives the slot of
    each title: of articles, redirects, red titles, titles of other namespaces, unknown numbers, in this
    order, each from its place in `begins` to the next.

    Attributes:
        kinds: int64, shape (pages,). Of `Layout`.
        rows: int64, shape (pages,). Of `Layout`.
        degrees: int64, shape (articles,).
        slots: int64, shape (titles,).
        begins: int64, shape (6,).
        redirect_starts: int64, shape (articles + 1,). Resolved redirects by article: where they begin in
        redirects: int64, shape (resolved redirects,).
        broken: int64, shape (unresolved redirects,). Redirects that lead to no article.
        redirect_titles: int64, shape (redirects,). The title that each names, -1 for none.
    """

    kinds: np.ndarray
    rows: np.ndarray
    degrees: np.ndarray
    slots: np.ndarray
    begins: np.ndarray
    redirect_starts: np.ndarray
    redirects: np.ndarray
    broken: np.ndarray
    redirect_titles: np.ndarray


@compiled
def _uniform(state: np.ndarray) -> float:
    """The next random number in [0, 1)."""
    state[0] += _GAMMA
    z = state[0]
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return ((z ^ (z >> _31)) >> _11) * 2.0**-53  # type: ignore[no-any-return]


@compiled
def _seed(state: np.ndarray, seed: int, page: int) -> None:
    state[0] = np.uint64(seed)
    _uniform(state)
    state[0] ^= np.uint64(page) * _SECOND
    _uniform(state)
    _uniform(state)


@compiled
def _draw(article: int, topics: Topics, seen: np.ndarray, state: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` with draws from p(· | article) that differ from each other and from the article.

    `seen[y]` is `article` where y was drawn before; articles have one call each.
    """
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
def draw_links(topics: Topics, degrees: np.ndarray, seed: int) -> np.ndarray:
    """The planted links alone, article after article: int64, shape (degrees.sum(),)."""
    seen = np.full(len(degrees), -1, dtype=np.int32)
    state = np.zeros(1, dtype=np.uint64)
    out = np.empty(degrees.sum(), dtype=np.int64)
    start = 0
    for article in range(len(degrees)):
        _seed(state, seed, article)
        _draw(article, topics, seen, state, out[start : start + degrees[article]])
        start += degrees[article]
    return out


@compiled
def _some(kind: int, expected: float, plan: LinkPlan, state: np.ndarray, slots: np.ndarray, used: int) -> int:
    """Add links to different titles of a kind, `expected` in the mean; give how many."""
    begin, size = plan.begins[kind], plan.begins[kind + 1] - plan.begins[kind]
    first = int(_uniform(state) * size)
    count: int = min(size, int(expected + _uniform(state)))
    for i in range(count):
        slots[used + i] = plan.slots[begin + (first + i) % size]
    return count


@compiled
def _article_rows(
    article: int,
    targets: np.ndarray,
    plan: LinkPlan,
    shares: Shares,
    state: np.ndarray,
    slots: np.ndarray,
    used: int,
    counts: np.ndarray,
) -> int:
    """Write the links of an article and its traps from `slots[used]` on; give the new end."""
    for y in targets:
        through, twice, which = _uniform(state), _uniform(state), _uniform(state)
        direct, via = plan.slots[y], plan.redirect_starts[y + 1] - plan.redirect_starts[y]
        counts[KEPT] += 1
        if via == 0 or (through >= shares.through and twice >= shares.duplicate):
            slots[used] = direct
            used += 1
            continue
        redirect = plan.redirects[plan.redirect_starts[y] + int(which * via)]
        counts[THROUGH] += 1
        slots[used] = plan.slots[plan.begins[1] + redirect]
        used += 1
        if twice < shares.duplicate:
            counts[DUPLICATE] += 1
            slots[used] = direct
            used += 1
    if _uniform(state) < shares.itself:
        via = plan.redirect_starts[article + 1] - plan.redirect_starts[article]
        which = int(_uniform(state) * (via + 1))
        counts[SELF] += 1
        slots[used] = plan.slots[article]
        if which > 0:
            slots[used] = plan.slots[
                plan.begins[1] + plan.redirects[plan.redirect_starts[article] + which - 1]
            ]
        used += 1
    n = len(targets)
    red = _some(2, shares.red * n, plan, state, slots, used)
    other = _some(3, shares.other * n, plan, state, slots, used + red)
    used += red + other
    counts[TO_MISSING] += red
    counts[TO_OTHER] += other
    first = int(_uniform(state) * len(plan.broken))
    broken = min(len(plan.broken), int(shares.broken * n + _uniform(state)))
    for i in range(broken):
        slots[used + i] = plan.slots[plan.begins[1] + plan.broken[(first + i) % len(plan.broken)]]
    counts[TO_BROKEN] += broken
    used += broken
    # Last, so that links by title, which cannot lack their target, come out the same.
    unknown = _some(4, shares.without_target * n, plan, state, slots, used)
    counts[WITHOUT_TARGET] += unknown
    return used + unknown


@compiled
def block_of_links(
    first: int,
    last: int,
    plan: LinkPlan,
    topics: Topics,
    shares: Shares,
    seed: int,
    seen: np.ndarray,
    counts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rows of pages `first` to `last` (exclusive) of the layout.

    Args:
        first: the first page.
        last: the end.
        plan: what to write from.
        topics: the planted factors.
        shares: of the traps.
        seed: of the wiki.
        seen: int32, shape (articles,), -1 before the first block.
        counts: int64, shape (len(CLASSES) + 1,); the rows' classes are added.

    Returns:
        The rows' pages and slots (int64), ascending; and of the planted links the articles on the left and
        right (int64), ascending.
    """
    bound, links = 0, 0
    for page in range(first, last):
        bound += _FROM_ELSEWHERE
        if plan.kinds[page] == ARTICLE:
            n = plan.degrees[plan.rows[page]]
            links += n
            more = shares.red + shares.other + shares.broken + shares.without_target
            bound += 2 * n + int(more * n) + 8
    pages, slots = np.empty(bound, dtype=np.int64), np.empty(bound, dtype=np.int64)
    left, right = np.empty(links, dtype=np.int64), np.empty(links, dtype=np.int64)
    state = np.zeros(1, dtype=np.uint64)
    used, done = 0, 0
    for page in range(first, last):
        begin, row = used, plan.rows[page]
        if plan.kinds[page] == ARTICLE:
            _seed(state, seed, row)
            targets = right[done : done + plan.degrees[row]]
            _draw(row, topics, seen, state, targets)
            used = _article_rows(row, targets, plan, shares, state, slots, used, counts)
            targets.sort()
            left[done : done + len(targets)] = row
            done += len(targets)
        elif plan.kinds[page] == REDIRECT:
            if plan.redirect_titles[row] >= 0:
                slots[used] = plan.slots[plan.redirect_titles[row]]
                used += 1
                counts[FROM_REDIRECT] += 1
        else:
            _seed(state, seed, len(plan.degrees) + page)
            count = _some(0, float(_FROM_ELSEWHERE) - 0.5, plan, state, slots, used)
            used += count
            counts[FROM_OTHER if plan.kinds[page] == OTHER else FROM_MISSING] += count
        slots[begin:used].sort()
        pages[begin:used] = page
    return pages[:used], slots[:used], left, right
