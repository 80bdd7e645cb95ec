"""A disk that is full, or may only be read, while a command writes to it: one line, nothing lost, and on it goes.

The disk is a small file system in memory where one may be mounted (by root), which is then really full; else a
limit on the size of files, which the kernel enforces likewise. A run of a training is starved in the middle of
a checkpoint.
"""

import contextlib
import errno
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
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
LONG = settings("train.steps=2000", "train.checkpoint_every=200", "evaluation.every=1000")


class Tmpfs:
    """A file system in memory; it is full while its room is taken by a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.filler = path / "filler"

    def fill(self, left: int) -> None:
        """Take all room but so many bytes, in whole pages."""
        free = shutil.disk_usage(self.path).free
        with self.filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - left)

    def start(self, folder: Path, *arguments: object) -> Command:
        """Start a command on it."""
        return Command(folder, *arguments)

    def fill_under(self, command: Command, left: int) -> None:
        """Fill it while a command runs."""
        self.fill(left)

    def make_room(self) -> None:
        """End the fault."""
        self.filler.unlink(missing_ok=True)


class SmallFiles:
    """A limit on the size of the files that a process writes, which is a disk that is full where they reach it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limit: int | None = None

    def fill(self, left: int) -> None:
        """From now on no file of a new process may be longer."""
        self.limit = left

    def start(self, folder: Path, *arguments: object) -> Command:
        """Start a command on it."""
        before: Callable[[], None] = partial(limit_files, self.limit)
        return Command(folder, *arguments, before=before)

    def fill_under(self, command: Command, left: int) -> None:
        """Limit a process that runs."""
        resource.prlimit(command.number, resource.RLIMIT_FSIZE, (left, left))

    def make_room(self) -> None:
        """End the fault."""
        self.limit = None


