"""Lists of numbers as varints, many at once; single ones are in `wire.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from recordmill.records.codec.framing import Bytes, Offsets
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.numba_internals import put_word_at
from recordmill.records.codec.wire import message_size, put_varint, varint_size


@kernel
def int32_sizes(values: Any, row_splits: Offsets, sizes: Offsets) -> None:
    """Fills the size of each list of numbers with its tag and number of bytes, 0 where it is empty.

    Numbers and sums are of 32 bits, there are no branches, and indices cannot count from the end:
    so the compiler does many values at once. A record has less than 2 GiB.

    Args:
      values: `[num_values] int32`.
      row_splits: `[num_lists + 1] int64`, into `values`.
      sizes: `[num_lists] int64`.
    """
    for i in range(sizes.shape[0]):
        size = np.uint32(0)
        for j in range(np.uint64(row_splits[i]), np.uint64(row_splits[i + 1])):
            value = np.uint32(values[j])
            size = np.uint32(size + np.uint32(value > np.uint32(127)))
            size = np.uint32(size + np.uint32(value > np.uint32(16383)))
            size = np.uint32(size + np.uint32(value > np.uint32(2097151)))
            size = np.uint32(size + np.uint32(value > np.uint32(268435455)))
            # A negative number takes ten bytes.
            size = np.uint32(size + np.uint32(5) * np.uint32(values[j] < 0))
        count = row_splits[i + 1] - row_splits[i]
        sizes[i] = message_size(count + np.int64(size)) if count else 0


@kernel
def int64_sizes(values: Any, row_splits: Offsets, sizes: Offsets) -> None:
    """Does what `int32_sizes` does, for any type of integers."""
    for i in range(sizes.shape[0]):
        size = 0
        beyond = np.int64(0)
        for j in range(row_splits[i], row_splits[i + 1]):
            # There are no branches, so that the compiler does many values at once.
            value = np.int64(values[j])
            more = (value > 127) + (value > 16383) + (value > 2097151) + (value > 268435455)
            size += 1 + int(more)
            beyond |= value >> 35
        if beyond != 0:  # more than five bytes, or negative
            size = 0
            for j in range(row_splits[i], row_splits[i + 1]):
                size += varint_size(np.uint64(np.int64(values[j])))
        sizes[i] = message_size(size) if size else 0


@subroutine
def put_varints(out: Bytes, at: int, values: Any, first: int, last: int) -> int:
    """Writes a list of numbers; returns the offset after it.

    Ids of tokens take one to three bytes, and a processor cannot foresee which: so four are
    written of each at once, and those too many are written over. Up to three behind the list belong
    to what is written later: the next feature of the record, or its footer of four.

    Args:
      out: takes them.
      at: where in it.
      values: integers.
      first, last: those from `values[first]` to `values[last - 1]` are written.
    """
    to = at
    for j in range(np.uint64(first), np.uint64(last)):  # unsigned: see `put_bytes`
        value = np.uint64(np.int64(values[j]))
        if value >= np.uint64(1 << 21):
            to = put_varint(out, to, value)
            continue
        two, three = np.uint64(value > np.uint64(127)), np.uint64(value > np.uint64(16383))
        word = value & np.uint64(127) | (value & np.uint64(127 << 7)) << np.uint64(1)
        word |= value >> np.uint64(14) << np.uint64(16)
        word |= two << np.uint64(7) | three << np.uint64(15)
        put_word_at(out, to, np.uint32(word))
        to += int(np.int64(np.uint64(1) + two + three))
    return to


@kernel
def pack_rows(rows: Any, out: Bytes, bounds: Offsets) -> None:
    """Writes rows of numbers, and where in each the second number begins, and the last.

    Args:
      rows: `[num_rows, width]` integers from 0 on, of 32 bits; `width` is 2 or more.
      out: takes them; five bytes for each, and four more.
      bounds: `[4, num_rows]`: where each row begins in `out`, the second number of it and the last,
        and where it ends.
    """
    width = rows.shape[1]
    values = rows.reshape(-1)
    at = 0
    for i in range(rows.shape[0]):
        first, last = i * width, i * width + width - 1
        bounds[0, i] = at
        bounds[1, i] = put_varints(out, at, values, first, first + 1)
        bounds[2, i] = put_varints(out, bounds[1, i], values, first + 1, last)
        at = put_varints(out, bounds[2, i], values, last, last + 1)
        bounds[3, i] = at
