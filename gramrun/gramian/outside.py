"""Estimators from outside the package: ``module:name`` instead of a name that `make_estimator` knows.

``name`` is a class of the module, or a function that makes one, and is called with the keyword arguments
``embedding_dim``, ``population``, ``schedule`` and ``companion_dim``; it gives a `GramianEstimator`. What
else an estimator is to be told goes into such a function, which a configuration then names. docs/how-to.md
has one from its first line to a trained model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gramrun.base.errors import ConfigError
from gramrun.gramian.estimator import GramianEstimator
from gramrun.gramian.population import Population
from gramrun.gramian.schedule import AlphaSchedule


def find_outside(name: str) -> Callable[..., Any]:
    """Import what ``module:name`` stands for. It runs that module's code, as importing it anywhere would.

    Raises:
        ConfigError: when there is no such module or nothing of that name in it, or it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _unusable(name, error) from error  # the module is there; what it imports is not
        raise ConfigError(
            f"estimator.name is {name}, but Python finds no module {error.name}; install it, or name its "
            "folder in PYTHONPATH"
        ) from None
    except Exception as error:  # whatever somebody else's code may raise
        raise _unusable(name, error) from error
    made: Any = getattr(imported, attribute, None)
    if not callable(made):
        raise ConfigError(f"estimator.name is {name}, but {module} has no class or function {attribute}")
    return made  # type: ignore[no-any-return]


def make_outside(
    name: str, embedding_dim: int, population: Population, schedule: AlphaSchedule, companion_dim: int
) -> GramianEstimator:
    """Make the estimator that ``module:name`` stands for.

    Raises:
        ConfigError: when it cannot be imported or made of these arguments, or is no estimator.
    """
    make = find_outside(name)
    try:
        estimator = make(
            embedding_dim=embedding_dim,
            population=population,
            schedule=schedule,
            companion_dim=companion_dim,
        )
    except Exception as error:  # an argument that it does not take, or what it says of one
        raise _unusable(name, error) from error
    if not isinstance(estimator, GramianEstimator):
        raise ConfigError(
            f"estimator.name is {name}, which gives a {type(estimator).__name__}; it must give a "
            "gramrun.gramian.estimator.GramianEstimator"
        )
    return estimator


def _unusable(name: str, error: Exception) -> ConfigError:
    return ConfigError(f"estimator.name is {name}, which cannot be used: {type(error).__name__}: {error}")
