"""Split text into sentences by a rule of punctuation, as a kernel on the bytes of many texts.

A sentence ends at one of . ! ? … with closing quotes and brackets behind it, where white space and
then a capital, a digit or an opening mark follow, unless the word before the full stop is a known
abbreviation or a single initial. It also ends at 。！？ in any position, and at । ॥ ؟ ۔ where white
space follows. A blank line ends it too, and white space is folded. `benchmarks/sentences.py`
measures the rule on books with a sentence on each line; the tests have it as regular expressions.
A trained model would handle a few abbreviations better, at a thousandth of the speed and with a
download; pretraining needs segments of the right size that begin and end at plausible positions.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.numba_internals import put_word_at, word_at
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME, U64
from recordmill.transforms.sources.lines import Lines

_ABBREVIATIONS = """
mr mrs ms dr prof rev hon st sr jr messrs mme mlle capt col gen lt maj sgt gov sen rep pres
vs etc e.g i.e cf al ca approx no nos vol vols ed eds pp p fig figs ch chap sec art
inc ltd co corp bros dept univ assn
jan feb mar apr jun jul aug sept sep oct nov dec mon tue wed thu fri sat sun
a.m p.m b.c a.d u.s u.k u.n ph.d m.d d.c
""".split()
_MOST_WORD = 24  # characters before a full stop that may be its word
_LETTERS = 0x34000  # there are none from here on
_KELVIN = 0x212A  # whose lower case is k
_WESTERN, _WIDE, _SPACED = 1, 2, 3  # kinds of marks
_USUAL_BYTES = 64  # of a sentence
# Eight bytes at once: most text is ASCII with single blanks, and needs no more than a copy.
_WORD = 8
_BYTE, _LAST = np.uint64(8), np.uint64(63)
_ONES, _HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_SEVENS, _FIRST = _HIGH - _ONES, np.uint64(0x80)
_SPACES, _CONTROLS = _ONES * np.uint64(32), _ONES * np.uint64(128 - 32)
_STOPS, _CALLS, _QUESTIONS = (_ONES * np.uint64(each) for each in b".!?")


@cache
def _letters() -> Bools:
    """Returns `[_LETTERS] bool`: which characters are letters, as `[^\\W\\d_]` has them."""
    found = (chr(code) for code in range(_LETTERS))
    return np.array([each.isalnum() and not each.isdecimal() for each in found], np.bool_)


@cache
def _abbreviations() -> U64:
    """Returns the hashes of abbreviations, ascending."""
    hashes = []
    for word in _ABBREVIATIONS:
        value = int(FNV_OFFSET)
        for byte in word.encode():
            value = ((value ^ byte) * int(FNV_PRIME)) % (1 << 64)
        hashes.append(value)
    return np.array(sorted(hashes), np.uint64)


@subroutine
def _space(data: Bytes, at: int, end: int) -> int:
    """Returns the bytes of the white space at a position, 0 where there is none."""
    first = data[at]
    if first < 0xC2:
        return 1 if first == 32 or 9 <= first <= 13 or 28 <= first <= 31 else 0
    if first == 0xC2:
        return 2 if at + 1 < end and (data[at + 1] == 0x85 or data[at + 1] == 0xA0) else 0
    if first < 0xE1 or first > 0xE3 or at + 2 >= end:
        return 0
    second, third = data[at + 1], data[at + 2]
    if first == 0xE1:
        return 3 if second == 0x9A and third == 0x80 else 0
    if first == 0xE3:
        return 3 if second == 0x80 and third == 0x80 else 0
    if second == 0x81:
        return 3 if third == 0x9F else 0
    if second != 0x80:
        return 0
    return 3 if third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF else 0


@subroutine
def _code(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the character at a position, and its bytes."""
    first = int(data[at])
    if first < 0x80:
        return first, 1
    if first < 0xE0:
        return ((first & 31) << 6) | (int(data[at + 1]) & 63), 2
    if first < 0xF0:
        return ((first & 15) << 12) | ((int(data[at + 1]) & 63) << 6) | (int(data[at + 2]) & 63), 3
    code = ((first & 7) << 18) | ((int(data[at + 1]) & 63) << 12)
    return code | ((int(data[at + 2]) & 63) << 6) | (int(data[at + 3]) & 63), 4


