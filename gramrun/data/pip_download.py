"""Data out of Python packages: fetched by pip, so that a user's own index, proxy and certificates apply."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gramrun.data.download import DownloadError

PIP_SECONDS = 900.0

# What pip asks of a build backend (PEP 517) before it keeps a source distribution. Only a name and a version
# are looked at, so these are all that is answered, and nothing of the package is run.
_BACKEND = """
from pathlib import Path


def prepare_metadata_for_build_wheel(folder, config_settings=None):
    metadata = Path(folder, "{stem}-{version}.dist-info", "METADATA")
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return metadata.parent.name
"""


def download_wheel(requirement: str, folder: Path) -> Path:
    """Fetch the wheel of a package without what it depends on.

    Raises:
        DownloadError: pip is missing or cannot get it.
    """
    _pip_download(requirement, ["--only-binary=:all:", requirement], folder)
    return next(folder.glob("*.whl"))


def download_source(requirement: str, sha256: str, backend: str, folder: Path) -> Path:
    """Fetch the source distribution of a package, running none of its code.

    pip calls a package's build backend even where it only downloads, after it has installed that with all
    it depends on. A stand-in for the backend saves both, and the checksum is compared before.

    Args:
        requirement: name and version, ``name==1.0``.
        sha256: of the archive; pip takes no other file.
        backend: the module that the package names as its build backend, such as ``hatchling.build``.
        folder: where to.

    Raises:
        DownloadError: pip is missing or cannot get it, or it is another file.
    """
    name, _, version = requirement.partition("==")
    with tempfile.TemporaryDirectory(prefix="gramrun-") as scratch:
        module = Path(scratch, *backend.split(".")).with_suffix(".py")
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(_BACKEND.format(name=name, stem=re.sub(r"[-.]+", "_", name), version=version))
        pinned = Path(scratch, "requirements.txt")
        pinned.write_text(f"{requirement} --hash=sha256:{sha256}\n")
        before = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([scratch, *([before] if before else [])])
        options = ["--no-binary=:all:", "--no-build-isolation", "--requirement", str(pinned)]
        _pip_download(requirement, options, folder, {"PYTHONPATH": path})
    return next(folder.iterdir())


def _pip_download(
    requirement: str, options: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(folder), *options]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise DownloadError(f"pip download {requirement}: not done after {PIP_SECONDS:g} s") from error
    if done.returncode:
        raise DownloadError(f"pip download {requirement}: {_pip_reason(done.stderr)}")


def _pip_reason(stderr: str) -> str:
    if "No module named pip" in stderr:
        return "this Python has no pip (python -m ensurepip installs it)"
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return errors[-1] if errors else (stderr.strip().splitlines() or ["failed without a message"])[-1]
