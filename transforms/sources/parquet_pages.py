"""Headers of Parquet's pages, of which pyarrow tells nothing: structs of Thrift's compact protocol.

They say how a page is coded; the footer has the codings of all pages of a column, in no order.
"""

from __future__ import annotations

from typing import IO, Any

_HEADER_BYTES = 512  # a header has fewer, but for least and greatest texts behind what is asked
_BOOLEANS, _INTEGERS, _BINARY, _STRUCT = (1, 2), (3, 4, 5, 6), 8, 12
_DICTIONARY_PAGE = 2
_DICTIONARY_CODINGS = (2, 8)  # PLAIN_DICTIONARY, RLE_DICTIONARY


def begins_with_dictionary(handle: IO[bytes], begin: int) -> bool:
    """Returns whether a column chunk begins with a dictionary and then data in indices of it.

    False also where its headers are none.

    Args:
      handle: the file.
      begin: where the chunk begins, in bytes.
    """
    header, end = page_header(handle, begin)
    stored = header.get(3, -1)
    if header.get(1) != _DICTIONARY_PAGE or end < 0 or stored < 0:
        return False
    header, _ = page_header(handle, end + stored)
    count, coding = {0: (1, 2), 3: (1, 4)}.get(header.get(1, -1), (0, 0))
    page = header.get(5 if header.get(1) == 0 else 8, {})
    return page.get(count, 0) > 0 and page.get(coding) in _DICTIONARY_CODINGS


def page_header(handle: IO[bytes], begin: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of the header of a page, by number, and where it ends; -1 if unknown.

    Fields are integers or structs of them; others are left out. Where a header is damaged, or is
    longer than usual, those before are returned.
    """
    fields: dict[int, Any] = {}
    try:
        handle.seek(begin)
        return fields, begin + _read_struct(handle.read(_HEADER_BYTES), 0, fields)
    except (ValueError, IndexError, OverflowError):
        return fields, -1


def _read_struct(data: bytes, at: int, fields: dict[int, Any]) -> int:
    """Fills the fields of a struct; returns where it ends."""
    number = 0
    while data[at]:
        delta, kind = divmod(data[at], 16)
        if not delta:
            raise ValueError("fields out of order")
        number += delta
        at += 1
        if kind in _INTEGERS:
            value, at = _varint(data, at)
            fields[number] = value >> 1 ^ -(value & 1)
        elif kind == _STRUCT:
            at = _read_struct(data, at, fields.setdefault(number, {}))
        elif kind == _BINARY:
            size, at = _varint(data, at)
            at += size
        elif kind not in _BOOLEANS:
            raise ValueError("a type that headers lack")
    return at + 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at
