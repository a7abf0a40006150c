"""Columns of tables as columns of records: of Arrow's arrays, without an object for each value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.encoding import Ragged, Strings
from recordmill.records.schema import DType

_MOST_INT64 = pa.scalar((1 << 63) - 1, pa.uint64())
BEYOND_INT64 = "beyond 64 bits with a sign"
BEYOND_FLOAT32 = "beyond float32, the only float of a record"


class UnfitColumnError(ValueError):
    """A column is of a type that no record can hold; `args[0]` says so in a few words."""


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column of a batch of rows.

    Attributes:
      dtype: as in the records.
      values: of each row; a row whose value is null lacks the feature.
      unfit: row -> why no record can hold its value.
    """

    dtype: DType
    values: Ragged | Strings
    unfit: Mapping[int, str]


def column_dtype(name: str, kind: pa.DataType) -> DType | None:
    """Returns the type of a column in records, None of one that has nothing but nulls.

    Raises:
      UnfitColumnError: no record can hold it.
    """
    inner = kind
    if _is_list(kind) or pa.types.is_dictionary(kind):
        inner = kind.value_type
    found = _plain_dtype(inner)
    if found:
        return found
    if pa.types.is_null(inner):
        return None
    what = "nested" if pa.types.is_nested(inner) else "neither a number, nor text, nor bytes"
    raise UnfitColumnError(f"column {name!r} is {kind}, which is {what}")


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _plain_dtype(kind: pa.DataType) -> DType | None:
    types = pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return "int64"
    if types.is_floating(kind):
        return "float32"
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    bins = (types.is_binary, types.is_large_binary, types.is_binary_view)
    if any(test(kind) for test in (*texts, *bins, types.is_fixed_size_binary)):
        return "bytes"
    return None


def record_column(name: str, array: pa.Array) -> RecordColumn | None:
    """Returns a column in the form of the encoder, None of one that has nothing but nulls.

    Args:
      name: of the column.
      array: `[rows]`: integers, booleans, floats, text, bytes, or lists of these.

    Raises:
      UnfitColumnError: no record can hold it.
      pa.ArrowInvalid: the array is damaged.
    """
    dtype = column_dtype(name, array.type)
    if dtype is None:
        return None
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    present: Bools = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    counts = present.astype(np.int64)
    unfit: dict[int, str] = {}
    if _is_list(array.type):
        array.validate(full=True)
        counts = np.asarray(pc.fill_null(pc.list_value_length(array), 0), np.int64)
        array = array.flatten()
        if array.null_count:
            nulls = np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)
            unfit |= _rows_with(nulls, counts, f"{name!r} has null inside of a list")
    elif array.null_count:
        if dtype == "bytes" and not _has_offsets(array.type):
            array = array.cast(pa.large_binary())  # nulls cannot be dropped from views
        array = array.drop_null()
    splits = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    values: Ragged | Strings
    if dtype == "bytes":
        pool, starts, lengths = _strings(array)
        values = Strings(pool, starts, lengths, splits, present)
    else:
        if pa.types.is_uint64(array.type):
            big = np.asarray(pc.greater(array.fill_null(0), _MOST_INT64), np.bool_)
            unfit |= _rows_with(big, counts, f"{name!r} has a number {BEYOND_INT64}")
        numbers = _numbers(array)
        if pa.types.is_float64(array.type) and (infinite := np.isinf(numbers)).any():
            big = infinite & np.isfinite(pc.fill_null(array, 0).to_numpy(zero_copy_only=False))
            unfit |= _rows_with(big, counts, f"{name!r} has a number {BEYOND_FLOAT32}")
        values = Ragged(numbers, splits, present)
    return RecordColumn(dtype, values, unfit)


def _rows_with(found: Bools, counts: Int64s, why: str) -> dict[int, str]:
    """Returns the rows of values that were found, each with the reason."""
    rows = np.repeat(np.arange(len(counts)), counts)[found]
    return dict.fromkeys(rows.tolist(), why)


def _numbers(array: pa.Array) -> Any:
    """Returns `[n]` int64 or float32; null, which only rows that are refused have, is 0."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    found = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    if found.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return found.astype(np.float32)
    return found.astype(np.int64)


def _strings(array: pa.Array) -> tuple[Bytes, Int64s, Int64s]:
    """Returns the bytes of an array, `[bytes] uint8`, and where each value is, `[n] int64`.

    Raises:
      pa.ArrowInvalid: it says of a value that it is where there are no bytes.
    """
    kind = array.type
    if pa.types.is_fixed_size_binary(kind) or not _has_offsets(kind):
        array = array.cast(pa.large_binary())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        array = array.view(pa.binary())
    else:
        array = array.view(pa.large_binary())
    _, held, data = array.buffers()
    if held is None or not len(array):
        none = np.zeros(len(array), np.int64)
        return np.zeros(0, np.uint8), none, none
    width = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    slots = np.frombuffer(held, width)[array.offset : array.offset + len(array) + 1]
    offsets: Int64s = slots.astype(np.int64)
    pool = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    if (
        len(offsets) <= len(array)
        or offsets[0] < 0
        or (lengths < 0).any()
        or (offsets[-1] > len(pool))
    ):
        raise pa.ArrowInvalid("offsets of text are beyond its bytes")
    return pool, offsets[:-1], lengths


def _has_offsets(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind)
        or types.is_binary(kind) or types.is_large_binary(kind)
    )  # fmt: skip
