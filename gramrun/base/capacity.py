"""Available memory and disk, and checks that refuse a run that needs more before it starts.

    available memory = min( the machine's, and for the process's control group and each of its ancestors:
                            limit − usage + inactive file cache )

A container or a batch job runs in a Linux control group, whose limit can be far below the machine's memory;
the kernel kills a process that exceeds it. Usage includes the group's file cache, whose inactive part the
kernel can reclaim.
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
    """Bytes of memory that this process can still allocate without swapping or being killed."""
    return max(0, min(psutil.virtual_memory().available, *_control_groups_available(), 2**63))


def available_disk(path: Path) -> int:
    """Free bytes for a file at `path`; neither the file nor its folders need exist."""
    folder = path.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def check_capacity(
    need_bytes: int, kind: Literal["memory", "disk"], *, what: str, remedy: str, path: Path | None = None
) -> None:
    """Check that enough memory or disk is available now.

    Args:
        need_bytes: the bytes needed.
        kind: ``memory`` or ``disk``.
        what: what needs them, in the plural, such as ``Gramian caches``.
        remedy: the end of the message, such as ``set estimator.cache: item``.
        path: for disk, the file or folder to be written.

    Raises:
        ConfigError: when less is available.
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
    """Like `check_capacity`, for a given number of available bytes.

    Raises:
        ConfigError: when less is available.
    """
    if need_bytes > available:
        raise ConfigError(
            f"{what} need {size_text(need_bytes)} of {kind}, {size_text(available)} are available{where}; "
            f"{remedy}"
        )


def size_text(count: float) -> str:
    """A number of bytes for display, in powers of 1000."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def time_text(seconds: float) -> str:
    """A rounded duration for display."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _control_groups_available() -> Iterator[int]:
    """Bytes below each memory limit of this process's control groups; empty outside Linux."""
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
        # In a container the path can be the host's while the mount's root is the container's own group. Then
        # only the root, the last ancestor, exists, and its limit is the one that applies.
        inner = Path(group.lstrip("/"))
        for ancestor in (inner, *inner.parents):
            yield from _group_available(mount / ancestor, *names)


def _group_available(group: Path, limit: str, usage: str, cache: str) -> Iterator[int]:
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
