"""Kernels that say where the next word of a text ends: by GPT-2's rule, and by SentencePiece's.

A word is what the model sees alone, so that its ids can be remembered, and its count learned from.
"""

from __future__ import annotations

from recordmill.records.arrays import Bytes
from recordmill.records.codec.jit import subroutine
from recordmill.transforms.subwords.char_classes import SPACE

GPT2, MARKED_RUNS = range(2)  # how text is cut into words
_APOSTROPHE, _BLANK = 39, 32
_MARK_0, _MARK_1, _MARK_2 = 0xE2, 0x96, 0x81  # "▁", which SentencePiece writes for a space


@subroutine
def char_at(text: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the code point at a position of valid UTF-8, and its bytes."""
    first = int(text[at])
    if first < 0x80:
        return first, 1
    if first < 0xE0 and at + 1 < end:
        return (first & 31) << 6 | (int(text[at + 1]) & 63), 2
    if first < 0xF0 and at + 2 < end:
        return (first & 15) << 12 | (int(text[at + 1]) & 63) << 6 | (int(text[at + 2]) & 63), 3
    if at + 3 < end:
        code = (first & 7) << 18 | (int(text[at + 1]) & 63) << 12
        return code | (int(text[at + 2]) & 63) << 6 | (int(text[at + 3]) & 63), 4
    return 0xFFFD, end - at


@subroutine
def _run(text: Bytes, at: int, end: int, classes: Bytes, wanted: int) -> int:
    """Returns the end of the run of characters of a class."""
    while at < end:
        byte = text[at]
        if byte < 0x80:
            if classes[byte] != wanted:
                break
            at += 1
            continue
        code, size = char_at(text, at, end)
        if classes[code] != wanted:
            break
        at += size
    return at


@subroutine
def _contraction(text: Bytes, at: int, end: int) -> int:
    """Returns the end of 's, 't, 're, 've, 'm, 'll or 'd behind an apostrophe, `at` for none."""
    if at + 1 >= end:
        return at
    first = text[at + 1]
    if first == ord("s") or first == ord("t") or first == ord("m") or first == ord("d"):
        return at + 2
    if at + 2 >= end:
        return at
    second = text[at + 2]
    if second == ord("e") and (first == ord("r") or first == ord("v")):
        return at + 3
    if first == ord("l") and second == ord("l"):
        return at + 3
    return at


@subroutine
def _spaces(text: Bytes, at: int, end: int, classes: Bytes) -> int:
    r"""Returns the end of `\s+(?!\S)|\s+`: the last space of a run belongs to the word behind."""
    begin = last = at
    while at < end:
        code, size = char_at(text, at, end)
        if classes[code] != SPACE:
            return last if last > begin else at
        last = at
        at += size
    return at


@subroutine
def _gpt2(text: Bytes, at: int, end: int, classes: Bytes) -> int:
    byte = text[at]
    if byte == _APOSTROPHE:
        after = _contraction(text, at, end)
        if after > at:
            return after
    after = at + 1 if byte == _BLANK and at + 1 < end else at
    code, _ = char_at(text, after, end)
    found = classes[code]
    if found != SPACE:
        return _run(text, after, end, classes, found)
    return _spaces(text, at, end, classes)


@subroutine
def _is_mark(text: Bytes, at: int, end: int) -> bool:
    if text[at] != _MARK_0 or at + 2 >= end:
        return False
    return text[at + 1] == _MARK_1 and text[at + 2] == _MARK_2


@subroutine
def marked_end(text: Bytes, at: int, end: int, runs: bool) -> int:
    """Returns the end of "▁" and what follows up to the next; of some "▁" where they stay one."""
    while at < end and _is_mark(text, at, end):
        at += 3
        if not runs:
            break
    while at < end and not _is_mark(text, at, end):
        at += 1
    return at


@subroutine
def word_end(text: Bytes, at: int, end: int, cut: int, classes: Bytes) -> int:
    """Returns the end of the word at a position.

    Args:
      text: valid UTF-8, of which the line ends at `end`; `at` is before that.
      at, end: positions.
      cut: `GPT2` or `MARKED_RUNS`.
      classes: from `char_classes`.
    """
    if cut == GPT2:
        return _gpt2(text, at, end, classes)
    return marked_end(text, at, end, True)
