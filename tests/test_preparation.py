import json
import zipfile

import pytest

from gramrun.errors import InputError
from gramrun.preparation import prepare_corpus

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
    assert "it has 6 of the official 100,000 ratings" in caplog.text
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["origin"]["verified"] is False


def test_damaged_shards_are_named_and_force_mends_them(tmp_path):
    source = write(tmp_path / "a")
    prepare(tmp_path, source)
    (tmp_path / "out" / "left" / "frequency.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"left/frequency\.npy: has 0 bytes instead of .*--force"):
        prepare(tmp_path, source)
    assert prepare(tmp_path, source, force=True)[1]
    assert not prepare(tmp_path, source)[1]
