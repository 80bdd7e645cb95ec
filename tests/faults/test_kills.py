"""kill -9 at random moments: the same command, or its --resume, ends with the same bits."""

import random
import shutil
import time
from pathlib import Path

import pytest
from helpers import BASELINE, CONFIG, FOLDER, FORMS, SMALL, settings
from injection import Command, assert_same, assert_whole, gramrun, results, succeed
from small_wiki import write_wiki

from gramrun.evaluation.baselines import run as baselines

SEED = 20180717
TRAINING = settings(
    *SMALL, "train.steps=60", "train.checkpoint_every=10", "evaluation.every=20", "evaluation.inner_products=100",
    "gram_error.every=10",
    "gram_error.estimators=[{name: sampling, gramian_batch_size: 16}, {name: sagram, gramian_batch_size: 64}]",
)  # fmt: skip
ON_DISK = settings(*(setting.replace(FOLDER, "mine") for setting in FORMS["SAGA, on disk"]))
EXPANSION = settings("expansion.left_blocks=3", "expansion.pairs=10000")
COMMANDS = {
    "prepare atomic": ["prepare", "atomic", "--source", "mine", "--output", "r"],
    "expand a wiki": ["prepare", "simple-scale", "--source", "wiki", "--output", "r", *EXPANSION],
    "train": ["train", "--config", CONFIG, *TRAINING, "--output", "r"],
    "train, caches on disk": ["train", "--config", CONFIG, *TRAINING, *ON_DISK, "--output", "r"],
    "gram-error": ["gram-error", "--config", CONFIG, *TRAINING, "--output", "r"],
    "baseline": ["baseline", "--config", BASELINE, "--output", "r"],
    "evaluate": ["evaluate", "r", "--full"],
    "plot": ["plot", "map", "r", "--output", "map.pdf"],
}


@pytest.fixture(scope="module")
def trained(corpus_path, tmp_path_factory):
    """A folder with a finished run r."""
    folder = tmp_path_factory.mktemp("trained") / "folder"
    succeed(folder, *COMMANDS["train"], *settings(f"data.path={corpus_path}"))
    return folder


def save_every_sweep():
    baselines.SAVE_SECONDS = 0.0


def make_folder(folder: Path, name: str, trained: Path) -> Path:
    """What is there before the command."""
    if name in ("evaluate", "plot"):
        return Path(shutil.copytree(trained, folder))
    (folder / "mine").mkdir(parents=True)
    write_wiki(folder / "wiki", 400)
    rows = [f"u{i % 997}\ti{i * i % 499}" for i in range(20_000)]
    (folder / "mine" / "mine.inter").write_text("\n".join(["user_id:token\titem_id:token", *rows]) + "\n")
    return folder


@pytest.mark.parametrize("kills", [1, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_moments(corpus_path, trained, tmp_path, name, kills):
    line = COMMANDS[name]
    if line[0] in ("train", "gram-error", "baseline"):
        line = [*line, *settings(f"data.path={corpus_path}")]
    folder = make_folder(tmp_path / "undisturbed", name, trained)
    started = time.perf_counter()
    succeed(folder, *line)
    longest = time.perf_counter() - started
    expected = results(folder)
    draw = random.Random(f"{SEED} {name}")
    landed = attempts = 0
    while landed < kills:
        attempts += 1
        assert attempts <= 4 * kills + 10, "the moments are drawn from too long a time"
        folder = make_folder(tmp_path / f"{attempts}", name, trained)
        process = Command(folder, *line, before=save_every_sweep)
        moment = draw.uniform(0, longest)
        time.sleep(moment)
        if not process.kill():
            longest = moment  # it ended before the kill
            continue
        landed += 1
        assert_whole(folder)
        begun = (folder / "r").exists()
        resume = ["--resume"] if begun and line[0] in ("train", "gram-error") else []
        outcome = gramrun(folder, *line, *resume)
        finished_before = name == "baseline" and begun
        assert outcome.code == 0 or (finished_before and "exists already" in outcome.one_line()), outcome
        assert_same(folder, expected)
        shutil.rmtree(folder)
