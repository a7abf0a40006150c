"""Hashes of the rows of columns: what stands for the number of a row where rows have no order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Int64s
from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.hashing import GOLDEN, U64, fingerprint64, mix64
from recordmill.transforms.sources.text_arrays import is_text, plain_strings, row_lines

_NULL = np.uint64(0x6E756C6C)
_SIGN = np.uint64((1 << 63) - 1)


def hash_rows(columns: Mapping[str, pa.Array], count: int) -> Int64s:
    """Returns `[count] int64`, at least 0: equal for rows of equal values.

    Args:
      columns: by name, `[count]` each; their names count, their order does not.
      count: of rows.
    """
    sums = np.zeros(count, np.uint64)
    for name, array in columns.items():
        sums += mix64(_hash_values(array) ^ np.uint64(fingerprint64(name.encode())))
    return (mix64(sums) & _SIGN).astype(np.int64)


def _hash_values(array: pa.Array) -> U64:
    lines = row_lines([_strings(array)])
    hashes = hash_contents(lines.buffer, lines.starts, lines.ends)[:, 0]
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = GOLDEN ^ _NULL
    return hashes


def _strings(array: pa.Array) -> pa.Array:
    """Returns a string for each value: equal for equal values, and another for others."""
    kind = array.type
    if is_text(kind):
        return plain_strings(array)
    if pa.types.is_floating(kind):
        array = array.cast(pa.float64()).view(pa.int64())
        return array.cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return array.cast(pa.large_binary()).view(pa.large_string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind):
        return array.cast(pa.large_string())
    return pa.array([repr(value) for value in array.to_pylist()], pa.large_string())
