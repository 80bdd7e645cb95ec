"""Every config that is shipped trains: three steps on a small corpus of its kind, by the command that it is for."""

from __future__ import annotations

import json

import pages
import pytest
import toys
import yaml

CONFIGS = sorted((pages.ROOT / "configs").rglob("*.yaml"))
# What each dataset's configs are tried on: `prepare` of a corpus, and settings of its own.
PREPARED = {
    "movielens-100k": ("movielens-100k", ()),
    "movielens-1m": ("movielens-1m", ()),
    "movielens-10m": ("movielens-1m", ()),
    "synthetic": ("synthetic", ()),
    "planted-clusters": ("synthetic", ()),
    "enwik8-titles": ("simple-scale", ("wikipedia.graph=titles",)),
}
A_WIKI = ("simple-scale", ())  # of all others: pages, whose features both towers share


def path_of(config):
    return f"{config.parent.name}-{config.stem}"


@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """Make small corpora, each once: gives the folder of the one that a dataset's configs are tried on."""
    from gramrun.data.preparation import prepare_corpus

    folder = tmp_path_factory.mktemp("corpora")
    toys.write_raw_files(folder / "raw")
    made = {}

    def corpus(dataset):
        name, settings = PREPARED.get(dataset, A_WIKI)
        if (name, settings) not in made:
            words = toys.prepare_settings(name, folder / "raw")
            source = folder / "raw" / name if "--source" in words else None
            settings_of_toy = [word for word in words if "=" in word]
            output = folder / f"{name}-{len(made)}"
            prepare_corpus(name, output, source, [*settings_of_toy, *settings])
            made[name, settings] = output
        return made[name, settings]

    return corpus


@pytest.mark.parametrize("config", CONFIGS, ids=path_of)
def test_it_trains_three_steps(config, corpora, gramrun, tmp_path):
    command, settings = command_of(config)
    settings.append(f"data.path={corpora(config.parent.name)}")
    options = [word for setting in settings for word in ("--set", setting)]
    code, _, err = gramrun(command, "--config", config, "--output", "run", *options)
    assert code == 0, err
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    if command == "gram-error":
        steps = [
            line.split(",")[0] for line in (tmp_path / "run" / "gram_error.csv").read_text().splitlines()[1:]
        ]
        assert set(steps) == {"1", "2", "3"}
        return
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    if command == "train":
        assert records[-1]["step"] == 3
        assert records[-1]["loss"] > 0
        assert 0 <= records[-1]["map@10"] <= 1


def command_of(config):
    """The command that a config is for, and what keeps it small: its length, and nothing of the method."""
    sections = yaml.safe_load(config.read_text())
    if "baseline" in sections:
        if sections["baseline"]["name"] == "implicit-als":
            pytest.importorskip("implicit")
        return "baseline", ["baseline.sweeps=3"]
    if config.stem == "gram-error":
        return "gram-error", ["train.steps=3", "gram_error.every=1"]
    return "train", ["train.steps=3"]
