"""Equality of nested records with arrays and frames in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd


def assert_same(first: Any, second: Any) -> None:
    """Equal fields, equal frames and equal arrays of the same dtype, however deep."""
    if isinstance(first, np.ndarray):
        assert first.dtype == second.dtype
        assert np.array_equal(first, second)
    elif isinstance(first, pd.DataFrame):
        assert first.equals(second)
    elif dataclasses.is_dataclass(first):
        for field in dataclasses.fields(first):
            assert_same(getattr(first, field.name), getattr(second, field.name))
    elif isinstance(first, Mapping):
        assert first.keys() == second.keys()
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, tuple):
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert first == second
