import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from helpers import made_corpus, made_side
from same import assert_same

from gramrun.base.errors import InputError
from gramrun.base.files import new_file, new_folder
from gramrun.data import shards
from gramrun.data.corpus import bags
from gramrun.data.split import split_corpus


def corpus(target=True):
    left = np.repeat(np.arange(20, dtype=np.int32), 5)
    right = (left * 3 + np.tile(np.arange(5), 20)) % 30
    order = np.lexsort((right, left))
    genres = [[i % 3] * (i % 4 > 0) for i in range(30)]
    return made_corpus(
        made_side("user", 20),
        made_side("movie", 30, bags("genres", "genre", genres)),
        (left[order], right[order]),
        {"movie": pd.DataFrame({"key": [f"m{i}" for i in range(30)], "title": ["Amélie"] * 30}), "genre": 3},
        target=np.linspace(1, 5, len(left), dtype=np.float32) if target else None,
        counts={"duplicate_ratings": 2},
    )


def write(folder, **changes):
    arguments = {"validation_fraction": 0.3, "split_seed": 0, "origin": {"fingerprint": "f"}, **changes}
    return shards.write_corpus(corpus(), folder, **arguments)


def test_round_trip(tmp_path):
    manifest = write(tmp_path / "c")
    opened = shards.open_corpus(tmp_path / "c")
    source = corpus()
    assert manifest["corpus"]["pairs"] == 100
    assert len(opened.train) + len(opened.validation) == 100
    assert opened.name == "made"
    assert opened.left.items == 20
    assert [f.name for f in opened.right.features] == ["movie", "genres"]
    for got, want in zip(opened.right.features, source.right.features, strict=True):
        assert np.array_equal(got.offsets, want.offsets)
        assert np.array_equal(got.indices, want.indices)
        assert isinstance(got.indices, np.memmap)
    pairs = {
        (int(a), int(b)): float(t)
        for split in (opened.train, opened.validation)
        for a, b, t in zip(split.left, split.right, split.target, strict=True)
    }
    assert pairs == {
        (int(a), int(b)): float(t)
        for a, b, t in zip(source.pair_left, source.pair_right, source.target, strict=True)
    }
    assert np.array_equal(opened.right_frequency, np.bincount(opened.train.right, minlength=30))
    assert opened.vocabularies["movie"]["title"][0] == "Amélie"
    assert opened.vocabulary_sizes["genre"] == 3


@pytest.mark.parametrize("target", [True, False])
def test_a_corpus_in_memory_equals_the_one_on_disk(tmp_path, target):
    source = corpus(target)
    manifest = shards.write_corpus(
        source, tmp_path / "c", validation_fraction=0.3, split_seed=5, origin={"fingerprint": "f"}
    )
    stored, memory = shards.open_corpus(tmp_path / "c"), split_corpus(source, 0.3, 5)
    assert memory.path is None and stored.path == tmp_path / "c"
    assert memory.content_hash == stored.content_hash == manifest["content_hash"]
    assert (memory.name, memory.vocabulary_sizes) == (stored.name, stored.vocabulary_sizes)
    assert {**stored.manifest, "origin": {}, "files": {}, "schema_version": 1} == {
        **memory.manifest,
        "schema_version": 1,
    }
    for field in ("left", "right", "train", "validation", "left_frequency", "right_frequency"):
        assert_same(getattr(memory, field), getattr(stored, field))
    assert_same(dict(memory.vocabularies), dict(stored.vocabularies))


def test_arrays_are_shared_with_torch_and_the_files_stay_as_they_are(tmp_path):
    torch = pytest.importorskip("torch")
    write(tmp_path / "c")
    opened = shards.open_corpus(tmp_path / "c")
    tensor = torch.from_numpy(opened.train.left)
    tensor[0] = 19
    assert opened.train.left[0] == 19
    shards.open_corpus(tmp_path / "c")  # verifies every checksum


def test_content_hash_knows_contents_and_nothing_else(tmp_path):
    first, second = write(tmp_path / "a"), write(tmp_path / "b", origin={"fingerprint": "other"})
    assert first["content_hash"] == second["content_hash"]
    assert first["content_hash"] != write(tmp_path / "c", split_seed=1)["content_hash"]


def test_places_that_are_no_corpus_are_refused(tmp_path):
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="no prepared corpus"):
            shards.open_corpus(folder)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        shards.open_corpus(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": 99}))
    with pytest.raises(InputError, match="schema version 99"):
        shards.open_corpus(tmp_path)


def test_an_interrupted_replacement_keeps_the_old_folder(tmp_path):
    write(tmp_path / "c")
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "c") as folder:
        (folder / "half").write_text("x")
        raise KeyboardInterrupt
    shards.open_corpus(tmp_path / "c")
    assert os.listdir(tmp_path) == ["c"]


def test_a_folder_that_is_replaced_while_it_is_read_is_not_read_half(tmp_path, monkeypatch):
    """The arrays before this moment are of the old corpus, those after it of the new one: equally long."""
    write(tmp_path / "c")
    load, calls = shards.load_array, []

    def replacing(path):
        if len(calls) == 5:
            write(tmp_path / "c", split_seed=1)
        calls.append(path)
        return load(path)

    monkeypatch.setattr(shards, "load_array", replacing)
    with pytest.raises(InputError, match="/c: was replaced while it was read; give the command again"):
        shards.open_corpus(tmp_path / "c")
    assert len(calls) > 5
    assert len(shards.open_corpus(tmp_path / "c").train) > 0


def test_new_file_keeps_the_old_one_on_failure(tmp_path):
    file = tmp_path / "x.json"
    file.write_text("old")
    with pytest.raises(RuntimeError), new_file(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.json"]


def test_leftovers_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".c.{dead.pid}.partial").mkdir()
    (tmp_path / f".x.json.{dead.pid}.partial.json").write_text("half")
    kept = [
        f".c.{os.getppid()}.partial",
        f".c.d.{dead.pid}.partial",
    ]  # one of c.d may live in another container
    for name in kept:
        (tmp_path / name).mkdir()
    write(tmp_path / "c")
    with new_file(tmp_path / "x.json") as temporary:
        temporary.write_text("{}")
    assert sorted(os.listdir(tmp_path)) == [*kept, "c", "x.json"]


def test_killed_between_the_two_renames_the_old_folder_comes_back(tmp_path):
    old = write(tmp_path / "c")
    (tmp_path / "c").rename(tmp_path / ".c.replaced")
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "c"):
        raise KeyboardInterrupt
    assert shards.open_corpus(tmp_path / "c").content_hash == old["content_hash"]
    assert os.listdir(tmp_path) == ["c"]


def test_killed_while_the_old_folder_is_removed_the_next_one_replaces_both(tmp_path):
    write(tmp_path / "c")
    (tmp_path / ".c.replaced").mkdir()
    (tmp_path / ".c.replaced" / "rest").touch()
    new = write(tmp_path / "c", split_seed=1)
    assert shards.open_corpus(tmp_path / "c").content_hash == new["content_hash"]
    assert os.listdir(tmp_path) == ["c"]
