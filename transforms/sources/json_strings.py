"""Strings of JSON, unescaped by kernels to UTF-8."""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Bytes
from recordmill.records.codec.jit import subroutine
from recordmill.records.codec.numba_internals import put_word_at, word_at

_QUOTE, _BACKSLASH = 34, 92
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
WORD = 8  # bytes that are read and written at once


@subroutine
def _plain_bytes(word: np.uint64) -> int:
    """Returns how many of 8 bytes are ASCII that stands for itself in a string of JSON."""
    quotes = word ^ (_ONES * np.uint64(_QUOTE))
    escapes = word ^ (_ONES * np.uint64(_BACKSLASH))
    found = (quotes - _ONES) & ~quotes
    found |= (escapes - _ONES) & ~escapes
    found |= (word - _ONES * np.uint64(32)) & ~word
    found = (found | word) & _HIGH_BITS
    if found == 0:
        return WORD
    # The lowest bit is right: a borrow reaches only bytes behind one that was found.
    below = ((found & (~found + np.uint64(1))) - np.uint64(1)) & _ONES
    return int(np.int64((below * _ONES) >> np.uint64(56))) - 1


@subroutine
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


@subroutine
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


@subroutine
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


@subroutine
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


@subroutine
def read_string(data: Bytes, at: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """Unescapes a string from the byte behind its opening quote on.

    Args:
      data: JSON.
      at, end: where it begins, and where the line ends.
      out: takes the string; it has room for `WORD` bytes more than `data`.
      to: where in it the string begins.

    Returns:
      The position behind the closing quote, -1 where the string is not valid, and that in `out`.
    """
    size = data.shape[0]
    while at < end:
        if at + WORD <= size:
            # All 8 are written; those too many are written over, or lie behind the last text.
            word = word_at(data, at)
            put_word_at(out, to, word)
            plain = _plain_bytes(word)
            at += plain
            to += plain
            if plain == WORD:
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