@subroutine
def _mark(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the kind of the mark at a position, 0 for none, and its bytes."""
    first = data[at]
    if first < 0x80:
        return (_WESTERN, 1) if first == 46 or first == 33 or first == 63 else (0, 1)
    if first != 0xE2 and first != 0xE3 and first != 0xEF and first != 0xE0 and first & 0xFC != 0xD8:
        return 0, 1
    code, size = _code(data, at, end)
    if code == 0x2026:
        return _WESTERN, size
    if code == 0x3002 or code == 0xFF01 or code == 0xFF1F or code == 0xFF61:
        return _WIDE, size
    if code == 0x0964 or code == 0x0965 or code == 0x061F or code == 0x06D4:
        return _SPACED, size
    return 0, size


@subroutine
def _behind_closing(data: Bytes, at: int, end: int, wide: bool) -> int:
    """Returns the position behind closing quotes and brackets."""
    while at < end:
        code, size = _code(data, at, end)
        closes = code == 34 or code == 39 or code == 0xBB or code == 0x201D or code == 0x2019
        if wide:
            closes = closes or code == 0xFF09 or code == 0x300D or code == 0x300F or code == 0x3011
        else:
            closes = closes or code == 41 or code == 93
        if not closes:
            break
        at += size
    return at


@subroutine
def _begins_sentence(data: Bytes, at: int, end: int) -> bool:
    """Returns whether opening marks, if any, and then a capital or a digit stand at a position."""
    while at < end:
        code, size = _code(data, at, end)
        opens = code == 34 or code == 39 or code == 40 or code == 45 or code == 91 or code == 0xAB
        opens = opens or code == 0xBF or code == 0xA1 or code == 0x201C or code == 0x2018
        if not (opens or code == 0x2014):
            return bool(
                65 <= code <= 90 or 48 <= code <= 57 or 0xC0 <= code <= 0xD6
                or 0xD8 <= code <= 0xDE or 0x391 <= code <= 0x3A9 or 0x410 <= code <= 0x42F
            )  # fmt: skip
        at += size
    return False


@subroutine
def _is_abbreviation(data: Bytes, begin: int, end: int, letters: Bools, known: U64) -> bool:
    """Returns whether the word that ends at `end` is an abbreviation, or a single letter.

    A word is letters, also with single dots between them, of which some characters are looked at.
    """
    at, word, count, in_word, needs_letter = end, end, 0, 0, True
    while at > begin and count < _MOST_WORD:
        before = at - 1
        while before > begin and data[before] & 0xC0 == 0x80:
            before -= 1
        code, _ = _code(data, before, end)
        count += 1
        if code < _LETTERS and letters[code]:
            word, in_word, needs_letter = before, count, False
        elif code == 46 and not needs_letter:
            needs_letter = True
        else:
            break
        at = before
    if in_word <= 1:
        return in_word == 1
    value = FNV_OFFSET
    at = word
    while at < end:
        code, size = _code(data, at, end)
        if code == _KELVIN:
            code = 107
        elif code >= 0x80:
            return False
        elif 65 <= code <= 90:
            code += 32
        value = (value ^ np.uint64(code)) * FNV_PRIME
        at += size
    found = np.searchsorted(known, value)
    return bool(found < known.shape[0] and known[found] == value)


@subroutine
def _fold(data: Bytes, at: int, end: int, out: Bytes, begin: int) -> tuple[int, int]:
    """Writes a paragraph to `out` from `begin` on, with its white space folded.

    Returns:
      Where the next paragraph begins, and where this one ends in `out`.
    """
    to, is_pending = begin, False
    while at < end:
        while at + _WORD <= end and not is_pending:
            word = word_at(data, at)
            others = ((word ^ _SPACES) + _SEVENS) & _HIGH  # of ASCII, what is no blank
            blanks = others ^ _HIGH
            is_plain = (word + _CONTROLS) & _HIGH == _HIGH and word & _HIGH == 0
            if not is_plain or blanks & (blanks << _BYTE) or (to == begin and blanks & _FIRST):
                break
            put_word_at(out, to, word)
            at += _WORD
            is_pending = blanks >> _LAST != 0
            to += _WORD - is_pending
        if at == end:
            break
        byte = data[at]
        size = 0 if 32 < byte < 0x80 else _space(data, at, end)
        if size == 0:
            if is_pending:
                out[to] = 32
                to += 1
                is_pending = False
            out[to] = byte
            to += 1
            at += 1
            continue
        if byte == 10:
            behind = at + 1
            while behind < end and (data[behind] == 32 or data[behind] == 9 or data[behind] == 13):
                behind += 1
            if behind < end and data[behind] == 10:  # a blank line
                return behind + 1, to
        is_pending = to > begin
        at += size
    return at, to


@subroutine
def _sentence_end(data: Bytes, start: int, end: int, letters: Bools, known: U64) -> int:
    """Returns where the sentence ends that begins at `start`, in a folded paragraph."""
    i, doubtful = start, start
    while i < end:
        while doubtful <= i and i + _WORD <= end:
            word = word_at(data, i)
            found = ((word ^ _STOPS) + _SEVENS) & ((word ^ _CALLS) + _SEVENS)
            if word & _HIGH or found & ((word ^ _QUESTIONS) + _SEVENS) & _HIGH != _HIGH:
                doubtful = i + _WORD
            else:
                i += _WORD
        if i == end:
            break
        kind, size = _mark(data, i, end)
        if kind == 0:
            i += size
            continue
        behind = i + size  # the last of marks of one kind
        while behind < end:
            other, size = _mark(data, behind, end)
            if other != kind:
                break
            behind += size
        if kind == _WIDE:
            return _behind_closing(data, behind, end, True)
        closed = _behind_closing(data, behind, end, False) if kind == _WESTERN else behind
        ends = closed < end and data[closed] == 32
        if ends and kind == _SPACED:
            return closed
        if not ends or not _begins_sentence(data, closed + 1, end):
            i = behind
            continue
        one_stop = data[i] == 46 and data[i + 1] != 46
        if not (one_stop and _is_abbreviation(data, start, i, letters, known)):
            return closed
        i = closed
    return end


@kernel
def _split(
    data: Bytes, row_starts: Int64s, row_ends: Int64s, out: Bytes, known: tuple[Bools, U64],
    found: Int64s,
) -> tuple[int, int]:  # fmt: skip
    """Folds texts into `out`; writes start, end and row of each sentence to `[3, most] int64`.

    Returns:
      The bytes in `out`, and the number of sentences; -1 where there are more than there is room.
    """
    letters, abbreviations = known
    count = to = 0
    for row in range(row_starts.shape[0]):
        at = row_starts[row]
        while at < row_ends[row]:
            start = to
            at, to = _fold(data, at, row_ends[row], out, to)
            while start < to:
                behind = _sentence_end(out, start, to, letters, abbreviations)
                first, last = start, behind
                if out[first] == 32:
                    first += 1
                if out[last - 1] == 32:
                    last -= 1
                if last > first:
                    if count == found.shape[1]:
                        return to, -1
                    found[0, count], found[1, count], found[2, count] = first, last, row
                    count += 1
                start = behind
    return to, count


@kernel
def _find_non_ascii(data: Bytes, starts: Int64s, ends: Int64s, non_ascii: Bools) -> None:
    for i in range(starts.shape[0]):
        high = np.uint8(0)
        # Unsigned indices cannot count from the end, so the compiler does many at once.
        for at in range(np.uint64(starts[i]), np.uint64(ends[i])):
            high |= data[at]
        non_ascii[i] = high >= 128


def split_sentences(texts: Lines) -> tuple[Lines, Int64s]:
    """Cuts texts into sentences, white space folded, without empty ones.

    Args:
      texts: valid UTF-8, with the line ends that they have.

    Returns:
      The sentences, and `[num_sentences] int64`: of which text each is.
    """
    size = int((texts.ends - texts.starts).sum())
    out, known = np.empty(size + _WORD, np.uint8), (_letters(), _abbreviations())
    most, count = max(len(texts), size // _USUAL_BYTES), -1
    while count < 0:
        most *= 2
        found = np.empty((3, most), np.int64)
        size, count = _split(texts.buffer, texts.starts, texts.ends, out, known, found)
    starts, ends, rows = found[:, :count].copy()
    non_ascii = np.empty(len(starts), np.bool_)
    _find_non_ascii(out, starts, ends, non_ascii)
    out = out[:size]
    out.flags.writeable = False  # as bytes of a file, so that kernels have one signature
    return Lines(out, starts, ends, non_ascii), rows
