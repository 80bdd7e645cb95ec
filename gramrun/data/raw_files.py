"""Raw files as they lie in a folder or in a zip, read into memory and never unpacked to disk.

Nothing is extracted, so a member's path cannot point outside of anything ("zip slip"); what a member
may occupy is bounded, so a small archive cannot fill the memory ("decompression bomb").
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from gramrun.base.errors import InputError

# The largest file of any supported corpus is ratings.csv of MovieLens 32M and latest, 0.9 GB.
MAXIMUM_MEMBER_BYTES = 2 * 1024**3
# Ratings pack to a fourth or so, the emptiest text to a thousandth: what unpacks to more is a bomb. Small
# files may be anything.
MAXIMUM_RATIO = 100
ALWAYS_UNPACKED_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one corpus, with where they come from and whether they are the official ones.

    Attributes:
        origin: the folder, archive or address that they were read from, for messages.
        files: contents by official file name, such as ``ratings.dat``.
        verified: the contents were held against a published checksum and agree.
        note: how they were verified, or why not.
    """

    origin: str
    files: Mapping[str, bytes]
    verified: bool = False
    note: str = ""

    @cached_property
    def sha256(self) -> Mapping[str, str]:
        """The SHA-256 of each file in hexadecimal, by file name."""
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}

    def place(self, name: str) -> str:
        """Name one file the way messages do: origin, then file."""
        return f"{self.origin}/{name}"


def is_zip(place: Path) -> bool:
    """Say whether `place` is a file that is named like a zip or a wheel, or begins like one."""
    return place.is_file() and (place.suffix in {".zip", ".whl"} or zipfile.is_zipfile(place))


def read_files(place: Path, names: Collection[str], optional: Collection[str] = ()) -> dict[str, bytes]:
    """Read files by name out of a folder or a zip.

    Args:
        place: a folder that holds the files, or a zip that holds them at any depth.
        names: the base names that must be there.
        optional: the base names that are read where they are there.

    Returns:
        Contents by base name, in the order asked for.

    Raises:
        InputError: `place` is neither a folder nor a readable zip; a name is missing, or stands more
            than once in the zip; a member is damaged, encrypted or too large.
    """
    if is_zip(place):
        return _read_zip(place, names, optional)
    if not place.is_dir():
        raise _no_place(place)
    found = {}
    for name in (*names, *optional):
        file = place / name
        if file.is_file():
            found[name] = _read_file(file)
        elif name in names:
            raise _missing(place, name)
    return found


def file_names(place: Path) -> list[str]:
    """List the base names of the files in a folder, or at any depth in a zip.

    Raises:
        InputError: `place` is neither a folder nor a readable zip.
    """
    if not is_zip(place):
        if not place.is_dir():
            raise _no_place(place)
        return sorted(file.name for file in place.iterdir() if file.is_file())
    with _opened(place) as opened:
        return sorted(PurePosixPath(member.filename).name for member in _members(opened))


def holds_files(place: Path, names: Collection[str]) -> bool:
    """Say whether the folder `place` holds all of `names`."""
    return all((place / name).is_file() for name in names)


def _read_file(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAXIMUM_MEMBER_BYTES:
            raise InputError(
                f"{file}: has more than {MAXIMUM_MEMBER_BYTES:,} bytes, and no supported corpus has; "
                "check where it comes from"
            )
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); check its permissions") from error


def _read_zip(archive: Path, names: Collection[str], optional: Collection[str]) -> dict[str, bytes]:
    found = {}
    try:
        with _opened(archive) as opened:
            for name in (*names, *optional):
                members = [m for m in _members(opened) if PurePosixPath(m.filename).name == name]
                if len(members) > 1:
                    listed = ", ".join(member.filename for member in members)
                    raise InputError(f"{archive}: holds {name} more than once ({listed}); keep one of them")
                if members:
                    found[name] = _read_member(archive, opened, members[0])
                elif name in names:
                    raise _missing(archive, name)
    except (zipfile.BadZipFile, OSError) as error:
        raise _broken(archive, error) from error
    return found


def _opened(archive: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(archive)
    # A version that zipfile does not know; a name that is not the UTF-8 that it says it is.
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise _broken(archive, error) from error


def _members(opened: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """List the files in a zip, without the doubles that macOS adds to its archives."""
    named = [m for m in opened.infolist() if m.filename]
    return [m for m in named if not m.is_dir() and not m.filename.startswith("__MACOSX/")]


def _read_member(archive: Path, opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    too_large = InputError(
        f"{archive}: {member.filename} would unpack to more than {MAXIMUM_MEMBER_BYTES:,} bytes, "
        "more than any supported corpus has; check where the archive comes from"
    )
    if member.file_size > MAXIMUM_MEMBER_BYTES:
        raise too_large
    if member.file_size > max(ALWAYS_UNPACKED_BYTES, MAXIMUM_RATIO * member.compress_size):
        raise InputError(
            f"{archive}: {member.filename} would unpack from {member.compress_size:,} to "
            f"{member.file_size:,} bytes, as no ratings do; unpack it yourself if it is meant so"
        )
    try:
        with opened.open(member) as stream:
            # The declared size can lie: read one byte past the limit instead of trusting it.
            data = stream.read(MAXIMUM_MEMBER_BYTES + 1)
    except (zlib.error, zipfile.BadZipFile, EOFError, ValueError) as error:  # ValueError: a negative place
        raise InputError(f"{archive}: {member.filename} is damaged ({error}); get it again") from error
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed by an unknown method
        raise InputError(f"{archive}: {member.filename} cannot be unpacked ({error}); repack it") from error
    if len(data) > MAXIMUM_MEMBER_BYTES:
        raise too_large
    if len(data) != member.file_size:
        raise InputError(
            f"{archive}: {member.filename} has {len(data):,} bytes where {member.file_size:,} are declared; "
            "get it again"
        )
    return data


def _missing(place: Path, name: str) -> InputError:
    return InputError(f"{place}: holds no {name}; give the folder or zip that does, or get it again")


def _no_place(place: Path) -> InputError:
    return InputError(f"{place}: is neither a folder nor a zip file; give the one that holds the files")


def _broken(archive: Path, error: Exception) -> InputError:
    return InputError(f"{archive}: is not a whole zip file ({error}); get it again")
