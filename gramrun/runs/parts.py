"""What several processes write of one checkpoint: tensors split by rows, each process its own rows.

A folder beside the checkpoint's file, by torch.distributed.checkpoint: a file for each tensor and process
(one for all tensors of a process would hold a copy of all in memory), and ``.metadata``, which says where the
rows are. Any number of processes can read it, each the rows that it holds. The folder appears whole before
the checkpoint's file, which records the size and SHA-256 of every file in it.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import warnings
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from torch import Tensor

from gramrun.base.errors import InputError, RunError
from gramrun.base.files import check_recorded, is_record, new_folder, recorded
from gramrun.base.processes import Processes, exchange_errors

Records = dict[str, dict[str, int | str]]

_METADATA = ".metadata"
_DAMAGED = (OSError, RuntimeError, ValueError, KeyError, TypeError)
# Every name that torch.distributed.checkpoint writes into `.metadata` for tensors. Its reader would load any.
_CLASSES = frozenset((
    ("torch.distributed.checkpoint.metadata", "Metadata"),
    ("torch.distributed.checkpoint.metadata", "TensorStorageMetadata"),
    ("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"),
    ("torch.distributed.checkpoint.metadata", "TensorProperties"),
    ("torch.distributed.checkpoint.metadata", "MetadataIndex"),
    ("torch.distributed.checkpoint.metadata", "StorageMeta"),
    ("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("torch", "float32"),
    ("torch", "bfloat16"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),  # its name from Python 3.13 on
))  # fmt: skip


def parts_folder(checkpoint: Path) -> Path:
    """The folder beside a checkpoint's file."""
    return checkpoint.with_suffix(".tables")


def write_parts(checkpoint: Path, tensors: Mapping[str, Tensor], processes: Processes) -> Records:
    """Write the folder of a checkpoint; all processes call this together.

    Args:
        checkpoint: the checkpoint's file, written afterwards.
        tensors: DTensors by name; each process has its rows.
        processes: the processes that train together.

    Returns:
        Size and SHA-256 of every file, by name.

    Raises:
        RunError: in every process, when the disk of one is full or another process is gone.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    with contextlib.ExitStack() as stack:
        target = processes.from_first(lambda: stack.enter_context(new_folder(parts_folder(checkpoint))))
        with _write_errors(target), exchange_errors():
            save(dict(tensors), storage_writer=FileSystemWriter(target, single_file_per_rank=False))
        own = {path.name: recorded(path) for path in target.glob(f"__{processes.rank}_*")}
        if processes.first:
            own[_METADATA] = recorded(target / _METADATA)
        # Once all have read what they wrote, the first process moves the folder into place.
        return {name: record for part in processes.gather_objects(own) for name, record in part.items()}


@contextlib.contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    """Turn what torch.distributed.checkpoint raises in every process into a `RunError`."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(error.failures.items()))
        reason = " ".join(str(cause).split())[:160]
        raise RunError(f"{folder}: process {rank} cannot write its tables: {reason}") from error


def check_parts(checkpoint: Path, records: Any) -> None:
    """Check the folder of a checkpoint against the records in its file.

    Raises:
        InputError: when the records are none, or a file is missing or damaged.
    """
    if not (isinstance(records, dict) and _METADATA in records and all(map(is_record, records.values()))):
        raise InputError(f"{checkpoint}: says nothing of its tables")
    for name, record in records.items():
        check_recorded(parts_folder(checkpoint) / name, record, "go on from an older checkpoint")


class _Unpickler(pickle.Unpickler):
    """Loads the names of `_CLASSES` alone, so that a checkpoint from elsewhere runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        if (module, name) not in _CLASSES:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint of gramrun does")
        return getattr(importlib.import_module(module), name)


def _member(kind: object, name: str) -> Enum:
    """A member of an enumeration, which Python 3.11.0 to 3.11.3 pickle as a call of ``getattr``."""
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        raise pickle.UnpicklingError(f"it reads the attribute {name} of {kind}")
    return kind[name]


def _reader(folder: Path) -> Any:
    """A reader that runs no code from the folder; torch's own reads `.metadata` with `pickle.load`."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

    class Reader(FileSystemReader):
        def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
            with (folder / _METADATA).open("rb") as file:
                metadata = _Unpickler(file).load()
            if not isinstance(metadata, Metadata):
                raise ValueError(f"{_METADATA} holds no metadata")
            metadata.storage_meta = metadata.storage_meta or StorageMeta()
            metadata.storage_meta.load_id = self.load_id
            return metadata

    return Reader(folder)


def read_parts(checkpoint: Path, tensors: Mapping[str, Tensor], *, alone: bool) -> None:
    """Read tensors in place: DTensors, of which each process reads its rows, or whole tensors.

    Args:
        checkpoint: the checkpoint's file.
        tensors: some of those written, by name.
        alone: whether this process reads without others.

    Raises:
        InputError: when the folder is damaged, or holds other tensors.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    folder = parts_folder(checkpoint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a load without a process group
            load(dict(tensors), storage_reader=_reader(folder), no_dist=alone)
    except (CheckpointException, pickle.UnpicklingError, EOFError, AttributeError, *_DAMAGED) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{folder}: belongs to another model, or is damaged: {reason}") from error
