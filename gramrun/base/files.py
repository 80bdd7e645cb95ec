"""Files and folders written whole or not at all, checksums, and the schema versions of files.

A file is recorded as its size and SHA-256. A JSON object carries the SHA-256 of its content in the field
``checksum``; the hash is of the content, so the text may be formatted anew. Objects without the field are
older and are accepted. This rule must stay the same under every schema version: a newer file is refused for
its version, not as damaged.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from gramrun import __version__
from gramrun.base.errors import InputError, RunError

CHECKSUM = "checksum"
_HEX_DIGITS = 2 * hashlib.sha256().digest_size

# The name of an unfinished file: .NAME.PROCESS.partial, or with NAME's suffix.
_PARTIAL = re.compile(r"\.(?P<name>.+)\.(?P<process>\d+)\.partial(\.[^.]*)?")


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success sync it, move it into place, and sync its folder.

    At any moment `path` is either the old file or the whole new one, even if the machine stops. On any
    exception, including Ctrl-C, the temporary file is removed and `path` is untouched. Temporary files of
    killed processes are removed by the next process that writes the same file.

    Raises:
        RunError: when the disk is full or the folder cannot be written.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(path)
        # The suffix stays last: some writers choose their format by it.
        temporary = path.with_name(f".{path.name}.{os.getpid()}.partial{path.suffix}")
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_entries(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Check that `new_folder` can put a folder there.

    Raises:
        InputError: when the working directory is `path` or in it.
    """
    if Path.cwd().is_relative_to(path.resolve()):
        raise InputError(f"{path}: is the folder of this command, which cannot be replaced; name another")


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; on success move it into place, replacing `path`.

    On any exception the temporary folder is removed and `path` is untouched. Temporary folders of killed
    processes are removed by the next process that writes the same folder.

    Raises:
        RunError: when the disk is full or the folder cannot be written.
    """
    with disk_errors(path):
        path = path.resolve()  # a link stays: what it points to is replaced
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
        temporary.mkdir()
        try:
            yield temporary
            for folder, _, _ in os.walk(temporary):
                sync_files(Path(folder))
            replaced = _replaced(path)
            try:
                if path.exists():
                    path.rename(replaced)
                temporary.rename(path)
            except BaseException:
                if replaced.exists() and not path.exists():
                    replaced.rename(path)
                raise
            _sync_entries(path.parent)
            shutil.rmtree(replaced, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def remove_orphans(path: Path) -> None:
    """Remove what processes that were killed while writing `path` left; restore the old folder.

    A temporary name with this process's own number is an orphan too: the system reuses process numbers.
    """
    if (replaced := _replaced(path)).exists():
        if path.exists():  # killed while `new_folder` removed the old one
            shutil.rmtree(replaced)
        else:  # killed between its two renames
            replaced.rename(path)
    _remove_partial(path.parent, path.name)


def remove_orphans_in(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while writing any file of `folder`."""
    _remove_partial(folder, None)


def _remove_partial(folder: Path, name: str | None) -> None:
    for orphan in folder.glob(".*.partial*"):
        found = _PARTIAL.fullmatch(orphan.name)
        if not found or name not in (None, found["name"]):
            continue
        if int(found["process"]) == os.getpid() or not psutil.pid_exists(int(found["process"])):
            if orphan.is_dir():
                shutil.rmtree(orphan)
            else:
                orphan.unlink(missing_ok=True)


def sync_files(folder: Path) -> None:
    """Flush every file of `folder`, and the folder's entries, to the disk.

    Raises:
        RunError: when the disk reports an error.
    """
    with disk_errors(folder):
        for path in folder.iterdir():
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        _sync_entries(folder)


