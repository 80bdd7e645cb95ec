"""Find the file of each table of a dump in a folder.

Wikimedia publishes ``simplewiki/20260101/simplewiki-20260101-pagelinks.sql.gz``, and the newest dump also as
``simplewiki/latest/simplewiki-latest-…``. Files may be unpacked, packed otherwise, or named ``page.sql.gz``.

Reference: https://meta.wikimedia.org/wiki/Data_dumps/Dump_format.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gramrun.base.errors import InputError
from gramrun.data.download import NotHereError

TABLES = ("page", "pagelinks", "linktarget", "categorylinks", "redirect", "page_props")
NEEDED = ("page", "pagelinks", "redirect")  # in every year; the readers know which others a dump needs

_DATE = re.compile(r"\d{8}|latest")
_TABLE = re.compile(
    rf"(?:(?P<wiki>\w+)-(?P<date>{_DATE.pattern})-)?(?P<table>{'|'.join(TABLES)})\.sql(?:\.(?:gz|bz2|zst))?"
)
_XML = re.compile(r".+\.xml(?:\.(?:gz|bz2|zst))?")
# Wikimedia's database names: language and project.
_WIKI = re.compile(r"\w+(?:wiki|wikibooks|wikinews|wikiquote|wikisource|wikiversity|wikivoyage|wiktionary)")


@dataclass(frozen=True)
class DumpFiles:
    """The files of one dump of one wiki.

    Attributes:
        origin: the folder of the files, for messages.
        wiki: its name, such as ``simplewiki``; empty if unknown.
        date: of the dump, ``YYYYMMDD`` or ``latest``; empty if unknown.
        tables: files by table: those of `NEEDED`, and the others of `TABLES` that are there.
        verified: all files agree with published checksums.
        note: how they were verified, or why not.
    """

    origin: str
    wiki: str
    date: str
    tables: Mapping[str, Path]
    verified: bool = False
    note: str = ""


def find_tables(source: Path, wiki: str | None = None, date: str | None = None) -> DumpFiles:
    """Find the tables of one dump in a folder.

    Args:
        source: a folder with files like ``simplewiki-20260101-page.sql.gz``, ``page.sql`` or
            ``simplewiki-latest-page.sql.zst``, or with folders ``WIKI/``, ``DATE/`` or ``WIKI/DATE/``
            of them.
        wiki: which wiki, if `source` holds several; files whose names do not tell match any.
        date: likewise.

    Returns:
        The files, not verified.

    Raises:
        NotHereError: there is no such dump in `source`, or needed tables are missing.
        InputError: `source` holds several such dumps, or a table twice, or cannot be read.
    """
    dumps = _dumps(source)
    matching = {
        dump: files
        for dump, files in dumps.items()
        if dump[0] in ("", wiki or dump[0]) and dump[1] in ("", date or dump[1])
    }
    if not matching:
        there = ", ".join(map(_label, sorted(dumps))) or "no tables"
        raise NotHereError(
            f"{source}: holds {there}; needed are files like {wiki or 'simplewiki'}-{date or '20260101'}"
            "-page.sql.gz"
        )
    missing = {dump: [t for t in NEEDED if t not in files] for dump, files in matching.items()}
    complete = [dump for dump in matching if not missing[dump]]
    if not complete:
        listed = "; ".join(f"{_label(dump)} lacks {' and '.join(missing[dump])}" for dump in sorted(missing))
        raise NotHereError(f"{source}: {listed}; add the missing files")
    if len(complete) > 1:
        remedy = f"choose one with --set dump.date={max(date for _, date in complete)}"
        if len({wiki for wiki, _ in complete}) > 1:
            remedy = "name the folder of one of them"
        raise InputError(
            f"{source}: holds several dumps ({', '.join(map(_label, sorted(complete)))}); {remedy}"
        )
    (dump,) = complete
    for table, places in matching[dump].items():
        if len(places) > 1:
            listed = ", ".join(str(place.relative_to(source)) for place in sorted(places))
            raise InputError(f"{source}: holds the table {table} more than once ({listed}); keep one of them")
    tables = {table: matching[dump][table][0] for table in TABLES if table in matching[dump]}
    return DumpFiles(str(tables["page"].parent), dump[0] or wiki or "", dump[1] or date or "", tables)


def find_xml(source: Path) -> Path:
    """Find an XML export: `source` itself if it is a file, or the one ``*.xml[.bz2|.gz|.zst]`` in it.

    Raises:
        InputError: there is none, or more than one.
    """
    if source.is_file():
        return source
    found = [file for file in _listed(source) if file.is_file() and _XML.fullmatch(file.name)]
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise InputError(
            f"{source}: holds no single .xml, .xml.bz2, .xml.gz or .xml.zst ({names}); name the file"
        )
    return found[0]


def _dumps(source: Path) -> dict[tuple[str, str], dict[str, list[Path]]]:
    """The files by (wiki, date) and table; wiki and date are empty if neither file nor folder tells."""
    dumps: dict[tuple[str, str], dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    below = [folder for folder in _listed(source) if folder.is_dir()]
    wikis = [folder for folder in below if _WIKI.fullmatch(folder.name)]
    inside = [folder for wiki in wikis for folder in _listed(wiki) if folder.is_dir()]
    dates = [folder for folder in (*below, *inside) if _DATE.fullmatch(folder.name)]
    for folder in (source, *wikis, *dates):
        for file in _listed(folder):
            named = _TABLE.fullmatch(file.name)
            if named and file.is_file():
                dump = (named["wiki"], named["date"]) if named["wiki"] else _dump_of(folder)
                dumps[dump][named["table"]].append(file)
    return dumps


def _dump_of(folder: Path) -> tuple[str, str]:
    """The wiki and date that a folder's path tells."""
    path = folder.absolute()
    wiki, date = (path.parent.name, path.name) if _DATE.fullmatch(path.name) else (path.name, "")
    return (wiki if _WIKI.fullmatch(wiki) else "", date)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotHereError(f"{folder}: is no folder; name the folder with the dump's files") from error
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error


def _label(dump: tuple[str, str]) -> str:
    return " ".join(filter(None, dump)) or "an unnamed dump"
