"""Refuse a run that does not fit its corpus, its device or its processes before anything is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from gramrun.base.capacity import check_capacity
from gramrun.base.errors import ConfigError
from gramrun.base.processes import SINGLE_PROCESS, Processes
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.gramian.custom import find_custom
from gramrun.model.build import choose_device
from gramrun.model.row_wise import check_torchrec
from gramrun.model.svd_start import check_svd_start
from gramrun.training.memory import cache_bytes
from gramrun.training.objective import companion_dim

WITHOUT_BATCH = ("exact", "none")  # estimators that draw none


def check_run(
    config: RunConfig,
    corpus: SplitCorpus,
    processes: Processes = SINGLE_PROCESS,
    observers: Sequence[EstimatorSection] = (),
) -> None:
    """Check what only the corpus, the machine and the number of processes can tell.

    Args:
        config: the run's configuration.
        corpus: its corpus.
        processes: the processes that train together.
        observers: ``gram_error.estimators`` where `gramrun gram-error` makes them.

    Raises:
        ConfigError: when the run cannot be made; names the key and a value that works.
        InputError: when the file of a prior does not fit the corpus.
    """
    _check_corpus(config, corpus, observers)
    check_svd_start(config, corpus)
    _check_device(config, choose_device(config.device), observers)
    _check_processes(config, processes.count)
    for key, section in _sections(config, observers).items():
        if ":" in section.name:
            find_custom(section.name, f"{key}.name")
    _check_caches(config, [config.estimator, *observers], corpus, processes)
    if config.log.gramian_samples:
        check_measurable(config, "log.gramian_samples")
        if config.estimator.name == "none":
            raise ConfigError(
                "log.gramian_samples has no estimate to measure with estimator.name: none; drop it"
            )


def check_measurable(config: RunConfig, key: str) -> None:
    """Check that the Gramians of a run can be measured.

    Args:
        config: the run's configuration.
        key: what asks for it, for the message.

    Raises:
        ConfigError: when the tables are split, the objective has no Gramians, or items lose their ids.
    """
    if config.train.tables != "replicated":
        raise ConfigError(f"{key} measures in one process; set train.tables: replicated")
    if config.train.objective != "gravity":
        raise ConfigError(f"{key} measures Gramians; set train.objective: gravity")
    if config.train.id_dropout_left or config.train.id_dropout_right:
        raise ConfigError(
            f"{key} embeds every item with its id; drop train.id_dropout_left and id_dropout_right"
        )


def _sections(config: RunConfig, observers: Sequence[EstimatorSection]) -> dict[str, EstimatorSection]:
    """The estimators by their keys."""
    keys = [f"gram_error.estimators.{i}" for i in range(len(observers))]
    return {"estimator": config.estimator, **dict(zip(keys, observers, strict=True))}


def _check_corpus(config: RunConfig, corpus: SplitCorpus, observers: Sequence[EstimatorSection]) -> None:
    sizes = {"train.batch_size": config.train.batch_size}
    for key, section in _sections(config, observers).items():
        if section.name not in WITHOUT_BATCH:
            sizes[f"{key}.gramian_batch_size"] = section.gramian_batch_size
    pairs = len(corpus.train)
    for key, size in sizes.items():
        if size > pairs:
            raise ConfigError(
                f"{key} is {size}, but {corpus.place} has only {pairs:,} training "
                f"{'pair' if pairs == 1 else 'pairs'}; set it to {pairs} or less"
            )
    if config.train.target == "value" and corpus.train.target is None:
        raise ConfigError(
            f"train.target is value, but the pairs of {corpus.place} carry no target; set train.target: one"
        )
    for side, dropout, features in (
        ("left", config.train.id_dropout_left, corpus.left.features),
        ("right", config.train.id_dropout_right, corpus.right.features),
    ):
        if dropout and len(features) == 1:
            raise ConfigError(
                f"train.id_dropout_{side} is {dropout:g}, but the {side} items of {corpus.place} have no "
                "feature besides their id; set it to 0"
            )


def _check_device(config: RunConfig, device: torch.device, observers: Sequence[EstimatorSection]) -> None:
    if device.type == "cuda" and any(s.cache_folder for s in (config.estimator, *observers)):
        raise ConfigError(
            "estimator.cache_folder keeps caches on disk, for the CPU; drop it or set device: cpu"
        )
    if config.train.tables == "row-wise":
        check_torchrec()
        if device.type == "cuda":
            raise ConfigError("train.tables: row-wise has not run on a GPU yet; set device: cpu")
    if config.train.engine == "static" and (config.train.l2 or config.train.dense_l2):
        raise ConfigError(
            "train.engine: static has no L2 penalty; set train.engine: plain, or drop l2 and dense_l2"
        )
    if config.train.engine == "static" and (config.train.id_dropout_left or config.train.id_dropout_right):
        raise ConfigError(
            "train.engine: static draws nothing in a step; set train.engine: plain, or drop "
            "train.id_dropout_left and id_dropout_right"
        )
    if config.train.engine == "static" and config.train.optimizer == "sparse-adam":
        raise ConfigError(
            "train.engine: static has no sparse-adam; set train.engine: plain, or train.optimizer: adagrad, "
            "adam or sgd"
        )


def _check_processes(config: RunConfig, processes: int) -> None:
    """Check that the work of a step divides evenly among several processes."""
    if processes == 1:
        return
    sizes = {"train.batch_size": config.train.batch_size}
    if config.estimator.name not in WITHOUT_BATCH:
        sizes["estimator.gramian_batch_size"] = config.estimator.gramian_batch_size
    for key, size in sizes.items():
        if size % processes:
            raise ConfigError(f"{key} is {size}; make it a multiple of the {processes} processes")
    if config.train.objective == "batch-softmax":
        raise ConfigError(
            "train.objective: batch-softmax scores each pair against the whole batch; train it in one process"
        )
    if config.train.engine == "static":
        raise ConfigError("train.engine: static trains in one process; set train.engine: plain")


def _check_caches(
    config: RunConfig, sections: Sequence[EstimatorSection], corpus: SplitCorpus, processes: Processes
) -> None:
    """Check that the caches of these estimators fit into memory, or on the disks of their folders."""
    companions = companion_dim(config, corpus)
    in_memory = 0
    on_disk: dict[int, tuple[Path, int]] = {}
    for section in sections:
        folder = section.cache_folder
        need = processes.here * cache_bytes(config, section, corpus, companions, processes.count)
        if not need or folder is None:
            in_memory += need
        elif not folder.is_dir():
            raise ConfigError(f"cache_folder: {folder} is no folder; make it or name another")
        else:
            disk = folder.stat().st_dev  # folders on one disk share its space
            on_disk[disk] = (folder, need + on_disk.get(disk, (folder, 0))[1])
    cheaper = "set cache: item, cache_dtype: bfloat16 or a cache_folder on a disk"
    check_capacity(in_memory, "memory", what="Gramian caches", remedy=cheaper)
    for folder, need in on_disk.values():
        check_capacity(need, "disk", what="Gramian caches", remedy="name another cache_folder", path=folder)
