"""Writes the tables of a planted wiki and its truth, each whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from tqdm import tqdm

from gramrun.base.errors import InputError
from gramrun.base.files import new_file, new_folder
from gramrun.data.sql_writer import Column, Literals, new_table
from gramrun.data.wikipedia.planted.links import CLASSES, THROUGH, Shares, block_of_links
from gramrun.data.wikipedia.planted.pages import ARTICLE
from gramrun.data.wikipedia.planted.settings import PlantedWiki
from gramrun.data.wikipedia.planted.tables import small_tables
from gramrun.data.wikipedia.planted.truth import Truth, read_truth, write_truth
from gramrun.data.wikipedia.planted.world import World
from gramrun.data.wikipedia.schemas import GENERATIONS, PREAMBLES, column_names

_LINKS_IN_A_BLOCK = 1 << 19  # tens of MB in memory
_FEWEST_BLOCKS = 16


def write_tables(
    wiki: PlantedWiki,
    folder: Path,
    *,
    generation: str,
    name: str = "plantedwiki",
    date: str = "20260101",
    compression: str = "gz",
    progress: bool = False,
) -> Truth:
    """Write a made wiki as ``NAME-DATE-TABLE.sql.gz`` and its truth as ``truth/``.

    The truth is put in place last: where it is, the tables are whole. A second call with the same settings
    does nothing; after a kill it writes what is missing.

    Args:
        wiki: what to plant.
        folder: where to; made if need be.
        generation: of `GENERATIONS`: the shape of the tables.
        name: of the wiki.
        date: of the dump, YYYYMMDD.
        compression: ``gz``, or nothing for plain files.
        progress: show a progress bar, on a terminal only.

    Raises:
        InputError: unknown generation, compression or date; or the folder holds another made wiki.
        RunError: the disk is full or the folder cannot be written.
    """
    dump = _Dump(folder, generation, name, date, compression)
    settings = json.dumps({"wiki": asdict(wiki), **dump.settings()}, indent=1) + "\n"
    note, truth = folder / "planted.json", folder / "truth"
    if note.exists() and note.read_text(encoding="utf-8") != settings:
        raise InputError(f"{folder}: holds a made wiki of other settings ({note.name}); name another folder")
    if truth.is_dir():
        return read_truth(truth)
    world = World(wiki)
    # The note comes first, so that no table of other settings is ever taken for one of these.
    if not note.exists():
        with new_file(note) as temporary:
            temporary.write_text(settings, encoding="utf-8")
    counts = _write_small_tables(world, dump)
    with new_folder(truth) as temporary:
        counts |= _write_links(world, dump, temporary / "pairs.npy", progress=progress)
        write_truth(world, temporary, counts)
    return read_truth(truth)


@dataclass(frozen=True)
class _Dump:
    """Where the tables go and what they look like."""

    folder: Path
    generation: str
    name: str
    date: str
    compression: str

    def __post_init__(self) -> None:
        if self.generation not in GENERATIONS:
            raise InputError(
                f"generation {self.generation!r}: unknown; choose one of {', '.join(GENERATIONS)}"
            )
        if self.compression not in ("", "gz"):
            raise InputError(
                f"compression {self.compression!r}: unknown; choose gz, or nothing for plain files"
            )
        if len(self.date) != 8 or not self.date.isdigit():
            raise InputError(f"date {self.date!r}: is not of the form YYYYMMDD; write it like 20260101")

    def settings(self) -> dict[str, str]:
        """All but the folder, which may be moved."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}

    def has(self, table: str) -> bool:
        """Say whether dumps of this generation have the table."""
        return table in GENERATIONS[self.generation]

    def columns(self, table: str) -> list[str]:
        """The names of the table's columns."""
        return column_names(GENERATIONS[self.generation][table])

    def write(self, table: str, batches: Iterable[Mapping[str, Column]]) -> None:
        """Write a table from its columns by name; where it is whole already, only go through the batches."""
        path = self.folder / f"{self.name}-{self.date}-{table}.sql{self.compression and '.gz'}"
        if path.exists():
            for _ in batches:
                pass
            return
        schema, names = GENERATIONS[self.generation][table], self.columns(table)
        completed = f"{self.date[:4]}-{self.date[4:6]}-{self.date[6:]} 12:00:00"
        preamble = PREAMBLES[self.generation]
        with new_table(path, schema, database=self.name, completed=completed, preamble=preamble) as opened:
            for columns in batches:
                opened.write([columns[name] for name in names])


def _write_small_tables(world: World, dump: _Dump) -> dict[str, int]:
    counts: dict[str, int] = {}
    by_number = "cl_to" not in dump.columns("categorylinks")
    for table, columns_of in small_tables(categories_by_number=by_number).items():
        if dump.has(table):
            columns, more = columns_of(world)
            counts |= more
            dump.write(table, [columns])
    return counts


def _write_links(world: World, dump: _Dump, pairs: Path, *, progress: bool) -> dict[str, int]:
    """Write ``pagelinks`` in shuffled blocks of pages, and the planted links, sorted, to `pairs`."""
    wiki = world.wiki
    classes = np.zeros(len(CLASSES) + 1, dtype=np.int64)
    shares = world.shares(by_number="pl_title" not in dump.columns("pagelinks"))
    with pairs.open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (wiki.links, 2)}
        np.lib.format.write_array_header_1_0(file, header)
        dump.write("pagelinks", _blocks(world, shares, classes, file, progress=progress))
    return {
        "links_read": int(classes[:THROUGH].sum()),
        **{name: int(count) for name, count in zip(CLASSES, classes, strict=False)},
        "links_through_redirects": int(classes[THROUGH]),
    }


def _blocks(
    world: World, shares: Shares, classes: np.ndarray, pairs: BinaryIO, *, progress: bool
) -> Iterator[Mapping[str, Column]]:
    """Draw the links, block after block; add up their classes, and write the pairs behind a header.

    Yields:
        The columns of ``pagelinks`` for the pages of a block, in the order of their ids.
    """
    wiki, layout, plan, numbers = world.wiki, world.layout, world.link_plan(), world.article_numbers
    links_before = np.zeros(len(layout.kinds) + 1, dtype=np.int64)
    links_before[1:][layout.kinds == ARTICLE] = world.degrees
    np.cumsum(links_before, out=links_before)
    count = max(_FEWEST_BLOCKS, wiki.links // _LINKS_IN_A_BLOCK)
    bounds = np.searchsorted(links_before, np.linspace(0, wiki.links, count + 1))
    bounds[0], bounds[-1] = 0, len(layout.kinds)
    seen = np.full(wiki.pages, -1, dtype=np.int32)
    start = pairs.tell()
    order = wiki.random(30).permutation(count).tolist()
    for block in tqdm(order, desc="pagelinks", unit="block", disable=None if progress else True):
        first, last = int(bounds[block]), int(bounds[block + 1])
        pages, slots, left, right = block_of_links(
            first, last, plan, world.topics, shares, wiki.seed, seen, classes
        )
        pairs.seek(start + 16 * int(links_before[first]))
        pairs.write(np.stack([numbers[left], numbers[right]], axis=1).data)
        titles = world.titles.order[slots]
        yield {
            "pl_from": layout.numbers[pages],
            "pl_from_namespace": world.page_namespaces[pages],
            "pl_namespace": world.titles.namespaces[titles],
            "pl_title": Literals(world.titles.literals, titles),
            "pl_target_id": world.titles.numbers[slots],
        }
