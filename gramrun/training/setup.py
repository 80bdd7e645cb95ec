"""What the options of a command that trains name: its configuration, run directory and trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gramrun import runs
from gramrun.base.capacity import check_room
from gramrun.base.errors import InputError
from gramrun.base.processes import ALONE, Processes
from gramrun.config import RunConfig
from gramrun.config.loading import load_config
from gramrun.data.corpus import SplitCorpus
from gramrun.model.build import check_fits
from gramrun.runs import Kind, checkpoints, directory
from gramrun.runs.directory import Run
from gramrun.training.caches import check_caches
from gramrun.training.host_memory import STATE_FLOATS
from gramrun.training.memory_check import check_memory
from gramrun.training.objective import companion_dim
from gramrun.training.trainer import Trainer, check_divides


def resolve(
    config: Path | None, output: Path | None, settings: list[str], *, resume: bool, force: bool
) -> tuple[RunConfig, Path]:
    """The configuration and the run directory that the options name.

    Raises:
        InputError: when the options contradict one another or name too little.
        ConfigError: when the configuration cannot be used.
    """
    if resume and force:
        raise InputError("--resume goes on with a run and --force replaces it; give one of them")
    if config is None:
        if not (resume and output):
            raise InputError("give --config FILE, or --resume with --output RUN")
        config = runs.open_run(output).path / directory.CONFIG
    resolved = load_config(RunConfig, config, settings)
    return resolved, output or runs.default_path(config, resolved.train.seed)


def open_run(
    kind: Kind,
    path: Path,
    config: RunConfig,
    corpus: SplitCorpus,
    processes: Processes = ALONE,
    *,
    resume: bool,
    force: bool,
) -> tuple[Run, Trainer]:
    """Open the run directory, new or again, and make a trainer at step 0 of it.

    Of several processes the first alone looks into the directory and writes it.

    Raises:
        InputError: when there is a run and neither `resume` nor `force`, or none to resume.
        ConfigError: when the configuration does not fit the corpus or the machine.
    """
    if not processes.first:
        run = Run(path, config)
    elif resume:
        run = runs.resume(path, kind, config, corpus.content_hash)
    else:
        runs.check_free(path, force=force)
    _check_fits(kind, config, corpus, processes)
    # Before the directory: what does not fit the corpus writes nothing.
    trainer = Trainer(config, corpus, processes)
    if resume or not processes.first:
        return run, trainer
    check_disk(path, trainer)
    return runs.create(path, kind, config, corpus.content_hash, force=force), trainer


def _check_fits(kind: Kind, config: RunConfig, corpus: SplitCorpus, processes: Processes) -> None:
    """Check, before anything is made, what the corpus and the machine's memory can tell.

    Raises:
        InputError: when the prior does not fit the corpus.
        ConfigError: when the configuration does not fit the corpus or the machine.
    """
    watching = config.gram_error.estimators if kind == "gram-error" else ()
    check_fits(config, corpus, watching)
    check_divides(config, processes.count)
    check_caches(config, [config.estimator, *watching], corpus, companion_dim(config, corpus))
    if kind == "train":
        check_memory(config, corpus, processes)
        processes.wait()  # none takes memory before all have looked at what is free


def restore(run: Run, trainer: Trainer, *, resume: bool) -> dict[str, Any]:
    """What the newest checkpoint holds beside the trainer's state, which it brings to the trainer."""
    return checkpoints.restore(run, trainer) if resume else {}


def check_disk(path: Path, trainer: Trainer) -> None:
    """Check, before the first step, that the checkpoints of a run at `path` will fit on its disk.

    Raises:
        ConfigError: when they will not, with the figures.
    """
    parts = (trainer.left_estimator, trainer.right_estimator)
    state = sum(tensor.nbytes for part in parts for tensor in part.state_dict().values())
    parameters = sum(parameter.nbytes for parameter in trainer.model.parameters())
    state += (1 + STATE_FLOATS[trainer.config.train.optimizer]) * parameters
    need = (trainer.config.train.checkpoints_kept + 1) * state  # one more while it is being written
    check_room(need, "disk", what="checkpoints", remedy="name an --output on another disk", path=path)
