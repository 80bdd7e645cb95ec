"""kill -9 at random moments: the same command, with --resume where that is the contract, ends with the same bits."""

import random
import shutil
import time
from pathlib import Path

import pytest
from injection import (
    BASELINE,
    CONFIG,
    Command,
    assert_same,
    assert_whole,
    gramrun,
    results,
    settings,
    succeed,
)

KILLS, KILLS_IN_THE_FAST_SUITE = 50, 3
SEED = 20180717

TRAINING = settings(
    "train.steps=150",
    "train.batch_size=64",
    "train.checkpoint_every=15",
    "estimator.gramian_batch_size=32",
    "evaluation.every=25",
    "evaluation.inner_products=100",
    "gram_error.every=10",
    "gram_error.estimators=[{name: sampling, gramian_batch_size: 16}, {name: sagram, gramian_batch_size: 64}]",
)
WIKI = settings(
    "planted.pages=400", "planted.links=4000", "planted.words=40", "planted.categories=16", "planted.topics=4"
)


def data(corpus_path):
    return settings(f"data.path={corpus_path}")


@pytest.fixture(scope="module")
def trained(corpus_path, tmp_path_factory):
    """A folder with a finished run that has been evaluated on its training pairs."""
    folder = tmp_path_factory.mktemp("trained") / "folder"
    succeed(folder, "train", "--config", CONFIG, *TRAINING, *data(corpus_path), "--output", "r")
    succeed(folder, "evaluate", "r", "--split", "train")
    return folder


def commands(corpus_path):
    """Each command line, by name; those of one name take turns."""
    return {
        "prepare": [
            ["prepare", "synthetic", "--output", "out", *settings("synthetic.left_items=4000")],
            ["prepare", "atomic", "--source", "mine", "--output", "out"],
            ["prepare", "simple-scale", "--output", "out", *WIKI],
        ],
        "train": [["train", "--config", CONFIG, *TRAINING, *data(corpus_path), "--output", "r"]],
        "gram-error": [["gram-error", "--config", CONFIG, *TRAINING, *data(corpus_path), "--output", "r"]],
        "evaluate": [["evaluate", "r", "--full"]],
        "plot": [["plot", "map", "r", "--output", "map.pdf"]],
        "baseline": [["baseline", "--config", BASELINE, *data(corpus_path), "--output", "r"]],
    }


def make_ready(folder: Path, command: str, trained: Path) -> None:
    """What is there before the command."""
    if command in ("evaluate", "plot"):
        shutil.copytree(trained, folder)
        return
    (folder / "mine").mkdir(parents=True)
    rows = [f"u{i % 997}\ti{i * i % 499}" for i in range(20_000)]
    (folder / "mine" / "mine.inter").write_text("\n".join(["user_id:token\titem_id:token", *rows]) + "\n")


def going_on(folder: Path, arguments: list) -> list:
    """The command that goes on after a kill."""
    resumable = arguments[0] in ("train", "gram-error") and (folder / "r").exists()
    return [*arguments, "--resume"] if resumable else arguments


@pytest.mark.parametrize("kills", [KILLS_IN_THE_FAST_SUITE, pytest.param(KILLS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", ["prepare", "train", "gram-error", "evaluate", "baseline", "plot"])
def test_killed_at_random_moments(corpus_path, trained, tmp_path, command, kills, record_property):
    lines, straight, seconds = commands(corpus_path)[command], [], []
    for number, line in enumerate(lines):
        for folder in (
            tmp_path / f"first-{number}",
            tmp_path / f"straight-{number}",
        ):  # the first one compiles
            make_ready(folder, command, trained)
            started = time.perf_counter()
            succeed(folder, *line)
            elapsed = time.perf_counter() - started
        straight.append(results(folder))
        seconds.append(elapsed)
    draw = random.Random(f"{SEED} {command}")
    landed = attempts = 0
    while landed < kills:
        attempts += 1
        assert attempts <= 4 * kills + 10, "the moments are drawn from too long a time"
        turn = landed % len(lines)
        folder = tmp_path / f"{attempts}"
        make_ready(folder, command, trained)
        process = Command(folder, *lines[turn])
        moment = draw.uniform(0, seconds[turn])
        time.sleep(moment)
        if not process.kill():
            seconds[turn] = moment  # it had ended before: other work on the machine has
            continue
        landed += 1
        assert_whole(folder)
        done_already = command == "baseline" and (folder / "r").exists()  # killed after its last act
        outcome = gramrun(folder, *going_on(folder, lines[turn]))
        assert outcome.code == 0 or (done_already and "exists already" in outcome.one_line()), outcome
        assert_same(folder, straight[turn])
        shutil.rmtree(folder)
    record_property("kills", f"{landed} of {attempts} attempts, seed {SEED}")
    print(f"{command}: {landed} kills landed in {attempts} attempts, seed {SEED}, {seconds} s a whole one")
