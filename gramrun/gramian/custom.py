"""Custom estimators: a class or function of the user's, named ``module:name`` in a configuration.

It is called with the keyword arguments ``embedding_dim``, ``population``, ``schedule`` and ``companion_dim``
and returns a `GramianEstimator`. docs/how-to.md writes one from its first line to a trained model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gramrun.base.errors import ConfigError
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population
from gramrun.gramian.schedule import AlphaSchedule


def find_custom(name: str, key: str = "estimator.name") -> Callable[..., Any]:
    """Import ``module:name``, which runs the code of that module.

    Args:
        name: ``module:name``.
        key: where it is configured, for messages.

    Raises:
        ConfigError: when the module or the name does not exist, or the import fails.
    """
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # the code is the user's and may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"{key} is {name}, but Python finds no module {error.name}; install it, or name its folder "
                "in PYTHONPATH"
            ) from None
        raise ConfigError(
            f"{key} is {name}, which cannot be used: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise ConfigError(f"{key} is {name}, but {module} has no class or function {attribute}")
    return found  # type: ignore[no-any-return]


def make_custom(
    name: str, embedding_dim: int, population: Population, schedule: AlphaSchedule, companion_dim: int
) -> GramianEstimator:
    """Make the estimator ``module:name``.

    Raises:
        ConfigError: when it cannot be imported, refuses these arguments, or is no `GramianEstimator`.
    """
    make = find_custom(name)
    try:
        estimator = make(
            embedding_dim=embedding_dim, population=population, schedule=schedule, companion_dim=companion_dim
        )
    except Exception as error:
        raise ConfigError(f"the estimator {name} cannot be used: {type(error).__name__}: {error}") from error
    if not isinstance(estimator, GramianEstimator):
        raise ConfigError(
            f"the estimator {name} gives a {type(estimator).__name__}; it must give a "
            "gramrun.gramian.estimator.GramianEstimator"
        )
    return estimator
