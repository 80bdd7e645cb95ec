"""How a result came about: what every manifest says of command, code, versions and machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


def provenance() -> dict[str, Any]:
    """What every manifest says of how a result came about: command, code, versions, machine."""
    packages = ("gramrun", "torch", "numpy", "pandas", "matplotlib")
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "platform": platform.platform(),
        "processor": _processor(),
        "host_threads": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The checkout's commit, with ``+changes`` where files differ from it; None outside a checkout."""
    here = Path(__file__).resolve().parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--abbrev=40", "--dirty=+changes", "--exclude=*"],
            cwd=here, capture_output=True, text=True, check=False, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform module knows less, but something
    return platform.processor() or platform.machine()


def now() -> str:
    """The time in UTC, ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
