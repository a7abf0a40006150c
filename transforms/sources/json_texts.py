"""The texts of JSON lines, cut out and unescaped without a Python object for any of them.

The kernel takes a line that is one object of valid UTF-8, with the field once, as text. A line that
it does not take is not wrong: numbers with exponents, lone surrogates, escapes in names and deep
nesting are left to `json_records.py`, which says what each line is worth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.compat import put_word_at, word_at
from recordmill.records.codec.jit import kernel

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93
_MOST_DEPTH = 60  # a level is a bit of 64
_MOST_DIGITS = 15
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_WORD = 8


class JsonTexts(NamedTuple):
    """Text i is `pool[starts[i]:ends[i]]`, UTF-8.

    Attributes:
      pool: `[bytes] uint8`.
      starts, ends: `[num_records] int64`.
      non_ascii: `[num_records] bool`.
      taken: `[num_records] bool`: False where the kernel cannot say what the text is.
    """

    pool: Bytes
    starts: Int64s
    ends: Int64s
    non_ascii: Bools
    taken: Bools


@kernel
def _plain_bytes(word: np.uint64) -> int:
    """Returns how many of 8 bytes are ASCII that stands for itself in a string of JSON."""
    quotes = word ^ (_ONES * np.uint64(_QUOTE))
    escapes = word ^ (_ONES * np.uint64(_BACKSLASH))
    found = (quotes - _ONES) & ~quotes
    found |= (escapes - _ONES) & ~escapes
    found |= (word - _ONES * np.uint64(32)) & ~word
    found = (found | word) & _HIGH_BITS
    if found == 0:
        return _WORD
    # The lowest bit is right: a borrow reaches only bytes behind one that was found.
    below = ((found & (~found + np.uint64(1))) - np.uint64(1)) & _ONES
    return np.int64((below * _ONES) >> np.uint64(56)) - 1


@kernel
def _utf8_bytes(data: Bytes, at: int, end: int) -> int:
    """Returns the bytes of the character at a byte of 0x80 or more, 0 where it is not valid."""
    first = data[at]
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if at + size > end:
        return 0
    for i in range(at + 1, at + size):
        if data[i] & 0xC0 != 0x80:
            return 0
    second = data[at + 1]
    if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return size


@kernel
def _hex(data: Bytes, at: int, end: int) -> int:
    """Returns the value of four hexadecimal digits, -1 where there are none."""
    if at + 4 > end:
        return -1
    value = 0
    for i in range(at, at + 4):
        byte = int(data[i])
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte | 32 <= 102:
            digit = (byte | 32) - 87
        else:
            return -1
        value = value << 4 | digit
    return value


@kernel
def _put_char(out: Bytes, to: int, code: int) -> int:
    if code < 0x80:
        out[to] = code
        return to + 1
    if code < 0x800:
        out[to] = 0xC0 | code >> 6
        out[to + 1] = 0x80 | code & 63
        return to + 2
    if code < 0x10000:
        out[to] = 0xE0 | code >> 12
        out[to + 1] = 0x80 | code >> 6 & 63
        out[to + 2] = 0x80 | code & 63
        return to + 3
    out[to] = 0xF0 | code >> 18
    out[to + 1] = 0x80 | code >> 12 & 63
    out[to + 2] = 0x80 | code >> 6 & 63
    out[to + 3] = 0x80 | code & 63
    return to + 4


@kernel
def _unescape(data: Bytes, at: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """Writes the character of an escape, from the byte behind its backslash on.

    Returns:
      The position behind it, -1 where it is not valid or a lone surrogate, and that in `out`.
    """
    if at >= end:
        return -1, to
    byte = data[at]
    if byte == 110:  # n
        out[to] = 10
    elif byte == _QUOTE or byte == _BACKSLASH or byte == 47:
        out[to] = byte
    elif byte == 116:  # t
        out[to] = 9
    elif byte == 114:  # r
        out[to] = 13
    elif byte == 98:  # b
        out[to] = 8
    elif byte == 102:  # f
        out[to] = 12
    elif byte == 117:  # u
        code = _hex(data, at + 1, end)
        at += 5
        if 0xD800 <= code < 0xDC00 and at + 2 <= end and data[at] == _BACKSLASH:
            low = _hex(data, at + 2, end) if data[at + 1] == 117 else -1
            if not 0xDC00 <= low < 0xE000:
                return -1, to
            code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
            at += 6
        if code < 0 or 0xD800 <= code < 0xE000:
            return -1, to
        return at, _put_char(out, to, code)
    else:
        return -1, to
    return at + 1, to + 1


@kernel
def _read_string(data: Bytes, at: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """Unescapes a string from the byte behind its opening quote on.

    Returns:
      The position behind the closing quote, -1 where the string is not valid, and that in `out`.
    """
    size = data.shape[0]
    while at < end:
        if at + _WORD <= size:
            # All 8 are written; those too many are written over, or lie behind the last text.
            word = word_at(data, at)
            put_word_at(out, to, word)
            plain = _plain_bytes(word)
            at += plain
            to += plain
            if plain == _WORD:
                continue
            if at >= end:
                return -1, to
        byte = data[at]
        if byte == _QUOTE:
            return at + 1, to
        if byte == _BACKSLASH:
            at, to = _unescape(data, at + 1, end, out, to)
            if at < 0:
                return -1, to
        elif byte < 32:
            return -1, to
        else:
            count = _utf8_bytes(data, at, end) if byte >= 0x80 else 1
            if count == 0:
                return -1, to
            for i in range(count):
                out[to + i] = data[at + i]
            at += count
            to += count
    return -1, to


@kernel
def _behind_space(data: Bytes, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@kernel
def _behind_number(data: Bytes, at: int, end: int) -> int:
    """Returns the position behind a number without exponent and of few digits, -1 for others."""
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
    if at - begin > _MOST_DIGITS or (at < end and (data[at] | 32) == 101):
        return -1
    return at


@kernel
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


@kernel
def _behind_key(data: Bytes, at: int, end: int, out: Bytes, to: int) -> int:
    """Returns where the value of a member begins whose key begins at `at`, -1 where none does."""
    if at >= end or data[at] != _QUOTE:
        return -1
    at, _ = _read_string(data, at + 1, end, out, to)
    if at < 0:
        return -1
    at = _behind_space(data, at, end)
    if at >= end or data[at] != _COLON:
        return -1
    return _behind_space(data, at + 1, end)


@kernel
def _behind_value(data: Bytes, at: int, end: int, out: Bytes, to: int) -> int:
    """Returns the position behind a value of any kind, -1 where it is not valid or too deep."""
    depth, objects = 0, np.uint64(0)  # whether each level is an object: the last one is bit 0
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            at, _ = _read_string(data, at + 1, end, out, to)
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


@kernel
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


@kernel
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
            at, text_end = _read_string(data, at + 1, end, out, to)
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
    pool, starts, ends, non_ascii, taken = texts
    to = 0
    for i in range(record_starts.shape[0]):
        starts[i] = ends[i] = to
        begin, end = record_starts[i], record_ends[i]
        text_end = (
            _read_object(data, begin, end, name, pool, to) if end - begin <= most_bytes else -1
        )
        taken[i] = text_end >= 0
        high = np.uint8(0)
        # Unsigned indices cannot count from the end, so the compiler does many at once.
        for at in range(np.uint64(to), np.uint64(max(text_end, to))):
            high |= pool[at]
        non_ascii[i] = high >= 0x80
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
        np.empty(len(data) + _WORD, np.uint8), np.empty(count, np.int64), np.empty(count, np.int64),
        np.empty(count, np.bool_), np.empty(count, np.bool_),
    )  # fmt: skip
    key = np.frombuffer(name.encode(), np.uint8)
    used = _read(np.frombuffer(data, np.uint8), starts, ends, most_bytes, key, texts)
    pool = texts.pool[:used]
    pool.flags.writeable = False  # as bytes of a file, so that kernels have one signature
    return texts._replace(pool=pool)
