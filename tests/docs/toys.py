"""What the documentation's commands are given in the tests, where the real thing is large or far away.

| in the pages | in the tests |
|---|---|
| `prepare movielens-100k`, `movielens-1m` | `--source` a folder of the same layout with 2,400 made ratings |
| `prepare simple-scale`, `movielens-expanded` | expansions of 120 made pages, and of the made ratings |
| `prepare atomic --source mine` | the folder `mine`, which the page asks for, with 2,400 made pairs |
| `train` on a config of MovieLens | the same config and corpus path, one epoch (two where it is resumed) |
| `gram-error` on a config of MovieLens | the same, 20 steps, measured every 10 |
| what needs a network, a GPU, several processes or another program | parsed, not run (`test_pages.py`) |
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from small_wiki import write_wiki

from gramrun.data.movielens import GENRES_100K


def write_raw_files(folder: Path) -> None:
    """Make raw data in `folder`: movielens-100k, movielens-1m, mine, and the wiki simple-scale."""
    random = np.random.default_rng(0)
    pairs = [
        (user, movie) for user in range(1, 81) for movie in random.choice(np.arange(1, 61), 30, replace=False)
    ]
    stars = random.integers(1, 6, len(pairs))
    titles = ["Toy Story (1995)", *(f"Made Movie {number} ({1930 + number})" for number in range(2, 61))]
    genres = [GENRES_100K[1 + number % 18] for number in range(60)]

    small = folder / "movielens-100k"
    small.mkdir(parents=True)
    rows = [
        f"{user}\t{movie}\t{star}\t{100 + n}\n"
        for n, ((user, movie), star) in enumerate(zip(pairs, stars, strict=True))
    ]
    (small / "u.data").write_text("".join(rows))
    flags = ["|".join(str(int(known == genre)) for known in GENRES_100K) for genre in genres]
    lines = [
        f"{n}|{title}|01-Jan-1995||http://x|{flag}\n"
        for n, (title, flag) in enumerate(zip(titles, flags, strict=True), 1)
    ]
    (small / "u.item").write_text("".join(lines), encoding="latin-1")

    middle = folder / "movielens-1m"
    middle.mkdir()
    (middle / "ratings.dat").write_text("".join(row.replace("\t", "::") for row in rows))
    lines = [
        f"{n}::{title}::{genre}\n" for n, (title, genre) in enumerate(zip(titles, genres, strict=True), 1)
    ]
    (middle / "movies.dat").write_text("".join(lines), encoding="latin-1")

    write_wiki(folder / "simple-scale")
    mine = folder / "mine"
    mine.mkdir()
    body = [f"u{user}\tb{movie}\t{star}\n" for (user, movie), star in zip(pairs, stars, strict=True)]
    (mine / "mine.inter").write_text("user_id:token\titem_id:token\trating:float\n" + "".join(body))
    body = [f"b{n}\t{genre}\n" for n, genre in enumerate(genres, 1)]
    (mine / "mine.item").write_text("item_id:token\tgenre:token_seq\n" + "".join(body))


def prepare_settings(corpus: str, folder: Path) -> list[str]:
    """What ``gramrun prepare CORPUS`` is given beside what the page says."""
    if corpus in ("movielens-100k", "movielens-1m"):
        return ["--source", str(folder / corpus)]
    if corpus == "movielens-expanded":
        return ["--source", str(folder / "movielens-1m"), "--set", "expansion.pairs=30000"]
    if corpus == "simple-scale":
        settings = ["--set", "expansion.left_blocks=3", "--set", "expansion.pairs=4000"]
        return ["--source", str(folder / corpus), *settings]
    return []
