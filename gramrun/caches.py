"""How much room the estimators' caches take, and the refusal of what does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from gramrun.config import EstimatorSection, RunConfig
from gramrun.data.shards import PreparedCorpus
from gramrun.errors import ConfigError
from gramrun.gramian import cache as gramian_cache
from gramrun.room import check_room


def cache_bytes(config: RunConfig, section: EstimatorSection, corpus: PreparedCorpus) -> int:
    """What one estimator's caches occupy: an embedding for each item, or for each pair, of both sides."""
    if section.cache_entry is None:
        return 0
    items = corpus.left.items + corpus.right.items
    entries = items if section.cache_entry == "item" else 2 * len(corpus.train)
    dtype = gramian_cache.CACHE_DTYPES[section.cache_dtype]
    return gramian_cache.cache_bytes(entries, config.model.embedding_dim, dtype)


def check_caches(config: RunConfig, sections: Sequence[EstimatorSection], corpus: PreparedCorpus) -> None:
    """Check that the caches of these estimators fit into memory, or on the disks of their folders.

    Raises:
        ConfigError: when they do not, with the figures, or when a folder does not exist.
    """
    in_memory = sum(cache_bytes(config, s, corpus) for s in sections if s.cache_folder is None)
    cheaper = "set cache: item, cache_dtype: bfloat16 or a cache_folder on a disk"
    check_room(in_memory, "memory", what="Gramian caches", remedy=cheaper)
    for folder in {s.cache_folder for s in sections if s.cache_folder is not None}:
        if not folder.is_dir():
            raise ConfigError(f"cache_folder: {folder} is no folder; make it or name another")
        mapped = sum(cache_bytes(config, s, corpus) for s in sections if s.cache_folder == folder)
        check_room(mapped, "disk", what="Gramian caches", remedy="name another cache_folder", path=folder)
