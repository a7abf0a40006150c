"""MinHash signatures of documents, and the bands by which similar ones meet (Broder 1997; Lee et
al. 2022, arXiv:2107.06499; datatrove's defaults: 14 bands of 8 hashes over word 5-grams).

A signature has the least of many hashes over all 5-grams; two documents agree in a share of them
that is about their Jaccard similarity. Documents that agree in all hashes of a band meet, and the
similarity of those is estimated from two bits of each hash (Li and König 2010, arXiv:0910.3349),
which travel with the band, so that nobody has to look up a signature.

Words are letters and digits between other characters, ASCII lower-cased. In scripts that write
without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) a character counts as a word. A
document of fewer than five words has one n-gram of all of them.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.randomness import mix_one
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME, GOLDEN, U64, mix64, seed_for
from recordmill.transforms.sources.document_batch import DocumentBatch

U32 = npt.NDArray[np.uint32]

MOST_HASHES = 112
SKETCH_WORDS = 4  # of 64 bits: two for each hash
_LEAST_RECALL = 0.9
_WORDS_BEFORE = 4  # of a 5-gram
_FACTORS = GOLDEN + np.arange(0, 2 * _WORDS_BEFORE, 2, dtype=np.uint64)
_NO_HASH = np.uint32(0xFFFFFFFF)
_SKETCH_FACTOR = np.uint32(0x9E3779B1)
_LOW_BITS = np.uint64(0x5555555555555555)
_SEPARATOR, _LETTER, _OWN_WORD = 0, 1, 2
# Byte -> the byte that a word has for it, 0 for a separator.
_LETTERS = np.array(
    [
        ord(chr(i).lower()) if i < 128 and chr(i).isalnum() else i if i >= 128 else 0
        for i in range(256)
    ],
    np.uint8,
)


def choose_bands(threshold: float) -> tuple[int, int]:
    """Returns the number of bands, and of hashes in each, for a similarity.

    Of `MOST_HASHES` hashes, bands have as many as let nine of ten pairs at the threshold meet:
    1 - (1 - threshold ** rows) ** bands. That is 14 bands of 8 for 0.8, as datatrove has them.
    """
    best = (MOST_HASHES, 1)
    for rows in range(1, MOST_HASHES + 1):
        bands = MOST_HASHES // rows
        if 1 - (1 - threshold**rows) ** bands >= _LEAST_RECALL:
            best = (bands, rows)
    return best if threshold < 1 else (1, MOST_HASHES)


@subroutine
def _kind(buffer: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns what the character at a byte beyond ASCII is, and its bytes; of letters one."""
    byte = buffer[at]
    left = end - at
    if byte == 0xC2 and left > 1:  # Latin-1's punctuation
        return _SEPARATOR, 2
    if 0xE0 <= byte <= 0xEF and left > 2:
        second, third = buffer[at + 1], buffer[at + 2]
        if (byte == 0xE2 and second <= 0x81) or (byte == 0xE3 and second == 0x80):
            return _SEPARATOR, 3  # general and CJK punctuation
        if byte == 0xEF and second == 0xBC and (third <= 0x8F or 0x9A <= third <= 0xA0):
            return _SEPARATOR, 3  # full-width punctuation
        if 0xE3 <= byte <= 0xE9 or byte == 0xEF:
            return _OWN_WORD, 3
        if (byte == 0xE0 and 0xB8 <= second <= 0xBB) or (
            byte == 0xE1 and (second <= 0x82 or 0x9E <= second <= 0x9F)
        ):
            return _OWN_WORD, 3
    if byte >= 0xF0 and left > 3:
        return _OWN_WORD, 4
    return _LETTER, 1


@subroutine
def _lower_mins(mins: U32, ngram: np.uint64, odd: U32, more: U32) -> None:
    low, high = np.uint32(ngram), np.uint32(ngram >> np.uint64(32))
    for j in range(odd.shape[0]):
        # Each product of 32 bits alone: so the loop becomes vector code.
        value = np.uint32(np.uint32(low * odd[j]) + np.uint32(high * more[j]))
        mins[j] = min(mins[j], value)


@kernel
def _sign(
    buffer: Bytes, starts: Int64s, ends: Int64s, documents: Int64s, words: U64, counts: Int64s,
    mins: U32, odd: U32, more: U32,
) -> None:  # fmt: skip
    for i in range(starts.shape[0]):
        d = documents[i]
        last, second, third, fourth = words[d, 0], words[d, 1], words[d, 2], words[d, 3]
        count, signature = counts[d], mins[d]
        word = FNV_OFFSET
        inside = False
        at, end = starts[i], ends[i]
        while at <= end:
            letter, size, is_own = np.uint8(0), 1, False
            if at < end:
                letter = _LETTERS[buffer[at]]
                if letter >= 128:
                    kind, size = _kind(buffer, at, end)
                    is_own = kind == _OWN_WORD
                    if kind != _LETTER:
                        letter = np.uint8(0)
            if letter:
                word = (word ^ np.uint64(letter)) * FNV_PRIME
                inside = True
                at += 1
                continue
            for turn in range(2):  # the word that ends here, and the character that is one
                if turn == 0 and not inside:
                    continue
                if turn == 1:
                    if not is_own:
                        break
                    for k in range(size):
                        word = (word ^ np.uint64(buffer[at + k])) * FNV_PRIME
                word = mix_one(word)
                if count >= _WORDS_BEFORE:
                    ngram = word + last * _FACTORS[0] + second * _FACTORS[1]
                    ngram += third * _FACTORS[2] + fourth * _FACTORS[3]
                    _lower_mins(signature, mix_one(ngram), odd, more)
                last, second, third, fourth = word, last, second, third
                count += 1
                word = FNV_OFFSET
            inside = False
            at += size
        words[d, 0], words[d, 1], words[d, 2], words[d, 3] = last, second, third, fourth
        counts[d] = count


