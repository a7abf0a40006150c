"""Documents of plain text as they are, in pieces, for tokenizers that see all white space.

A document is one piece, or several that follow each other: one of any size takes little memory. A
piece ends behind a line end where the tokenizers of language models have a boundary anyway: a
letter or digit follows, and no other white space is before. So its tokens are those of the text.
"""

from __future__ import annotations

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.transforms.sources.lines import Lines


def piece_ends(lines: Lines, begins: Bools, next_starts: Int64s, piece_bytes: int) -> Bools:
    """Returns behind which lines pieces end, `[num_lines] bool`; the last line is not looked at.

    Args:
      lines: of documents, in one buffer.
      begins: `[num_lines] bool`: where a document begins.
      next_starts: `[num_lines] int64`: where the next line begins, after the line end.
      piece_bytes: a piece has at least so many, unless it ends its document, and at most twice as
        many and a line.
    """
    ends = np.zeros(len(lines), np.bool_)
    _find_ends(lines.buffer, (lines.starts, lines.ends, next_starts), begins, piece_bytes, ends)
    return ends


def strip_texts(lines: Lines, begins: Bools, ends: Bools) -> Lines:
    """Returns lines without white space where texts begin and end.

    Args:
      lines: valid UTF-8.
      begins, ends: `[num_lines] bool`: whether a text begins, and whether it ends, with the line.
    """
    starts, stops = lines.starts.copy(), lines.ends.copy()
    for i in np.flatnonzero(_strip(lines.buffer, starts, stops, begins, ends)).tolist():
        text = lines.buffer[starts[i] : stops[i]].tobytes().decode("utf-8", "surrogateescape")
        if begins[i]:
            starts[i] += _size(text) - _size(text.lstrip())
        if ends[i]:
            stops[i] -= _size(text) - _size(text.rstrip())
    return Lines(lines.buffer, starts, np.maximum(starts, stops), lines.non_ascii)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


@kernel
def _strip(buffer: Bytes, starts: Int64s, stops: Int64s, begins: Bools, ends: Bools) -> Bools:
    """Leaves out white space of ASCII; returns where other white space may be, `[num_lines]`."""
    doubtful = np.zeros(starts.shape[0], np.bool_)
    for i in range(starts.shape[0]):
        if begins[i]:
            while starts[i] < stops[i] and _is_space(buffer[starts[i]]):
                starts[i] += 1
            doubtful[i] |= starts[i] < stops[i] and buffer[starts[i]] >= 128
        if ends[i]:
            while starts[i] < stops[i] and _is_space(buffer[stops[i] - 1]):
                stops[i] -= 1
            doubtful[i] |= starts[i] < stops[i] and buffer[stops[i] - 1] >= 128
    return doubtful


@subroutine
def _is_space(byte: int) -> bool:
    """Tells whether Python's `str.isspace` is true of a character of ASCII."""
    return byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31


@kernel
def _find_ends(
    buffer: Bytes, spans: tuple[Int64s, Int64s, Int64s], begins: Bools, piece_bytes: int,
    ends: Bools,
) -> None:  # fmt: skip
    starts, line_ends, next_starts = spans
    begin = starts[0] if starts.shape[0] else 0
    for i in range(starts.shape[0] - 1):
        size = next_starts[i] - begin
        if (
            begins[i + 1]
            or size >= 2 * piece_bytes
            or (size >= piece_bytes and _is_safe(buffer, line_ends[i], next_starts[i]))
        ):
            ends[i] = True
            begin = starts[i + 1]


@subroutine
def _is_safe(buffer: Bytes, end: int, after: int) -> bool:
    """Tells whether one "\\n" is between a character that is no white space and a letter or digit.

    Of letters beyond ASCII those of some alphabets and of CJK are known, by their first byte.
    """
    if after != end + 1 or after >= buffer.shape[0] or end == 0 or buffer[end] != 10:
        return False
    first, last = buffer[after], buffer[end - 1]
    is_letter = (
        48 <= first <= 57 or 65 <= first <= 90 or 97 <= first <= 122
        or 0xD0 <= first <= 0xD3 or 0xE4 <= first <= 0xE9
    )  # fmt: skip
    if last < 128:
        return is_letter and last > 32
    # White space beyond ASCII begins with these; so do other characters.
    before = buffer[end - 3] if end > 2 else np.uint8(0)
    is_space = buffer[end - 2] == 0xC2 or before == 0xE1 or before == 0xE2
    is_space |= before == 0xE3 and buffer[end - 2] == 0x80 and last == 0x80
    return is_letter and not is_space


def join_pieces(
    lines: Lines, next_starts: Int64s, pieces: Int64s, ends_text: Bools, source: Bytes
) -> Lines:
    """Returns pieces of the lines that they are made of, line ends between them included.

    Args:
      lines: those that are kept, valid UTF-8.
      next_starts: `[num_lines] int64`: where in `source` the line after each begins.
      pieces: `[num_lines] int64`, ascending: the piece of each.
      ends_text: `[num_lines] bool`: the line's own end is not part of the text.
      source: the bytes that lines were split of; some may be replaced by others since.
    """
    if not len(lines):
        return lines
    firsts = np.flatnonzero(np.concatenate([[True], pieces[1:] != pieces[:-1]]))
    lasts = np.concatenate([firsts[1:], [len(lines)]]) - 1
    non_ascii = np.logical_or.reduceat(lines.non_ascii, firsts)
    within = pieces[1:] == pieces[:-1]
    if lines.buffer is source and (lines.starts[1:] == next_starts[:-1])[within].all():
        ends = np.where(ends_text[lasts], lines.ends[lasts], next_starts[lasts])
        return Lines(source, lines.starts[firsts], ends, non_ascii)
    texts = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        parts = []
        for i in range(first, last + 1):
            text, end = lines[i], int(next_starts[i])
            parts.append(text if ends_text[i] else text + _line_end(source, end))
        texts.append(b"".join(parts))
    joined = Lines.from_list(texts)
    return Lines(joined.buffer, joined.starts, joined.ends, non_ascii)


def _line_end(source: Bytes, end: int) -> bytes:
    """Returns the line end before a position: none where a long line was cut."""
    tail = source[max(0, end - 2) : end].tobytes()
    return b"\r\n" if tail == b"\r\n" else b"\n" if tail.endswith(b"\n") else b""
