"""A disk that is full or read-only: one line, nothing lost, and the command goes on once there is room.

A limit on the size of files stands for the full disk: it needs no rights.
"""

import errno
import importlib
import os
import resource
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path

import pytest
from helpers import BASELINE, CONFIG, SMALL, settings
from injection import PRELOADED, Command, Outcome, assert_same, assert_whole, gramrun, results, succeed

from gramrun.data import shards

SHORT = settings(*SMALL, "train.steps=60", "train.checkpoint_every=10", "evaluation.every=20", "gram_error.every=5",
                 "gram_error.estimators=[{name: sogram, gramian_batch_size: 16}]")  # fmt: skip
LONG = settings("train.steps=500", "train.checkpoint_every=50", "evaluation.every=250")


def limit_files(size: int) -> None:
    """Writing beyond `size` is an error, not a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def fails_in_one_line(outcome: Outcome, code: int) -> str:
    assert outcome.code == code, outcome
    line = outcome.one_line()
    reasons = [os.strerror(errno.ENOSPC), os.strerror(errno.EFBIG), "disk"]
    assert any(reason in line for reason in reasons), line
    return line


def no_litter(folder: Path) -> bool:
    return not [file for file in folder.rglob("*") if "partial" in file.name or ".lock" in file.name]


def test_train_in_the_middle_of_a_checkpoint(corpus_path, tmp_path):
    data = settings(f"data.path={corpus_path}")
    line = ["train", "--config", CONFIG, *SHORT, *LONG, *data, "--output", "r"]
    straight = tmp_path / "straight"
    succeed(straight, *line)
    size = max(file.stat().st_size for file in straight.glob("r/checkpoints/*"))
    folder = tmp_path / "f"
    command = Command(folder, *line, before=partial(limit_files, resource.RLIM_INFINITY))
    command.wait_for(lambda: len(list(folder.glob("r/checkpoints/step-*.pt"))) == 2)
    resource.prlimit(command.number, resource.RLIMIT_FSIZE, (size // 2, size // 2))
    message = fails_in_one_line(command.end(), 1)
    saved = sorted(folder.glob("r/checkpoints/step-*.pt"))
    assert message.endswith(f"{saved[-1].relative_to(folder)}")  # names the last good checkpoint
    assert no_litter(folder)
    assert_whole(folder)
    succeed(folder, *line, "--resume")
    assert_same(folder, results(straight))


WRITERS = {
    "prepare": ["prepare", "synthetic", "--output", "out"],
    "baseline": ["baseline", "--config", BASELINE, "--output", "out"],
    "gram-error": ["gram-error", "--config", CONFIG, *SHORT, "--output", "out"],
    "train": ["train", "--config", CONFIG, *SHORT, "--output", "out"],
}


@pytest.mark.parametrize("left", [4096, pytest.param(0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WRITERS)
def test_a_new_folder_is_whole_or_can_be_continued(corpus_path, tmp_path, name, left):
    line = WRITERS[name]
    if name != "prepare":
        line = [*line, *settings(f"data.path={corpus_path}")]
    succeed(tmp_path / "straight", *line)
    folder = tmp_path / "f"
    outcome = gramrun(folder, *line, before=partial(limit_files, left))
    if outcome.code:  # else there was room enough
        fails_in_one_line(outcome, 2 if name == "prepare" or "need" in outcome.err else 1)
    assert no_litter(folder)
    assert_whole(folder)
    begun = (folder / "out").exists()
    if not (begun and name == "baseline"):
        resume = ["--resume"] if begun and name in ("train", "gram-error") else []
        succeed(folder, *line, *resume)
    assert_same(folder, results(tmp_path / "straight"))


def test_evaluate_and_plot_keep_the_old_files(corpus_path, tmp_path):
    folder = tmp_path / "f"
    data = settings(f"data.path={corpus_path}")
    lines = {"evaluate": ["evaluate", "r", "--full"], "plot": ["plot", "map", "r", "--output", "map.png"]}
    succeed(folder, "train", "--config", CONFIG, *SHORT, *data, "--output", "r")
    for line in lines.values():
        succeed(folder, *line)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for name, code in (("evaluate", 1), ("plot", 2)):
        fails_in_one_line(gramrun(folder, *lines[name], before=partial(limit_files, 0)), code)
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def become_nobody() -> None:
    """Root may write everywhere; nobody may not."""
    for module in PRELOADED:  # nobody may not read Python's own folder, where that is root's
        importlib.import_module(module)
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


@pytest.fixture
def read_only(corpus_path):
    """A read-only folder with a corpus d and a finished run r."""
    with tempfile.TemporaryDirectory() as parent:  # tmp_path lies in a folder that other users cannot enter
        folder = Path(parent) / "f"
        folder.parent.chmod(0o755)
        shutil.copytree(corpus_path, folder / "d", copy_function=shutil.copy)
        succeed(folder, "train", "--config", CONFIG, *SHORT, *settings("data.path=d"), "--output", "r")
        places = (folder, *folder.rglob("*"))
        for place in places:
            place.chmod(0o555 if place.is_dir() else 0o444)
        yield folder
        for place in places:
            place.chmod(0o755)


def test_a_read_only_folder(read_only):
    """Writers are refused in one line; readers work."""
    folder = read_only
    present = results(folder)
    here = settings("data.path=d")
    for line, code in (
        (["prepare", "synthetic", "--output", "d", "--force"], 2),
        (["train", "--config", CONFIG, *SHORT, *here, "--output", "new"], 1),
        (["train", "--output", "r", "--resume", *settings("train.steps=80")], 1),
        (["gram-error", "--config", CONFIG, *SHORT, *here, "--output", "new"], 1),
        (["baseline", "--config", BASELINE, *here, "--output", "new"], 1),
        (["evaluate", "r"], 1),
        (["evaluate", "r", "--json"], 1),
        (["plot", "map", "r", "--output", "x.png"], 2),
        (["doctor", "--config", CONFIG, *SHORT, *here], 0),
    ):
        outcome = Command(folder, *line, before=become_nobody).end()
        assert outcome.code == code, (line, outcome)
        reasons = ("that can be written", "Read-only file system", "Permission denied")
        assert not code or any(reason in outcome.one_line() for reason in reasons)
        assert ("map@10" in outcome.out) == (line[0] == "evaluate")  # a result that cannot be kept is shown
    assert shards.open_corpus(folder / "d")
    assert results(folder) == present