def limit_files(size: int | None) -> None:
    """As a quota would: writing beyond is an error, not a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@contextlib.contextmanager
def mounted(path: Path, size: str):
    """A file system in memory, or a skipped test where none may be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        made = subprocess.run(command, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if made.returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture(
    params=[
        pytest.param(Tmpfs, id="tmpfs"),
        pytest.param(SmallFiles, id="file sizes", marks=pytest.mark.slow if os.geteuid() == 0 else ()),
    ]
)
def disk(request, tmp_path):
    path = tmp_path / "disk"
    if request.param is SmallFiles:
        path.mkdir()
        yield SmallFiles(path)
        return
    with mounted(path, "40m"):
        yield Tmpfs(path)


def fails_in_one_line(outcome: Outcome, code: int = 1) -> str:
    assert outcome.code == code, outcome
    line = outcome.one_line()
    assert (
        any(os.strerror(number) in line for number in (errno.ENOSPC, errno.EFBIG)) or "disk is full" in line
    )
    return line


def data(corpus_path):
    return settings(f"data.path={corpus_path}")


def test_train_in_the_middle_of_a_checkpoint(disk, corpus_path, tmp_path):
    line = ["train", "--config", CONFIG, *SHORT, *LONG, *data(corpus_path), "--output", "r"]
    straight = tmp_path / "straight"
    succeed(straight, *line)
    size = max(file.stat().st_size for file in straight.glob("r/checkpoints/*"))
    folder = disk.path / "f"
    command = disk.start(folder, *line)
    command.wait_for(lambda: len(list(folder.glob("r/checkpoints/step-*.pt"))) == 2)
    disk.fill_under(command, size // 2)
    message = fails_in_one_line(command.end())
    saved = sorted(folder.glob("r/checkpoints/step-*.pt"))
    assert message.endswith(f"the last good checkpoint is {saved[-1].relative_to(folder)}")
    assert not [file for file in folder.rglob("*") if "partial" in file.name or ".lock" in file.name]
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


@pytest.fixture(scope="module")
def undisturbed(corpus_path, tmp_path_factory):
    """Give what a command leaves where nothing is in its way, made once."""
    made = {}

    def results_of(name: str, line: list) -> dict:
        if name not in made:
            folder = tmp_path_factory.mktemp("straight") / "f"
            succeed(folder, *line)
            made[name] = results(folder)
        return made[name]

    return results_of


@pytest.mark.parametrize(
    "left", [4096, pytest.param(0, marks=pytest.mark.slow), pytest.param(16384, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", WRITERS)
def test_a_new_folder_is_whole_or_can_be_gone_on_with(disk, corpus_path, undisturbed, name, left):
    """With no room at all, or so little that it ends in the middle."""
    line = [*WRITERS[name], *(data(corpus_path) if name != "prepare" else [])]
    expected = undisturbed(name, line)
    folder = disk.path / "f"
    folder.mkdir()
    disk.fill(left)
    outcome = disk.start(folder, *line).end()
    if outcome.code == 0:  # there was room enough, for this much
        assert left
    elif "need" in outcome.err:  # foreseen
        assert outcome.code == 2 and " of disk, " in outcome.one_line()
    else:
        fails_in_one_line(outcome, 2 if name == "prepare" else 1)
    left_there = [file.name for file in folder.rglob("*") if "partial" in file.name or ".lock" in file.name]
    assert not left_there
    assert_whole(folder)
    disk.make_room()
    begun = (folder / "out").exists()
    going_on = ["--resume"] if name in ("train", "gram-error") and begun else []
    if not (begun and name == "baseline"):
        outcome = disk.start(folder, *line, *going_on).end()
        assert outcome.code == 0, outcome.err
    assert_same(folder, expected)


def test_evaluate_and_plot_keep_what_was_there(disk, corpus_path, tmp_path):
    folder = disk.path / "f"
    succeed(folder, "train", "--config", CONFIG, *SHORT, *data(corpus_path), "--output", "r")
    succeed(folder, "evaluate", "r", "--split", "train")
    succeed(folder, "evaluate", "r")
    succeed(folder, "plot", "map", "r", "--output", "map.png")
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    disk.fill(0)
    for line in (["evaluate", "r", "--full"], ["plot", "map", "r", "--output", "map.png"]):
        outcome = disk.start(folder, *line).end()
        fails_in_one_line(outcome, 1 if line[0] == "evaluate" else 2)
        found = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        assert found == before
    disk.make_room()
    for line in (["evaluate", "r"], ["plot", "map", "r", "--output", "map.png"]):
        succeed(folder, *line)
    assert (folder / "map.png").read_bytes() == before[folder / "map.png"]


def nobody() -> None:
    """Root may write everywhere; nobody may not."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


@pytest.fixture(params=["mounted", "permissions"])
def read_only(request, corpus_path, tmp_path):
    """A folder with a corpus d and a finished run r that may only be read; and what a process has to do before."""
    ready = contextlib.ExitStack()
    folder = tmp_path / "f"
    if request.param == "mounted":
        ready.enter_context(mounted(folder, "40m"))
    else:  # where another user may come
        folder = Path(ready.enter_context(tempfile.TemporaryDirectory())) / "f"
        folder.parent.chmod(0o755)
    shutil.copytree(corpus_path, folder / "d", copy_function=shutil.copy)
    line = ["train", "--config", CONFIG, *SHORT, *settings("data.path=d"), "--output", "r"]
    succeed(folder, *line)
    before = None
    if request.param == "mounted":
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    else:
        for place in (folder, *folder.rglob("*")):
            place.chmod(0o555 if place.is_dir() else 0o444)
        before = nobody if os.getuid() == 0 else None
    with ready:
        yield folder, before
        if request.param == "permissions":
            for place in (folder, *folder.rglob("*")):
                place.chmod(0o755)


def test_a_folder_that_may_only_be_read(read_only):
    """Whatever writes there is refused in one line; whatever reads there goes on."""
    folder, before = read_only
    present = results(folder)

    def run(*line: object) -> Outcome:
        return Command(folder, *line, before=before).end()

    reason = "(Read-only file system|Permission denied)"
    data_here = settings("data.path=d")
    for line, code in (
        (["prepare", "synthetic", "--output", "new"], 2),
        (["prepare", "synthetic", "--output", "d", "--force"], 2),
        (["train", "--config", CONFIG, *SHORT, *data_here, "--output", "new"], 1),
        (["train", "--output", "r", "--resume", *settings("train.steps=80")], 1),
        (["train", "--config", CONFIG, *SHORT, *data_here, "--output", "r", "--force"], 1),
        (["gram-error", "--config", CONFIG, *SHORT, *data_here, "--output", "new"], 1),
        (["baseline", "--config", BASELINE, *data_here, "--output", "new"], 1),
        (["evaluate", "r"], 1),
        (["plot", "map", "r", "--output", "x.png"], 2),
    ):
        outcome = run(*line)
        message = outcome.one_line()
        assert outcome.code == code, (line, outcome)
        assert "that can be written" in message or any(
            why in message for why in reason.strip("()").split("|")
        )
    for line in (
        ["train", "--config", CONFIG, *SHORT, *data_here, "--output", "new", "--dry-run"],
        ["doctor", "--config", CONFIG, *SHORT, *data_here],
    ):
        outcome = run(*line)
        assert outcome.code == 0, outcome.err
    assert shards.open_corpus(folder / "d")
    assert results(folder) == present
