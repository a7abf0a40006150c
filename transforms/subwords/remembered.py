"""Lines -> ids of a Unigram by a memory of words: each distinct word meets the model once.

Text repeats its words. A kernel cuts lines into words (`word_ends.py`), looks each up in a bounded
hash table, and gives new ones to the model (`word_models.py`). When the table is full
it starts anew, which changes speed and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int32s, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.codec.numba_internals import word_at
from recordmill.records.hashing import FNV_OFFSET, GOLDEN, U64
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.best_path import Float64s, Path
from recordmill.transforms.subwords.tokenizer import Tokens
from recordmill.transforms.subwords.word_ends import marked_end
from recordmill.transforms.subwords.word_models import Model, Room, by_path

MAX_WORDS = 1 << 18
_SLOTS = 2 * MAX_WORDS
_FIRST_SLOTS = 1 << 13  # the table of short words grows: a small one stays in the caches
POOL_BYTES = 1 << 22
_SHORT_BYTES = 15  # most words: they fit into two numbers, which are compared at once
MAX_WORD_BYTES = 256  # a longer word is hardly met again, and is not remembered
_ROUNDING = 2.4e-7  # twice what a sum of 32 bits may be off, relative to it


_TIE = 1e-7  # of scores in 64 bits, whose last bits libraries read from JSON in their own ways
_MOST_SAFE = 1 << 16  # tokens: so many sums of 32 bits are off by less than the 1 % of `_SLACK`
_SLACK = 1.01
_FAR = 30_000.0  # SentencePiece 0.2.3 adds 32 bits in plain order up to there, and longer lines not


class Memory(NamedTuple):
    """The words met so far.

    Attributes:
      short: `[slots, 4] uint64`, a hash table of words of at most 15 bytes: the key in two
        numbers, its first two ids, and how many ids it has (bits 0 to 14), whether ways to segment
        it tie (15), its number (16 to 39) and `safe` (40 to 63).
      long: `[slots] int32`, a hash table of others: the number of a word, -1 for none.
      words: `[MAX_WORDS, 4] int64`: start and bytes in `pool`, start and number in `ids`.
      pool: `[POOL_BYTES] uint8`.
      ids: `[POOL_BYTES] int32`.
      margins: `[MAX_WORDS] float64`: see `best_path`; negative: never trust it.
      scores: `[MAX_WORDS] float64`: of the word's best path.
      safe: `[MAX_WORDS] int64`: behind fewer tokens of a line than this, what stands before the
        word cannot decide how it is segmented.
      used: `[3] int64`: words, bytes of the pool, ids.
    """

    short: U64
    long: Int32s
    words: Int64s
    pool: Bytes
    ids: Int32s
    margins: Float64s
    scores: Float64s
    safe: Int64s
    used: Int64s


@subroutine
def _pack(text: Bytes, at: int, end: int) -> tuple[np.uint64, np.uint64]:
    """Returns a word of at most 15 bytes as a key of two numbers, of which the second is not 0."""
    length = end - at
    if at + 16 <= text.shape[0]:
        if length < 8:
            kept = (np.uint64(1) << np.uint64(8 * length)) - np.uint64(1)
            return word_at(text, at) & kept, np.uint64(length) << np.uint64(56)
        kept = (np.uint64(1) << np.uint64(8 * length - 64)) - np.uint64(1)
        high = word_at(text, at + 8) & kept
        return word_at(text, at), high | np.uint64(length) << np.uint64(56)
    low, high = np.uint64(0), np.uint64(length) << np.uint64(56)
    shift = np.uint64(0)
    for i in range(at, min(end, at + 8)):
        low |= np.uint64(text[i]) << shift
        shift += np.uint64(8)
    shift = np.uint64(0)
    for i in range(at + 8, end):
        high |= np.uint64(text[i]) << shift
        shift += np.uint64(8)
    return low, high


@subroutine
def _probe(short: U64, low: np.uint64, high: np.uint64) -> np.int64:
    """Returns the slot of a key, or the free one where it belongs."""
    mask = np.int64(short.shape[0] - 1)
    hashed = (low ^ (high >> np.uint64(40)) ^ (high * GOLDEN)) * GOLDEN
    slot = np.int64(hashed >> np.uint64(36)) & mask
    while short[slot, 1] != 0 and (short[slot, 0] != low or short[slot, 1] != high):
        slot = (slot + 1) & mask
    return slot


@subroutine
def _probe_long(
    text: Bytes, at: int, end: int, long: Int32s, words: Int64s, pool: Bytes
) -> np.int64:
    """Returns the slot of a word of 16 bytes or more, or the free one where it belongs."""
    hashed = FNV_OFFSET
    for i in range(at, end):
        hashed = (hashed ^ np.uint64(text[i])) * GOLDEN
    slot = np.int64((hashed ^ (hashed >> np.uint64(29))) & np.uint64(_SLOTS - 1))
    while long[slot] >= 0:
        begin = words[long[slot], 0]
        same = words[long[slot], 1] == end - at
        i = 0
        while same and i < end - at:
            same = pool[begin + i] == text[at + i]
            i += 1
        if same:
            break
        slot = (slot + 1) & (_SLOTS - 1)
    return slot


@kernel
def _clear(memory: Memory) -> None:
    memory.short[:] = 0
    memory.long[:] = -1
    memory.used[:] = 0


@subroutine
def _is_fragile(before: float, size: int, margin: float, score: float) -> bool:
    """Tells whether what stands before a word may decide how it is segmented."""
    return margin <= (size + 4) * _ROUNDING * (abs(before) + abs(score) + 20.0)


@subroutine
def _safe_tokens(size: int, margin: float, score: float, largest: float) -> int:
    """Returns before how many tokens of a line a word is not fragile, whichever they are.

    Args:
      size, margin, score: of the word, in bytes; a score above 0 is of unknown characters.
      largest: the largest score of a token, without its sign.
    """
    most = margin / ((size + 4) * _ROUNDING) - abs(score) - 20.0
    if score > 0 or most <= 0:
        return 0
    return int(min(most / (_SLACK * max(largest, 1e-9)), float(_MOST_SAFE)))


@subroutine
def _learn(text: Bytes, at: int, end: int, model: Model, memory: Memory, room: Room) -> int:
    """Gives a new word to the model and remembers it; returns its number."""
    short, long, words, pool, known, margins, scores, safe, used = memory
    full = used[0] >= MAX_WORDS or 4 * used[0] >= 3 * short.shape[0]
    if full or used[1] + end - at > POOL_BYTES or used[2] + end - at > POOL_BYTES:
        _clear(memory)
    word, first = used[0], used[2]
    count = by_path(text, at, end, model, room, known, first, 0.0, False)
    margins[word] = room.result[0]
    # With an unknown character, the score is not to be had from ids: no score is above 0.
    scores[word] = 1.0 if room.result[2] > 0 else room.result[1]
    safe[word] = _safe_tokens(end - at, margins[word], scores[word], model.largest_score)
    words[word, 0] = used[1]
    words[word, 1] = end - at
    words[word, 2] = first
    words[word, 3] = count - first
    used[0] += 1
    used[2] = count
    if end - at > _SHORT_BYTES:
        long[_probe_long(text, at, end, long, words, pool)] = word
        pool[used[1] : used[1] + end - at] = text[at:end]
        used[1] += end - at
        return word
    low, high = _pack(text, at, end)
    slot = _probe(short, low, high)
    short[slot, 0] = low
    short[slot, 1] = high
    if count > first:
        short[slot, 2] = np.uint64(known[first])
    if count > first + 1:
        short[slot, 2] |= np.uint64(known[first + 1]) << np.uint64(32)
    short[slot, 3] = np.uint64(word) << np.uint64(16) | np.uint64(count - first)
    if margins[word] <= _TIE:
        short[slot, 3] |= np.uint64(0x8000)
    if model.single:
        short[slot, 3] |= np.uint64(safe[word]) << np.uint64(40)
    return word


@kernel
def _copy_short(old: U64, new: U64) -> None:
    for i in range(old.shape[0]):
        if old[i, 1] != 0:
            new[_probe(new, old[i, 0], old[i, 1])] = old[i]


@subroutine
def _join_unknown(ids: Int32s, begin: int, first: int, count: int, unknown_id: int) -> int:
    """Removes the first token of a word where it and the token before it are unknown."""
    if not begin < first < count or ids[first] != unknown_id or ids[first - 1] != unknown_id:
        return count
    for i in range(first, count - 1):
        ids[i] = ids[i + 1]
    return count - 1


@subroutine
def _take_known(words: Int64s, known: Int32s, word: int, ids: Int32s, count: int) -> int:
    """Appends the ids of a remembered word; returns the number of ids then."""
    for i in range(words[word, 2], words[word, 2] + words[word, 3]):
        ids[count] = known[i]
        count += 1
    return count


@subroutine
def _add_scores(scores: Float64s, ids: Int32s, first: int, end: int, before: float) -> float:
    """Adds the scores of tokens as SentencePiece does, in 32 bits."""
    for i in range(first, end):
        before = np.float64(np.float32(scores[ids[i]] + before))
    return before


@subroutine
def _is_quick(number: np.int64, single: bool, tokens: int) -> bool:
    """Tells whether the ids of a short word are those in its slot, and no more.

    Args:
      number: of the slot.
      single: what stands before the word may decide.
      tokens: what that is worth.
    """
    if single:
        return bool(tokens < number >> 40 and number & 0x7FFF <= 2)
    return bool(number & 0xFFFF <= 2)


@subroutine
def _trusted(word: int, before: float, size: int, margins: Float64s, totals: Float64s) -> int:
    """Returns a remembered word, or -1 where it must be segmented behind what stands before it."""
    if word < 0 or totals[word] > 0 or _is_fragile(before, size, margins[word], totals[word]):
        return -1
    return word


@subroutine
def _is_doubtful(room: Room, before: float, size: int, single: bool) -> bool:
    """Tells whether the library may segment the word in `room` in another way."""
    far = not single or before < -_FAR
    return far and _is_fragile(before, size, room.result[0], room.result[1] - before)


# Loops read arrays from local names: to take an array out of a tuple counts references.
@kernel
def _encode(  # noqa: C901, PLR0912 - a kernel: a call costs
    text: Bytes, starts: Int64s, ends: Int64s, first_line: int, model: Model, memory: Memory,
    room: Room, ids: Int32s, splits: Int64s, doubtful: Bools,
) -> int:  # fmt: skip
    """Fills `ids` and `splits` from a line on; returns the line at which the table should grow."""
    short, long, words, pool, known, margins, totals, safe, used = memory
    most = short.shape[0] // 2 if short.shape[0] < _SLOTS else MAX_WORDS + 1
    runs, scores = model.runs, model.pieces.scores
    single, largest = model.single, max(model.largest_score, 1e-9)
    count = splits[first_line]
    for line in range(first_line, starts.shape[0]):
        if used[0] > most:
            return line
        at, end = starts[line], ends[line]
        splits[line], before = count, np.float64(0.0)
        # `before` is the score of the line's tokens up to `summed`, which is worth `least` tokens.
        summed, least = count, 0
        while at < end:
            stop = marked_end(text, at, end, runs)
            first, word = count, -1
            if stop - at <= _SHORT_BYTES:
                low, high = _pack(text, at, stop)
                slot = _probe(short, low, high)
                if short[slot, 1] != 0:
                    number = np.int64(short[slot, 3])
                    word = int(number >> 16) & 0xFFFFFF
                    if _is_quick(number, single, least + count - summed):
                        pair = short[slot, 2]
                        ids[count] = np.int32(pair & np.uint64(0x7FFFFFFF))
                        ids[count + 1] = np.int32(pair >> np.uint64(32))
                        count += number & 0x7FFF
                        at = stop
                        if model.fuse_words:
                            count = _join_unknown(ids, splits[line], first, count, model.unknown_id)
                        continue
            elif stop - at <= MAX_WORD_BYTES:
                word = long[_probe_long(text, at, stop, long, words, pool)]
            if word < 0 and stop - at <= MAX_WORD_BYTES:
                word = _learn(text, at, stop, model, memory, room)
            if single and (word < 0 or least + count - summed >= safe[word]):
                before = np.float64(_add_scores(scores, ids, summed, count, before))
                summed, least = count, int(abs(before) / largest) + 1
                word = _trusted(word, before, stop - at, margins, totals)
            elif word >= 0 and not single and margins[word] <= _TIE:
                doubtful[line] = True
            if word >= 0:
                count = _take_known(words, known, word, ids, count)
            else:
                count = by_path(text, at, stop, model, room, ids, count, before, single)
                doubtful[line] |= _is_doubtful(room, before, stop - at, single)
                before = room.result[1]
            if model.fuse_words:
                count = _join_unknown(ids, splits[line], first, count, model.unknown_id)
            if word < 0:
                summed, least = count, int(abs(before) / largest) + 1
            at = stop
        splits[line + 1] = count
    return starts.shape[0]


class WordMemoryTokenizer:
    """A model and a memory of words: 40 MB at most.

    Args:
      model: of the tokenizer; lines must be normalized as it wants them.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._memory = Memory(
            short=np.zeros((_FIRST_SLOTS, 4), np.uint64),
            long=np.full(_SLOTS, -1, np.int32),
            words=np.empty((MAX_WORDS, 4), np.int64),
            pool=np.empty(POOL_BYTES, np.uint8),
            ids=np.empty(POOL_BYTES, np.int32),
            margins=np.empty(MAX_WORDS, np.float64),
            scores=np.empty(MAX_WORDS, np.float64),
            safe=np.empty(MAX_WORDS, np.int64),
            used=np.zeros(3, np.int64),
        )

    def clear(self) -> None:
        """Removes all words."""
        _clear(self._memory)

    def tokenize(self, lines: Lines) -> tuple[Tokens, Bools]:
        """Returns the ids of each line.

        Args:
          lines: prepared.

        Returns:
          The tokens, and `[num_lines] bool`: lines of which a library may make others, because two
          ways to segment them are as good, or nearly so.
        """
        lengths = lines.ends - lines.starts
        most = int(lengths.max(initial=0)) + 1
        ids = np.empty(int(lengths.sum()) + 2, np.int32)
        splits = np.zeros(len(lines) + 1, np.int64)
        path = Path(
            np.empty(most), np.empty(most), np.empty(most, np.int64), np.empty(most, np.int32)
        )
        doubtful = np.zeros(len(lines), np.bool_)
        room = Room(np.empty(most, np.int64), path, np.empty(3))
        # Bytes of a file cannot be written to, others can: for both, one kernel is compiled.
        text = lines.buffer.view()
        text.flags.writeable = False
        line = 0
        while line < len(lines):
            line = _encode(
                text, lines.starts, lines.ends, line, self._model, self._memory, room,
                ids, splits, doubtful,
            )  # fmt: skip
            if line < len(lines):
                larger = np.zeros((2 * len(self._memory.short), 4), np.uint64)
                _copy_short(self._memory.short, larger)
                self._memory = self._memory._replace(short=larger)
        return Tokens(ids[: splits[-1]], splits), doubtful
