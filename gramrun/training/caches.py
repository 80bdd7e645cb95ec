"""How much room the estimators' caches take, and the refusal of what does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gramrun.base.capacity import check_room
from gramrun.base.errors import ConfigError
from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.gramian.cache import CACHE_DTYPES


def cache_bytes(config: RunConfig, section: EstimatorSection, corpus: SplitCorpus, companion_dim: int) -> int:
    """What one estimator's caches occupy: an embedding and float32 companions for each entry of both sides.

    Args:
        config: for k.
        section: the estimator's.
        corpus: for the number of items and pairs.
        companion_dim: r, the companions of an item (`gramrun.training.objective.companion_dim`).
    """
    if section.cache_entry is None:
        return 0
    items = corpus.left.items + corpus.right.items
    entries = items if section.cache_entry == "item" else 2 * len(corpus.train)
    embedding = config.model.embedding_dim * CACHE_DTYPES[section.cache_dtype].itemsize
    return entries * (embedding + 4 * companion_dim)


def check_caches(
    config: RunConfig, sections: Sequence[EstimatorSection], corpus: SplitCorpus, companion_dim: int
) -> None:
    """Check that the caches of these estimators fit into memory, or on the disks of their folders.

    Raises:
        ConfigError: when they do not, with the figures, or when a folder does not exist.
    """
    in_memory = 0
    on_disk: dict[int, tuple[Path, int]] = {}
    for section in sections:
        need, folder = cache_bytes(config, section, corpus, companion_dim), section.cache_folder
        if not need or folder is None:
            in_memory += need
        elif not folder.is_dir():
            raise ConfigError(f"cache_folder: {folder} is no folder; make it or name another")
        else:
            disk = folder.stat().st_dev  # folders on one disk share its room
            on_disk[disk] = (folder, need + on_disk.get(disk, (folder, 0))[1])
    cheaper = "set cache: item, cache_dtype: bfloat16 or a cache_folder on a disk"
    check_room(in_memory, "memory", what="Gramian caches", remedy=cheaper)
    for folder, need in on_disk.values():
        check_room(need, "disk", what="Gramian caches", remedy="name another cache_folder", path=folder)