@kernel
def _finish(
    words: U64, counts: Int64s, mins: U32, odd: U32, more: U32, bands: int, hashes: U64
) -> None:
    """Fills the hash of each band, and the sketch behind them."""
    rows = odd.shape[0] // bands
    for d in range(counts.shape[0]):
        if counts[d] <= _WORDS_BEFORE:
            ngram = np.uint64(counts[d])
            for k in range(counts[d]):
                ngram += words[d, k] * _FACTORS[k]
            _lower_mins(mins[d], mix_one(ngram), odd, more)
        for band in range(bands):
            value = mix_one(np.uint64(band + 1) * GOLDEN)
            for j in range(band * rows, (band + 1) * rows):
                value = mix_one(value ^ np.uint64(mins[d, j]))
            hashes[d, band] = value
        for j in range(odd.shape[0]):
            bits = np.uint64(np.uint32(mins[d, j] * _SKETCH_FACTOR) >> np.uint32(30))
            hashes[d, bands + j // 32] |= bits << np.uint64(2 * (j % 32))


@subroutine
def differing_hashes(rows: U64, a: int, b: int, first: int) -> int:
    """Returns in how many pairs of bits two sketches differ, from column `first` on."""
    count = 0
    for k in range(SKETCH_WORDS):
        bits = rows[a, first + k] ^ rows[b, first + k]
        bits = (bits | (bits >> np.uint64(1))) & _LOW_BITS
        while bits:
            bits &= bits - np.uint64(1)
            count += 1
    return count


def most_differing(threshold: float) -> int:
    """Returns in how many pairs of bits documents of at least this similarity differ.

    Hashes that differ have equal bits in a quarter of the cases.
    """
    bands, rows = choose_bands(threshold)
    return math.floor(bands * rows * (1 - threshold) * 0.75 + 1e-9)


class MinHasher:
    """Signs the documents of consecutive batches.

    Args:
      threshold: the similarity from which documents should meet.
    """

    def __init__(self, threshold: float) -> None:
        self._bands, rows = choose_bands(threshold)
        count = self._bands * rows
        draws = mix64(np.arange(count, dtype=np.uint64) + np.uint64(seed_for(0, "minhash")))
        self._odd = draws.astype(np.uint32) | np.uint32(1)
        self._more = (draws >> np.uint64(32)).astype(np.uint32)
        self._open = self._new(0)

    def _new(self, count: int) -> tuple[U64, Int64s, U32]:
        """Returns the last words, the number of words and the signatures of documents."""
        return (
            np.zeros((count, _WORDS_BEFORE), np.uint64),
            np.zeros(count, np.int64),
            np.full((count, len(self._odd)), _NO_HASH),
        )

    def add(self, batch: DocumentBatch, *, goes_on: bool) -> tuple[Int64s, U64]:
        """Signs the documents that end in a batch.

        Args:
          batch: at least one document.
          goes_on: the next batch has the rest of the last document.

        Returns:
          `[n] int64`: those documents, from 0 on, of which each has words; `[n, bands + 4] uint64`:
          the hash of each band, and the sketch.
        """
        words, counts, mins = self._new(len(batch.keys))
        if batch.continues:
            words[:1], counts[:1], mins[:1] = self._open
        lines = batch.lines
        _sign(
            lines.buffer, lines.starts, lines.ends, batch.line_documents, words, counts, mins,
            self._odd, self._more,
        )  # fmt: skip
        if goes_on:
            self._open = words[-1:].copy(), counts[-1:].copy(), mins[-1:].copy()
            counts = counts[:-1]
        chosen = np.flatnonzero(counts)
        hashes = np.zeros((len(chosen), self._bands + SKETCH_WORDS), np.uint64)
        _finish(
            words[chosen], counts[chosen], mins[chosen], self._odd, self._more, self._bands, hashes
        )
        return chosen, hashes

    def rows(self, documents: U64, hashes: U64) -> U64:
        """Returns `[n * bands, 6] uint64`: hash of a band, document, sketch."""
        rows = np.empty((len(documents) * self._bands, 2 + SKETCH_WORDS), np.uint64)
        rows[:, 0] = hashes[:, : self._bands].reshape(-1)
        rows[:, 1] = np.repeat(documents, self._bands)
        rows[:, 2:] = np.repeat(hashes[:, self._bands :], self._bands, axis=0)
        return rows
