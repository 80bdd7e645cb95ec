"""Titles of synthetic wikis: most tell the topic, some break careless parsers, some differ by case only.

An ordinary title has two frequent words and a word of its own: ``Bafi_goza_qbtr``. Each topic has phrases of
its own. Each phrase occurs in at least `minimum_count` titles; the counts above that follow Zipf's law. So
the numbers of frequent 1-grams and 2-grams are those asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# No "e", "u" or "q": words differ without their accents, and from the articles' own words (q first).
_SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in ("a", "é", "i", "o", "ü")]
_LETTERS = "abcdefghijklmnoprstuvwyz"
_FIRST_OWN = len(_LETTERS) ** 4  # own words have a q and five letters or more
_HOSTILE_SHARE = 0.002  # of the articles
_TWIN_SHARE = 0.005  # of the articles, whose titles differ from another's by case only

HOSTILE = (
    "),(",
    "Foo_(a),(b)",
    "O'Neil's_'n'_\"Weird\"",
    "Back\\slash",
    "Trailing\\",
    "\\'",
    "\\\\'",
    "');",
    "','",
    "(1,0,'x',0)",
    "A;b",
    ";--_comment",
    "--",
    "NULL",
    "0",
    "-1",
    "INSERT_INTO",
    "INSERT_INTO_`pagelinks`_VALUES_(1,0,'x',0);",
    "/*!40000_ALTER_TABLE_`page`_*/",
    "--_Dump_completed",
    "😀_👩‍👩‍👧",
    "E\u0301tude_a\u0308",  # combining marks
    "שלום_(עולם)",
    "مرحبا,_عالم",
    "İstanbul_ﬁne_Straße_ΣΊΣΥΦΟΣ",  # lower case changes lengths
    "日本語、(東京)",
    "Q" + 127 * "é",  # 255 bytes, MediaWiki's limit
)


@dataclass(frozen=True)
class Phrases:
    """The frequent words of a wiki, and pairs of them by topic.

    Attributes:
        words: how many 1-grams and 2-grams are frequent.
        topics: how many topics share them.
    """

    words: int
    topics: int

    @property
    def single_words(self) -> int:
        """How many of `words` are 1-grams."""
        return round(0.4 * self.words)

    @property
    def count(self) -> int:
        """How many of `words` are 2-grams."""
        return self.words - self.single_words

    def by_topic(self) -> tuple[np.ndarray, np.ndarray]:
        """Phrases ordered by topic, and where each topic begins: int64, shapes (count,) and (topics + 1,)."""
        first, _ = self._pair(np.arange(self.count))
        topic = first * self.topics // self.single_words
        order = np.argsort(topic, kind="stable")
        return order, np.searchsorted(topic[order], np.arange(self.topics + 1))

    def titles(
        self, phrases: np.ndarray, own: np.ndarray, small: np.ndarray | bool, capital: np.ndarray | bool
    ) -> pa.Array:
        """Titles of a phrase and a word of their own.

        Args:
            phrases: int64, shape (n,).
            own: int64, shape (n,). The number of each title's own word; it also decides the punctuation.
            small: bool, shape (n,). Begin with a small letter.
            capital: bool, shape (n,). Begin the second word with a capital letter.
        """
        n = self.single_words
        words = [_word(number) for number in range(n)]
        spelled = pa.array([*words, *map(str.title, words)])
        first, second = self._pair(phrases)
        style = np.where(own % 7 == 0, 1, np.where(own % 11 == 0, 2, 0))
        return _joined(
            spelled.take(pa.array(np.where(small, first, first + n))),
            "_",
            spelled.take(pa.array(np.where(capital, second + n, second))),
            pa.array(["_", "_(", ",_"]).take(pa.array(style)),
            _own_words(own),
            pa.array(["", ")", ""]).take(pa.array(style)),
        )

    def _pair(self, phrases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The two words of each phrase: a word and the next one; in a second turn, the next but one."""
        n = self.single_words
        again = phrases >= n
        # The second turn has fewer phrases than words: spread evenly, so that topics have as many each.
        first = np.where(again, (phrases - n) * n // max(1, self.count - n), phrases)
        return first, (first + 1 + again) % n


def article_titles(
    phrases: Phrases, homes: np.ndarray, minimum_count: int, random: np.random.Generator
) -> pa.Array:
    """A title for each article.

    Args:
        phrases: of the wiki.
        homes: int64, shape (articles,). The topic of each article.
        minimum_count: how many titles each phrase gets at least.
        random: draws the titles.
    """
    articles = len(homes)
    order = random.permutation(articles)
    order = order[np.argsort(homes[order], kind="stable")]
    by_topic, starts = phrases.by_topic()
    sizes = np.bincount(homes, minlength=phrases.topics)
    counts = np.concatenate(
        [zipf_counts(n, k, minimum_count) for n, k in zip(sizes, np.diff(starts), strict=True)]
    )
    phrase_of = np.empty(articles, dtype=np.int64)
    phrase_of[order] = np.repeat(by_topic, counts)
    position = np.arange(articles) - np.repeat(np.cumsum(counts) - counts, counts)  # within the phrase
    own = random.permutation(articles)

    # Twins share a phrase, so that the counts of phrases stay what they are.
    small, capital = np.zeros((2, articles), dtype=bool)
    pairs = np.flatnonzero((position[:-1] % 2 == 0) & (position[1:] == position[:-1] + 1))
    pairs = random.permutation(pairs)[: max(2, round(_TWIN_SHARE * articles / 2))]
    originals, twins = order[pairs], order[pairs + 1]
    own[twins] = own[originals]
    small[twins[::2]] = True
    capital[twins[1::2]] = True

    # Hostile titles replace those of phrases that are frequent without them.
    spare = np.setdiff1d(order[position >= minimum_count], np.concatenate([originals, twins]))
    hostile = random.permutation(spare)[: max(len(HOSTILE), round(_HOSTILE_SHARE * articles))]
    texts = pa.concat_arrays([phrases.titles(phrase_of, own, small, capital), _hostile_titles(hostile)])
    rows = np.arange(articles)
    rows[hostile] = articles + np.arange(len(hostile))
    return texts.take(pa.array(rows))


def category_titles(phrases: Phrases, topics: np.ndarray) -> pa.Array:
    """A name for each category, with words of its topic; every 50th has something hostile in it.

    Args:
        phrases: of the wiki.
        topics: int64, shape (categories,).
    """
    by_topic, starts = phrases.by_topic()
    number = np.arange(len(topics))
    chosen = by_topic[starts[topics] + number % np.diff(starts)[topics]]
    endings = pa.array(["", *(f"_{title}" for title in HOSTILE if len(title.encode()) < 100)])
    ending = np.where(number % 50 == 7, 1 + number // 50 % (len(endings) - 1), 0)
    return _joined(phrases.titles(chosen, number, False, False), endings.take(pa.array(ending)))


def zipf_counts(total: int, kinds: int, minimum: int) -> np.ndarray:
    """Share `total` among `kinds`: `minimum` for each, the rest by Zipf's law; sums to `total`."""
    weights = 1 / np.arange(1, kinds + 1)
    rest = total - minimum * kinds
    counts: np.ndarray = minimum + np.floor(rest * weights / weights.sum()).astype(np.int64)
    counts[0] += total - counts.sum()
    return counts


def _hostile_titles(articles: np.ndarray) -> pa.Array:
    """Each hostile title once as it is; then with the article's own word behind it, where it fits."""
    short = pa.array([title for title in HOSTILE if len(title.encode()) < 200])
    more = articles[len(HOSTILE) :]
    longer = _joined(short.take(pa.array(np.arange(len(more)) % len(short))), "_", _own_words(more))
    return pa.concat_arrays([pa.array(HOSTILE[: len(articles)]), longer])


def _own_words(numbers: np.ndarray) -> pa.Array:
    """A word for each number ≥ 0, different from those of other numbers and from the frequent words."""
    letters, base = pa.array([*_LETTERS, ""]), len(_LETTERS)
    numbers, power = _FIRST_OWN + numbers, 1
    spelled: list[pa.Array] = []
    while power == 1 or (numbers >= power).any():
        digits = np.where(numbers >= power, numbers // power % base, base)
        spelled.insert(0, letters.take(pa.array(digits)))
        power *= base
    return _joined("q", *spelled)


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _word(number: int) -> str:
    """Bijective numeration: all words of one syllable, then of two, and so on."""
    word = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, len(_SYLLABLES))
        word = _SYLLABLES[digit] + word
    return word
