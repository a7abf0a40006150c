"""Byte-level BPE from word counts (Sennrich et al. 2016, arXiv:1508.07909), one pair at a time.

The `tokenizers` library learns from a text, where billions of words would be counted one by one;
this learns the same merges from the counts. The most frequent pair of neighbours is merged
everywhere; of equally frequent ones, the pair whose tokens have the lower ids. Positions of each
pair are kept in a list, and stale ones are passed over, so a merge costs what it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Bytes, Int32s, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME, GOLDEN

_FIRST_ROOM = 1 << 16
# Positions in `used`.
_PAIRS, _LINKS, _HEAP, _TOKENS, _POOL, _MERGES, _TOUCHED = range(7)
_DONE, _FULL = 0, 1
_FORBIDDEN = -2


class Words(NamedTuple):
    """The symbols of all words, one behind the other.

    Attributes:
      symbols: `[num_symbols] int32`: the token at a position, if one still begins there.
      after, before: `[num_symbols] int32`: positions of the neighbours in the word, -1 for none.
      word: `[num_symbols] int32`: the number of the word.
      counts: `[num_words] int64`.
    """

    symbols: Int32s
    after: Int32s
    before: Int32s
    word: Int32s
    counts: Int64s


class Bigrams(NamedTuple):
    """All pairs of neighbours met so far, the positions of each, and a heap of them by count.

    Attributes:
      slots: `[slots] int32`, a hash table: the number of a pair, -1 for none.
      keys, counts: `[room] int64`: both tokens, and how often they are neighbours.
      first, last, links, stamps: `[room] int32`: the list of positions, its length, and the merge
        that last touched the pair.
      at, next: `[most links] int32`: the lists: a position, and the next link, -1 for none.
      heap_counts, heap_pairs: `[room] int64, int32`: the heap; counts may be out of date.
      touched: `[most links] int32`: the pairs that the merge adds to.
    """

    slots: Int32s
    keys: Int64s
    counts: Int64s
    first: Int32s
    last: Int32s
    links: Int32s
    stamps: Int32s
    at: Int32s
    next: Int32s
    heap_counts: Int64s
    heap_pairs: Int32s
    touched: Int32s


class Learned(NamedTuple):
    """The tokens and merges learned so far.

    Attributes:
      slots: `[slots] int32`, a hash table of spellings: a token's id, -1 for none.
      spans: `[vocab_size, 2] int64`: start and bytes of each in `pool`.
      pool: `[bytes] uint8`.
      merges: `[room, 3] int32`: left, right and merged token.
    """

    slots: Int32s
    spans: Int64s
    pool: Bytes
    merges: Int32s


@subroutine
def _find_pair(pairs: Bigrams, key: int | np.int64) -> np.int64:
    mask = pairs.slots.shape[0] - 1
    hashed = np.uint64(key) * GOLDEN
    slot = np.int64((hashed ^ (hashed >> np.uint64(32))) & np.uint64(mask))
    while pairs.slots[slot] >= 0 and pairs.keys[pairs.slots[slot]] != key:
        slot = (slot + 1) & mask
    return slot


@kernel
def _rebuild(pairs: Bigrams, used: Int64s) -> None:
    """Fills the hash table anew."""
    pairs.slots[:] = -1
    for pair in range(used[_PAIRS]):
        pairs.slots[_find_pair(pairs, pairs.keys[pair])] = pair


@subroutine
def _precedes(pairs: Bigrams, count_a: int, a: int, count_b: int, b: int) -> bool:
    if count_a != count_b:
        return count_a > count_b
    return pairs.keys[a] < pairs.keys[b]


@subroutine
def _push(pairs: Bigrams, used: Int64s, count: int, pair: int) -> None:
    at = used[_HEAP]
    used[_HEAP] += 1
    while at > 0:
        above = (at - 1) >> 1
        if not _precedes(pairs, count, pair, pairs.heap_counts[above], pairs.heap_pairs[above]):
            break
        pairs.heap_counts[at] = pairs.heap_counts[above]
        pairs.heap_pairs[at] = pairs.heap_pairs[above]
        at = above
    pairs.heap_counts[at], pairs.heap_pairs[at] = count, pair


@subroutine
def _pop(pairs: Bigrams, used: Int64s) -> None:
    """Removes the first of the heap."""
    used[_HEAP] -= 1
    size = used[_HEAP]
    count, pair = pairs.heap_counts[size], pairs.heap_pairs[size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _precedes(
            pairs, pairs.heap_counts[below + 1], pairs.heap_pairs[below + 1],
            pairs.heap_counts[below], pairs.heap_pairs[below],
        ):  # fmt: skip
            below += 1
        if not _precedes(
            pairs, pairs.heap_counts[below], pairs.heap_pairs[below], count, pair
        ):  # fmt: skip
            break
        pairs.heap_counts[at] = pairs.heap_counts[below]
        pairs.heap_pairs[at] = pairs.heap_pairs[below]
        at = below
    pairs.heap_counts[at], pairs.heap_pairs[at] = count, pair


@subroutine
def _key(left: int, right: int) -> np.int64:
    return (np.int64(left) << 32) | np.int64(right)


@subroutine
def _add(pairs: Bigrams, used: Int64s, words: Words, at: int, stamp: int) -> None:
    """Adds the pair that begins at a position."""
    key = _key(words.symbols[at], words.symbols[words.after[at]])
    slot = _find_pair(pairs, key)
    pair = int(pairs.slots[slot])
    link = used[_LINKS]
    used[_LINKS] += 1
    pairs.at[link], pairs.next[link] = at, -1
    if pair < 0:
        pair = used[_PAIRS]
        used[_PAIRS] += 1
        pairs.slots[slot] = pair
        pairs.keys[pair], pairs.counts[pair] = key, 0
        pairs.first[pair], pairs.links[pair], pairs.stamps[pair] = -1, 0, -1
    if pairs.first[pair] < 0:
        pairs.first[pair] = link
    else:
        pairs.next[pairs.last[pair]] = link
    pairs.last[pair] = link
    pairs.links[pair] += 1
    pairs.counts[pair] += words.counts[words.word[at]]
    if pairs.stamps[pair] != stamp:
        pairs.stamps[pair] = stamp
        pairs.touched[used[_TOUCHED]] = pair
        used[_TOUCHED] += 1


@subroutine
def _take_away(pairs: Bigrams, words: Words, left: int, right: int, at: int) -> None:
    pair = pairs.slots[_find_pair(pairs, _key(left, right))]
    if pair >= 0:
        pairs.counts[pair] -= words.counts[words.word[at]]


@kernel
def _push_touched(pairs: Bigrams, used: Int64s, least: int) -> None:
    for i in range(used[_TOUCHED]):
        pair = pairs.touched[i]
        if pairs.counts[pair] >= least:
            _push(pairs, used, pairs.counts[pair], pair)
    used[_TOUCHED] = 0


@kernel
def _add_all(pairs: Bigrams, used: Int64s, words: Words, begin: int) -> int:
    """Adds the pairs from a position on; returns where the room ends."""
    for at in range(begin, words.symbols.shape[0]):
        if used[_PAIRS] + 1 >= pairs.keys.shape[0]:
            return at
        if words.after[at] >= 0:
            _add(pairs, used, words, at, 0)
    return words.symbols.shape[0]


@subroutine
def _merge(pairs: Bigrams, used: Int64s, words: Words, pair: int, merged: int, stamp: int) -> None:
    """Merges a pair at all its positions, from left to right."""
    left, right = pairs.keys[pair] >> 32, pairs.keys[pair] & 0xFFFFFFFF
    link = int(pairs.first[pair])
    pairs.first[pair], pairs.links[pair] = -1, 0
    while link >= 0:
        at = int(pairs.at[link])
        link = int(pairs.next[link])
        behind = int(words.after[at])
        if words.symbols[at] != left or behind < 0 or words.symbols[behind] != right:
            continue  # another merge was there since
        before, after = int(words.before[at]), int(words.after[behind])
        if before >= 0:
            _take_away(pairs, words, words.symbols[before], left, at)
        if after >= 0:
            _take_away(pairs, words, right, words.symbols[after], at)
            words.before[after] = at
        words.symbols[at], words.after[at] = merged, after
        words.symbols[behind] = -1
        if before >= 0:
            _add(pairs, used, words, before, stamp)
        if after >= 0:
            _add(pairs, used, words, at, stamp)
    pairs.counts[pair] = 0


@subroutine
def _find_spelling(tokens: Learned, begin: int, size: int) -> np.int64:
    """Returns the slot of a spelling in the pool."""
    hashed = FNV_OFFSET
    for i in range(begin, begin + size):
        hashed = (hashed ^ np.uint64(tokens.pool[i])) * FNV_PRIME
    mask = tokens.slots.shape[0] - 1
    slot = np.int64((hashed ^ (hashed >> np.uint64(32))) & np.uint64(mask))
    while tokens.slots[slot] != -1:
        token = int(tokens.slots[slot])
        same = tokens.spans[token, 1] == size
        i = 0
        while same and i < size:
            same = tokens.pool[tokens.spans[token, 0] + i] == tokens.pool[begin + i]
            i += 1
        if same:
            break
        slot = (slot + 1) & mask
    return slot


@subroutine
def _join(tokens: Learned, used: Int64s, left: int, right: int, special: int) -> int:
    """Returns the token that two others make, perhaps a new one; `_FORBIDDEN` for a special one."""
    begin = used[_POOL]
    size = tokens.spans[left, 1] + tokens.spans[right, 1]
    for i in range(tokens.spans[left, 1]):
        tokens.pool[begin + i] = tokens.pool[tokens.spans[left, 0] + i]
    for i in range(tokens.spans[right, 1]):
        tokens.pool[begin + tokens.spans[left, 1] + i] = tokens.pool[tokens.spans[right, 0] + i]
    slot = _find_spelling(tokens, begin, size)
    if tokens.slots[slot] >= 0:
        return int(tokens.slots[slot]) if tokens.slots[slot] >= special else _FORBIDDEN
    token = int(used[_TOKENS])
    used[_TOKENS] += 1
    used[_POOL] += size
    tokens.slots[slot] = token
    tokens.spans[token, 0], tokens.spans[token, 1] = begin, size
    return token


@kernel
def _enter(tokens: Learned, used: Int64s) -> None:
    """Fills the hash table with the first tokens."""
    for token in range(used[_TOKENS]):
        begin, size = tokens.spans[token, 0], tokens.spans[token, 1]
        if size > 0:
            tokens.slots[_find_spelling(tokens, begin, size)] = token


@kernel
def _learn(
    pairs: Bigrams, tokens: Learned, words: Words, used: Int64s, least: int, special: int
) -> int:
    """Merges until the tokens are enough, or pairs are rarer than `least`, or room is short."""
    while used[_TOKENS] < tokens.spans.shape[0] and used[_HEAP] > 0:
        count, pair = pairs.heap_counts[0], int(pairs.heap_pairs[0])
        if count != pairs.counts[pair]:
            _pop(pairs, used)
            if pairs.counts[pair] >= least:
                _push(pairs, used, pairs.counts[pair], pair)
            continue
        room = max(used[_PAIRS], used[_HEAP]) + 2 * pairs.links[pair] + 2
        left, right = pairs.keys[pair] >> 32, pairs.keys[pair] & 0xFFFFFFFF
        size = tokens.spans[left, 1] + tokens.spans[right, 1]
        if room > pairs.keys.shape[0] or used[_POOL] + size > tokens.pool.shape[0]:
            return _FULL
        if used[_MERGES] == tokens.merges.shape[0]:
            return _FULL
        _pop(pairs, used)
        merged = _join(tokens, used, left, right, special)
        if merged == _FORBIDDEN:
            pairs.counts[pair] = 0
            continue
        merge = used[_MERGES]
        used[_MERGES] += 1
        tokens.merges[merge, 0], tokens.merges[merge, 1] = left, right
        tokens.merges[merge, 2] = merged
        _merge(pairs, used, words, pair, merged, merge + 1)
        _push_touched(pairs, used, least)
    return _DONE


def _words(counts: Sequence[tuple[bytes, int]], byte_ids: Int32s) -> Words:
    data = np.frombuffer(b"".join(word for word, _ in counts), np.uint8)
    lengths = np.array([len(word) for word, _ in counts], np.int64)
    ends = np.cumsum(lengths)
    after = np.arange(1, len(data) + 1, dtype=np.int32)
    after[ends[lengths > 0] - 1] = -1
    before = np.arange(-1, len(data) - 1, dtype=np.int32)
    before[(ends - lengths)[lengths > 0]] = -1
    word = np.repeat(np.arange(len(counts), dtype=np.int32), lengths)
    numbers = np.array([count for _, count in counts], np.int64)
    return Words(byte_ids[data], after, before, word, numbers)


def _pairs(num_symbols: int) -> Bigrams:
    room, links = _FIRST_ROOM, 3 * num_symbols + 1  # a merged position adds two at most
    return Bigrams(
        slots=np.full(2 * room, -1, np.int32), keys=np.zeros(room, np.int64),
        counts=np.zeros(room, np.int64), first=np.zeros(room, np.int32),
        last=np.zeros(room, np.int32), links=np.zeros(room, np.int32),
        stamps=np.zeros(room, np.int32), at=np.zeros(links, np.int32),
        next=np.zeros(links, np.int32), heap_counts=np.zeros(room, np.int64),
        heap_pairs=np.zeros(room, np.int32), touched=np.zeros(links, np.int32),
    )  # fmt: skip


def _grown(pairs: Bigrams, used: Int64s, room: int) -> Bigrams:
    size = len(pairs.keys)
    while size < room:
        size *= 2
    per_pair = ("keys", "counts", "first", "last", "links", "stamps", "heap_counts", "heap_pairs")
    columns = {name: np.resize(getattr(pairs, name), size) for name in per_pair}
    grown = pairs._replace(slots=np.full(2 * size, -1, np.int32), **columns)
    _rebuild(grown, used)
    return grown


def learn_merges(
    counts: Sequence[tuple[bytes, int]], *, vocab_size: int, special: Sequence[bytes],
    byte_order: Sequence[int], min_count: int,
) -> tuple[list[bytes], list[tuple[int, int]]]:  # fmt: skip
    """Returns the tokens by id, and the merges in order as pairs of ids.

    Args:
      counts: words and their counts. Symbols are bytes; merges never go over words.
      vocab_size: the most tokens; at least the special tokens and 256.
      special: the spellings of the first tokens, which no merge makes; b"" for one that none could.
      byte_order: the bytes in order of their ids, which follow.
      min_count: the count of a pair from which on it is merged.

    Deterministic: it depends on the counts, and not on their order.
    """
    first = [*special, *(bytes([byte]) for byte in byte_order)]
    byte_ids = np.zeros(256, np.int32)
    byte_ids[list(byte_order)] = np.arange(len(special), len(first))
    words = _words(counts, byte_ids)
    used = np.zeros(7, np.int64)
    spans = np.zeros((vocab_size, 2), np.int64)
    sizes = np.array([len(token) for token in first])
    spans[: len(first), 1], spans[: len(first), 0] = sizes, np.cumsum(sizes) - sizes
    pool = np.zeros(max(_FIRST_ROOM, 16 * vocab_size), np.uint8)
    pool[: sizes.sum()] = np.frombuffer(b"".join(first), np.uint8)
    slots = np.full(1 << (4 * vocab_size).bit_length(), -1, np.int32)
    tokens = Learned(slots, spans, pool, np.zeros((vocab_size, 3), np.int32))
    used[_TOKENS], used[_POOL] = len(first), sizes.sum()
    _enter(tokens, used)
    pairs, done = _pairs(len(words.symbols)), 0
    while (done := _add_all(pairs, used, words, done)) < len(words.symbols):
        pairs = _grown(pairs, used, 2 * len(pairs.keys))
    if used[_TOUCHED] > len(pairs.heap_pairs):
        pairs = _grown(pairs, used, int(used[_TOUCHED]))
    _push_touched(pairs, used, max(1, min_count))
    while _learn(pairs, tokens, words, used, max(1, min_count), len(special)) == _FULL:
        most = int(pairs.links[: used[_PAIRS]].max()) if used[_PAIRS] else 0
        pairs = _grown(pairs, used, int(max(used[_PAIRS], used[_HEAP])) + 2 * most + 2)
        grown = np.resize(tokens.pool, 2 * len(tokens.pool) + 4096)
        merges = np.resize(tokens.merges, (2 * len(tokens.merges), 3))
        tokens = tokens._replace(pool=grown, merges=merges)
    data = tokens.pool.tobytes()
    rows = tokens.spans[: used[_TOKENS]].tolist()
    made = tokens.merges[: used[_MERGES], :2].tolist()
    return [data[begin : begin + size] for begin, size in rows], [(a, b) for a, b in made]
