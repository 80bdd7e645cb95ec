"""Folders are replaced whole or not at all."""

from pathlib import Path

import pytest

from gramrun.base.files import new_folder


@pytest.mark.parametrize(("interrupted", "kept"), [(1, "old"), (2, "new")])
def test_an_interrupt_between_the_renames_leaves_one_whole_folder(tmp_path, monkeypatch, interrupted, kept):
    path, rename, done = tmp_path / "r", Path.rename, []
    path.mkdir()
    (path / "old").touch()

    def once(self, target):
        rename(self, target)
        done.append(target)
        if len(done) == interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", once)
    with pytest.raises(KeyboardInterrupt), new_folder(path) as temporary:
        (temporary / "new").touch()
    assert [file.name for file in path.iterdir()] == [kept]
