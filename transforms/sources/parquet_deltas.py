"""Texts of Parquet that are coded by lengths and by what differs from the text before.

DELTA_BYTE_ARRAY gives each text the number of bytes that it shares with the one before, so a few
bytes stand for any number; pyarrow unpacks all texts of a batch. Of both codings it makes room for
as many lengths as a page says that it has. So pages are looked through before they are read.

Source: Encodings.md of the Parquet format, "Delta Encoding" and the two that follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.jit import kernel
from recordmill.transforms.sources.blocks import BrokenFileError, CompressionBombError
from recordmill.transforms.sources.parquet_footer import ColumnChunk, Leaf
from recordmill.transforms.sources.parquet_pages import RLE, Page
from recordmill.transforms.sources.row_sizes import LimitedRows

_DELTA_BYTE_ARRAY = 7
_DELTAS = frozenset({6, _DELTA_BYTE_ARRAY})


@dataclass(frozen=True)
class SharedTexts:
    """How long the texts of a column chunk are that rows share, whole or their beginnings.

    Attributes:
      longest: one has at most so many bytes; -1 where that cannot be known.
      total: in all rows they have so many bytes; -1 as above. Of a dictionary alone, at most.
      has_deltas: pyarrow makes no indices of a dictionary of them.
    """

    longest: int
    total: int
    has_deltas: bool


def says_shared(column: ColumnChunk) -> bool:
    """Returns whether, by the footer, texts of a column chunk may be shared."""
    return column.has_dictionary or says_deltas(column)


def says_deltas(column: ColumnChunk) -> bool:
    """Returns whether, by the footer, a column chunk has pages that this module looks through."""
    return bool(column.codings & _DELTAS)


def checked(chunk: Iterable[Page], limit: LimitedRows) -> Iterator[Page]:
    """Yields pages; pyarrow makes room for as many bytes as each says that it has.

    Raises:
      CompressionBombError: one unpacks to too many.
    """
    for page in chunk:
        if detail := limit.too_many(page.unpacked_bytes):
            raise CompressionBombError(detail)
        yield page


def shared_texts(  # noqa: C901 - a kernel: a call costs
    chunk: Iterable[Page], handle: IO[bytes], column: ColumnChunk, leaf: Leaf, limit: LimitedRows
) -> SharedTexts:
    """Looks through the pages of a column chunk of texts.

    Args:
      chunk: its pages.
      handle: the file.
      column: its part of the footer.
      leaf: the column.
      limit: of the row group.

    Raises:
      BrokenFileError: lengths of texts are damaged.
      CompressionBombError: there are too many of them.
    """
    longest = total = unpacked = 0
    is_known, has_deltas = True, leaf.width > 0
    lengths = np.zeros(0, np.int64)
    indexed = []
    for page in chunk:
        if page.has_indices:
            indexed.append(page)
        elif page.is_dictionary or page.coding in _DELTAS:
            unpacked += page.unpacked_bytes
            if detail := limit.too_many(unpacked):
                raise CompressionBombError(detail)
        if page.is_dictionary:
            try:
                lengths = _lengths_of_dictionary(_values(handle, page, column.codec, leaf), leaf)
            except BrokenFileError:  # for pyarrow too, unless it knows a codec that we do not
                is_known = False
            longest = max(longest, int(lengths.max(initial=0)))
        elif page.coding in _DELTAS:
            has_deltas = True
            if detail := limit.too_many(column.values):
                raise CompressionBombError(detail)
            most, added = _lengths(_values(handle, page, column.codec, leaf), page)
            if page.coding == _DELTA_BYTE_ARRAY:
                longest, total = max(longest, most), total + added
    if not is_known:
        return SharedTexts(-1, -1, has_deltas)
    if not has_deltas or leaf.width or not leaf.is_in_lists:
        total += int(lengths.max(initial=0)) * column.values
    else:  # it must be known whether there are too many
        for page in indexed:
            unpacked += page.unpacked_bytes
            if detail := limit.too_many(unpacked):
                raise CompressionBombError(detail)
            values = np.frombuffer(_values(handle, page, column.codec, leaf), np.uint8)
            total += _sum_of_indices(values, lengths, page.values)
    return SharedTexts(longest, total, has_deltas)


def _lengths_of_dictionary(values: memoryview, leaf: Leaf) -> Int64s:
    """Returns `[texts] int64`: the bytes of each, up to where the dictionary is damaged."""
    data = np.frombuffer(values, np.uint8)
    if leaf.width:
        return np.full(min(1, len(data)), leaf.width, np.int64)
    lengths = np.zeros(len(data) // 4, np.int64)
    return lengths[: _dictionary(data, lengths)]


def _lengths(values: memoryview, page: Page) -> tuple[int, int]:
    """Returns how many bytes the longest text of a page has at most, and how many all have.

    Raises:
      BrokenFileError: the page is damaged.
    """
    data = np.frombuffer(values, np.uint8)
    if not len(data):
        return 0, 0  # of nulls alone
    total = longest = at = 0
    for _ in range(1 + (page.coding == _DELTA_BYTE_ARRAY)):
        added, most, at = _sum_of_deltas(data, at, page.values)
        if at < 0:
            raise BrokenFileError("a page whose lengths of texts are damaged")
        total, longest = total + added, longest + most
    return longest, total


def _values(handle: IO[bytes], page: Page, codec: str, leaf: Leaf) -> memoryview:
    """Returns the values of a page, unpacked, behind its levels.

    Raises:
      BrokenFileError: the page is damaged.
    """
    handle.seek(page.position)
    stored = memoryview(handle.read(page.stored_bytes))
    begin = max(0, page.level_bytes)
    data, size = stored[begin:], page.unpacked_bytes - begin
    if codec and page.is_packed and size > 0:
        try:
            data = memoryview(_unpacked(data, size, codec))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BrokenFileError("a page that cannot be unpacked") from error
    if page.level_bytes < 0:
        for coding, is_there in zip(page.level_codings, leaf.levels, strict=True):
            if is_there and coding != RLE:
                raise BrokenFileError("a page whose levels are coded as no writer does any more")
            if is_there:
                data = data[4 + int.from_bytes(data[:4], "little") :]
    return data


def _unpacked(data: memoryview, size: int, codec: str) -> pa.Buffer | bytes:
    if codec != "lz4_hadoop":
        return pa.decompress(data, size, codec)
    parts, at = [], 0  # frames of Hadoop; where it is none, a block of LZ4
    try:
        while at < len(data):
            part, packed = (int.from_bytes(data[at + i : at + i + 4], "big") for i in (0, 4))
            block = data[at + 8 : at + 8 + packed]
            if len(block) < packed or part > size:
                raise ValueError("no frame")
            parts.append(pa.decompress(block, part, "lz4_raw", asbytes=True))
            at += 8 + packed
    except (pa.ArrowException, OSError, ValueError):
        return pa.decompress(data, size, "lz4_raw")
    return b"".join(parts)


@kernel
def _dictionary(data: Bytes, lengths: Int64s) -> int:
    """Fills in the lengths of texts, up to where a dictionary is damaged; returns how many."""
    at = count = 0
    while at + 4 <= len(data) and count < len(lengths):
        size = 0
        for i in range(4):
            size |= int(data[at + i]) << 8 * i
        at += 4 + size
        if at > len(data):
            break
        lengths[count] = size
        count += 1
    return count


@kernel
def _sum_of_indices(data: Bytes, lengths: Int64s, values: int) -> int:
    """Returns the sum of the lengths at indices, as they are coded, up to where they are damaged.

    Source: Encodings.md of the Parquet format, "Run Length Encoding / Bit-Packing Hybrid".
    """
    if len(data) == 0 or data[0] > 32:
        return 0
    width = int(data[0])
    total, at, left = 0, 1, values
    while left > 0:
        header, at = _number(data, at)
        if at < 0 or header < 2:
            break
        count = header >> 1
        if header & 1:
            groups = min(count, left // 8 + 1)
            bit = at * 8
            for _ in range(min(groups * 8, left)):
                index = 0
                if bit + width > len(data) * 8:
                    return total
                for i in range(width):
                    index |= (int(data[bit >> 3]) >> (bit & 7) & 1) << i
                    bit += 1
                if index >= len(lengths):
                    return total
                total += lengths[index]
            left -= groups * 8
            at += groups * width
        else:
            index, size = 0, (width + 7) // 8
            if at + size > len(data):
                return total
            for i in range(size):
                index |= int(data[at + i]) << 8 * i
            if index >= len(lengths):
                return total
            total += lengths[index] * min(count, left)
            left -= count
            at += size
    return total


@kernel
def _sum_of_deltas(data: Bytes, at: int, most: int) -> tuple[int, int, int]:
    """Returns the sum and the greatest of numbers in DELTA_BINARY_PACKED, and where they end.

    That is -1 where they are damaged, negative, or more than `most`.
    """
    none = (0, 0, -1)
    block, at = _number(data, at)
    parts, at = _number(data, at)
    count, at = _number(data, at)
    value, at = _number(data, at)
    if at < 0 or block <= 0 or parts <= 0 or block % parts or count < 0 or count > most:
        return none
    per_part = block // parts
    if per_part % 32 or block > 1 << 40:
        return none
    value = _as_int32(value >> 1 ^ -(value & 1))
    total, greatest = value, value
    left = count - 1
    while left > 0:
        low, at = _number(data, at)
        if at < 0 or at + parts > len(data) or value < 0:
            return none
        low = low >> 1 ^ -(low & 1)
        widths = at
        at += parts
        for part in range(parts):
            if left <= 0:
                break
            width = int(data[widths + part])
            used = min(left, per_part)
            bit = at * 8
            if width > 32 or bit + width * used > len(data) * 8:
                return none
            for _ in range(used):
                delta = 0
                for i in range(width):
                    delta |= (int(data[bit >> 3]) >> (bit & 7) & 1) << i
                    bit += 1
                value = _as_int32(value + low + delta)
                if value < 0:
                    return none
                total += value
                greatest = max(greatest, value)
            left -= per_part
            at += width * per_part // 8
    if count > 0 and value < 0:
        return none
    return (total, greatest, at) if count else (0, 0, at)


@kernel
def _as_int32(value: int) -> int:
    """Returns what 32 bits hold of a number: sums wrap around."""
    return ((value + (1 << 31)) & ((1 << 32) - 1)) - (1 << 31)


@kernel
def _number(data: Bytes, at: int) -> tuple[int, int]:
    """Returns a varint and where it ends, -1 where it is cut or has more than 63 bits."""
    value = 0
    if at < 0:
        return value, at
    for shift in range(0, 63, 7):
        if at >= len(data):
            break
        byte = int(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    return value, -1
