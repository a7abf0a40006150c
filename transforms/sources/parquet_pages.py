"""Pages of Parquet, of which pyarrow tells nothing: where each lies, how it is coded, what it has.

Their headers are structs of Thrift's compact protocol. They say how a page is coded; the footer has
the codings of all pages of a column, in no order, and may lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

# A header has fewer bytes, but for least and greatest texts; pyarrow reads no larger one.
_HEADER_BYTES = (1 << 9, 1 << 16, 1 << 24)
_MOST_LEVELS = 64
_BOOLEANS, _BYTE, _INT32, _INTEGERS, _DOUBLE, _BINARY = (1, 2), 3, 5, (4, 5, 6), 7, 8
_LISTS, _MAP, _STRUCT, _UUID = (9, 10), 11, 12, 13
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_RLE = 3


@dataclass
class Header:
    """Fields of a struct, by number and by type; those of other types are left out."""

    numbers: dict[int, int] = field(default_factory=dict)
    flags: dict[int, bool] = field(default_factory=dict)
    structs: dict[int, Header] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page of a column chunk.

    Attributes:
      position: of its data, in bytes from the file's start.
      stored_bytes: of its data.
      unpacked_bytes: of its data, as its header says.
      is_dictionary: it has the texts of others.
      values: of a page of data, nulls included; else 0.
      coding: of its values, by Parquet's number; -1 unless it is a page of data.
      level_bytes: of the levels before the values where these are not packed; -1 where they are,
        and levels begin with how many bytes they have.
      level_codings: of repetition and definition, by Parquet's numbers.
      is_packed: its values are, where the column chunk is.
    """

    position: int
    stored_bytes: int
    unpacked_bytes: int
    is_dictionary: bool
    values: int
    coding: int
    level_bytes: int
    level_codings: tuple[int, int]
    is_packed: bool


def pages(handle: IO[bytes], begin: int, stored_bytes: int, values: int) -> Iterator[Page]:
    """Yields the pages of a column chunk, up to its last or one whose header is damaged.

    Args:
      handle: the file.
      begin: where the chunk begins, in bytes.
      stored_bytes: of the chunk, by the footer.
      values: of the chunk, by the footer.
    """
    at = begin
    while values > 0 and at < begin + stored_bytes:
        header, position = page_header(handle, at)
        kind, unpacked, stored = (header.numbers.get(i, -1) for i in (1, 2, 3))
        if position < 0 or unpacked < 0 or stored < 0:
            return
        yield (page := _page(header, kind, position, stored, unpacked))
        values -= page.values
        at = position + stored


def up_to_dictionary(chunk: Iterator[Page]) -> Iterator[Page]:
    """Yields the pages of a chunk up to its dictionary, of which there is one."""
    for page in chunk:
        yield page
        if page.is_dictionary:
            return


def _page(header: Header, kind: int, position: int, stored: int, unpacked: int) -> Page:
    values, coding, level_bytes, level_codings, is_packed = 0, -1, 0, (_RLE, _RLE), True
    if kind == _DATA_PAGE:
        data = header.structs.get(5, Header()).numbers
        values, coding, level_bytes = data.get(1, 0), data.get(2, -1), -1
        level_codings = (data.get(4, -1), data.get(3, -1))
    elif kind == _DATA_PAGE_V2:
        data = header.structs.get(8, Header()).numbers
        values, coding = data.get(1, 0), data.get(4, -1)
        level_bytes = max(0, data.get(5, 0)) + max(0, data.get(6, 0))
        is_packed = header.structs.get(8, Header()).flags.get(7, True)
    return Page(
        position, stored, unpacked, kind == _DICTIONARY_PAGE, max(0, values), coding, level_bytes,
        level_codings, is_packed,
    )  # fmt: skip


def page_header(handle: IO[bytes], begin: int) -> tuple[Header, int]:
    """Returns the header of a page, and where it ends; -1 where it is damaged.

    Of a damaged one, the fields before the damage are returned.
    """
    for size in _HEADER_BYTES:
        header = Header()
        handle.seek(begin)
        data = handle.read(size)
        try:
            return header, begin + _read_struct(data, 0, header, _MOST_LEVELS)
        except IndexError:  # it is longer than was read
            if len(data) < size:
                break
        except (ValueError, OverflowError):
            break
    return header, -1


def _read_struct(data: bytes, at: int, header: Header, levels: int) -> int:
    """Fills the fields of a struct; returns where it ends.

    A field that has another type than it should have is one that is not known, as for pyarrow.
    """
    if not levels:
        raise ValueError("structs in structs without end")
    number = 0
    while data[at]:
        delta, kind = divmod(data[at], 16)
        at += 1
        if delta:
            number += delta
        else:
            value, at = _varint(data, at)
            number = _signed(value, 16)
        if kind in _BOOLEANS:
            header.flags[number] = kind == 1
        elif kind == _INT32:
            value, at = _varint(data, at)
            header.numbers[number] = _signed(value, 32)
        elif kind == _STRUCT:
            header.structs[number] = inner = Header()
            at = _read_struct(data, at, inner, levels - 1)
        else:
            at = _skip(data, at, kind, levels)
    return at + 1


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value >> 1 ^ -(value & 1)


def _skip(data: bytes, at: int, kind: int, levels: int) -> int:
    """Returns where a value of a list, or one that headers lack, ends."""
    if kind in (*_BOOLEANS, _BYTE):
        return at + 1
    if kind in _INTEGERS:
        return _varint(data, at)[1]
    if kind in (_DOUBLE, _UUID):
        return at + (8 if kind == _DOUBLE else 16)
    if kind == _STRUCT:
        return _read_struct(data, at, Header(), levels - 1)
    size, at = _varint(data, at) if kind in (_BINARY, _MAP) else (data[at] >> 4, at)
    if kind == _BINARY:
        return at + size
    kinds: tuple[int, ...] = ()
    if kind == _MAP and size:
        kinds, at = divmod(data[at], 16), at + 1
    elif kind in _LISTS:
        kinds = (data[at] & 15,)
        size, at = _varint(data, at + 1) if size == 15 else (size, at + 1)
    elif kind != _MAP:
        raise ValueError("a type that Thrift lacks")
    for _ in range(size):
        for inner in kinds:
            at = _skip(data, at, inner, levels)
        data[at]  # an IndexError ends a list that is longer than the data
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at
