"""How many bytes of text rows stand for: in dictionaries and views, many rows share one text.

So 600 bytes of a file can stand for 10 GB. Rows of such columns are counted before they are
unpacked, and given on in parts of about so many bytes; see `LimitedRows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.document_spec import READ_LIMITS
from recordmill.transforms.sources.rows import MOST_ROWS, Rows, rejected

_COUNTED_ROWS = 1 << 16
# A row of which nothing is read becomes a reject. A few bytes can say that there are very many.
_REJECT_BYTES = 64
_TEXTS = ("string", "large_string", "binary", "large_binary")
_LISTS = ("list", "large_list", "map")
_LIST_VIEWS = ("list_view", "large_list_view")
_LARGE = ("large_string", "large_binary", "large_list", "large_list_view")
_SHARED = (
    "dictionary", "string_view", "binary_view", "run_end_encoded", *_LIST_VIEWS, "union", "null",
)  # fmt: skip


def row_sizes(array: pa.Array) -> Int64s:
    """Returns `[rows] int64`: the bytes of the texts of each row, 1 for any other value.

    Args:
      array: of any type; nulls may count what lies below them, but those of views count 0.
    """
    kind, types, count = array.type, pa.types, len(array)
    if not count:
        return np.zeros(0, np.int64)
    if types.is_dictionary(kind):
        sizes = np.append(row_sizes(array.dictionary), 0)
        held = array.indices.cast(pa.int64()).fill_null(len(sizes) - 1)
        return sizes[held.to_numpy(zero_copy_only=False)]
    if types.is_string_view(kind) or types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
        return _of_values(array, views[array.offset : array.offset + count, 0].astype(np.int64))
    if types.is_run_end_encoded(kind):
        return np.diff(_sums(array, np.arange(count + 1)))
    if types.is_struct(kind) or types.is_union(kind):
        return _inner_sizes(array)
    if isinstance(array, pa.ExtensionArray):
        return row_sizes(array.storage)
    if types.is_fixed_size_binary(kind):
        return np.full(count, kind.byte_width, np.int64)
    if types.is_fixed_size_list(kind):
        at = (array.offset + np.arange(count + 1)) * kind.list_size
        return np.diff(_sums(array.values, at))
    return _sizes_by_offsets(array)


def _inner_sizes(array: pa.Array) -> Int64s:
    """Returns the sizes of rows of structs and unions: sums of those of their fields."""
    total = np.ones(len(array), np.int64)
    is_dense = pa.types.is_union(array.type) and array.type.mode == "dense"
    rows = slice(array.offset, array.offset + len(array))
    for i in range(array.type.num_fields):
        sizes = row_sizes(array.field(i))
        if is_dense:
            _, codes, offsets = array.buffers()[:3]
            ours = np.frombuffer(codes, np.int8)[rows] == array.type.type_codes[i]
            total[ours] += sizes[np.frombuffer(offsets, np.int32)[rows][ours]]
        else:
            total += sizes
    return total


def _sizes_by_offsets(array: pa.Array) -> Int64s:
    """Returns the sizes of rows of strings and lists; 1 for types of a fixed width."""
    kind, begin, count = array.type, array.offset, len(array)
    is_text, is_list, is_view = (_is_any(kind, names) for names in (_TEXTS, _LISTS, _LIST_VIEWS))
    if not (is_text or is_list or is_view):
        return np.ones(count, np.int64)
    buffers = array.buffers()
    if buffers[1] is None:
        return np.zeros(count, np.int64)
    width = np.int64 if _is_any(kind, _LARGE) else np.int32
    held = np.frombuffer(buffers[1], width)[begin : begin + count + (not is_view)]
    at: Int64s = held.astype(np.int64)
    if is_text:
        return np.diff(at)
    if is_view:
        lengths: Int64s = np.frombuffer(buffers[2], width)[begin : begin + count].astype(np.int64)
        at, lengths = _of_values(array, at), _of_values(array, lengths)
        return _sums(array.values, at + lengths) - _sums(array.values, at)
    return np.diff(_sums(array.values, at))


def _of_values(array: pa.Array, numbers: Int64s) -> Int64s:
    """Returns the offsets or lengths of views, 0 for nulls, below which Arrow lets any bytes be."""
    if array.null_count:
        numbers = np.where(array.is_valid().to_numpy(zero_copy_only=False), numbers, 0)
    return np.maximum(numbers, 0)


def _sums(array: pa.Array, at: Int64s) -> Int64s:
    """Returns the size of all that is before each of some positions.

    Arrays of nulls and of run ends can have more elements than there is memory.
    """
    if pa.types.is_null(array.type):
        return at
    if pa.types.is_run_end_encoded(array.type):
        ends = np.concatenate([[0], array.run_ends.to_numpy().astype(np.int64)])
        sizes = row_sizes(array.values)
        before = np.concatenate([[0], np.cumsum(np.diff(ends) * sizes)])
        positions = at + array.offset
        runs = np.minimum(np.searchsorted(ends, positions, "right") - 1, len(sizes) - 1)
        return before[runs] + (positions - ends[runs]) * sizes[runs]
    return np.concatenate([[0], np.cumsum(row_sizes(array))])[at]


def _is_any(kind: pa.DataType, names: Sequence[str]) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def is_shared(kind: pa.DataType) -> bool:
    """Returns whether rows of a type can share text: dictionaries, views, run ends, unions."""
    if _is_any(kind, _SHARED):
        return True
    if isinstance(kind, pa.ExtensionType):
        return is_shared(kind.storage_type)
    return any(is_shared(kind.field(i).type) for i in range(kind.num_fields))


class LimitedRows:
    """Counts the rows of a part of a file, and ends where they stand for far more than it has.

    Args:
      stored_bytes: of the part of the file.
      ratio: to how many times that it may unpack, beyond 64 MiB.
      of: the bytes of the file and its number of parts, where 64 MiB are for all of these.

    Attributes:
      most_bytes: that it may unpack to.
    """

    def __init__(self, stored_bytes: int, ratio: int, of: tuple[int, int] = (0, 1)) -> None:
        file_bytes, parts = of
        least = max(ratio * file_bytes, READ_LIMITS.unpacked_bytes) // parts
        self._stored_bytes = stored_bytes
        self.most_bytes = self._left = max(ratio * stored_bytes, least)

    def too_many(self, values: int) -> str:
        """Returns why so many values are too many to be read at once, or ""."""
        return self._detail() if values > self.most_bytes else ""

    def _detail(self) -> str:
        return (
            f"{self._stored_bytes} bytes unpack to more than {self.most_bytes} bytes; see "
            "--max_compression_ratio"
        )

    @property
    def is_exceeded(self) -> bool:
        """Whether rows were left out because there were too many bytes of them."""
        return self._left < 0

    def parts(
        self, rows: Rows, batch_bytes: int, kinds: Mapping[str, pa.DataType] | None = None
    ) -> Iterator[Rows]:
        """Yields rows in parts that have about so many bytes when they are unpacked.

        Text of dictionaries is unpacked. A row that is too large to be is a reject.

        Args:
          rows: of any size.
          batch_bytes: of a part, unless a single row has more.
          kinds: the types of columns that were read as dictionaries and are none.
        """
        shared = any(is_shared(array.type) for array in rows.columns.values())
        for begin in range(0, rows.count, _COUNTED_ROWS):
            part = _slice(rows, begin, min(begin + _COUNTED_ROWS, rows.count))
            is_empty = all(pa.types.is_null(array.type) for array in part.columns.values())
            sizes = np.full(part.count, _REJECT_BYTES if is_empty else 1)
            for array in part.columns.values():
                sizes += row_sizes(array)
            ends = np.cumsum(sizes)
            fitting = int(np.searchsorted(ends, self._left, "right"))
            self._left -= int(ends[-1])
            if shared or part.count > MOST_ROWS or ends[-1] > 4 * batch_bytes:
                most = READ_LIMITS.record_bytes if shared else int(ends[-1])
                parts = _by_size(part, sizes[:fitting], batch_bytes, most)
                for each in parts:
                    yield _unpacked(each, kinds or {}) if each.count else each
            elif fitting:
                yield _slice(part, 0, fitting) if fitting < part.count else part
            if self.is_exceeded:
                yield rejected(part.first + fitting, "decompression_bomb", self._detail())
                return


def _by_size(rows: Rows, sizes: Int64s, batch_bytes: int, most: int) -> Iterator[Rows]:
    """Yields the first rows in parts of about so many bytes; larger ones than `most` are rejects.

    Args:
      rows: of which there may be more.
      sizes: `[first rows] int64`.
      batch_bytes: of a part, unless a single row has more.
      most: bytes of a row.
    """
    ends = np.cumsum(sizes)
    at = 0
    while at < len(sizes):
        if sizes[at] > most:
            yield rejected(rows.first + at, "line_too_long", "")
            at += 1
            continue
        before = int(ends[at] - sizes[at])
        end = int(np.searchsorted(ends, before + batch_bytes, "right"))
        end = max(at + 1, min(end, at + MOST_ROWS))
        yield _slice(rows, at, end)
        at = end


def _unpacked(rows: Rows, kinds: Mapping[str, pa.DataType]) -> Rows:
    """Returns rows with columns of these types, and text in the place of dictionaries of it."""
    columns = {}
    for name, array in rows.columns.items():
        kind = kinds.get(name, array.type)
        if kind != array.type:
            if kind.num_fields:  # a cast takes all values of a list, not only those of its slice
                array = array.take(pa.array(np.arange(rows.count)))
            array = array.cast(kind)
        elif pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type):
            array = array.dictionary_decode()
        columns[name] = array
    return replace(rows, columns=columns)


def _slice(rows: Rows, begin: int, end: int) -> Rows:
    if begin == 0 and end == rows.count:
        return rows
    columns = {name: array.slice(begin, end - begin) for name, array in rows.columns.items()}
    offsets = None if rows.offsets is None else rows.offsets[begin:end]
    return Rows(rows.first + begin, end - begin, columns, offsets)
