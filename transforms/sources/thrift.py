"""Structs of Thrift's compact protocol, in which Parquet writes what it says of its pages.

Read as the code reads them that Thrift's compiler makes, because pyarrow has that: of a field that
comes twice the last one counts, one whose type is another one than it should be is passed over, and
a struct that comes twice is one.

Source: thrift-compact-protocol.md of Apache Thrift.
"""

from __future__ import annotations

from typing import Any, TypeAlias

BOOLEAN, INT32, INT64 = 1, 5, 6
# The fields of a struct that are wanted: a type of those above, those of a struct in it, or, in a
# list of one, what its elements are.
Wanted: TypeAlias = "dict[int, Any]"

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY = (1, 2), 3, (4, 5, 6), 7, 8
_LIST, _SET, _MAP, _STRUCT, _UUID = 9, 10, 11, 12, 13
_MOST_LEVELS = 64


def read_struct(
    data: bytes, at: int, wanted: Wanted, fields: dict[int, Any], levels: int = _MOST_LEVELS
) -> int:
    """Fills the fields of a struct, by number; returns where it ends.

    Args:
      data: holds it.
      at: where it begins.
      wanted: see `Wanted`; other fields are passed over.
      fields: to be filled; before an error, with the fields that come before it.
      levels: of structs, that may be in each other.

    Raises:
      IndexError: the data end before it does.
      ValueError: it is none.
    """
    if not levels:
        raise ValueError("structs in structs without end")
    number = 0
    while kind := data[at] & 15:
        delta = data[at] >> 4
        at += 1
        if delta:
            number = _wrapped(number + delta, 16)
        else:
            value, at = _varint(data, at)
            number = _wrapped(_signed(value, 32), 16)
        want = wanted.get(number)
        if kind in _BOOLEANS:
            if want == BOOLEAN:
                fields[number] = kind == 1
        elif want == kind:
            fields[number], at = _integer(data, at, kind)
        elif kind == _STRUCT and isinstance(want, dict):
            at = read_struct(data, at, want, fields.setdefault(number, {}), levels - 1)
        elif kind == _LIST and isinstance(want, list):
            fields[number], at = _read_list(data, at, want[0], levels)
        else:
            at = _skip(data, at, kind, levels)
    return at + 1


def _read_list(data: bytes, at: int, want: Any, levels: int) -> tuple[list[Any], int]:
    """Returns a list, whatever it says that its elements are, and where it ends."""
    values: list[Any] = []
    size, _, at = _list_header(data, at)
    for _ in range(size):
        if isinstance(want, dict):
            values.append({})
            at = read_struct(data, at, want, values[-1], levels - 1)
        else:
            value, at = _integer(data, at, want)
            values.append(value)
    return values, at


def _list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Returns the number of elements of a list, their type, and where the first begins."""
    size, kind = divmod(data[at], 16)
    at += 1
    if size == 15:
        size, at = _size(data, at)
    return size, kind, at


def _skip(data: bytes, at: int, kind: int, levels: int) -> int:
    """Returns where a value ends that is not wanted."""
    if kind in (*_BOOLEANS, _BYTE):  # booleans of lists
        return at + 1
    if kind in _INTEGERS:
        return _varint(data, at)[1]
    if kind in (_DOUBLE, _UUID):
        return at + (8 if kind == _DOUBLE else 16)
    if kind == _BINARY:
        size, at = _size(data, at)
        return at + size
    if kind == _STRUCT:
        return read_struct(data, at, {}, {}, levels - 1)
    kinds: tuple[int, ...] = ()
    if kind == _MAP:
        size, at = _size(data, at)
        if size:
            kinds, at = divmod(data[at], 16), at + 1
    elif kind in (_LIST, _SET):
        size, element, at = _list_header(data, at)
        kinds = (element,)
    else:
        raise ValueError("a type that Thrift lacks")
    if not levels:
        raise ValueError("lists in lists without end")
    for _ in range(size):
        for inner in kinds:
            at = _skip(data, at, inner, levels - 1)
        data[at]  # an IndexError ends a list that is longer than the data
    return at


def _integer(data: bytes, at: int, kind: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return _signed(value, 32 if kind == INT32 else 64), at


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value >> 1 ^ -(value & 1)


def _wrapped(value: int, bits: int) -> int:
    """Returns what so many bits hold of a number."""
    half = 1 << bits - 1
    return (value + half & (1 << bits) - 1) - half


def _size(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    size = _wrapped(value, 32)
    if size < 0:
        raise ValueError("a negative size")
    return size, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError("a number of more than 64 bits")
