"""`make reference`: the report that is named takes the place of the last one, and nothing else is touched."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"
REPORT = ("RESULTS.md", "claims.json", "runs.csv")


def write(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(folder.name))


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def make(tmp_path):
    shutil.copy(MAKEFILE, tmp_path)

    def call(*arguments):
        found = subprocess.run(
            ["make", "reference", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return found.returncode, found.stdout + found.stderr

    return call


def test_a_report_replaces_the_last_one_and_only_that(make, tmp_path):
    results = tmp_path / "results"
    write(results / "standard", *REPORT, "other.txt", "scaling/old.csv", "scaling/a.png", "baselines/b.csv")
    write(results / "standard-part", *REPORT, "scaling/new.csv", "scaling/a.png")
    write(results / "reference", "baselines/enwik8/RESULTS.md", "known_optimum/other.csv")
    before = files(results / "reference")
    assert make("PROFILE=standard")[0] == 0
    published = files(results / "reference")
    published.pop("published.txt")
    own = (*REPORT, "scaling/old.csv", "scaling/a.png", "baselines/b.csv")
    assert published == before | dict.fromkeys(own, "standard"), "the same drawings and tables again"
    write(results / "quick", *REPORT, "scaling/new.csv", "scaling/a.png")
    assert make("PROFILE=quick")[0] == 0
    published = files(results / "reference")
    published.pop("published.txt")
    own = (*REPORT, "scaling/new.csv", "scaling/a.png")
    assert published == before | dict.fromkeys(own, "quick")


def test_what_to_publish_must_be_named_and_be_there(make, tmp_path):
    write(tmp_path / "results" / "quick", *REPORT)
    for arguments, reason in (((), "name what to publish"), (("PROFILE=paper",), "no report there")):
        code, told = make(*arguments)
        assert code == 2 and reason in told
    assert not (tmp_path / "results" / "reference").exists()
