"""Lines made ready for the cutting of words: normalized, and with "▁" where spaces were.

Most lines of English are ASCII without anything to normalize, and a kernel does the little that is
to be done. Every other line is normalized by the tokenizer's own library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.char_classes import SPACE
from recordmill.transforms.subwords.word_ends import char_at

# What is done to spaces.
PLAIN, MARK_SPACES, MARK_WORDS = range(3)
_BLANK = 32
_MARK = (0xE2, 0x96, 0x81)


def _same() -> Bytes:
    return np.arange(256, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Preparation:
    """How lines are prepared.

    Attributes:
      normalize: texts -> texts, by the library; None: there is nothing to normalize.
      foreign: `[256] bool`: bytes with which a line is given to `normalize`.
      blanks: "" or, of blanks, those with which a line is given to `normalize` too: "double", or
        "all" for those at its ends as well.
      case: `[256] uint8`: what other bytes become.
      spaces: `PLAIN`, `MARK_SPACES` (each becomes "▁"), or `MARK_WORDS` (each word between white
        space begins with "▁").
      prefix: the line begins with "▁": "", "always", or "missing" where it has none.
      marked: what `normalize` returns has its marks.
      classes: of characters, for `MARK_WORDS`.
      splits_lines: see `LineTokenizer`.
    """

    normalize: Callable[[list[str]], list[str]] | None = None
    foreign: Bools = field(default_factory=lambda: np.zeros(256, np.bool_))
    blanks: str = ""
    case: Bytes = field(default_factory=_same)
    spaces: int = PLAIN
    prefix: str = ""
    marked: bool = False
    classes: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    splits_lines: bool = False

    def apply(self, lines: Lines) -> Lines:
        """Returns the lines that words are cut of.

        Args:
          lines: valid UTF-8.
        """
        done = np.zeros(len(lines), np.bool_)
        if self.normalize is not None:
            blanks = {"": 0, "double": 1, "all": 2}[self.blanks]
            _find_foreign(
                _read_only(lines.buffer), lines.starts, lines.ends, self.foreign, blanks, done
            )
            chosen = np.flatnonzero(done).tolist()
            if chosen:
                texts = self.normalize([lines[i].decode("utf-8") for i in chosen])
                forms = [text.encode() for text in texts]
                lines = lines.replace(dict(zip(chosen, forms, strict=True)))
        if self.spaces == PLAIN and bool((self.case == _same()).all()):
            return lines
        if not self.marked:
            done[:] = False
        size = 3 * int((lines.ends - lines.starts).sum()) + 3 * len(lines)
        buffer, starts = np.empty(size, np.uint8), np.zeros(len(lines) + 1, np.int64)
        prefix = {"": 0, "always": 1, "missing": 2}[self.prefix]
        text = _read_only(lines.buffer)
        _mark(
            text, lines.starts, lines.ends, done, self.case, self.spaces, prefix,
            self.classes, buffer, starts,
        )  # fmt: skip
        return Lines(buffer[: starts[-1]], starts[:-1], starts[1:], lines.non_ascii)


def _read_only(buffer: Bytes) -> Bytes:
    """Returns the bytes of lines as those of a file, so that one kernel is compiled for both."""
    view = buffer.view()
    view.flags.writeable = False
    return view


@kernel
def _find_foreign(
    text: Bytes, starts: Int64s, ends: Int64s, foreign: Bools, blanks: int, found: Bools
) -> None:
    for line in range(starts.shape[0]):
        begin, end = starts[line], ends[line]
        is_blank = blanks == 2
        for at in range(begin, end):
            byte = text[at]
            if foreign[byte] or (byte == _BLANK and is_blank):
                found[line] = True
                break
            is_blank = byte == _BLANK and blanks > 0
        if is_blank and blanks == 2 and end > begin:
            found[line] = True


@subroutine
def _put_mark(out: Bytes, at: int) -> int:
    out[at] = _MARK[0]
    out[at + 1] = _MARK[1]
    out[at + 2] = _MARK[2]
    return at + 3


@subroutine
def _begins_with_mark(text: Bytes, at: int, end: int) -> bool:
    if at + 2 >= end:
        return False
    return text[at] == _MARK[0] and text[at + 1] == _MARK[1] and text[at + 2] == _MARK[2]


@subroutine
def _mark_words(
    text: Bytes, at: int, end: int, case: Bytes, classes: Bytes, out: Bytes, to: int
) -> int:
    outside = True
    while at < end:
        code, size = char_at(text, at, end)
        if classes[code] == SPACE:
            outside = True
            at += size
            continue
        if outside and not _begins_with_mark(text, at, end):
            to = _put_mark(out, to)
        outside = False
        for i in range(at, at + size):
            out[to] = case[text[i]]
            to += 1
        at += size
    return to


@kernel
def _mark(
    text: Bytes, starts: Int64s, ends: Int64s, done: Bools, case: Bytes, spaces: int, prefix: int,
    classes: Bytes, out: Bytes, out_starts: Int64s,
) -> None:  # fmt: skip
    to = 0
    for line in range(starts.shape[0]):
        at, end = starts[line], ends[line]
        out_starts[line] = to
        if spaces == MARK_WORDS and not done[line]:
            to = _mark_words(text, at, end, case, classes, out, to)
            continue
        marks = spaces == MARK_SPACES and not done[line]
        if at < end and not done[line]:
            has = text[at] == _BLANK or _begins_with_mark(text, at, end)
            if marks and (prefix == 1 or (prefix == 2 and not has)):
                to = _put_mark(out, to)
        for i in range(at, end):
            if marks and text[i] == _BLANK:
                to = _put_mark(out, to)
            else:
                out[to] = case[text[i]]
                to += 1
    out_starts[starts.shape[0]] = to
