"""A disk that is full or read-only: one line, nothing lost, and the command goes on once there is room.

The disk is a small tmpfs where one can be mounted (as root), else a limit on the size of files.
"""

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import pytest
from injection import (
    BASELINE,
    CONFIG,
    Command,
    Outcome,
    assert_same,
    assert_whole,
    results,
    settings,
    succeed,
)

from gramrun.data import shards

SHORT = settings("train.steps=60", "train.batch_size=64", "estimator.gramian_batch_size=32",
                 "train.checkpoint_every=10", "evaluation.every=20", "gram_error.every=5",
                 "gram_error.estimators=[{name: sogram, gramian_batch_size: 16}]")  # fmt: skip
LONG = settings("train.steps=1000", "train.checkpoint_every=100", "evaluation.every=500")
SLOW = pytest.mark.slow


class Tmpfs:
    """A file system in memory; a filler file takes its room."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.filler = path / "filler"

    def fill(self, left: int) -> None:
        with self.filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(self.path).free - left)

    def start(self, folder: Path, *arguments: object) -> Command:
        return Command(folder, *arguments)

    def fill_under(self, command: Command, left: int) -> None:
        self.fill(left)

    def make_room(self) -> None:
        self.filler.unlink(missing_ok=True)


class SmallFiles:
    """A limit on the size of the files that a process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limit = resource.RLIM_INFINITY

    def fill(self, left: int) -> None:
        self.limit = left

    def start(self, folder: Path, *arguments: object) -> Command:
        return Command(folder, *arguments, before=partial(limit_files, self.limit))

    def fill_under(self, command: Command, left: int) -> None:
        resource.prlimit(command.number, resource.RLIMIT_FSIZE, (left, left))

    def make_room(self) -> None:
        self.limit = resource.RLIM_INFINITY


def limit_files(size: int) -> None:
    """Writing beyond `size` is an error, not a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@contextlib.contextmanager
def mounted(path: Path):
    """A tmpfs at `path`; skips the test where none can be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(path)]
    if not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture(
    params=[
        pytest.param("tmpfs", marks=() if os.geteuid() == 0 else SLOW),
        pytest.param("file sizes", marks=SLOW if os.geteuid() == 0 else ()),
    ]
)
def disk(request, tmp_path):
    path = tmp_path / "disk"
    if request.param == "file sizes":
        path.mkdir()
        yield SmallFiles(path)
        return
    with mounted(path):
        yield Tmpfs(path)


def fails_in_one_line(outcome: Outcome, code: int) -> str:
    assert outcome.code == code, outcome
    line = outcome.one_line()
    reasons = [os.strerror(errno.ENOSPC), os.strerror(errno.EFBIG), "disk"]
    assert any(reason in line for reason in reasons), line
    return line


def no_litter(folder: Path) -> bool:
    return not [file for file in folder.rglob("*") if "partial" in file.name or ".lock" in file.name]


