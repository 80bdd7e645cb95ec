"""The ground truth beside a planted wiki: what a right reader must find, from what was planted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gramrun.data.byte_strings import ByteStrings
from gramrun.data.wikipedia.planted.pages import ARTICLE_TITLE, CATEGORY_TITLE
from gramrun.data.wikipedia.planted.topics import Topics
from gramrun.data.wikipedia.planted.world import World


@dataclass(frozen=True)
class Truth:
    """What was planted, read from its folder.

    Attributes:
        folder: where it lies.
        counts: by name. The classes of rows of ``pagelinks`` sum to ``links_read``.
    """

    folder: Path
    counts: Mapping[str, int]

    @property
    def pairs(self) -> np.ndarray:
        """The planted links: int64, shape (links, 2). page_ids, sorted by source, then target; mapped."""
        pairs: np.ndarray = np.load(self.folder / "pairs.npy", mmap_mode="r")
        return pairs

    @property
    def articles(self) -> np.ndarray:
        """page_ids of the articles, ascending: int64, shape (articles,)."""
        articles: np.ndarray = np.load(self.folder / "articles.npy")
        return articles

    @property
    def titles(self) -> ByteStrings:
        """The articles' titles."""
        with np.load(self.folder / "titles.npz") as file:
            return ByteStrings(file["offsets"], file["data"])

    @property
    def categories(self) -> tuple[np.ndarray, np.ndarray, ByteStrings]:
        """Frequent visible categories of the articles.

        Returns:
            Offsets (int64, shape (articles + 1,)): article i has categories offsets[i] to offsets[i + 1] of
            the second array (int64, numbers of names); and the names.
        """
        with np.load(self.folder / "categories.npz") as file:
            return file["offsets"], file["categories"], ByteStrings(file["name_offsets"], file["names"])

    @property
    def factors(self) -> Topics:
        """The planted u and v."""
        with np.load(self.folder / "factors.npz") as file:
            return Topics(*(file[name] for name in Topics._fields))


def read_truth(folder: Path) -> Truth:
    """Read what `write_truth` wrote."""
    return Truth(folder, json.loads((folder / "truth.json").read_text(encoding="utf-8")))


def write_truth(world: World, folder: Path, counts: Mapping[str, int]) -> None:
    """Write all but the pairs, which are written as they are drawn."""
    np.save(folder / "articles.npy", world.article_numbers)
    titles = world.titles.of_kind(ARTICLE_TITLE)
    np.savez(folder / "titles.npz", offsets=titles.offsets, data=titles.data)
    members = world.memberships
    kept = members.categories < members.visible
    names = world.titles.of_kind(CATEGORY_TITLE).take(np.arange(members.visible))
    np.savez(
        folder / "categories.npz",
        offsets=np.searchsorted(members.articles[kept], np.arange(world.wiki.pages + 1)),
        categories=members.categories[kept],
        name_offsets=names.offsets,
        names=names.data,
    )
    np.savez(folder / "factors.npz", **world.topics._asdict())
    (folder / "truth.json").write_text(json.dumps(dict(counts), indent=1) + "\n", encoding="utf-8")
