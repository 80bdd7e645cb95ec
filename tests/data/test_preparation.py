import json
import zipfile

import numpy as np
import pytest

from gramrun.base.errors import InputError
from gramrun.data import registry, shards
from gramrun.data.preparation import prepare_corpus

RATINGS = "1\t10\t5\t100\n2\t10\t3\t101\n1\t20\t4\t102\n2\t30\t1\t103\n3\t20\t2\t104\n3\t30\t5\t105\n"
FLAGS = "|0" * 19


def movies(link):
    rows = [(10, "Amélie (2001)"), (20, "Heat (1995)"), (30, "Alien (1979)")]
    return "".join(f"{i}|{title}|01-Jan-1995||{link}{FLAGS}\n" for i, title in rows)


def write(folder, ratings=RATINGS, link=""):
    folder.mkdir()
    (folder / "u.data").write_text(ratings)
    (folder / "u.item").write_text(movies(link), encoding="latin-1")
    return folder


def prepare(tmp_path, source, **options):
    settings = ["split.validation_fraction=0.5"]
    return prepare_corpus("movielens-100k", tmp_path / "out", source, settings, **options)


def test_unchanged_contents_are_recognised_from_any_source(tmp_path):
    """A zip and a folder, another row of dropped columns: the same corpus, nothing to do."""
    manifest, written = prepare(tmp_path, write(tmp_path / "a"))
    assert written
    other = write(tmp_path / "b", link="http://example.org")
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        for name in ("u.data", "u.item"):
            archive.write(other / name, f"ml-100k/{name}")
    again, written = prepare(tmp_path, tmp_path / "ml-100k.zip")
    assert not written
    assert again == manifest


def test_row_order_does_not_matter_to_the_shards(tmp_path):
    first, _ = prepare(tmp_path, write(tmp_path / "a"))
    turned = "".join(reversed(RATINGS.splitlines(keepends=True)))
    second, written = prepare(tmp_path, write(tmp_path / "b", turned), force=True)
    assert written
    assert first["content_hash"] == second["content_hash"]


def test_changed_contents_need_force(tmp_path):
    prepare(tmp_path, write(tmp_path / "a"))
    changed = write(tmp_path / "b", RATINGS.replace("5\t100", "4\t100"))
    with pytest.raises(
        InputError, match="prepared from other inputs, settings or by another version; replace it with"
    ):
        prepare(tmp_path, changed)


def test_contents_that_are_not_official_are_marked(tmp_path, caplog):
    manifest, _ = prepare(tmp_path, write(tmp_path / "a"))
    assert manifest["origin"]["verified"] is False
    assert "not verified" in caplog.text
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["origin"]["verified"] is False


def test_an_output_that_is_occupied_is_refused_before_anything_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "find", lambda *arguments: pytest.fail("searched"))
    write(tmp_path / "out")
    with pytest.raises(InputError, match="exists and is no prepared corpus"):
        prepare(tmp_path, None)


