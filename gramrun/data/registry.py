"""The registry of corpora for `gramrun prepare`: how each one's raw data are found and read."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gramrun.base.errors import InputError
from gramrun.base.files import sha256_of
from gramrun.config import PrepareConfig
from gramrun.data import atomic, movielens, movielens_files, shards, synthetic
from gramrun.data.corpus import Corpus
from gramrun.data.expansion import PRESETS, expand
from gramrun.data.raw_files import RawFiles
from gramrun.data.split import joined
from gramrun.data.wikipedia import features as wikipedia
from gramrun.data.wikipedia.dump_download import WIKIS, locate_wikipedia
from gramrun.data.wikipedia.dump_files import TABLES, DumpFiles, find_tables, find_xml, verify
from gramrun.data.wikipedia.enwik8 import Enwik8, locate_enwik8
from gramrun.data.wikipedia.records import Wiki
from gramrun.data.wikipedia.sql_wiki import SqlWiki
from gramrun.data.wikipedia.xml_wiki import XmlWiki

DOWNLOADS = Path("data/raw")
# The share of validation pairs (paper, Sections 4.1 and E).
MOVIELENS_FRACTION = 0.2
WIKIPEDIA_FRACTION = 0.1

OnRead = Callable[[int | None], object]  # takes how many bytes were read

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """Raw data that were found.

    Attributes:
        read: reads them into a corpus; an expansion keeps its pairs in an unnamed file of the folder given.
        inputs: returns the checksums of the files by name; reads the files once.
        sections: the sections of `PrepareConfig`, beside ``split``, that change the corpus.
        validation_fraction: used if the configuration gives none.
        origin: source and verification, for the manifest.
        unhashed: the sections that are read and do not change the corpus.
    """

    read: Callable[[Path], Corpus]
    inputs: Callable[[], Mapping[str, str]]
    sections: tuple[str, ...]
    validation_fraction: float
    origin: Mapping[str, Any] = field(default_factory=dict)
    unhashed: tuple[str, ...] = ()


def find(name: str, config: PrepareConfig, source: Path | None) -> Found:
    """Find the raw data of a corpus, downloading or making them if need be.

    Args:
        name: one of `CORPORA`.
        config: the settings of ``--set``.
        source: the place of the raw data; None to search for them.

    Raises:
        InputError: there is no such corpus, or its raw data cannot be used.
        RunError: they cannot be downloaded or written.
    """
    if name not in CORPORA:
        raise InputError(f"no corpus is called {name}; there are {', '.join(CORPORA)}")
    return CORPORA[name](name, config, source)


def _raw_folders() -> list[Path]:
    named = os.environ.get("GRAMRUN_RAW")
    return [*([Path(named)] if named else []), DOWNLOADS]


def _movielens(name: str, config: PrepareConfig, source: Path | None) -> Found:
    raw = movielens_files.locate(name, source, _raw_folders(), DOWNLOADS)

    def read(_: Path) -> Corpus:
        _warn_unless_verified(raw)
        return movielens.read(name, raw)

    return Found(read, lambda: movielens.content_sha256(name, raw), (), MOVIELENS_FRACTION, _origin(raw))


def _atomic(name: str, config: PrepareConfig, source: Path | None) -> Found:
    if source is None:
        raise InputError(f"{name} needs --source: the folder with NAME.inter, NAME.item and NAME.user")
    raw = atomic.find(source)
    return Found(lambda _: atomic.read(raw), lambda: raw.sha256, (), MOVIELENS_FRACTION, _origin(raw))


def _synthetic(name: str, config: PrepareConfig, source: Path | None) -> Found:
    if source is not None:
        raise InputError(f"{name} is made, not read; leave --source out")
    settings = config.synthetic.model_dump()
    return Found(lambda _: synthetic.generate(**settings), dict, ("synthetic",), MOVIELENS_FRACTION)


def _wikipedia(name: str, config: PrepareConfig, source: Path | None) -> Found:
    files = locate_wikipedia(
        name,
        source,
        _raw_folders(),
        DOWNLOADS,
        date=config.dump.date,
        contact=config.dump.contact,
        tables=_tables(config),
    )
    _warn_unless_verified(files)
    return _tables_found(name, config, files)


def _wikipedia_sql(name: str, config: PrepareConfig, source: Path | None) -> Found:
    if source is None:
        raise InputError(f"{name} needs --source: the folder with the tables of one dump")
    files = verify(find_tables(source, None, config.dump.date), _tables(config))
    return _tables_found(files.wiki or name, config, files)


def _wikipedia_xml(name: str, config: PrepareConfig, source: Path | None) -> Found:
    if source is None:
        raise InputError(f"{name} needs --source: an XML dump, such as …-pages-articles.xml.bz2")
    file = find_xml(source)
    return _xml_found(name, config, file, {"source": str(file)}, allow_cut_off=config.wikipedia.cut_off)


def _enwik8(name: str, config: PrepareConfig, source: Path | None) -> Found:
    found = locate_enwik8(source, _raw_folders(), DOWNLOADS)
    _warn_unless_verified(found)
    return _xml_found(name, config, found.path, _origin(found), allow_cut_off=True)


def _expansion(name: str, config: PrepareConfig, source: Path | None) -> Found:
    base_name, expansion = PRESETS[name]
    settings = config.expansion.model_dump(exclude_none=True)
    base_name = settings.pop("base", base_name)
    if "left_blocks" in settings:
        settings.setdefault("right_blocks", settings["left_blocks"])
    expansion = replace(expansion, **settings)
    base = _base(base_name, config, source)

    def read(folder: Path) -> Corpus:
        corpus = base.read(folder)
        with tqdm(desc="pairs", total=expansion.pairs, unit_scale=True, disable=None) as bar:
            return expand(name, corpus, expansion, bar.update, folder)

    return replace(base, read=read, sections=("expansion", *base.sections))


def _base(name: str, config: PrepareConfig, source: Path | None) -> Found:
    """The corpus to expand: prepared at `source`, or read from raw data."""
    if source is not None and (source / shards.MANIFEST).is_file():
        prepared = shards.open_corpus(source)
        fraction = WIKIPEDIA_FRACTION if "links" in prepared.manifest["corpus"] else MOVIELENS_FRACTION
        return Found(
            lambda _: joined(prepared),
            lambda: {"content_hash": prepared.content_hash},
            (),
            fraction,
            {"source": str(source)},
        )
    if name in PRESETS:
        raise InputError(f"expansion.base: {name} is an expansion itself; prepare it and give it by --source")
    return find(name, config, source)


def _tables(config: PrepareConfig) -> tuple[str, ...]:
    """The tables that these settings need."""
    unused = () if config.wikipedia.categories else ("categorylinks", "page_props")
    return tuple(table for table in TABLES if table not in unused)


def _tables_found(name: str, config: PrepareConfig, files: DumpFiles) -> Found:
    wiki = SqlWiki(name, files.origin, files.tables, categories=config.wikipedia.categories)
    used = {table: files.tables[table] for table in wiki.used}
    return replace(_wiki_found(wiki.watched, used, config, _origin(files)), unhashed=("dump",))


def _xml_found(
    name: str, config: PrepareConfig, file: Path, origin: Mapping[str, Any], *, allow_cut_off: bool
) -> Found:
    def wiki(on_read: OnRead) -> Wiki:
        return XmlWiki(name, file, allow_cut_off=allow_cut_off, on_read=on_read)

    return _wiki_found(wiki, {file.name: file}, config, origin)


def _wiki_found(
    wiki: Callable[[OnRead], Wiki],
    files: Mapping[str, Path],
    config: PrepareConfig,
    origin: Mapping[str, Any],
) -> Found:
    """A dump of `files`, with their checksums and a progress bar; `wiki` opens it, given a byte counter."""

    def inputs() -> dict[str, str]:
        return {name: sha256_of(file) for name, file in files.items()}

    def read(_: Path) -> Corpus:
        total = sum(file.stat().st_size for file in files.values())
        with tqdm(desc="reading", total=total, unit="B", unit_scale=True, disable=None) as bar:
            return wikipedia.read(wiki(bar.update), config.wikipedia)

    return Found(read, inputs, ("wikipedia",), WIKIPEDIA_FRACTION, origin)


def _warn_unless_verified(found: RawFiles | DumpFiles | Enwik8) -> None:
    if not found.verified:
        _log.warning("%s: not verified: %s", found.origin, found.note)


def _origin(found: RawFiles | DumpFiles | Enwik8) -> dict[str, Any]:
    return {"source": found.origin, "verified": found.verified, "verification": found.note}


CORPORA: Mapping[str, Callable[[str, PrepareConfig, Path | None], Found]] = {
    **dict.fromkeys(movielens_files.CORPORA, _movielens),
    **dict.fromkeys(WIKIS, _wikipedia),
    "wikipedia-sql": _wikipedia_sql,
    "wikipedia-xml": _wikipedia_xml,
    "enwik8": _enwik8,
    "atomic": _atomic,
    "synthetic": _synthetic,
    **dict.fromkeys(PRESETS, _expansion),
}
