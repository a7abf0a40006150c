"""The distinct words of text by number: a bounded hash table that a kernel fills.

Text repeats its words, so the data of a word (its ids, its count) are kept once, by the number of
the word in this memory. A kernel splits ASCII lines by BERT's rules itself; other lines are
normalized first (`normalization.py`). `tokenization.py` and `vocabulary/word_counts.py` use it.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recordmill.records.arrays import Bytes, Int32s, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import FNV_OFFSET, GOLDEN, U64
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.normalization import Normalizer

MAX_WORD_CHARS = 200  # FullTokenizer's max_input_chars_per_word: a longer word is [UNK]
_MAX_WORD_BYTES = 4 * MAX_WORD_CHARS
MAX_WORDS = 1 << 18
_SLOTS = 2 * MAX_WORDS
POOL_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 17  # even of one-letter words, such a line fits an empty memory
TOO_LONG = 0  # the number of all words that are too long to keep

_LETTER, _SPACE, _DROPPED, _MARK = 0, 1, 2, 3


def _byte_kinds() -> Bytes:
    """Returns the kind of each byte by BERT's rules, `[256] uint8`; all but ASCII are letters."""
    kinds = np.full(256, _LETTER, np.uint8)
    kinds[:32] = _DROPPED
    kinds[127] = _DROPPED
    kinds[[9, 10, 13, 32]] = _SPACE
    for mark in string.punctuation:
        kinds[ord(mark)] = _MARK
    return kinds


_BYTE_KINDS = _byte_kinds()
_SAME_CASE = np.arange(256, dtype=np.uint8)
_LOWER_CASE = np.where((_SAME_CASE >= 65) & (_SAME_CASE <= 90), _SAME_CASE | 32, _SAME_CASE)


class _Table(NamedTuple):
    """A hash table with linear probing, and the words' bytes.

    Kernels take plain tuples of the arrays: with named ones the loop was measured a fifth slower.

    Attributes:
      slot_hashes: `[2 * MAX_WORDS] uint64`.
      slot_words: `[2 * MAX_WORDS] int32`: the number of the word in a slot, -1 for none.
      pool: `[POOL_BYTES] uint8`, UTF-8; word i is `pool[starts[i]:starts[i] + lengths[i]]`.
      starts: `[MAX_WORDS] int64`.
      lengths: `[MAX_WORDS] int32`.
      used: `[2] int64`: how many words there are, and how many bytes in the pool.
    """

    slot_hashes: U64
    slot_words: Int32s
    pool: Bytes
    starts: Int64s
    lengths: Int32s
    used: Int64s


@subroutine
def _find_word(memory: Any, scratch: Bytes, length: int, hashed: np.uint64, counts: Int64s) -> int:
    """Returns the number of the word in `scratch`, a new one if it is unknown; -1: no room."""
    slot_hashes, slot_words, pool, word_starts, word_lengths = memory
    if length > _MAX_WORD_BYTES:
        return TOO_LONG
    hashed ^= hashed >> np.uint64(29)
    slot = np.int64(hashed & np.uint64(_SLOTS - 1))
    while slot_words[slot] >= 0:
        word = slot_words[slot]
        if slot_hashes[slot] == hashed and word_lengths[word] == length:
            begin = word_starts[word]
            same = True
            for i in range(length):
                if pool[begin + i] != scratch[i]:
                    same = False
                    break
            if same:
                return word
        slot = (slot + 1) & (_SLOTS - 1)
    word, used = counts[0], counts[1]
    if word >= MAX_WORDS or used + length > POOL_BYTES:
        return -1
    for i in range(length):
        pool[used + i] = scratch[i]
    slot_hashes[slot] = hashed
    slot_words[slot] = word
    word_starts[word] = used
    word_lengths[word] = length
    counts[0] = word + 1
    counts[1] = used + length
    return word


@kernel
def _find_words(
    lines: Any,
    first: int,
    lower_case: bool,
    memory: Any,
    counts: Int64s,
    words: Int32s,
    splits: Int64s,
) -> int:
    """Fills `words` and `splits` from line `first` on; returns the line at which memory ran out."""
    buffer, starts, ends = lines
    folded = _LOWER_CASE if lower_case else _SAME_CASE
    scratch = np.empty(_MAX_WORD_BYTES + 1, np.uint8)
    space = np.uint8(32)
    count = splits[first]
    for line in range(first, starts.shape[0]):
        splits[line] = count
        length = 0
        hashed = FNV_OFFSET
        for at in range(starts[line], ends[line] + 1):
            byte = folded[buffer[at]] if at < ends[line] else space
            kind = _BYTE_KINDS[byte]
            if kind == _LETTER:
                if length <= _MAX_WORD_BYTES:
                    scratch[length] = byte
                    length += 1
                hashed = (hashed ^ np.uint64(byte)) * GOLDEN
                continue
            if kind == _DROPPED:
                continue
            if length:
                word = _find_word(memory, scratch, length, hashed, counts)
                if word < 0:
                    return line
                words[count] = word
                count += 1
                length = 0
                hashed = FNV_OFFSET
            if kind == _MARK:
                scratch[0] = byte
                mark = np.uint64(byte) * GOLDEN
                word = _find_word(memory, scratch, 1, mark, counts)
                if word < 0:
                    return line
                words[count] = word
                count += 1
    splits[starts.shape[0]] = count
    return starts.shape[0]


