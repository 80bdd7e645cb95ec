"""Writes the tables of a planted wiki and its truth, each whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from tqdm import tqdm

from gramrun.data.sql_writer import Column, Literals, TableWriter, new_table
from gramrun.data.wikipedia.planted.links import CLASSES, THROUGH, block_of_links
from gramrun.data.wikipedia.planted.pages import ARTICLE
from gramrun.data.wikipedia.planted.settings import PlantedWiki
from gramrun.data.wikipedia.planted.tables import TABLES
from gramrun.data.wikipedia.planted.truth import Truth, read_truth, write_truth
from gramrun.data.wikipedia.planted.world import World
from gramrun.data.wikipedia.schemas import GENERATIONS, PREAMBLES, column_names
from gramrun.errors import InputError
from gramrun.files import new_file, new_folder

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
    if generation not in GENERATIONS:
        raise InputError(f"generation {generation!r}: unknown; choose one of {', '.join(GENERATIONS)}")
    if compression not in ("", "gz"):
        raise InputError(f"compression {compression!r}: unknown; choose gz, or nothing for plain files")
    if len(date) != 8 or not date.isdigit():
        raise InputError(f"date {date!r}: is not of the form YYYYMMDD; write it like 20260101")
    settings = {
        "wiki": asdict(wiki),
        "generation": generation,
        "name": name,
        "date": date,
        "compression": compression,
    }
    _claim(folder, settings)
    if (folder / "truth").is_dir():
        return read_truth(folder / "truth")

    world, schemas = World(wiki), GENERATIONS[generation]
    by_number = "pl_title" not in column_names(schemas["pagelinks"])
    counts: dict[str, int] = {}

    def path(table: str) -> Path:
        return folder / f"{name}-{date}-{table}.sql{compression and '.gz'}"

    def new(table: str) -> AbstractContextManager[TableWriter]:
        completed = f"{date[:4]}-{date[4:6]}-{date[6:]} 12:00:00"
        preamble = PREAMBLES[generation]
        return new_table(path(table), schemas[table], database=name, completed=completed, preamble=preamble)

    for table, columns_of in TABLES.items():
        if table in schemas:
            by_target = by_number if table != "categorylinks" else "cl_to" not in column_names(schemas[table])
            columns, more = columns_of(world, by_number=by_target)
            counts |= more
            if not path(table).exists():
                with new(table) as opened:
                    opened.write([columns[column] for column in column_names(schemas[table])])
    with new_folder(folder / "truth") as truth:
        blocks = _blocks(world, truth / "pairs.npy", counts, by_number=by_number, progress=progress)
        if path("pagelinks").exists():
            for _ in blocks:  # for the truth
                pass
        else:
            with new("pagelinks") as opened:
                names = column_names(schemas["pagelinks"])
                for pages, slots in blocks:
                    columns = _link_columns(world, pages, slots)
                    opened.write([columns[column] for column in names])
        write_truth(world, truth, counts)
    return read_truth(folder / "truth")


def _claim(folder: Path, settings: object) -> None:
    """Note the settings in the folder, or see that they are those of an earlier call."""
    note, text = folder / "planted.json", json.dumps(settings, indent=1) + "\n"
    if note.exists():
        if note.read_text(encoding="utf-8") != text:
            raise InputError(
                f"{folder}: holds a made wiki of other settings ({note.name}); name another folder"
            )
        return
    with new_file(note) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _blocks(
    world: World, pairs: Path, counts: dict[str, int], *, by_number: bool, progress: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Draw the links in blocks of pages, in shuffled order; write the pairs, in sorted order, to `pairs`.

    When all are drawn, the classes of rows are added to `counts`.

    Yields:
        Pages (rows of the layout) and slots of the rows of a block; int64, ascending.
    """
    wiki, layout = world.wiki, world.layout
    plan, shares = world.link_plan(), world.shares(by_number=by_number)
    links_before = np.zeros(len(layout.kinds) + 1, dtype=np.int64)
    links_before[1:][layout.kinds == ARTICLE] = world.degrees
    np.cumsum(links_before, out=links_before)
    count = max(_FEWEST_BLOCKS, wiki.links // _LINKS_IN_A_BLOCK)
    bounds = np.searchsorted(links_before, np.linspace(0, wiki.links, count + 1))
    bounds[0], bounds[-1] = 0, len(layout.kinds)
    numbers = world.article_numbers
    seen = np.full(wiki.pages, -1, dtype=np.int32)
    classes = np.zeros(len(CLASSES) + 1, dtype=np.int64)
    with pairs.open("wb") as file:
        header = {"descr": "<i8", "fortran_order": False, "shape": (wiki.links, 2)}
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        order = wiki.random(30).permutation(count).tolist()
        for block in tqdm(order, desc="pagelinks", unit="block", disable=None if progress else True):
            first, last = int(bounds[block]), int(bounds[block + 1])
            pages, slots, left, right = block_of_links(
                first, last, plan, world.topics, shares, wiki.seed, seen, classes
            )
            file.seek(start + 16 * int(links_before[first]))
            file.write(np.stack([numbers[left], numbers[right]], axis=1).data)
            yield pages, slots
    counts["links_read"] = int(classes[:THROUGH].sum())
    counts |= {name: int(n) for name, n in zip(CLASSES, classes, strict=False)}
    counts["links_through_redirects"] = int(classes[THROUGH])


def _link_columns(world: World, pages: np.ndarray, slots: np.ndarray) -> dict[str, Column]:
    titles = world.titles.order[slots]
    return {
        "pl_from": world.layout.numbers[pages],
        "pl_from_namespace": world.page_namespaces[pages],
        "pl_namespace": world.titles.namespaces[titles],
        "pl_title": Literals(world.titles.literals, titles),
        "pl_target_id": world.titles.numbers[slots],
    }
