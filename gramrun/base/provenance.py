"""Provenance in manifests: command, code, versions and machine."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from gramrun import __version__


def provenance() -> dict[str, Any]:
    """A JSON-ready record of command, code, versions and machine."""
    packages = ("torch", "numpy", "pandas", "matplotlib")
    return {
        "command": command(),
        "git_commit": _git_commit(),
        "python": platform.python_version(),
        "versions": {"gramrun": __version__, **{name: _version(name) for name in packages}},
        "platform": platform.platform(),
        "processor": _processor(),
        "host_threads": os.cpu_count(),
    }


def command() -> str:
    """The command line of this process, quoted for a shell."""
    return shlex.join([*_program(), *sys.argv[1:]])


def _program() -> list[str]:
    """The words that start the running program from a shell."""
    module = getattr(sys.modules["__main__"], "__spec__", None)  # set by `python -m` only
    if module is None or module.name == "gramrun.__main__":
        return ["gramrun"] if module else [Path(sys.argv[0]).name]
    return ["python", "-m", module.name.removesuffix(".__main__")]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The checkout's commit, with ``+changes`` where files differ from it; None outside a checkout."""
    here = Path(__file__).resolve().parents[1]
    if not (here.parent / ".git").exists():
        return None  # installed, perhaps inside a user's own repository
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
        pass  # not Linux
    return platform.processor() or platform.machine()


def now() -> str:
    """The time in UTC, ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
