"""Counting words in bounded memory: exactly, of those words that may be frequent.

Text of any size has ever more distinct words, nearly all of them rare. A first pass adds every word
to a count-min sketch (Cormode and Muthukrishnan 2005, doi:10.1016/j.jalgor.2003.12.001): a few rows
of counters, in each of which a word shares its counter with others, so that a counter is never
below the word's count. From its sums comes a threshold that few counters reach; a second pass
counts only words whose counters all reach it. No word that does is lost, and sums of integers
depend on neither order nor workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME, U64, combine, mix64
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.text.word_memory import (
    MAX_WORD_CHARS,
    MAX_WORDS,
    TOO_LONG,
    WordMemory,
)

_CHARACTERS = 0x110000
_SKETCH_ROWS = 4
_COUNTERS_PER_KEPT = 8  # so that a rare word passes all rows by chance once in 8**4 times


@dataclass(frozen=True, slots=True)
class WordTable:
    """Distinct words and how often each occurred.

    Attributes:
      pool: `[bytes] uint8`, UTF-8; word i is `pool[starts[i]:starts[i] + lengths[i]]`.
      starts, lengths, counts: `[num_words] int64`.
    """

    pool: Bytes
    starts: Int64s
    lengths: Int64s
    counts: Int64s

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, chosen: Bools) -> WordTable:
        """Returns the words of a mask over the same pool."""
        return WordTable(self.pool, self.starts[chosen], self.lengths[chosen], self.counts[chosen])

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yields (word, count)."""
        data = self.pool.tobytes()
        columns = (self.starts.tolist(), self.lengths.tolist(), self.counts.tolist())
        for start, length, count in zip(*columns, strict=True):
            yield data[start : start + length], count

    def characters(self) -> Int64s:
        """Returns `[0x110000] int64`: how often each character occurred in the words."""
        counts = np.zeros(_CHARACTERS, np.int64)
        _count_characters(self.pool, self.starts, self.lengths, self.counts, counts)
        return counts

    def hashes(self) -> U64:
        """Returns `[num_words] uint64`, stable."""
        hashes = np.empty(len(self), np.uint64)
        _hash_words(self.pool, self.starts, self.lengths, hashes)
        return mix64(hashes)


@kernel
def _count_characters(
    pool: Bytes, starts: Int64s, lengths: Int64s, times: Int64s, counts: Int64s
) -> None:
    for i in range(starts.shape[0]):
        at = starts[i]
        while at < starts[i] + lengths[i]:
            lead = np.int64(pool[at])
            size, code = 1, lead
            if lead >= 0xF0:
                size, code = 4, lead & 0x07
            elif lead >= 0xE0:
                size, code = 3, lead & 0x0F
            elif lead >= 0xC0:
                size, code = 2, lead & 0x1F
            for more in range(at + 1, at + size):
                code = (code << 6) | (np.int64(pool[more]) & 0x3F)
            counts[code] += times[i]
            at += size


@kernel
def _hash_words(pool: Bytes, starts: Int64s, lengths: Int64s, hashes: U64) -> None:
    for i in range(starts.shape[0]):
        value = FNV_OFFSET  # FNV-1a
        for at in range(starts[i], starts[i] + lengths[i]):
            value = (value ^ np.uint64(pool[at])) * FNV_PRIME
        hashes[i] = value


class WordCounter:
    """Counts the words of lines: those that google-research/bert's BasicTokenizer makes of them.

    Its memory is bounded: when it is full, `add` hands out what it holds and begins anew. Words of
    over 200 characters, which BERT's tokenizer never looks up, are left out. Not thread-safe.

    Args:
      lower_case: lower-case words and strip accents.
    """

    def __init__(self, *, lower_case: bool) -> None:
        self._memory = WordMemory(lower_case=lower_case)
        self._counts = np.zeros(MAX_WORDS, np.int64)

    def add(self, lines: Lines) -> Iterator[WordTable]:
        """Counts the words of `lines`, valid UTF-8; yields the counts when the memory is full."""
        lines, _ = self._memory.prepare(lines)
        for part in self._memory.split(lines):
            self._counts += np.bincount(part.words, minlength=MAX_WORDS)
            if part.fills_memory:
                yield self.take()

    def take(self) -> WordTable:
        """Returns the counts since the last call, and clears them."""
        first = TOO_LONG + 1
        counts = self._counts[first : len(self._memory)].copy()
        table = WordTable(*self._memory.words_from(first), counts)
        self._memory.clear()
        self._counts.fill(0)
        # A line that found the memory full has left words there that are counted with the next.
        keep = table.counts > 0
        for i in np.flatnonzero(table.lengths > MAX_WORD_CHARS).tolist():
            start = table.starts[i]
            word = table.pool[start : start + table.lengths[i]].tobytes().decode("utf-8")
            keep[i] &= len(word) <= MAX_WORD_CHARS
        return table.select(keep)


@dataclass(frozen=True, slots=True)
class SketchSpec:
    """The size of a sketch.

    Attributes:
      kept_words: at most about so many words are counted exactly; a power of two.
    """

    kept_words: int

    @property
    def width(self) -> int:
        """Counters in a row."""
        return self.kept_words * _COUNTERS_PER_KEPT

    @property
    def size(self) -> int:
        """Counters in all."""
        return self.width * _SKETCH_ROWS

    @classmethod
    def for_words(cls, wanted: int) -> SketchSpec:
        """Returns the smallest that keeps so many words."""
        return cls(1 << max(0, wanted - 1).bit_length())


def _cells(table: WordTable, spec: SketchSpec) -> Iterator[Int64s]:
    """Yields, row by row, `[num_words] int64`: the word's counter among all of the sketch."""
    hashes = table.hashes()
    for row in range(_SKETCH_ROWS):
        row_hashes = combine(hashes, np.full(len(table), row, np.uint64))
        column = (row_hashes & np.uint64(spec.width - 1)).astype(np.int64)
        yield column + row * spec.width


def add_to_sketch(sketch: Int64s, table: WordTable, spec: SketchSpec) -> None:
    """Adds the counts of `table` to `sketch`, `[spec.size] int64`."""
    for cells in _cells(table, spec):
        np.add.at(sketch, cells, table.counts)


def choose_threshold(sketch: Int64s, spec: SketchSpec) -> int:
    """Returns the smallest count that at most `spec.kept_words` counters of any row reach."""
    rows = sketch.reshape(_SKETCH_ROWS, spec.width)
    # The largest counter that must not pass, one below the kept ones in order of size.
    beyond = np.partition(rows, spec.width - spec.kept_words - 1, axis=1)
    return int(beyond[:, spec.width - spec.kept_words - 1].max()) + 1


def passing(sketch: Int64s, threshold: int) -> Bytes:
    """Returns which counters reach `threshold`, packed eight to a byte, for `may_reach`."""
    return np.packbits(sketch >= threshold)


def may_reach(table: WordTable, packed: Bytes, spec: SketchSpec) -> Bools:
    """Returns `[num_words] bool`: False only for words whose total is below the threshold.

    Args:
      table: the words.
      packed: `[spec.size / 8] uint8`, from `passing`.
      spec: the size of the sketch.
    """
    may = np.ones(len(table), np.bool_)
    for cells in _cells(table, spec):
        may &= (packed[cells >> 3] >> (7 - (cells & 7)).astype(np.uint8)) & 1 == 1
    return may
