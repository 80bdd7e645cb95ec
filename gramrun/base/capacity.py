"""Is there room for it? Refuse what does not fit before it starts, instead of being killed half-way.

    available memory = min( the machine's, and for the process's control group and each group around it:
                            limit − usage + inactive file cache )

A container or a batch job lives in a Linux control group: its limit can be far below the machine's memory,
and whoever exceeds it is killed without a word. Usage counts the group's file cache too, of which the
kernel drops the inactive part when it needs room.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil

from gramrun.base.errors import ConfigError

_ROOT = Path("/")


def available_memory() -> int:
    """Bytes of memory that this process can still take without swapping or being killed."""
    return max(0, min(psutil.virtual_memory().available, *_control_group_rooms(), 2**63))


def available_disk(path: Path) -> int:
    """Bytes free for a file at `path`, which need not exist yet, nor its folders."""
    folder = path.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_room(
    need_bytes: int, kind: Literal["memory", "disk"], *, what: str, remedy: str, path: Path | None = None
) -> None:
    """Refuse what does not fit into what is available now.

    Args:
        need_bytes: how much it takes.
        kind: of what.
        what: who needs it, in the plural, such as ``Gramian caches``.
        remedy: what to do where it does not fit, such as ``set estimator.cache: item``.
        path: for disk: the file or folder to be written.

    Raises:
        ConfigError: when it does not fit.
    """
    if kind == "disk":
        assert path is not None
        available, where = available_disk(path), f" for {path}"
    else:
        available, where = available_memory(), ""
    check_available(need_bytes, available, kind, what=what, remedy=remedy, where=where)


def check_available(
    need_bytes: int, available: int, kind: str, *, what: str, remedy: str, where: str = ""
) -> None:
    """Refuse what needs more of a `kind` of room than so many bytes.

    Raises:
        ConfigError: when it does, in the words of `check_room`.
    """
    if need_bytes > available:
        raise ConfigError(
            f"{what} need {size_text(need_bytes)} of {kind}, {size_text(available)} are available{where}; "
            f"{remedy}"
        )


def size_text(count: float) -> str:
    """A number of bytes for human eyes, in powers of 1000."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def in_words(seconds: float) -> str:
    """A duration, roughly."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _control_group_rooms() -> Iterator[int]:
    """What is left below each memory limit that binds this process; nothing outside Linux."""
    for line in _text(_ROOT / "proc/self/cgroup").splitlines():
        # hierarchy:controllers:path, with an empty list of controllers in version 2
        _, controllers, group = line.split(":", 2)
        if not controllers:
            mount, names = _ROOT / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = _ROOT / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # In a container the path can be the host's while the mount's root is the container's own group: then
        # only the root, the last of the groups around, is found, and it is the one that counts.
        inner = Path(group.lstrip("/"))
        for around in (inner, *inner.parents):
            yield from _room(mount / around, *names)


def _room(group: Path, limit: str, usage: str, cache: str) -> Iterator[int]:
    most, used = _text(group / limit).strip(), _text(group / usage).strip()
    if most.isdigit() and used.isdigit():  # "max" is no limit
        statistics = dict(
            line.split() for line in _text(group / "memory.stat").splitlines() if line.count(" ") == 1
        )
        yield int(most) - int(used) + int(statistics.get(cache, 0))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
