"""Where the dump of a Wikipedia comes from: a place that the user names, the folders of raw files, the site.

What the user put on the disk is taken as it is, marked as not verified where nothing says that it is the
official dump. Everything that Wikimedia publishes has a checksum, so what comes from there agrees with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gramrun.base.errors import InputError, RunError
from gramrun.data.download import DownloadError
from gramrun.data.wikipedia.dumps_server import SERVER, fetch_tables
from gramrun.data.wikipedia.files import TABLES, DumpFiles, NoDumpError, find_tables
from gramrun.data.wikipedia.published import STATUS, sums_name, verify

WIKIS: Mapping[str, str] = {
    "wikipedia-simple": "simplewiki",
    "wikipedia-fr": "frwiki",
    "wikipedia-en": "enwiki",
}


def locate_wikipedia(
    corpus: str,
    source: Path | None,
    raw_folders: Sequence[Path],
    downloads: Path,
    *,
    date: str | None = None,
    contact: str | None = None,
    tables: Sequence[str] = TABLES,
    server: str = SERVER,
    progress: bool = True,
) -> DumpFiles:
    """Find the tables of a Wikipedia's dump, downloading them if need be.

    Args:
        corpus: one of `WIKIS`.
        source: a folder as `find_tables` takes it. If given, nothing else is looked at.
        raw_folders: folders looked through in order.
        downloads: the folder that keeps downloaded dumps, as ``WIKI/DATE/``.
        date: of the dump; None for the one that is there, or the newest complete one on the site.
        contact: an address at which Wikimedia can reach whoever downloads.
        tables: which of `TABLES` are wanted.
        server: the address that the dumps of all wikis lie under.
        progress: show progress bars, on a terminal only.

    Returns:
        The files. Local files that no checksum beside them confirms have `verified` unset; it is for the
        caller to say so to the user.

    Raises:
        InputError: `source` holds no such dump, there are several to choose from, or a table there is not
            the one that was published.
        RunError: no place has the dump; the message lists each and what was wrong there.
    """
    wiki = WIKIS[corpus]
    if source is not None:
        return verify(find_tables(source, wiki, date), tables)
    tried = []
    for folder in raw_folders:
        try:
            found = find_tables(folder, wiki, date)
        except NoDumpError as error:
            tried.append(str(error))
            continue
        try:
            files = verify(found, tables)
        except InputError as error:
            if not _is_download(found, downloads):
                raise
            tried.append(str(error))  # and is fetched again
            continue
        if files.verified or not _is_download(files, downloads):
            return files
        tried.append(f"{files.origin}: the download there is not finished ({files.note})")
    try:
        return fetch_tables(
            wiki,
            None if date == "latest" else date,
            downloads,
            server=server,
            contact=contact,
            tables=tables,
            progress=progress,
        )
    except DownloadError as error:
        tried.append(str(error))
    raise RunError(
        f"{corpus}: not found in {len(tried)} places: {'; '.join(tried)}; "
        f"get the tables of {wiki} by other means and name their folder with --source FOLDER"
    )


def _is_download(files: DumpFiles, downloads: Path) -> bool:
    """Whether `files` were fetched here, so that the rest of them can be too."""
    place = Path(files.origin)
    if place.resolve() != (downloads / files.wiki / files.date).resolve():
        return False
    return any((place / name).is_file() for name in (STATUS, sums_name(files.wiki, files.date)))
