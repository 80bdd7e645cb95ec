"""Eight bytes of an array at once, at any index, for compiled code; numba itself reads whole items only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic


def _word_pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.IntType(64).as_pointer())


def _load(_typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments)
        return builder.load(pointer, align=1)

    return types.uint64(array, types.int64), generate


def _store(_typing: Any, array: Any, index: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _word_pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


def _trailing_zeros(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


# Read eight bytes at any index of a byte array.
load = cast(Callable[[np.ndarray, int], np.uint64], intrinsic(_load))
# Write eight bytes at any index of a byte array.
store = cast(Callable[[np.ndarray, int, np.uint64], None], intrinsic(_store))
# Count the zero bits below a word's lowest one bit; the word must not be zero.
trailing_zeros = cast(Callable[[np.uint64], int], intrinsic(_trailing_zeros))
