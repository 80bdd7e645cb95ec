"""gramrun's own estimators, for the checks of `gramrun.gramian.contracts`. A new one passes by being listed."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from gramrun.gramian import CacheOptions
from gramrun.gramian.contracts import CHECKS, DIM, Listed, Trajectory, check_psd
from gramrun.gramian.schedule import AlphaSchedule

__all__ = ["CHECKS", "DIM", "ESTIMATORS", "Listed", "Trajectory", "check_psd"]

_FOLDER = Path(tempfile.gettempdir())  # cache files are unlinked at once


def _sagram(beta: str, cache: CacheOptions, *, project: bool = True) -> Listed:
    options = {"beta": beta, "project": project, "cache": cache}
    return Listed("sagram", options, always_psd=project or beta == "1/n")


_ITEM, _PAIR = CacheOptions("item", rebuild_every=3), CacheOptions("pair", rebuild_every=3)
_SCHEDULE = AlphaSchedule(0.1)

ESTIMATORS = {
    "sampling": Listed("sampling"),
    "sogram": Listed("sogram", {"schedule": _SCHEDULE}),
    "sogram-debiased": Listed("sogram", {"schedule": _SCHEDULE, "debias": True}),
    "sogram-decaying": Listed("sogram", {"schedule": AlphaSchedule(0.1, "decaying")}),
    "sogram-table": Listed("sogram", {"schedule": AlphaSchedule(0.1, {1: 1.0, 3: 0.5, 8: 0.05})}),
    "sogram-exact-start": Listed("sogram", {"schedule": _SCHEDULE, "exact_start": True}),
    "sag-item": _sagram("1/n", _ITEM),
    "sag-pair": _sagram("1/n", _PAIR),
    "saga-item": _sagram("1", _ITEM),
    "saga-pair": _sagram("1", _PAIR),
    "saga-item-unprojected": _sagram("1", _ITEM, project=False),
    "saga-pair-unprojected": _sagram("1", _PAIR, project=False),
    "sag-pair-bfloat16": _sagram("1/n", replace(_PAIR, dtype=torch.bfloat16)),
    "saga-item-bfloat16": _sagram("1", replace(_ITEM, dtype=torch.bfloat16)),
    "saga-item-folder": _sagram("1", replace(_ITEM, folder=_FOLDER)),
    "saga-pair-folder-bfloat16": _sagram("1", replace(_PAIR, folder=_FOLDER, dtype=torch.bfloat16)),
    "sogram-caches": Listed("sogram", {"schedule": _SCHEDULE, "cache": _ITEM}),
    "sogram-caches-exact-start": Listed(
        "sogram",
        {"schedule": _SCHEDULE, "cache": _ITEM, "exact_start": True, "project": False},
        always_psd=False,
    ),
    "control-variate": Listed("control-variate", {"schedule": _SCHEDULE}),
    "control-variate-unprojected": Listed(
        "control-variate", {"schedule": _SCHEDULE, "project": False}, always_psd=False
    ),
    "control-variate-caches": Listed("control-variate", {"schedule": _SCHEDULE, "cache": _ITEM}),
    "exact": Listed("exact"),
    "none": Listed("none"),
}
