"""Does a run fit into memory? Refuse one that does not before anything of it is made.

Linux lends memory that it does not have and kills whoever takes it, hours later perhaps; so the peak is
predicted (`gramrun.training.host_memory`, `gramrun.training.device_memory`) and held against what is free.
Mapped files do not count: the kernel drops their pages where it needs room.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gramrun.base.capacity import check_available, check_room, size_text
from gramrun.base.processes import ALONE, Processes
from gramrun.config import RunConfig
from gramrun.data.corpus import SplitCorpus
from gramrun.model.build import choose_device
from gramrun.training.device_memory import device_memory
from gramrun.training.host_memory import peak_memory
from gramrun.training.objective import companion_dim

_NAMED = 0.1  # parts that take less of the whole are not named


def check_memory(config: RunConfig, corpus: SplitCorpus, processes: Processes = ALONE) -> None:
    """Check that ``gramrun train`` fits into what is free now, on the host and on its GPU.

    ``gramrun gram-error`` is not predicted: of it `gramrun.training.caches.check_caches` alone knows.

    Args:
        config: of the run.
        corpus: of the run, which it fits.
        processes: that train together: those on this machine need the memory once each.

    Raises:
        ConfigError: when it does not fit, with the figures.
        InputError: when the prior does not fit the corpus.
    """
    device, companions = choose_device(config.device), companion_dim(config, corpus)
    parts = peak_memory(config, corpus, companions, device).to_come
    here = processes.here
    what = _described(parts) + (f", in each of {here} processes," if here > 1 else "")
    check_room(here * sum(parts.values()), "memory", what=what, remedy=_remedy(config, parts))
    if device.type == "cuda":
        on_gpu = device_memory(config, corpus, companions, processes.count)
        free, _ = torch.cuda.mem_get_info(device)
        parts = on_gpu.parts
        check_available(
            on_gpu.total, free, "GPU memory", what=_described(parts), remedy=_remedy(config, parts)
        )


def _described(parts: Mapping[str, int]) -> str:
    """The largest parts, such as ``parameters (1.2 GB) and the rest of this run``."""
    whole = sum(parts.values())
    named = {name: size for name, size in parts.items() if size >= _NAMED * whole}
    listed = ", ".join(
        f"{name} ({size_text(named[name])})" for name in sorted(named, key=lambda n: -named[n])
    )
    return f"{listed} and the rest of this run" if len(named) < len(parts) else listed


def _remedy(config: RunConfig, parts: Mapping[str, int]) -> str:
    """What makes the largest part smaller."""
    largest = max(parts, key=lambda name: parts[name])
    if largest == "Gramian caches":
        return "set estimator.cache: item, estimator.cache_dtype: bfloat16 or an estimator.cache_folder"
    if largest == "evaluation, batches or start":
        return "lower evaluation.left_items, evaluation.candidates or the batch sizes"
    if largest in ("parameters", "optimizer"):
        return f"lower model.{'input_dim' if config.model.hidden else 'embedding_dim'}"
    return "free some, or train on a machine that has more"