_WORD_END = re.compile(rb"[\t\n\r -/:-@\[-`{-~]")
_TO_LAST_WORD_END = re.compile(rb".*[\t\n\r -/:-@\[-`{-~]", re.DOTALL)
_DROPPED_BYTES = np.flatnonzero(_BYTE_KINDS == _DROPPED).astype(np.uint8).tobytes()


def _cut_between_words(lines: Lines) -> tuple[Lines, Int64s]:
    """Cuts lines over the limit between words; of a word over the limit, [UNK], it keeps a part.

    Returns:
      The shorter lines, and `[num_lines + 1] int64`: where the parts of each line begin among them.
    """
    parts: list[bytes] = []
    first_part = [0]
    for i in range(len(lines)):
        rest = lines[i]
        if len(rest) > MAX_LINE_BYTES:
            rest = rest.translate(None, _DROPPED_BYTES)
        while len(rest) > MAX_LINE_BYTES:
            words = _TO_LAST_WORD_END.match(rest, 0, MAX_LINE_BYTES)
            if words:
                parts.append(words.group())
                rest = rest[words.end() :]
            else:
                parts.append(rest[: _MAX_WORD_BYTES + 1])
                end = _WORD_END.search(rest)
                rest = rest[end.start() :] if end else b""
        parts.append(rest)
        first_part.append(len(parts))
    return Lines.from_list(parts), np.array(first_part, np.int64)


@dataclass(frozen=True, slots=True)
class LineWords:
    """The words of some lines by number.

    Attributes:
      first, end: the lines.
      words: `[num_words] int32`; word numbers, `TOO_LONG` for words that are too long to keep.
      splits: `[end - first + 1] int64`: line `first + i` has `words[splits[i]:splits[i + 1]]`.
      fills_memory: the memory has no room for the next line, and must be cleared before it.
    """

    first: int
    end: int
    words: Int32s
    splits: Int64s
    fills_memory: bool


class WordMemory:
    """Numbers the words that google-research/bert's BasicTokenizer makes of lines.

    Words are numbered from 1 on, in the order in which they are first met. Memory: 22 MB, 2**18
    words of 4 MiB in all; when that is full, the owner clears it. Not thread-safe.

    Args:
      lower_case: lower-case words and strip accents.
      normalize: what lines that are not ASCII become: their words between spaces. By default, as
        BERT does it.
    """

    def __init__(self, *, lower_case: bool, normalize: Callable[[str], str] | None = None) -> None:
        self._lower_case = lower_case
        self._normalize = normalize or Normalizer(lower_case=lower_case)
        self._table = _Table(
            slot_hashes=np.zeros(_SLOTS, np.uint64),
            slot_words=np.empty(_SLOTS, np.int32),
            pool=np.empty(POOL_BYTES, np.uint8),
            starts=np.zeros(MAX_WORDS, np.int64),
            lengths=np.zeros(MAX_WORDS, np.int32),
            used=np.zeros(2, np.int64),
        )
        self.clear()

    def __len__(self) -> int:
        """The number after that of the last word."""
        return int(self._table.used[0])

    def clear(self) -> None:
        """Removes all words but `TOO_LONG`."""
        self._table.slot_words.fill(-1)
        self._table.lengths[TOO_LONG] = 0
        self._table.used[:] = (TOO_LONG + 1, 0)

    def words_from(self, first: int) -> tuple[Bytes, Int64s, Int64s]:
        """Returns the words from number `first` on.

        Returns:
          A copy of the pool, `[bytes] uint8`, and starts and lengths in it, `[num_words] int64`.
        """
        end, pool_end = self._table.used.tolist()
        return (
            self._table.pool[:pool_end].copy(),
            self._table.starts[first:end].copy(),
            self._table.lengths[first:end].astype(np.int64),
        )

    def prepare(self, lines: Lines) -> tuple[Lines, Int64s | None]:
        """Normalizes lines that are not ASCII, and cuts those over the limit between words.

        Args:
          lines: valid UTF-8.

        Returns:
          The lines for `split`, and, where any was cut, `[num_lines + 1] int64`: where the parts of
          each line begin among them.
        """
        chosen = np.flatnonzero(lines.non_ascii).tolist()
        if chosen:
            forms = {i: self._normalize(lines[i].decode("utf-8")).encode() for i in chosen}
            lines = lines.replace(forms)
        if len(lines) and (lines.ends - lines.starts).max() > MAX_LINE_BYTES:
            return _cut_between_words(lines)
        return lines, None

    def split(self, lines: Lines) -> Iterator[LineWords]:
        """Yields the words of all lines, in more than one part where the memory is filled.

        Args:
          lines: from `prepare`.

        Raises:
          RuntimeError: the memory was not cleared behind a part that filled it.
        """
        spans = (lines.buffer, lines.starts, lines.ends)
        words = np.empty(int((lines.ends - lines.starts).sum()) + 1, np.int32)
        splits = np.zeros(len(lines) + 1, np.int64)
        *arrays, used = self._table
        first = 0
        while first < len(lines):
            splits[first] = 0  # the words of the part before are used by now
            end = _find_words(spans, first, self._lower_case, tuple(arrays), used, words, splits)
            part_splits = splits[first : end + 1]
            fills_memory = end < len(lines)
            yield LineWords(first, end, words[: part_splits[-1]], part_splits, fills_memory)
            if fills_memory and len(self) > TOO_LONG + 1:
                raise RuntimeError("the memory of words is full and was not cleared")
            first = end
