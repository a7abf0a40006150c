"""Kernels that say where the next word of a text ends, by the rules of tokenizers.

Each is the regular expression of a family, written out, and is tested against the library on any
text. A word is what the model sees alone, so that its ids can be remembered.
"""

from __future__ import annotations

from recordmill.records.arrays import Bytes
from recordmill.records.codec.jit import subroutine
from recordmill.transforms.subwords.char_classes import LETTER, NUMBER, OTHER, SPACE

# How text is cut into words.
GPT2, CL100K, CL100K_ONE_DIGIT, MARKED_RUNS, MARKED = range(5)
PATTERNS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": GPT2,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+": CL100K,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+": CL100K_ONE_DIGIT,
}
_APOSTROPHE, _BLANK, _RETURN, _NEWLINE = 39, 32, 13, 10
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
def _contraction(text: Bytes, at: int, end: int, any_case: bool) -> int:
    """Returns the end of 's, 't, 're, 've, 'm, 'll or 'd behind an apostrophe, `at` for none."""
    if at + 1 >= end:
        return at
    first = text[at + 1]
    if any_case:
        if at + 2 < end and first == 0xC5 and text[at + 2] == 0xBF:  # "ſ", a form of "s"
            return at + 3
        if first < 0x80:
            first |= 32
    if first == ord("s") or first == ord("t") or first == ord("m") or first == ord("d"):
        return at + 2
    if at + 2 >= end:
        return at
    second = text[at + 2]
    if any_case and second < 0x80:
        second |= 32
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
        after = _contraction(text, at, end, False)
        if after > at:
            return after
    after = at + 1 if byte == _BLANK and at + 1 < end else at
    code, _ = char_at(text, after, end)
    found = classes[code]
    if found != SPACE:
        return _run(text, after, end, classes, found)
    return _spaces(text, at, end, classes)


@subroutine
def _class_at(text: Bytes, at: int, end: int, classes: Bytes) -> int:
    code, _ = char_at(text, at, end)
    return int(classes[code])


@subroutine
def _is_line_end(byte: int) -> bool:
    return byte == _NEWLINE or byte == _RETURN


@subroutine
def _digits(text: Bytes, at: int, end: int, classes: Bytes, most: int) -> int:
    for _ in range(most):
        if at >= end:
            break
        code, size = char_at(text, at, end)
        if classes[code] != NUMBER:
            break
        at += size
    return at


@subroutine
def _cl100k(text: Bytes, at: int, end: int, classes: Bytes, most_digits: int) -> int:
    byte = text[at]
    if byte == _APOSTROPHE:
        after = _contraction(text, at, end, True)
        if after > at:
            return after
    code, size = char_at(text, at, end)
    found = classes[code]
    if found == LETTER:
        return _run(text, at, end, classes, LETTER)
    if found == NUMBER:
        return _digits(text, at, end, classes, most_digits)
    after = at + size
    if not _is_line_end(byte) and after < end and _class_at(text, after, end, classes) == LETTER:
        return _run(text, after, end, classes, LETTER)
    begin = after if byte == _BLANK and after < end else at
    if _class_at(text, begin, end, classes) == OTHER:
        after = _run(text, begin, end, classes, OTHER)
        while after < end and _is_line_end(text[after]):
            after += 1
        return after
    after = _run(text, at, end, classes, SPACE)
    while after > at:
        if _is_line_end(text[after - 1]):
            return after
        after -= 1
    return _spaces(text, at, end, classes)


@subroutine
def _is_mark(text: Bytes, at: int, end: int) -> bool:
    if text[at] != _MARK_0 or at + 2 >= end:
        return False
    return text[at + 1] == _MARK_1 and text[at + 2] == _MARK_2


@subroutine
def _marked(text: Bytes, at: int, end: int, runs: bool) -> int:
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
      cut: `GPT2`, `CL100K`, `CL100K_ONE_DIGIT`, `MARKED_RUNS` or `MARKED`.
      classes: from `char_classes`.
    """
    if cut == GPT2:
        return _gpt2(text, at, end, classes)
    if cut == CL100K:
        return _cl100k(text, at, end, classes, 3)
    if cut == CL100K_ONE_DIGIT:
        return _cl100k(text, at, end, classes, 1)
    return _marked(text, at, end, cut == MARKED_RUNS)
