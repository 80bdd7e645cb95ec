"""Run directories: create, resume and open them; read them as pandas frames; draw figures.

`load` reads one run directory as pandas frames, `table` reads one frame of many.
"""

from gramrun.runs.directory import BaselineRun, open_directory, open_run
from gramrun.runs.frames import load, table
from gramrun.runs.session import (
    Kind,
    average_precision,
    check_free,
    check_same_data,
    corpus_folder,
    corpus_of,
    create,
    default_path,
    evaluations,
    new_manifest,
    outcome,
    record_evaluation,
    resume,
    write_per_item,
)

__all__ = [
    "BaselineRun",
    "Kind",
    "average_precision",
    "check_free",
    "check_same_data",
    "corpus_folder",
    "corpus_of",
    "create",
    "default_path",
    "evaluations",
    "load",
    "new_manifest",
    "open_directory",
    "open_run",
    "outcome",
    "record_evaluation",
    "resume",
    "table",
    "write_per_item",
]
