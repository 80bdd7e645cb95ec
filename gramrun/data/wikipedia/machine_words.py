"""Bytes and words of memory by address, for compiled code in which numba's arrays cost too much.

An array is handed to a compiled function as seven values, its indices are tested for being negative, and a
slice counts references; an address is one number. The caller answers for the address, as in C.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

if sys.byteorder != "little":
    raise ImportError("gramrun reads dumps on little-endian processors only")
_BYTE, _WORD = ir.IntType(8), ir.IntType(64)


def _byte(_typing: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        return builder.zext(builder.load(pointer), _WORD)

    return types.int64(types.int64), generate


def _word(_typing: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(types.int64), generate


def _put_byte(_typing: Any, address: Any, byte: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _BYTE.as_pointer())
        builder.store(builder.trunc(arguments[1], _BYTE), pointer)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _put_word(_typing: Any, address: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        builder.store(arguments[1], pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


def _item(_typing: Any, address: Any) -> Any:
    return types.int64(types.int64), _word(_typing, address)[1]


def _put_item(_typing: Any, address: Any, item: Any) -> Any:
    return types.void(types.int64, types.int64), _put_word(_typing, address, item)[1]


def _trailing_zeros(_typing: Any, word: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


# Read one byte.
byte_at = cast(Callable[[int], int], intrinsic(_byte))
# Read eight bytes; the first one is the lowest.
word_at = cast(Callable[[int], Any], intrinsic(_word))
# Write one byte.
put_byte = cast(Callable[[int, int], None], intrinsic(_put_byte))
# Write eight bytes.
put_word = cast(Callable[[int, Any], None], intrinsic(_put_word))
# Read an item of an int64 array.
item_at = cast(Callable[[int], int], intrinsic(_item))
# Write an item of an int64 array.
put_item = cast(Callable[[int, Any], None], intrinsic(_put_item))
# Count the zero bits below a word's lowest one bit; the word must not be zero.
trailing_zeros = cast(Callable[[Any], int], intrinsic(_trailing_zeros))
