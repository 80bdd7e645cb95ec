"""What the wheel and the source distribution hold: the package, its configs, and nothing of the checkout else."""

import email
import re
import tarfile
import tomllib
import zipfile

import pytest
import yaml
from building import ROOT, build
from packaging.version import Version

from gramrun import __version__


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("built"))


def test_the_wheel_holds_the_package_and_its_configs(built):
    package = [*ROOT.glob("gramrun/**/*.py"), ROOT / "gramrun" / "py.typed"]
    expected = {path.relative_to(ROOT).as_posix() for path in package}
    expected |= {f"gramrun/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("configs/*/*.yaml")}
    with zipfile.ZipFile(built[1]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert held == expected, "list a new package in pyproject.toml"
        config = yaml.safe_load(wheel.read("gramrun/configs/movielens-100k/sogram.yaml"))
    assert config["estimator"]["name"] == "sogram"


def test_the_metadata_say_what_the_package_says(built):
    with zipfile.ZipFile(built[1]) as wheel:
        folder = f"gramrun-{__version__}.dist-info"
        metadata = email.message_from_bytes(wheel.read(f"{folder}/METADATA"))
        scripts = wheel.read(f"{folder}/entry_points.txt").decode()
        assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    assert (metadata["Name"], metadata["Version"]) == ("gramrun", __version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "gramrun = gramrun.__main__:main" in scripts


def test_the_source_distribution_is_whole(built):
    with tarfile.open(built[0]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile"} <= held
    for folder in ("configs", "docs", "experiments", "tests"):
        tree = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if p.is_file()}
        assert {name for name in tree if "__pycache__" not in name} <= held
    assert not {name for name in held if name.startswith("results/") or name.endswith(".pyc")}


def test_building_warns_of_nothing(built):
    assert not [line for line in built[2].splitlines() if "warning" in line.lower()]


def test_every_release_is_in_the_changelog():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = [line.split("[")[1].split("]")[0] for line in text.splitlines() if line.startswith("## [")]
    assert releases[:2] == ["Unreleased", __version__]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__


def test_every_dependency_has_a_lower_bound_and_none_an_upper_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = (
        part
        for name, parts in project["optional-dependencies"].items()
        if name not in ("dev", "mutation")  # what works on gramrun itself
        for part in parts
    )
    required = [*project["dependencies"], *optional]
    assert required
    assert not [line for line in required if not re.fullmatch(r"[a-z0-9-]+>=[0-9.]+", line)]


def test_the_lower_bounds_are_those_that_were_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [line.split(">=") for line in project["dependencies"]]
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tried = [line.split("==") for line in lines if not line.startswith("#")]
    assert {name: Version(lowest) for name, lowest in asked} == {name: Version(v) for name, v in tried}