def _sync_entries(folder: Path) -> None:
    """Flush a folder's entries: a power failure can undo a rename that was not flushed."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replaced(path: Path) -> Path:
    """The name of the old folder between the two renames of `new_folder`."""
    return path.with_name(f".{path.name}.replaced")


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` while writing into a `RunError`, or where the path is wrong an `InputError`."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{path}: cannot be written: a folder of this path is a file") from error
    except OSError as error:
        # numpy reports a short write without an error number.
        reason = error.strerror or f"the disk is full or a quota used up ({error})"
        raise RunError(f"{path}: cannot be written: {reason}; nothing was left behind") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, as 64 hex digits.

    Raises:
        InputError: when the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def recorded(path: Path) -> dict[str, int | str]:
    """The size in ``bytes`` and the ``sha256`` of a file, for `check_recorded`.

    Raises:
        InputError: when the file cannot be read.
    """
    sha256 = sha256_of(path)
    return {"bytes": path.stat().st_size, "sha256": sha256}


def is_record(value: object) -> bool:
    """Whether a value read from a file has the form that `recorded` returns."""
    return (
        isinstance(value, dict) and type(value.get("bytes")) is int and isinstance(value.get("sha256"), str)
    )


def check_recorded(path: Path, expected: Mapping[str, Any], remedy: str) -> None:
    """Check that a file has the size and SHA-256 that were recorded.

    Args:
        path: the file.
        expected: its ``bytes`` and ``sha256``.
        remedy: the end of the message.

    Raises:
        InputError: when the file is missing, cut short or changed.
    """
    if not path.is_file():
        raise InputError(f"{path}: missing; {remedy}")
    if path.stat().st_size != expected["bytes"]:
        raise InputError(f"{path}: has {path.stat().st_size} bytes instead of {expected['bytes']}; {remedy}")
    if sha256_of(path) != expected["sha256"]:
        raise InputError(f"{path}: damaged (wrong SHA-256); {remedy}")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all.

    Raises:
        InputError: when the text holds a name of a file that is no UTF-8.
        RunError: when the disk is full or the folder cannot be written.
    """
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{path}: would hold the name of a file that is not UTF-8; rename that file"
        ) from None
    with new_file(path) as temporary:
        temporary.write_bytes(encoded)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum, whole or not at all.

    Raises:
        RunError: when the disk is full or the folder cannot be written.
    """
    sealed = {**content, CHECKSUM: _checksum(content)}
    write_text(path, json.dumps(sealed, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str = "bring it back from a copy, or make it anew") -> dict[str, Any]:
    """Read a JSON object that `write_json` wrote, and verify its checksum if it has one.

    Raises:
        InputError: when the file is missing or damaged; the message ends with `remedy`.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: missing; {remedy}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: damaged ({error}); {remedy}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: damaged (no JSON object); {remedy}")
    expected = content.pop(CHECKSUM, None)
    if _misnamed(content) if expected is None else expected != _checksum(content):
        raise InputError(f"{path}: damaged (wrong checksum); {remedy}")
    return content


def _misnamed(content: Mapping[str, Any]) -> list[str]:
    """Keys that hold the checksum of all others: a checksum whose own key is damaged."""
    hashes = [k for k, v in content.items() if isinstance(v, str) and len(v) == _HEX_DIGITS]
    return [
        key for key in hashes if content[key] == _checksum({k: v for k, v in content.items() if k != key})
    ]


def _checksum(content: Mapping[str, Any]) -> str:
    """The SHA-256 of a JSON object's content, independent of the order of keys."""
    content = json.loads(json.dumps({k: v for k, v in content.items() if k != CHECKSUM}))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_schema(path: Path, found: object, known: int, remedy: str) -> None:
    """Check that a file has the schema version that this gramrun reads.

    Each kind of file has its own version, raised when its layout changes: prepared corpora
    (`gramrun.data.shards`), checkpoints (`gramrun.runs.checkpoints`), run directories
    (`gramrun.runs.directory`).

    Args:
        path: the file.
        found: its schema version, as read from it.
        known: the version that this gramrun writes.
        remedy: what to do with a file of an older version.

    Raises:
        InputError: when the versions differ; for a newer one the remedy is a newer gramrun.
    """
    if type(found) is not int:  # True is an int too, and 1.0 equals 1
        raise InputError(f"{path}: damaged: {str(found)[:40]!r} is no schema version; {remedy}")
    if found != known:
        maker, remedy = ("newer", "update gramrun") if found > known else ("older", remedy)
        raise InputError(
            f"{path}: schema version {found}, but gramrun {__version__} reads version {known}: "
            f"{maker} code made it; {remedy}"
        )
