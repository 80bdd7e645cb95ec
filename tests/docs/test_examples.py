"""The examples in docstrings are run, and those who call gramrun from Python find one where they look first."""

from __future__ import annotations

import doctest
import importlib

import pages
import pytest

MODULES = sorted(
    ".".join(path.relative_to(pages.ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (pages.ROOT / "gramrun").rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)
# What a user calls in a training loop or a notebook of his own.
HAVE_ONE = {
    "gramrun.config.loading": ("load_config",),
    "gramrun.gramian": ("make_estimator",),
    "gramrun.gramian.batch": ("batch_moments",),
    "gramrun.gramian.exact": ("relative_error",),
    "gramrun.gramian.population": ("make_population",),
    "gramrun.gramian.schedule": ("AlphaSchedule",),
    "gramrun.gramian.surrogate": ("gravity", "gravity_surrogate"),
    "gramrun.evaluation.metrics": (
        "average_precision",
        "average_precision_relevant",
        "recall",
        "ndcg",
        "bootstrap_interval",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_right(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed, "what was expected and what came stands above"


@pytest.mark.parametrize("name", HAVE_ONE)
def test_what_users_call_has_an_example(name):
    module = importlib.import_module(name)
    for function in HAVE_ONE[name]:
        assert ">>>" in (getattr(module, function).__doc__ or ""), f"{name}.{function}"
