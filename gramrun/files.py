"""Writing files and folders whole or not at all, and hashing them."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gramrun.errors import InputError, RunError


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success sync it and move it into place.

    On any exception, Ctrl-C included, the temporary file is removed and `path` is untouched. What a killed
    process left behind is removed by the next one that writes the same file.

    Raises:
        RunError: when the disk is full or the folder cannot be written.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(path)
        # The suffix stays last: writers choose their format by it.
        temporary = path.with_name(f".{path.name}.{os.getpid()}.partial{path.suffix}")
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; on success move it into place, replacing `path`.

    On any exception the temporary folder is removed and `path` is untouched. What a killed process left
    behind is removed by the next one that writes the same folder.

    Raises:
        RunError: when the disk is full or the folder cannot be written.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_orphans(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
        temporary.mkdir()
        try:
            yield temporary
            replaced = _replaced(path)
            if path.exists():
                path.rename(replaced)
            try:
                temporary.rename(path)
            except BaseException:
                if replaced.exists():
                    replaced.rename(path)
                raise
            shutil.rmtree(replaced, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def remove_orphans(path: Path) -> None:
    """Remove what processes that were killed while writing `path` left behind, and bring back the old one.

    A temporary name with this process's own number is an orphan too: numbers come round again.
    """
    if _replaced(path).exists() and not path.exists():  # killed between the two renames of `new_folder`
        _replaced(path).rename(path)
    for orphan in path.parent.glob(f".{glob.escape(path.name)}.*.partial*"):
        process = orphan.name.removeprefix(f".{path.name}.").partition(".")[0]
        if process.isdigit() and (int(process) == os.getpid() or not _is_alive(int(process))):
            if orphan.is_dir():
                shutil.rmtree(orphan)
            else:
                orphan.unlink()


def _replaced(path: Path) -> Path:
    """Where a folder stays for the moment in which its successor takes its place."""
    return path.with_name(f".{path.name}.replaced")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    return True


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an operating system's write error into one line that names the place."""
    try:
        yield
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
