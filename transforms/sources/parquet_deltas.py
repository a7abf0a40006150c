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

from recordmill.records.arrays import Bytes
from recordmill.records.codec.jit import kernel
from recordmill.transforms.sources.blocks import BrokenFileError, CompressionBombError
from recordmill.transforms.sources.parquet_footer import ColumnChunk
from recordmill.transforms.sources.parquet_pages import Page
from recordmill.transforms.sources.row_sizes import LimitedRows

_DELTA_BYTE_ARRAY = 7
_DELTAS = frozenset({6, _DELTA_BYTE_ARRAY})
_RLE = 3


@dataclass(frozen=True)
class SharedTexts:
    """How long the texts of a column chunk are that rows share, whole or their beginnings.

    Attributes:
      longest: one has at most so many bytes; -1 where that cannot be known.
      total: in all rows they have at most so many bytes; -1 as above.
      has_deltas: pages are coded so that pyarrow makes no indices of a dictionary of them.
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


def checked(chunk: Iterable[Page], file_bytes: int, limit: LimitedRows) -> Iterator[Page]:
    """Yields pages; pyarrow makes room for as many bytes as each says that it has.

    Args:
      chunk: of a column.
      file_bytes: of the file.
      limit: of the row group.

    Raises:
      BrokenFileError: one has more bytes than the file.
      CompressionBombError: one unpacks to too many.
    """
    for page in chunk:
        if page.position + page.stored_bytes > file_bytes:
            raise BrokenFileError("a page that ends behind the file")
        if detail := limit.too_many(page.unpacked_bytes):
            raise CompressionBombError(detail)
        yield page


def shared_texts(
    chunk: Iterable[Page], handle: IO[bytes], column: ColumnChunk,
    levels: tuple[bool, bool], limit: LimitedRows,
) -> SharedTexts:  # fmt: skip
    """Looks through the pages of a column chunk of texts.

    Args:
      chunk: its pages.
      handle: the file.
      column: its part of the footer.
      levels: whether the column has levels of repetition, and of definition.
      limit: of the row group.

    Raises:
      BrokenFileError: lengths of texts are damaged.
      CompressionBombError: there are too many of them.
    """
    longest = total = values = unpacked = 0
    is_known, has_deltas = True, False
    for page in chunk:
        values += page.values
        looked_through = page.is_dictionary or page.coding in _DELTAS
        unpacked += page.unpacked_bytes if looked_through else 0
        if detail := limit.too_many(unpacked):
            raise CompressionBombError(detail)
        if not looked_through:
            continue
        if page.is_dictionary:
            try:
                data = _values(handle, page, column.codec, levels)
            except BrokenFileError:  # for pyarrow too, unless it knows a codec that we do not
                is_known = False
                continue
            longest = max(longest, _longest_of_dictionary(np.frombuffer(data, np.uint8)))
            total += longest * column.values
        else:
            has_deltas = True
            if values > column.values:
                raise BrokenFileError("a page that has more values than its column")
            if detail := limit.too_many(column.values):
                raise CompressionBombError(detail)
            most, added = _lengths(_values(handle, page, column.codec, levels), page)
            if page.coding == _DELTA_BYTE_ARRAY:
                longest, total = max(longest, most), total + added
    return SharedTexts(longest, total, has_deltas) if is_known else SharedTexts(-1, -1, has_deltas)


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


def _values(handle: IO[bytes], page: Page, codec: str, levels: tuple[bool, bool]) -> memoryview:
    handle.seek(page.position)
    stored = memoryview(handle.read(page.stored_bytes))
    begin = max(0, page.level_bytes)
    data, size = stored[begin:], page.unpacked_bytes - begin
    if codec and page.is_packed and size > 0:
        try:
            data = memoryview(pa.decompress(data, size, codec))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BrokenFileError("a page that cannot be unpacked") from error
    if page.level_bytes < 0:
        for coding, is_there in zip(page.level_codings, levels, strict=True):
            if is_there and coding != _RLE:
                raise BrokenFileError("a page whose levels are coded as no writer does any more")
            if is_there:
                data = data[4 + int.from_bytes(data[:4], "little") :]
    return data


@kernel
def _longest_of_dictionary(data: Bytes) -> int:
    """Returns the bytes of the longest text of a dictionary, up to where it is damaged."""
    at = longest = 0
    while at + 4 <= len(data):
        size = 0
        for i in range(4):
            size |= int(data[at + i]) << 8 * i
        at += 4 + size
        if at <= len(data):
            longest = max(longest, size)
    return longest


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