def test_train_in_the_middle_of_a_checkpoint(disk, corpus_path, tmp_path):
    data = settings(f"data.path={corpus_path}")
    line = ["train", "--config", CONFIG, *SHORT, *LONG, *data, "--output", "r"]
    straight = tmp_path / "straight"
    succeed(straight, *line)
    size = max(file.stat().st_size for file in straight.glob("r/checkpoints/*"))
    folder = disk.path / "f"
    command = disk.start(folder, *line)
    command.wait_for(lambda: len(list(folder.glob("r/checkpoints/step-*.pt"))) == 2)
    disk.fill_under(command, size // 2)
    message = fails_in_one_line(command.end(), 1)
    saved = sorted(folder.glob("r/checkpoints/step-*.pt"))
    assert message.endswith(f"{saved[-1].relative_to(folder)}")  # names the last good checkpoint
    assert no_litter(folder)
    assert_whole(folder)
    disk.make_room()
    assert disk.start(folder, *line, "--resume").end().code == 0
    assert_same(folder, results(straight))


WRITERS = {
    "prepare": ["prepare", "synthetic", "--output", "out"],
    "baseline": ["baseline", "--config", BASELINE, "--output", "out"],
    "gram-error": ["gram-error", "--config", CONFIG, *SHORT, "--output", "out"],
    "train": ["train", "--config", CONFIG, *SHORT, "--output", "out"],
}


@pytest.mark.parametrize("left", [4096, pytest.param(0, marks=SLOW), pytest.param(16384, marks=SLOW)])
@pytest.mark.parametrize("name", WRITERS)
def test_a_new_folder_is_whole_or_can_be_continued(disk, corpus_path, tmp_path, name, left):
    line = WRITERS[name]
    if name != "prepare":
        line = [*line, *settings(f"data.path={corpus_path}")]
    succeed(tmp_path / "straight", *line)
    folder = disk.path / "f"
    folder.mkdir()
    disk.fill(left)
    outcome = disk.start(folder, *line).end()
    if outcome.code:  # else there was room enough
        fails_in_one_line(outcome, 2 if name == "prepare" or "need" in outcome.err else 1)
    assert no_litter(folder)
    assert_whole(folder)
    disk.make_room()
    begun = (folder / "out").exists()
    if not (begun and name == "baseline"):
        resume = ["--resume"] if begun and name in ("train", "gram-error") else []
        outcome = disk.start(folder, *line, *resume).end()
        assert outcome.code == 0, outcome.err
    assert_same(folder, results(tmp_path / "straight"))


def test_evaluate_and_plot_keep_the_old_files(disk, corpus_path):
    folder = disk.path / "f"
    data = settings(f"data.path={corpus_path}")
    lines = {"evaluate": ["evaluate", "r", "--full"], "plot": ["plot", "map", "r", "--output", "map.png"]}
    succeed(folder, "train", "--config", CONFIG, *SHORT, *data, "--output", "r")
    for line in lines.values():
        succeed(folder, *line)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    disk.fill(0)
    for name, code in (("evaluate", 1), ("plot", 2)):
        fails_in_one_line(disk.start(folder, *lines[name]).end(), code)
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def become_nobody() -> None:
    """Root may write everywhere; nobody may not."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)


@pytest.fixture(params=["permissions", pytest.param("mounted", marks=SLOW)])
def read_only(request, corpus_path, tmp_path):
    """A read-only folder with a corpus d and a finished run r, and what a process calls before it starts."""
    with contextlib.ExitStack() as ready:
        if request.param == "mounted":
            folder, before = tmp_path / "f", None
            ready.enter_context(mounted(folder))
        else:
            folder, before = Path(ready.enter_context(tempfile.TemporaryDirectory())) / "f", become_nobody
            folder.parent.chmod(0o755)
        shutil.copytree(corpus_path, folder / "d", copy_function=shutil.copy)
        succeed(folder, "train", "--config", CONFIG, *SHORT, *settings("data.path=d"), "--output", "r")
        places = (folder, *folder.rglob("*"))
        if request.param == "mounted":
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        else:
            for place in places:
                place.chmod(0o555 if place.is_dir() else 0o444)
        yield folder, before
        if request.param == "permissions":
            for place in places:
                place.chmod(0o755)


def test_a_read_only_folder(read_only):
    """Writers are refused in one line; readers work."""
    folder, before = read_only
    present = results(folder)
    here = settings("data.path=d")
    for line, code in (
        (["prepare", "synthetic", "--output", "d", "--force"], 2),
        (["train", "--config", CONFIG, *SHORT, *here, "--output", "new"], 1),
        (["train", "--output", "r", "--resume", *settings("train.steps=80")], 1),
        (["gram-error", "--config", CONFIG, *SHORT, *here, "--output", "new"], 1),
        (["baseline", "--config", BASELINE, *here, "--output", "new"], 1),
        (["evaluate", "r"], 1),
        (["plot", "map", "r", "--output", "x.png"], 2),
        (["doctor", "--config", CONFIG, *SHORT, *here], 0),
    ):
        outcome = Command(folder, *line, before=before).end()
        assert outcome.code == code, (line, outcome)
        reasons = ("that can be written", "Read-only file system", "Permission denied")
        assert not code or any(reason in outcome.one_line() for reason in reasons)
    assert shards.open_corpus(folder / "d")
    assert results(folder) == present
