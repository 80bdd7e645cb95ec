"""Which file of a dump holds which table, whatever folder it was put in.

Wikimedia publishes ``simplewiki/20260101/simplewiki-20260101-pagelinks.sql.gz``, and the newest dump again
as ``simplewiki/latest/simplewiki-latest-…``. People unpack these, compress them otherwise, or shorten their
names; all of that is found again.

Reference: https://meta.wikimedia.org/wiki/Data_dumps/Dump_format.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gramrun.base.errors import InputError

TABLES = ("page", "pagelinks", "linktarget", "categorylinks", "redirect", "page_props")
# Which of the others a dump needs depends on its year: whoever reads the tables knows.
NEEDED = ("page", "pagelinks", "redirect")

_DATE = re.compile(r"\d{8}|latest")
_TABLE = re.compile(
    rf"(?:(?P<wiki>\w+)-(?P<date>{_DATE.pattern})-)?(?P<table>{'|'.join(TABLES)})\.sql(?:\.(?:gz|bz2|zst))?"
)
_XML = re.compile(r".+\.xml(?:\.(?:gz|bz2|zst))?")

# Wikimedia's database names: language and project.
_WIKI = re.compile(r"\w+(?:wiki|wikibooks|wikinews|wikiquote|wikisource|wikiversity|wikivoyage|wiktionary)")

_Dump = tuple[str, str]  # wiki and date; empty where the names do not tell


class NoDumpError(InputError):
    """A place without a dump that could be read, so that another place may be looked at."""


@dataclass(frozen=True)
class DumpFiles:
    """The files of one dump of one wiki.

    Attributes:
        origin: the folder that they lie in, for messages.
        wiki: its name, such as ``simplewiki``; empty where no name tells.
        date: of the dump, ``YYYYMMDD`` or ``latest``; empty where no name tells.
        tables: files by table: those of `NEEDED`, and what else of `TABLES` is there.
        verified: all files were held against published checksums and agree.
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
        wiki: the one to take where several are there; files whose names do not tell count for any.
        date: likewise.

    Returns:
        The files, not verified.

    Raises:
        NoDumpError: there is no such dump in `source`, or needed tables are missing.
        InputError: there are several to choose from, a table is there twice, or `source` cannot be read.
    """
    dumps = _dumps(source)
    fitting = {dump: files for dump, files in dumps.items() if _fits(dump, wiki, date)}
    if not fitting:
        raise _no_dump(source, dumps, wiki, date)
    whole = {dump: files for dump, files in fitting.items() if not _missing(files)}
    if not whole:
        lacking = "; ".join(
            f"{_named(dump)} lacks {' and '.join(_missing(files))}" for dump, files in sorted(fitting.items())
        )
        first = _missing(next(iter(fitting.values())))[0]
        raise NoDumpError(f"{source}: {lacking}; add the missing files, such as {first}.sql.gz")
    if len(whole) > 1:
        raise _several(source, list(whole))
    (dump, files), *_ = whole.items()
    for table, places in files.items():
        if len(places) > 1:
            listed = ", ".join(str(place.relative_to(source)) for place in sorted(places))
            raise InputError(f"{source}: holds the table {table} more than once ({listed}); keep one of them")
    tables = {table: files[table][0] for table in TABLES if table in files}
    return DumpFiles(str(tables["page"].parent), dump[0] or wiki or "", dump[1] or date or "", tables)


def find_xml(source: Path) -> Path:
    """Find an XML export: `source` itself if it is a file, or the one ``*.xml[.bz2|.gz|.zst]`` in it.

    Raises:
        InputError: there is none, or more than one.
    """
    if source.is_file():
        return source
    found = [file for file in _listed(source) if file.is_file() and _XML.fullmatch(file.name)]
    if not found:
        raise InputError(f"{source}: holds no .xml, .xml.bz2, .xml.gz or .xml.zst; name the file itself")
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise InputError(f"{source}: holds {len(found)} XML exports ({names}); name one of them")
    return found[0]


def _dumps(source: Path) -> dict[_Dump, dict[str, list[Path]]]:
    """The files by dump and table."""
    dumps: dict[_Dump, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for folder in _folders(source):
        for file in _listed(folder):
            named = _TABLE.fullmatch(file.name)
            if named and file.is_file():
                dump = (named["wiki"], named["date"]) if named["wiki"] else _dump_of(folder)
                dumps[dump][named["table"]].append(file)
    return dumps


def _folders(source: Path) -> Iterator[Path]:
    """`source`, WIKI/ and DATE/ in it, and DATE/ in each WIKI/; a folder of raw files holds much else."""
    yield source
    for folder in _listed(source):
        if (_WIKI.fullmatch(folder.name) or _DATE.fullmatch(folder.name)) and folder.is_dir():
            yield folder
            yield from (below for below in _listed(folder) if _DATE.fullmatch(below.name) and below.is_dir())


def _dump_of(folder: Path) -> _Dump:
    """What a folder's own name says, for files called only ``page.sql.gz``."""
    path = folder.absolute()
    wiki, date = (path.parent.name, path.name) if _DATE.fullmatch(path.name) else (path.name, "")
    return (wiki if _WIKI.fullmatch(wiki) else "", date)


def _listed(folder: Path) -> Sequence[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "is a file" if folder.is_file() else "does not exist"
        raise NoDumpError(f"{folder}: {what}; name the folder that holds the dump's files") from error
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror}); check its permissions") from error


def _fits(dump: _Dump, wiki: str | None, date: str | None) -> bool:
    return dump[0] in ("", wiki or dump[0]) and dump[1] in ("", date or dump[1])


def _missing(files: Mapping[str, list[Path]]) -> list[str]:
    return [table for table in NEEDED if table not in files]


def _named(dump: _Dump) -> str:
    return " ".join(filter(None, dump)) or "an unnamed dump"


def _no_dump(source: Path, dumps: Mapping[_Dump, object], wiki: str | None, date: str | None) -> NoDumpError:
    if dumps:
        wanted, there = _named((wiki or "", date or "")), ", ".join(map(_named, sorted(dumps)))
        return NoDumpError(f"{source}: holds no {wanted}; it holds {there}")
    example = f"{wiki or 'simplewiki'}-{date or '20260101'}-page.sql.gz"
    return NoDumpError(f"{source}: holds no tables; it must hold files like {example}")


def _several(source: Path, dumps: Sequence[_Dump]) -> InputError:
    if len({wiki for wiki, _ in dumps}) > 1:
        listed = ", ".join(map(_named, sorted(dumps)))
        return InputError(
            f"{source}: holds dumps of several wikis ({listed}); name the folder of one of them"
        )
    newest_first = sorted((date for _, date in dumps), reverse=True)
    return InputError(
        f"{source}: holds {len(dumps)} dumps ({', '.join(newest_first)}); "
        f"choose one with --set dump.date={newest_first[0]}"
    )