def test_damaged_shards_are_named_and_force_mends_them(tmp_path):
    source = write(tmp_path / "a")
    prepare(tmp_path, source)
    (tmp_path / "out" / "left" / "frequency.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"left/frequency\.npy: has 0 bytes instead of .*--force"):
        prepare(tmp_path, source)
    assert prepare(tmp_path, source, force=True)[1]
    assert not prepare(tmp_path, source)[1]


SPLIT = ["split.validation_fraction=0.25", "split.seed=3", "synthetic.left_items=80"]


@pytest.fixture
def both(tmp_path):
    """The ordinary corpus and the tuning corpus of one split."""
    for name, settings in (("ordinary", SPLIT), ("tuning", [*SPLIT, "split.tuning_fraction=0.2"])):
        prepare_corpus("synthetic", tmp_path / name, None, settings)
    return shards.open_corpus(tmp_path / "ordinary"), shards.open_corpus(tmp_path / "tuning")


def pair_set(pairs):
    return set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


def test_a_tuning_corpus_is_the_training_split_and_nothing_else(both):
    ordinary, tuning = both
    train, validation = pair_set(tuning.train), pair_set(tuning.validation)
    assert train | validation == pair_set(ordinary.train)
    assert not train & validation
    assert not validation & pair_set(ordinary.validation)
    n = len(ordinary.train)
    assert abs(len(validation) - 0.2 * n) < 5 * (0.2 * 0.8 * n) ** 0.5


def test_a_tuning_corpus_keeps_the_items_and_knows_no_held_out_pair(both):
    ordinary, tuning = both
    for name in ("left", "right"):
        side, other = getattr(ordinary, name), getattr(tuning, name)
        assert (side.item, side.items) == (other.item, other.items)
        for mine, theirs in zip(side.features, other.features, strict=True):
            assert (mine.name, mine.vocabulary) == (theirs.name, theirs.vocabulary)
            assert np.array_equal(mine.offsets, theirs.offsets)
            assert np.array_equal(mine.indices, theirs.indices)
        frequency = np.bincount(getattr(tuning.train, name), minlength=side.items)
        assert np.array_equal(getattr(tuning, f"{name}_frequency"), frequency)
    for vocabulary in ordinary.vocabulary_sizes:
        assert ordinary.vocabularies[vocabulary].equals(tuning.vocabularies[vocabulary])


def test_the_manifest_of_a_tuning_corpus_says_so(both):
    ordinary, tuning = (corpus.manifest for corpus in both)
    assert tuning["name"] == "synthetic-tuning"
    assert tuning["counts"]["held_out_pairs_dropped"] == ordinary["corpus"]["validation_pairs"]
    assert tuning["corpus"]["pairs"] == ordinary["corpus"]["train_pairs"]
    assert tuning["origin"]["settings"]["split"]["tuning_fraction"] == 0.2
    assert tuning["origin"]["fingerprint"] != ordinary["origin"]["fingerprint"]
    assert tuning["content_hash"] != ordinary["content_hash"]


def test_ordinary_corpora_know_nothing_of_tuning(both):
    """Else every corpus that was prepared before there was the key would have to be prepared anew."""
    assert both[0].manifest["origin"]["settings"]["split"] == {"validation_fraction": 0.25, "seed": 3}


def test_a_tuning_corpus_does_not_replace_the_ordinary_one(both, tmp_path):
    with pytest.raises(InputError, match="holds synthetic prepared from other inputs, settings"):
        prepare_corpus("synthetic", tmp_path / "ordinary", None, [*SPLIT, "split.tuning_fraction=0.2"])
    again = prepare_corpus("synthetic", tmp_path / "tuning", None, [*SPLIT, "split.tuning_fraction=0.2"])
    assert not again[1]


def test_targets_stay_with_their_pairs(tmp_path):
    lines = [f"{u}\t{m}\t{1 + (3 * u + m) % 5}\t{u}\n" for u in range(1, 41) for m in (10, 20, 30)]
    source = write(tmp_path / "a", "".join(lines))
    prepare_corpus("movielens-100k", tmp_path / "out", source, ["split.tuning_fraction=0.5"])
    corpus = shards.open_corpus(tmp_path / "out")
    users, movies = (corpus.vocabularies[name]["key"].astype(int).to_numpy() for name in ("user", "movie"))
    for pairs in (corpus.train, corpus.validation):
        assert np.array_equal(pairs.target, 1 + (3 * users[pairs.left] + movies[pairs.right]) % 5)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            ["split.validation_fraction=1e-9"],
            "synthetic: 1600 pairs are too few for a validation share of 1e-09",
        ),
        (["split.validation_fraction=0.999999999"], "1600 pairs are too few for a validation share of 1"),
        (["split.tuning_fraction=1e-9"], "pairs are too few for a validation share of 1e-09"),
    ],
)
def test_splits_of_too_few_pairs_are_refused(tmp_path, settings, reason):
    settings = ["synthetic.left_items=80", "split.tuning_fraction=0.1", *settings]
    with pytest.raises(InputError, match=reason):
        prepare_corpus("synthetic", tmp_path / "out", None, settings)
    assert not (tmp_path / "out").exists()
