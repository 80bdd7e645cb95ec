"""One writer at a time: a lock file beside the output, which names the process that holds it.

The lock is a kernel lock (flock, through the library filelock) on the hidden file ``.NAME.lock`` beside NAME,
so that a folder can be replaced while it is locked. The kernel releases it when its process ends, also by
``kill -9``; the next process takes over a file left behind. On a file system without kernel locks, filelock
falls back to soft locks.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from gramrun.base.errors import InputError
from gramrun.base.files import disk_errors
from gramrun.base.provenance import command, now

# Enough for another process to finish releasing a lock.
_SECONDS = 0.3
_POLL_SECONDS = 0.02


@contextlib.contextmanager
def locked(path: Path, *, wait_seconds: float = _SECONDS) -> Iterator[None]:
    """Hold the exclusive lock of a file or folder, which need not exist.

    On release, the lock file and the folders that were made for it are removed.

    Args:
        path: the file or folder to be written.
        wait_seconds: how long to wait for another process.

    Raises:
        InputError: when another process holds the lock; the message names it, its command and its start.
        RunError: when the lock file cannot be written.
    """
    place = path.resolve()
    file = place.parent / f".{place.name}.lock"
    made = [folder for folder in file.parents if not folder.exists()]
    lock = FileLock(file)
    try:
        with disk_errors(path):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=wait_seconds, poll_interval=_POLL_SECONDS)
            except Timeout:
                raise InputError(
                    f"{path}: is being written by {_holder(file)}; wait until that has ended, or stop it"
                ) from None
            if not isinstance(lock, SoftFileLock):  # a soft lock is its file's content
                file.write_text(json.dumps(_description()), encoding="utf-8")
        yield
    finally:
        if lock.is_locked:
            # Unlink before release: a waiting process then sees that the file is gone, and retries.
            with contextlib.suppress(OSError):  # the folder may be gone, or read-only
                file.unlink(missing_ok=True)
            lock.release()
        for folder in made:
            with contextlib.suppress(OSError):  # not empty, or gone
                folder.rmdir()


def _description() -> dict[str, str | int]:
    return {"process": os.getpid(), "host": socket.gethostname(), "command": command(), "since": now()}


def _holder(file: Path) -> str:
    """The process that holds a lock, for messages; its file may be foreign or half-written."""
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
        return "process {process} on {host} since {since} ({command})".format(**holder)
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
