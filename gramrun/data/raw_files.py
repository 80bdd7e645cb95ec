"""Raw files in a folder or in a zip, read into memory and never unpacked to disk.

Nothing is extracted, so no member's path can point outside a folder. The size of a member is bounded, so a
small archive cannot fill the memory.
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

# Raised for damaged, encrypted or unknown archives. RuntimeError: encrypted, or packed by an unknown method;
# ValueError: names that are not UTF-8, offsets below 0.
_DAMAGED = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, ValueError)


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one corpus.

    Attributes:
        origin: the folder, archive or address that they were read from, for messages.
        files: contents by official file name, such as ``ratings.dat``.
        verified: the contents agree with a published checksum.
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
        """The name of one file in messages."""
        return f"{self.origin}/{name}"


def is_zip(place: Path) -> bool:
    """Whether `place` is a file that is named like a zip or a wheel, or begins like one."""
    return place.is_file() and (place.suffix in {".zip", ".whl"} or zipfile.is_zipfile(place))


def file_names(place: Path) -> list[str]:
    """The base names of the files in a folder, or at any depth in a zip, in order; a name may repeat.

    Raises:
        InputError: `place` is neither a folder nor a readable zip.
    """
    if is_zip(place):
        try:
            with zipfile.ZipFile(place) as archive:
                return sorted(PurePosixPath(member.filename).name for member in _members(archive))
        except _DAMAGED as error:
            raise _damaged(place, error) from error
    if not place.is_dir():
        raise InputError(f"{place}: is neither a folder nor a zip file; give the one that holds the files")
    return sorted(file.name for file in place.iterdir() if file.is_file())


def read_files(
    place: Path, names: Collection[str], optional: Collection[str] = (), largest: int | None = None
) -> dict[str, bytes]:
    """Read files by name out of a folder, or out of a zip that holds them at any depth.

    Args:
        place: the folder or zip.
        names: the base names that must be there.
        optional: the base names that are read where they are there.
        largest: the size of the largest file allowed, in bytes; None for `MAXIMUM_MEMBER_BYTES`.

    Returns:
        Contents by base name, in the order asked for.

    Raises:
        InputError: `place` is neither a folder nor a readable zip; a name is missing, or stands more
            than once in the zip; a member is damaged, encrypted or too large.
    """
    largest = MAXIMUM_MEMBER_BYTES if largest is None else largest
    present = file_names(place)
    wanted = [name for name in (*names, *optional) if name in names or name in present]
    for name in wanted:
        if present.count(name) != 1:
            problem = f"{name} more than once" if name in present else f"no {name}"
            raise InputError(f"{place}: holds {problem}; give a folder or zip that holds it once")
    if not is_zip(place):
        return {name: _read_file(place / name, largest) for name in wanted}
    try:
        with zipfile.ZipFile(place) as archive:
            members = {PurePosixPath(member.filename).name: member for member in _members(archive)}
            return {name: _read_member(place, archive, members[name], largest) for name in wanted}
    except _DAMAGED as error:
        raise _damaged(place, error) from error


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The files in a zip, without the doubles that macOS adds to its archives."""
    named = [member for member in archive.infolist() if member.filename]
    return [m for m in named if not m.is_dir() and not m.filename.startswith("__MACOSX/")]


def _read_file(file: Path, largest: int) -> bytes:
    try:
        _check_size(str(file), file.stat().st_size, largest)
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); check its permissions") from error


def _read_member(place: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, largest: int) -> bytes:
    _check_size(f"{place}: {member.filename}", member.file_size, largest)
    with archive.open(member) as stream:
        data = stream.read(largest + 1)  # the declared size can lie
    if len(data) != member.file_size:
        raise zipfile.BadZipFile(f"{member.filename} has another size than declared")
    return data


def _check_size(label: str, size: int, limit: int) -> None:
    if size > limit:
        raise InputError(
            f"{label} has more than {limit:,} bytes, too many for a file of a supported corpus; check where "
            "it comes from"
        )


def _damaged(place: Path, error: Exception) -> InputError:
    return InputError(f"{place}: is damaged, or no zip that can be read ({error}); get it again")
