"""Shipped configs by name: found from any folder, never instead of a real file, and near matches for typos."""

from pathlib import Path

import pytest

from gramrun.base.errors import ConfigError
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.config.shipped import config_for, find_config, shipped_configs
from gramrun.data.registry import CORPORA
from gramrun.runs import default_path

ROOT = Path(__file__).parents[2]
NAMES = ["movielens-100k/sogram", "movielens-100k/sogram.yaml", "configs/movielens-100k/sogram",
         "configs/movielens-100k/sogram.yaml"]  # fmt: skip


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_config_is_shipped_under_its_name():
    assert set(shipped_configs().values()) == set(ROOT.glob("configs/*/*.yaml"))
    for name, path in shipped_configs().items():
        assert path == ROOT / "configs" / f"{name}.yaml"


@pytest.mark.parametrize("name", NAMES)
def test_a_name_finds_its_config_from_any_folder(name):
    config = load_config(RunConfig, Path(name), ["train.seed=3"])
    assert (config.estimator.name, str(config.data.path)) == ("sogram", "data/movielens-100k")
    assert default_path(Path(name), 3) == Path("runs/movielens-100k/sogram-seed3")


@pytest.mark.parametrize("name", NAMES)
def test_a_real_file_wins(name):
    own = Path(name)
    own.parent.mkdir(parents=True)
    own.write_text((ROOT / "configs/synthetic/sogram.yaml").read_text())
    assert str(load_config(RunConfig, own).data.path) == "data/synthetic"


def test_a_folder_of_that_name_does_not():
    Path("movielens-100k/sogram").mkdir(parents=True)
    assert find_config(Path("movielens-100k/sogram")) == ROOT / "configs/movielens-100k/sogram.yaml"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("movielens-100k/sogran", "did you mean movielens-100k/sogram, "),
        ("configs/movielens-1k/sogram.yaml", "movielens-1m/sogram, "),
        ("planted-clusters", "did you mean planted-clusters/exact, planted-clusters/sagram, "),
        ("x", "they are enwik8/..., enwik8-titles/..., movielens-100k/..., "),
        ("../configs/movielens-100k/sogram.yaml", "no such file, and no config of that name"),
        ("a" * 5000, "no such file, and no config of that name"),
        ("a\nb", "no such file, and no config of that name"),
        (".", "is a folder, no file, and no config of that name"),
    ],
)
def test_what_is_neither_is_one_line_with_near_names(gramrun, name, expected):
    with pytest.raises(ConfigError) as caught:
        find_config(Path(name))
    assert str(caught.value).startswith(f"{Path(name)}: ") and expected in str(caught.value)
    code, out, err = gramrun("train", "--config", name)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_an_absolute_path_is_no_name(tmp_path):
    with pytest.raises(ConfigError, match=f"^{tmp_path}/movielens-100k/sogram: no such file$"):
        find_config(tmp_path / "movielens-100k" / "sogram")


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_corpus_has_a_config_to_begin_with(corpus):
    name = config_for(corpus)
    assert load_config(RunConfig, Path(name)).estimator.name == "sogram"
    if f"{corpus}/sogram" in shipped_configs():
        assert name == f"{corpus}/sogram"


def test_what_prepare_says_is_next_runs_anywhere(gramrun, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    pairs = [f"u{left}\ti{(left * 7 + step) % 90}" for left in range(100) for step in range(15)]
    (folder / "raw.inter").write_text("user_id:token\titem_id:token\n" + "\n".join(pairs) + "\n")
    wiki = [f"planted.{key}" for key in ("pages=1000", "links=9000", "words=90", "categories=20", "topics=5")]
    corpora = {
        "synthetic": [],
        "atomic": ["--source", folder],
        "simple-scale": [part for setting in wiki for part in ("--set", setting)],
    }
    for corpus, options in corpora.items():
        code, out, err = gramrun("prepare", corpus, *options, "--output", corpus)
        assert code == 0, err
        _, _, following = out.strip().partition("; next: gramrun ")
        code, out, err = gramrun(*following.split(), "--set", "train.epochs=null", "--set", "train.steps=2")
        assert (code, "step 2" in out) == (0, True), err
