"""Building the distributions as any installer does: by the hooks of the build backend (PEP 517), offline."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("gramrun", "configs", "docs", "experiments", "tests")


def copy_tree(target: Path) -> Path:
    """Copy what a source distribution is made of, so that building leaves nothing in the checkout."""
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "data").mkdir()
    shutil.copy(ROOT / "data" / "README.md", target / "data")
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":  # a file in a linked work tree
            shutil.copy(path, target)
    return target


def call_backend(tree: Path, hook: str, output: Path) -> tuple[Path, str]:
    """Call one hook of the build backend in `tree`: the file it made, and all that it printed."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.{hook}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code, str(output)],
        cwd=tree,
        env={
            **os.environ,
            "PYTHONPATH": "",
            "PYTHONDONTWRITEBYTECODE": "",
        },  # the backend warns of the latter
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return output / done.stdout.strip().splitlines()[-1], done.stdout + done.stderr


def build(folder: Path) -> tuple[Path, Path, str]:
    """Build the source distribution, and from it the wheel: both files, and all that was printed."""
    tree = copy_tree(folder / "tree")
    sdist, said = call_backend(tree, "build_sdist", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    wheel, more = call_backend(unpacked, "build_wheel", folder)
    return sdist, wheel, said + more
