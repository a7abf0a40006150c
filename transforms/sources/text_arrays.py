"""Arrow's arrays of strings as lines over the bytes that they have, without a string per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel
from recordmill.transforms.sources.lines import Lines


def is_text(kind: pa.DataType) -> bool:
    """Returns whether a column of this type has text, or nothing but nulls."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    )


def plain_strings(array: pa.Array) -> pa.Array:
    """Returns an array for which `is_text` is true as one of type string or large_string."""
    if pa.types.is_dictionary(array.type):
        texts = array.dictionary.cast(pa.large_string())  # views cannot be taken
        array = pa.DictionaryArray.from_arrays(array.indices, texts).dictionary_decode()
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return array
    return array.cast(pa.large_string())


def row_lines(arrays: list[pa.Array]) -> Lines:
    """Returns the text of rows, each a line with the line ends that it has.

    Args:
      arrays: columns as `plain_strings` returns them, of equal length; of the buffer of one alone
        nothing is copied.

    Returns:
      `[num_rows * num_columns]` lines, row by row. A null is a line of some bytes, or of none.
    """
    spans = [_spans(array) for array in arrays]
    buffer = spans[0][0] if len(spans) == 1 else np.concatenate([data for data, _ in spans])
    buffer.flags.writeable = False  # as bytes of a file, so that kernels have one signature
    bases = np.cumsum([0, *(len(data) for data, _ in spans[:-1])])
    offsets = [at + base for (_, at), base in zip(spans, bases.tolist(), strict=True)]
    starts = np.stack([at[:-1] for at in offsets], axis=1).reshape(-1)
    ends = np.stack([at[1:] for at in offsets], axis=1).reshape(-1)
    non_ascii = np.zeros(len(starts), np.bool_)
    _find_non_ascii(buffer, starts, ends, non_ascii)
    return Lines(buffer, starts, ends, non_ascii)


def cut_lines(rows: Lines) -> tuple[Lines, Int64s]:
    r"""Cuts rows at "\n"; lines that are blank are left out.

    Returns:
      The lines, and `[num_lines] int64`: of which row each is.
    """
    lines, of_row = cut_all_lines(rows)
    keep = ~lines.blank()
    return lines.select(keep), of_row[keep]


def cut_all_lines(rows: Lines) -> tuple[Lines, Int64s]:
    r"""Cuts rows at "\n"; of a row that ends with one, nothing is behind it.

    Returns:
      The lines, and `[num_lines] int64`: of which row each is.
    """
    most = len(rows) + int(np.count_nonzero(rows.buffer == 10))
    starts, ends = np.empty(most, np.int64), np.empty(most, np.int64)
    of_row = np.empty(most, np.int64)
    count = _cut(rows.buffer, rows.starts, rows.ends, (starts, ends, of_row))
    starts, ends, of_row = starts[:count], ends[:count], of_row[:count]
    non_ascii = np.zeros(count, np.bool_)
    _find_non_ascii(rows.buffer, starts, ends, non_ascii)
    return Lines(rows.buffer, starts, ends, non_ascii), of_row


def _spans(array: pa.Array) -> tuple[Bytes, Int64s]:
    """Returns the bytes of an array, `[bytes] uint8`, and where strings end, `[rows + 1] int64`."""
    _, offsets, data = array.buffers()
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    if offsets is None or not len(array):
        return np.zeros(0, np.uint8), np.zeros(len(array) + 1, np.int64)
    held = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    at = held.astype(np.int64)
    if data is None:
        return np.zeros(0, np.uint8), np.zeros(len(at), np.int64)
    first, last = int(at[0]), int(at[-1])
    return np.frombuffer(data, np.uint8)[first:last], at - first


@kernel
def _find_non_ascii(buffer: Bytes, starts: Int64s, ends: Int64s, non_ascii: Bools) -> None:
    for i in range(starts.shape[0]):
        high = np.uint8(0)
        # Unsigned indices cannot count from the end, so the compiler does many at once.
        for at in range(np.uint64(starts[i]), np.uint64(ends[i])):
            high |= buffer[at]
        non_ascii[i] = high >= 128


@kernel
def _cut(buffer: Bytes, row_starts: Int64s, row_ends: Int64s, found: Any) -> int:
    starts, ends, of_row = found
    count = 0
    for row in range(row_starts.shape[0]):
        begin = row_starts[row]
        for at in range(row_starts[row], row_ends[row]):
            if buffer[at] == 10:
                starts[count], ends[count], of_row[count] = begin, at, row
                count += 1
                begin = at + 1
        if begin < row_ends[row]:
            starts[count], ends[count], of_row[count] = begin, row_ends[row], row
            count += 1
    return count
