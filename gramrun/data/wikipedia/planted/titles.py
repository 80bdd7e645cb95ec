"""Titles of a planted wiki: words by topic with known counts, hostile titles, twins that differ by case.

An ordinary title is a phrase of two frequent words and a word of its own: ``Bafi_goza_qbtr``. Each topic has
phrases of its own, and each phrase stands in at least `minimum_count` titles, with a Zipf law above; so the
numbers of frequent 1- and 2-grams are those asked for. Hostile titles break parsers that split on
punctuation; all are valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gramrun.base.compiled import compiled
from gramrun.data.byte_strings import ByteStrings, offsets_of
from gramrun.data.sql_writer import Literals
from gramrun.data.wikipedia.planted.settings import PlantedWiki

# No "e", "u" or "q": words stay different without their accents, and from words that begin with "q".
_SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in ("a", "é", "i", "o", "ü")]
_LETTERS = np.frombuffer(b"abcdefghijklmnoprstuvwyz", dtype=np.uint8)
_FIRST_OWN = len(_LETTERS) ** 4  # own words have five letters and more, and titles a usual length

HOSTILE = tuple(
    title.encode()
    for title in (
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
        "Q" + 127 * "é",  # 255 bytes, the longest there are
    )
)


@dataclass(frozen=True)
class ArticleTitles:
    """The articles' titles.

    Attributes:
        titles: a title for each article.
        ordinary: bool, shape (articles,). Neither hostile nor one of two that differ by case.
        phrases: int64, shape (articles,). The phrase of each, hostile ones included.
    """

    titles: ByteStrings
    ordinary: np.ndarray
    phrases: np.ndarray


class Words:
    """The frequent words of a wiki, and titles made of them."""

    def __init__(self, wiki: PlantedWiki) -> None:
        self.wiki = wiki
        words = [_word(number) for number in range(wiki.single_words)]
        # All with a small first letter, then all with a capital.
        self._words = ByteStrings.of(word.encode() for word in [*words, *map(str.title, words)])
        self.phrases = wiki.words - wiki.single_words

    def topics_of_phrases(self) -> np.ndarray:
        """The topic whose articles have a phrase: int64, shape (phrases,)."""
        first, _ = self._pair(np.arange(self.phrases))
        topics: np.ndarray = first * self.wiki.topics // self.wiki.single_words
        return topics

    def titles(
        self, phrases: np.ndarray, own: np.ndarray, small: np.ndarray, capital: np.ndarray
    ) -> ByteStrings:
        """Titles of a phrase and a word of their own.

        Args:
            phrases: int64, shape (n,).
            own: int64, shape (n,). The number of each title's own word; decides on its punctuation too.
            small: bool, shape (n,). Begin with a small letter.
            capital: bool, shape (n,). Begin the second word with a capital.
        """
        first, second = self._pair(phrases)
        n = self.wiki.single_words
        separators = ByteStrings.of([b"_", b"_(", b",_", b"", b")"])
        style = np.where(own % 7 == 0, 1, np.where(own % 11 == 0, 2, 0))
        return joined(
            [
                Literals(self._words, np.where(small, first, first + n)),
                Literals(separators, np.zeros(len(own), dtype=np.int64)),
                Literals(self._words, np.where(capital, second + n, second)),
                Literals(separators, style),
                Literals(own_words(own), np.arange(len(own))),
                Literals(separators, np.where(style == 1, 4, 3)),
            ]
        )

    def plain_titles(self, phrases: np.ndarray, own: np.ndarray) -> ByteStrings:
        """Titles without a trap."""
        none = np.zeros(len(own), dtype=bool)
        return self.titles(phrases, own, none, none)

    def _pair(self, phrases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The two words: a word and the next one; once each word has had its turn, the next but one."""
        n = self.wiki.single_words
        again = phrases >= n
        # The second turn, of fewer phrases than words, is spread evenly, so that topics have as many each.
        first = np.where(again, (phrases - n) * n // max(1, self.phrases - n), phrases)
        return first, (first + 1 + again) % n


def article_titles(wiki: PlantedWiki, words: Words, homes: np.ndarray) -> ArticleTitles:
    """Give each article a title.

    Args:
        wiki: the settings.
        words: its words.
        homes: int64, shape (articles,). Home topics.
    """
    random = wiki.random(3)
    order, phrases, position = _phrases_by_article(wiki, words, homes, random)
    own = random.permutation(wiki.pages)
    small, capital = np.zeros((2, wiki.pages), dtype=bool)

    # Twins: neighbours of one phrase, so that the counts of phrases stay what they are.
    pairs = np.flatnonzero((position[:-1] % 2 == 0) & (position[1:] == position[:-1] + 1))
    pairs = random.permutation(pairs)[: max(2, round(wiki.case_twins * wiki.pages / 2))]
    originals, twins = order[pairs], order[pairs + 1]
    own[twins] = own[originals]
    small[twins[::2]] = True
    capital[twins[1::2]] = True

    # Hostile ones: from phrases that are frequent without them.
    spare = np.setdiff1d(order[position >= wiki.minimum_count], np.concatenate([originals, twins]))
    wanted = max(len(HOSTILE), round(wiki.hostile_titles * wiki.pages))
    hostile = random.permutation(spare)[:wanted]
    titles = words.titles(phrases, own, small, capital)
    texts = ByteStrings.concatenate([titles, _hostile_titles(hostile)])
    rows = np.arange(wiki.pages)
    rows[hostile] = wiki.pages + np.arange(len(hostile))
    ordinary = np.ones(wiki.pages, dtype=bool)
    ordinary[np.concatenate([originals, twins, hostile])] = False
    return ArticleTitles(texts.take(rows), ordinary, phrases)


def zipf_counts(total: int, kinds: int, minimum: int) -> np.ndarray:
    """Share `total` among `kinds`: `minimum` for each, the rest by Zipf's law; sums to `total`."""
    weights = 1 / np.arange(1, kinds + 1)
    rest = total - minimum * kinds
    counts: np.ndarray = minimum + np.floor(rest * weights / weights.sum()).astype(np.int64)
    counts[0] += total - counts.sum()
    return counts


def joined(parts: Sequence[Literals]) -> ByteStrings:
    """String i is the i-th string of each part, one after the other."""
    lengths = sum(np.diff(part.texts.offsets)[part.rows] for part in parts)
    offsets = offsets_of(np.asarray(lengths))
    data = np.empty(offsets[-1], dtype=np.uint8)
    positions = offsets[:-1].copy()
    for part in parts:
        _put(part.texts.offsets, part.texts.data, part.rows.astype(np.int64), data, positions)
    return ByteStrings(offsets, data)


def own_words(numbers: np.ndarray) -> ByteStrings:
    """A word for each number ≥ 0, different from those of other numbers and from the frequent words."""
    numbers = _FIRST_OWN + numbers.astype(np.int64)
    lengths = np.full(len(numbers), 2, dtype=np.int64)
    rest = numbers // len(_LETTERS)
    while rest.any():
        lengths += rest > 0
        rest = rest // len(_LETTERS)
    offsets = offsets_of(lengths)
    data = np.empty(offsets[-1], dtype=np.uint8)
    _spell(numbers, _LETTERS, offsets, data)
    return ByteStrings(offsets, data)


def _phrases_by_article(
    wiki: PlantedWiki, words: Words, homes: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Articles in the order of their phrases, the phrase of each article, and positions within a phrase."""
    order = random.permutation(wiki.pages)
    order = order[np.argsort(homes[order], kind="stable")]
    topic_of_phrase = words.topics_of_phrases()
    by_topic = np.argsort(topic_of_phrase, kind="stable")
    phrases_of = np.bincount(topic_of_phrase, minlength=wiki.topics)
    articles_of = np.bincount(homes, minlength=wiki.topics)
    counts = np.concatenate(
        [zipf_counts(n, k, wiki.minimum_count) for n, k in zip(articles_of, phrases_of, strict=True)]
    )
    phrases = np.empty(wiki.pages, dtype=np.int64)
    phrases[order] = np.repeat(by_topic, counts)
    position = np.arange(wiki.pages) - np.repeat(np.cumsum(counts) - counts, counts)
    return order, phrases, position


def _hostile_titles(articles: np.ndarray) -> ByteStrings:
    """Each hostile title once as it is; then with the article's own word behind it, where there is room."""
    short = [title for title in HOSTILE if len(title) < 200]
    again = ByteStrings.of(title + b"_" for title in short)
    more = articles[len(HOSTILE) :]
    behind = joined([Literals(again, np.arange(len(more)) % len(short)), _each(own_words(more))])
    return ByteStrings.concatenate([ByteStrings.of(HOSTILE[: len(articles)]), behind])


def _each(strings: ByteStrings) -> Literals:
    return Literals(strings, np.arange(len(strings)))


def _word(number: int) -> str:
    """Bijective numeration: all words of one syllable, then of two, and so on."""
    word = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, len(_SYLLABLES))
        word = _SYLLABLES[digit] + word
    return word


@compiled
def _spell(numbers: np.ndarray, letters: np.ndarray, offsets: np.ndarray, data: np.ndarray) -> None:
    for i in range(len(numbers)):
        rest = numbers[i]
        for p in range(offsets[i + 1] - 1, offsets[i], -1):
            data[p] = letters[rest % len(letters)]
            rest //= len(letters)
        data[offsets[i]] = 113  # q


@compiled
def _put(
    offsets: np.ndarray, data: np.ndarray, rows: np.ndarray, out: np.ndarray, positions: np.ndarray
) -> None:
    for i in range(len(rows)):
        p = positions[i]
        for source in range(offsets[rows[i]], offsets[rows[i] + 1]):
            out[p] = data[source]
            p += 1
        positions[i] = p
