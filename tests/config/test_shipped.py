"""Shipped configs by name: found from any folder, never instead of a real file, with near names for typos."""

from pathlib import Path

import pytest
from helpers import ROOT

from gramrun.base.errors import ConfigError
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.config.shipped import config_for, find_config, shipped_configs
from gramrun.data.registry import CORPORA
from gramrun.runs import default_path

NAMES = ["movielens-100k/sogram", "movielens-100k/sogram.yaml", "configs/movielens-100k/sogram.yaml"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_finds_its_config_from_any_folder(name):
    config = load_config(RunConfig, Path(name), ["train.seed=3"])
    assert str(config.data.path) == "data/movielens-100k"
    assert default_path(Path(name), 3) == Path("runs/movielens-100k/sogram-seed3")


@pytest.mark.parametrize("name", NAMES)
def test_a_real_file_wins_and_a_folder_does_not(name):
    own = Path(name)
    own.parent.mkdir(parents=True)
    own.write_text((ROOT / "configs/synthetic/sogram.yaml").read_text())
    assert str(load_config(RunConfig, own).data.path) == "data/synthetic"
    own.unlink()
    own.mkdir()
    assert find_config(own) == ROOT / "configs/movielens-100k/sogram.yaml"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("movielens-100k/sogran", "movielens-100k/sogram"),
        ("configs/movielens-1k/sogram.yaml", "movielens-1m/sogram"),
        ("../configs/movielens-100k/sogram.yaml", "no such file"),
        ("a" * 5000, "no such file"),
        (".", "is a folder"),
    ],
)
def test_an_unknown_name_is_one_line_with_near_names(gramrun, name, expected):
    with pytest.raises(ConfigError) as caught:
        find_config(Path(name))
    assert str(caught.value).startswith(f"{Path(name)}: ")
    assert expected in str(caught.value)
    code, out, err = gramrun("train", "--config", name)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_every_corpus_has_a_first_config():
    for corpus in CORPORA:
        assert config_for(corpus) in shipped_configs()
        name = config_for(corpus)
        wanted = "sampling" if "/paper-" in name else "sogram"  # of a large wiki; its SOGram ranks far lower
        assert load_config(RunConfig, Path(name)).estimator.name == wanted


def test_the_command_that_prepare_names_next_runs(gramrun, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    pairs = [f"u{left}\ti{(left * 7 + step) % 90}" for left in range(100) for step in range(15)]
    (folder / "raw.inter").write_text("user_id:token\titem_id:token\n" + "\n".join(pairs) + "\n")
    for corpus, options in {"synthetic": [], "atomic": ["--source", folder]}.items():
        code, out, err = gramrun("prepare", corpus, *options, "--output", corpus)
        assert code == 0, err
        following = out.strip().partition("; next: gramrun ")[2].split()
        code, out, err = gramrun(*following, "--set", "train.epochs=null", "--set", "train.steps=2")
        assert (code, "step 2" in out) == (0, True), err
