"""The texts of JSON lines, cut out and unescaped without a Python object for any of them.

The kernel takes a line that is one object of valid UTF-8, with the field once, as text. A line that
it does not take is not wrong: lone surrogates, escapes in names and deep nesting are left to
`json_rows.py`, which says what each line is worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.transforms.sources.json_strings import WORD, read_string

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93
_MOST_DEPTH = 60  # a level is a bit of 64
_MOST_DIGITS = 4000  # Python reads no integer of more than 4,300


class JsonTexts(NamedTuple):
    """Text i is `pool[starts[i]:ends[i]]`, UTF-8.

    Attributes:
      pool: `[bytes] uint8`.
      starts, ends: `[num_records] int64`.
      taken: `[num_records] bool`: False where the kernel cannot say what the text is.
    """

    pool: Bytes
    starts: Int64s
    ends: Int64s
    taken: Bools


@subroutine
def _behind_space(data: Bytes, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@subroutine
def _behind_number(data: Bytes, at: int, end: int) -> int:
    """Returns the position behind a number, -1 where it is none, or too long to be read."""
    begin = at
    if data[at] == 45:
        at += 1
    first = at
    while at < end and 48 <= data[at] <= 57:
        at += 1
    if at == first or (data[first] == 48 and at > first + 1):
        return -1
    if at < end and data[at] == 46:
        point = at
        at += 1
        while at < end and 48 <= data[at] <= 57:
            at += 1
        if at == point + 1:
            return -1
    if at < end and (data[at] | 32) == 101:  # e or E
        at += 1
        if at < end and (data[at] == 43 or data[at] == 45):
            at += 1
        exponent = at
        while at < end and 48 <= data[at] <= 57:
            at += 1
        if at == exponent:
            return -1
    return at if at - begin <= _MOST_DIGITS else -1


@subroutine
def _behind_name(data: Bytes, at: int, end: int) -> int:
    """Returns the position behind `true`, `false` or `null`, -1 where there is none."""
    for name in (b"true", b"false", b"null"):
        count = len(name)
        if at + count <= end:
            same = True
            for i in range(count):
                same &= data[at + i] == name[i]
            if same:
                return at + count
    return -1


@subroutine
def _behind_key(data: Bytes, at: int, end: int, out: Bytes, to: int) -> int:
    """Returns where the value of a member begins whose key begins at `at`, -1 where none does."""
    if at >= end or data[at] != _QUOTE:
        return -1
    at, _ = read_string(data, at + 1, end, out, to)
    if at < 0:
        return -1
    at = _behind_space(data, at, end)
    if at >= end or data[at] != _COLON:
        return -1
    return _behind_space(data, at + 1, end)


@subroutine
def _behind_value(data: Bytes, at: int, end: int, out: Bytes, to: int) -> int:  # noqa: C901, PLR0912 - a kernel: a call costs
    """Returns the position behind a value of any kind, -1 where it is not valid or too deep."""
    depth, objects = 0, np.uint64(0)  # whether each level is an object: the last one is bit 0
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            at, _ = read_string(data, at + 1, end, out, to)
        elif byte == _OPEN_OBJECT or byte == _OPEN_ARRAY:
            is_object = byte == _OPEN_OBJECT
            at = _behind_space(data, at + 1, end)
            if at >= end or depth == _MOST_DEPTH:
                return -1
            if data[at] == (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY):
                at += 1
            else:
                depth += 1
                objects = objects << np.uint64(1) | np.uint64(is_object)
                if is_object:
                    at = _behind_key(data, at, end, out, to)
                    if at < 0:
                        return -1
                continue
        elif byte == 45 or 48 <= byte <= 57:
            at = _behind_number(data, at, end)
        else:
            at = _behind_name(data, at, end)
        if at < 0:
            return -1
        while depth:
            at = _behind_space(data, at, end)
            if at >= end:
                return -1
            is_object = objects & np.uint64(1) == 1
            if data[at] == _COMMA:
                at = _behind_space(data, at + 1, end)
                if is_object:
                    at = _behind_key(data, at, end, out, to)
                    if at < 0:
                        return -1
                break
            if data[at] != (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY):
                return -1
            at += 1
            depth -= 1
            objects >>= np.uint64(1)
        if depth == 0:
            return at
    return -1


@subroutine
def _is_name(data: Bytes, at: int, end: int, name: Bytes) -> int:
    """Returns 1 where a key is a name, 0 where it is not, -1 where it has escapes.

    Args:
      data: JSON.
      at, end: of the key, between its quotes.
      name: of a field.
    """
    same = end - at == name.shape[0]
    for i in range(end - at):
        if data[at + i] == _BACKSLASH:
            return -1
        same = same and data[at + i] == name[i]
    return 1 if same else 0


@subroutine
def _read_object(data: Bytes, at: int, end: int, name: Bytes, out: Bytes, to: int) -> int:
    """Writes the text of a field of the object at `at` to `out` from `to` on.

    Returns:
      Where it ends in `out`, -1 where the line is not taken.
    """
    at = _behind_space(data, at, end)
    if at >= end or data[at] != _OPEN_OBJECT:
        return -1
    text_end = -1
    at = _behind_space(data, at + 1, end)
    while True:
        key = at + 1
        at = _behind_key(data, at, end, out, to if text_end < 0 else text_end)
        if at < 0 or at >= end:
            return -1
        # The key ends with the last quote before the value.
        behind = at - 1
        while data[behind] != _QUOTE:
            behind -= 1
        named = _is_name(data, key, behind, name)
        if named < 0 or (named == 1 and (text_end >= 0 or data[at] != _QUOTE)):
            return -1
        if named == 1:
            at, text_end = read_string(data, at + 1, end, out, to)
        else:
            at = _behind_value(data, at, end, out, to if text_end < 0 else text_end)
        if at < 0:
            return -1
        at = _behind_space(data, at, end)
        if at >= end:
            return -1
        if data[at] == _CLOSE_OBJECT:
            return text_end if _behind_space(data, at + 1, end) == end else -1
        if data[at] != _COMMA:
            return -1
        at = _behind_space(data, at + 1, end)


@kernel
def _read(
    data: Bytes, record_starts: Int64s, record_ends: Int64s, most_bytes: int, name: Bytes,
    texts: JsonTexts,
) -> int:  # fmt: skip
    pool, starts, ends, taken = texts
    to = 0
    for i in range(record_starts.shape[0]):
        starts[i] = ends[i] = to
        begin, end = record_starts[i], record_ends[i]
        text_end = (
            _read_object(data, begin, end, name, pool, to) if end - begin <= most_bytes else -1
        )
        taken[i] = text_end >= 0
        if text_end >= 0:
            ends[i] = to = text_end
    return to


def read_texts(
    data: bytes, starts: Int64s, ends: Int64s, *, name: str, most_bytes: int
) -> JsonTexts:
    """Returns a field of lines of JSON.

    Args:
      data: the lines.
      starts, ends: `[num_records] int64`: where in it each begins and ends.
      name: of the field; it is of the object itself, and has text.
      most_bytes: longer lines are not taken.
    """
    count = len(starts)
    texts = JsonTexts(
        np.empty(len(data) + WORD, np.uint8), np.empty(count, np.int64), np.empty(count, np.int64),
        np.empty(count, np.bool_),
    )  # fmt: skip
    key = np.frombuffer(name.encode(), np.uint8)
    used = _read(np.frombuffer(data, np.uint8), starts, ends, most_bytes, key, texts)
    pool = texts.pool[:used]
    pool.flags.writeable = False  # as bytes of a file, so that kernels have one signature
    return texts._replace(pool=pool)
