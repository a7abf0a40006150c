"""Files of sorted rows of uint64, of which ranges are read: hashes and documents of any number.

The rows lie in order of their first column, and behind them is a sparse index: the first column of
each 512th row. So a range takes two reads, and a reader holds the range alone.
"""

from __future__ import annotations

import numpy as np

from recordmill.records.errors import RunError
from recordmill.records.hashing import U64
from recordmill.transforms.storage import files
from recordmill.transforms.storage.array_files import write_array

_INDEX_EVERY = 512
_VALUE_BYTES = 8


def _entries(rows: int) -> int:
    return -(-rows // _INDEX_EVERY)


def file_bytes(rows: int, width: int) -> int:
    """Returns the size of a file of so many rows of `width` values."""
    return (rows * width + _entries(rows)) * _VALUE_BYTES


def write_rows(path: str, rows: U64) -> None:
    """Writes `[num_rows, width] uint64`, sorted by the first column, whole or not at all."""
    with files.writing(path) as handle:
        write_array(handle, np.ascontiguousarray(rows).astype("<u8", copy=False))
        write_array(handle, rows[::_INDEX_EVERY, 0].astype("<u8"))


def read_rows(path: str, rows: int, width: int, low: int, high: int) -> U64:
    """Returns the rows whose first value is in `[low, high]`.

    Args:
      path: of a file that `write_rows` made.
      rows: how many the file has.
      width: the values of a row.
      low, high: the first and the last value wanted.

    Raises:
      RunError: the file is missing or cut.
    """
    if not rows:
        return np.zeros((0, width), np.uint64)
    index = _read(path, rows * width, _entries(rows))
    begin = max(int(np.searchsorted(index, np.uint64(low), side="left")) - 1, 0) * _INDEX_EVERY
    end = int(np.searchsorted(index, np.uint64(high), side="right")) * _INDEX_EVERY
    end = min(end, rows)
    if begin >= end:
        return np.zeros((0, width), np.uint64)
    found = _read(path, begin * width, (end - begin) * width).reshape(-1, width)
    inside = (found[:, 0] >= np.uint64(low)) & (found[:, 0] <= np.uint64(high))
    return found[inside]


def _read(path: str, first: int, count: int) -> U64:
    """Reads some values of a file.

    Raises:
      RunError: they are not there.
    """
    try:
        data = files.read_bytes(path, first * _VALUE_BYTES, count * _VALUE_BYTES)
    except FileNotFoundError:
        data = b""
    if len(data) != count * _VALUE_BYTES:
        raise RunError(f"{path} is missing or cut; run the same command again, which makes it anew")
    return np.frombuffer(data, "<u8").astype(np.uint64, copy=False)
