"""The wheel and the source distribution: complete, and installed they work in an empty folder."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from helpers import ROOT
from packaging.version import Version

from gramrun import __version__

FOLDERS = ("gramrun", "configs", "docs", "experiments", "tests")


def call_backend(tree: Path, hook: str, output: Path) -> Path:
    """Call one hook of the build backend (PEP 517) in `tree`; return the file it made."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.{hook}(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": ""}
    command = [sys.executable, "-c", code, str(output)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return output / done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it; the checkout is not touched."""
    folder = tmp_path_factory.mktemp("built")
    tree = folder / "tree"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tree / "data").mkdir()
    shutil.copy(ROOT / "data" / "README.md", tree / "data")
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":  # .git is a file in a linked work tree
            shutil.copy(path, tree)
    sdist = call_backend(tree, "build_sdist", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return sdist, call_backend(folder / sdist.name.removesuffix(".tar.gz"), "build_wheel", folder)


def test_the_wheel_holds_the_package_and_its_configs(built):
    package = [*ROOT.glob("gramrun/**/*.py"), ROOT / "gramrun" / "py.typed"]
    expected = {path.relative_to(ROOT).as_posix() for path in package}
    expected |= {f"gramrun/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("configs/*/*.yaml")}
    information = f"gramrun-{__version__}.dist-info"
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        metadata = email.message_from_bytes(wheel.read(f"{information}/METADATA"))
        scripts = wheel.read(f"{information}/entry_points.txt").decode()
    assert {name for name in names if not name.startswith(information)} == expected, (
        "list a new package in pyproject.toml"
    )
    assert f"{information}/licenses/LICENSE" in names
    assert (metadata["Name"], metadata["Version"]) == ("gramrun", __version__)
    assert "gramrun = gramrun.__main__:main" in scripts


def test_the_source_distribution_holds_tests_and_documents(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile"} <= names
    for folder in FOLDERS[1:]:
        tree = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file()}
        assert {name for name in tree if "__pycache__" not in name} <= names


def test_the_lower_bounds_of_the_dependencies_are_those_in_constraints_lowest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tried = [line.split("==") for line in lines if not line.startswith("#")]
    asked = [line.split(">=") for line in project["dependencies"]]
    assert {name: Version(lowest) for name, lowest in asked} == {name: Version(v) for name, v in tried}


@pytest.mark.slow
def test_the_installed_wheel_works_in_an_empty_folder(tmp_path, built):
    """In a virtual environment that shares this one's other packages."""
    binary, empty = tmp_path / "environment" / "bin", tmp_path / "empty"
    empty.mkdir()
    venv.create(binary.parent, with_pip=False)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # The .pth files within a folder that a .pth file names, as an editable gramrun's, are not read.
    packages = binary.parent / "lib" / python / "site-packages"
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "outer.pth").write_text("\n".join(shared) + "\n")
    hidden = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "GRAMRUN_RAW")}

    def run(*arguments: object) -> str:
        command = list(map(str, arguments))
        done = subprocess.run(command, cwd=empty, env=hidden, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip = [sys.executable, "-m", "pip", "--python", binary / "python", "install", "--no-index", "--no-deps"]
    run(*pip, built[1])
    assert run(binary / "gramrun", "--version") == f"gramrun {__version__}\n"
    said = run(binary / "gramrun", "prepare", "synthetic", "--output", "data/synthetic")
    for _ in range(3):  # train, evaluate, plot: each command names the next
        said = run(binary / "gramrun", *said.partition("next: gramrun ")[2].split())
    assert (empty / "map.png").stat().st_size > 1000
    assert {path.name for path in empty.iterdir()} == {"data", "runs", "map.png"}
