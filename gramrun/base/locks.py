"""One writer at a time: a lock beside what is written, which says who holds it.

The lock is the kernel's own (flock, by way of the library filelock) on a hidden file ``.NAME.lock`` beside
NAME, so that a folder may be replaced while it is locked. The kernel frees it however its process ends, also
by ``kill -9``; the file that such a process leaves behind is taken over and removed by the next. On a file
system without kernel locks, the library's own stand in.
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

# Long enough for a lock that is just being given back, too short to be noticed.
_SECONDS = 0.3
_SECONDS_BETWEEN_LOOKS = 0.02


@contextlib.contextmanager
def locked(path: Path, *, wait_seconds: float = _SECONDS) -> Iterator[None]:
    """Keep all others that ask for it from `path`, a file or a folder, which need not exist.

    When the lock is given back, nothing of it is left: neither its file nor folders that only it needed.

    Args:
        path: what will be written.
        wait_seconds: how long to wait for another process.

    Raises:
        InputError: when another process holds the lock: which, with what command, and since when.
        RunError: when the lock cannot be made, as nothing can be written there.
    """
    place = path.resolve()
    file = place.parent / f".{place.name}.lock"  # unlike with_name, also of the root, which has no name
    made = [folder for folder in file.parents if not folder.exists()]
    lock = FileLock(file)
    try:
        with disk_errors(path):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=wait_seconds, poll_interval=_SECONDS_BETWEEN_LOOKS)
            except Timeout:
                raise InputError(
                    f"{path}: is being written by {_holder(file)}; wait until that has ended, or stop it"
                ) from None
            if not isinstance(lock, SoftFileLock):  # whose file is the lock, and has its own content
                file.write_text(json.dumps(_description()), encoding="utf-8")
        yield
    finally:
        if lock.is_locked:
            # First, while it is held: who waits for this file sees that its name is gone, and looks again.
            with contextlib.suppress(OSError):  # the folder may be gone, or read-only now
                file.unlink(missing_ok=True)
            lock.release()
        for folder in made:
            with contextlib.suppress(OSError):  # used, or gone
                folder.rmdir()


def _description() -> dict[str, str | int]:
    return {"process": os.getpid(), "host": socket.gethostname(), "command": command(), "since": now()}


def _holder(file: Path) -> str:
    """Who holds a lock, in words; its file may be another program's, or in the middle of being written."""
    try:
        holder = json.loads(file.read_text(encoding="utf-8"))
        return "process {process} on {host} since {since} ({command})".format(**holder)
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"
