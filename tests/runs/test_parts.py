"""What several processes wrote of a checkpoint, read by one: in place, and without running code."""

import io
import os
import pickle

import pytest
import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING
from torch.distributed.checkpoint.state_dict_saver import save

from gramrun.base.errors import InputError
from gramrun.runs.parts import _Unpickler, parts_folder, read_parts


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint's file name, with a table and a cache beside it."""
    path = tmp_path / "step-000000004.pt"
    numbers = torch.arange(12.0).reshape(4, 3)
    tables = {"weight.page": numbers, "left.cache": numbers.bfloat16()}
    writer = FileSystemWriter(parts_folder(path), single_file_per_rank=False)
    with pytest.warns(UserWarning, match="single process"):
        save(tables, storage_writer=writer, no_dist=True)
    return path


def read(checkpoint, name="weight.page", dtype=torch.float32):
    table = torch.zeros(4, 3, dtype=dtype)
    read_parts(checkpoint, {name: table}, alone=True)
    return table


def test_tables_and_caches_are_read_in_place(checkpoint):
    assert torch.equal(read(checkpoint), torch.arange(12.0).reshape(4, 3))
    cache = read(checkpoint, "left.cache", torch.bfloat16)
    assert torch.equal(cache.float(), torch.arange(12.0).reshape(4, 3))


class Code:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


class Attribute:
    def __init__(self, kind, name):
        self.call = getattr, (kind, name)

    def __reduce__(self):
        return self.call


def test_metadata_reads_no_attribute_but_a_member_of_an_enumeration():
    """Which Python 3.11.0 to 3.11.3 pickle so."""

    def load(kind, name):
        return _Unpickler(io.BytesIO(pickle.dumps(Attribute(kind, name)))).load()

    member = next(iter(_MEM_FORMAT_ENCODING))
    assert load(_MEM_FORMAT_ENCODING, member.name) is member
    with pytest.raises(pickle.UnpicklingError, match="attribute __subclasses__"):
        load(torch.Size, "__subclasses__")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_metadata_runs_no_code(checkpoint, tmp_path, protocol):
    (parts_folder(checkpoint) / ".metadata").write_bytes(pickle.dumps(Code(tmp_path / "pwned"), protocol))
    with pytest.raises(InputError):
        read(checkpoint)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"no pickle", pickle.dumps(3), pickle.dumps({})])
def test_damaged_metadata_is_one_line(checkpoint, content):
    (parts_folder(checkpoint) / ".metadata").write_bytes(content)
    with pytest.raises(InputError) as raised:
        read(checkpoint)
    assert "\n" not in str(raised.value)
