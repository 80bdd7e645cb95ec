"""The configs that come with gramrun, by name: ``<dataset>/<method>``.

A built wheel has the folder ``configs`` inside the package; a checkout or an editable install beside it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

from gramrun.base.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]

# The dataset whose config suits a corpus that has none, by the first part of the corpus's name.
_ALIKE = {
    "movielens": "movielens-1m",
    "wikipedia": "wikipedia-simple",
    "fr": "wikipedia-simple",
    "en": "wikipedia-simple",
}


def shipped_configs() -> Mapping[str, Path]:
    """Every shipped config's file, by its name, such as ``movielens-100k/sogram``."""
    installed = _PACKAGE / "configs"
    folder = installed if installed.is_dir() else _PACKAGE.parent / "configs"
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(folder.glob("*/*.yaml"))}


def find_config(file: Path) -> Path:
    """Find the file that ``--config`` names: an existing file, or the shipped config of that name.

    Args:
        file: a path, or a shipped config's name with or without ``configs/`` and ``.yaml``.

    Raises:
        ConfigError: when it is neither; names the nearest shipped configs.
    """
    is_folder = os.path.isdir(file)  # unlike pathlib, False for a name that is too long
    if os.path.exists(file) and not is_folder:
        return file
    shipped = shipped_configs()
    name = file.as_posix().removeprefix("configs/").removesuffix(".yaml")
    if name in shipped:
        return shipped[name]
    problem = "is a folder, no file" if is_folder else "no such file"
    if file.is_absolute():
        raise ConfigError(f"{file}: {problem}")
    near = [other for other in shipped if other.startswith(f"{name}/")]
    near = near or difflib.get_close_matches(name, shipped, n=3)
    hint = f"did you mean {', '.join(near)}?" if near else f"they are {', '.join(_datasets(shipped))}"
    raise ConfigError(f"{file}: {problem}, and no config of that name comes with gramrun; {hint}")


def config_for(corpus: str) -> str:
    """The name of the shipped config for a corpus: its own dataset's, or a similar one's.

    Args:
        corpus: its name in `gramrun prepare`.
    """
    alike = _ALIKE.get(corpus.partition("-")[0], "movielens-100k")
    names = [
        f"{corpus}/recommended",
        f"{corpus}/sogram",
        f"{alike}/recommended",
        f"{corpus}/paper-sampling",  # of a large wiki, which is ranked by a part of its pages
        f"{alike}/sogram",
    ]
    return next(name for name in names if name in shipped_configs())


def _datasets(names: Mapping[str, Path]) -> list[str]:
    """One entry per dataset, such as ``enwik8/...``."""
    return list(dict.fromkeys(f"{name.partition('/')[0]}/..." for name in names))
