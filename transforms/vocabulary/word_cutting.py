"""How text is cut into the words that a kind of tokenizer learns from: by its own rules.

WordPiece learns from BERT's words (`word_counts.py`). Byte-level BPE learns from GPT-2's, each with
the space before it; Unigram from what SentencePiece makes of a text, where "▁" stands for a space.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Protocol

import numpy as np

from recordmill.records.arrays import Bytes, Int32s, Int64s
from recordmill.records.codec.jit import kernel, subroutine
from recordmill.records.hashing import FNV_OFFSET, FNV_PRIME
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.byte_pairs import byte_letters
from recordmill.transforms.subwords.char_classes import char_classes
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.quick_json import library_normalizer, prepare_json
from recordmill.transforms.subwords.quick_pieces import prepare_marked
from recordmill.transforms.subwords.word_ends import GPT2, MARKED_RUNS, word_end
from recordmill.transforms.vocabulary.vocab_spec import Kind
from recordmill.transforms.vocabulary.word_counts import WordCounter, WordTable

LOWER_CASE_JSON = {"type": "Lowercase"}
MAX_WORD_BYTES = 1024  # a longer one is data within text, and is not learned from
_MAX_WORDS = 1 << 18
_SLOTS = 2 * _MAX_WORDS
_POOL_BYTES = 1 << 23


class CountsWords(Protocol):
    """Counts the words of lines in bounded memory; not thread-safe."""

    def add(self, lines: Lines) -> Iterator[WordTable]:
        """Counts the words of `lines`, valid UTF-8; yields the counts when the memory is full."""
        ...

    def take(self) -> WordTable:
        """Returns the counts since the last call, and clears them."""
        ...


def word_counter(kind: Kind, *, lower_case: bool) -> CountsWords:
    """Returns what counts the words of a kind of tokenizer.

    Args:
      kind: of the tokenizer.
      lower_case: lower-case words; of WordPiece, also strip accents.
    """
    if kind == "wordpiece":
        return WordCounter(lower_case=lower_case)
    if kind == "bpe":
        return CutWordCounter(_plain(lower_case=lower_case), GPT2)
    return CutWordCounter(_marked(lower_case=lower_case), MARKED_RUNS)


def _plain(*, lower_case: bool) -> Preparation:
    if not lower_case:
        return Preparation()
    from tokenizers import Tokenizer, models, normalizers

    library = Tokenizer(models.BPE())
    library.normalizer = normalizers.Lowercase()
    prepared = prepare_json(LOWER_CASE_JSON, library_normalizer(library))
    if prepared is None:
        raise ValueError("lower-casing must be known to the kernels")
    return prepared


def unigram_rule(*, lower_case: bool) -> str:
    """Returns SentencePiece's name of a normalization: NFKC, T5's, or that with case folded."""
    return "nmt_nfkc_cf" if lower_case else "nmt_nfkc"


def _marked(*, lower_case: bool) -> Preparation:
    from sentencepiece import SentencePieceNormalizer

    library = SentencePieceNormalizer(
        rule_name=unigram_rule(lower_case=lower_case), add_dummy_prefix=True,
        escape_whitespaces=True, remove_extra_whitespaces=True,
    )  # fmt: skip
    return prepare_marked(library.normalize, blanks="all", prefix="always")


def key_of(kind: Kind, word: bytes) -> bytes:
    """Returns a word as it is written into a file of counts: without spaces and line ends.

    Of BPE, letters stand for the bytes, as in its tokenizer.json.
    """
    if kind != "bpe":
        return word
    return word.decode("latin-1").translate(_letters()).encode()


@cache
def _letters() -> dict[int, str]:
    return {byte: letter for letter, byte in byte_letters().items()}


class CutWordCounter:
    """Counts the words that a kernel cuts; words of over 1024 bytes are left out.

    Args:
      preparation: what is done to lines first.
      cut: how words are cut: see `word_end`.
      max_words, pool_bytes: that are kept before a table of them is returned.
    """

    def __init__(
        self,
        preparation: Preparation,
        cut: int,
        max_words: int = _MAX_WORDS,
        pool_bytes: int = _POOL_BYTES,
    ) -> None:
        self._preparation = preparation
        self._cut = cut
        self._classes = char_classes() if cut == GPT2 else np.zeros(1, np.uint8)
        self._slots = np.full(_SLOTS, -1, np.int32)
        self._words = np.zeros((max_words, 3), np.int64)  # start and bytes in the pool, count
        self._pool = np.zeros(pool_bytes, np.uint8)
        self._used = np.zeros(2, np.int64)  # words, bytes of the pool

    def add(self, lines: Lines) -> Iterator[WordTable]:
        """See `CountsWords`."""
        lines = self._preparation.apply(lines)
        line = at = 0
        while line < len(lines):
            line, at = _count(
                lines.buffer, lines.starts, lines.ends, line, at, self._cut, self._classes,
                self._slots, self._words, self._pool, self._used,
            )  # fmt: skip
            if line < len(lines):
                yield self.take()

    def take(self) -> WordTable:
        """See `CountsWords`."""
        words, used = self._words[: self._used[0]].copy(), int(self._used[1])
        table = WordTable(self._pool[:used].copy(), words[:, 0], words[:, 1], words[:, 2])
        self._slots.fill(-1)
        self._used.fill(0)
        return table


@subroutine
def _find(
    text: Bytes, at: int, end: int, slots: Int32s, words: Int64s, pool: Bytes
) -> tuple[np.int64, np.int64]:
    """Returns the number of a word, -1 for a new one, and its slot."""
    hashed = FNV_OFFSET
    for i in range(at, end):
        hashed = (hashed ^ np.uint64(text[i])) * FNV_PRIME
    slot = np.int64((hashed ^ (hashed >> np.uint64(29))) & np.uint64(slots.shape[0] - 1))
    while slots[slot] >= 0:
        word = np.int64(slots[slot])
        same = words[word, 1] == end - at
        i = 0
        while same and i < end - at:
            same = pool[words[word, 0] + i] == text[at + i]
            i += 1
        if same:
            return word, slot
        slot = (slot + 1) & (slots.shape[0] - 1)
    return np.int64(-1), slot


@kernel
def _count(
    text: Bytes, starts: Int64s, ends: Int64s, line: int, done: int, cut: int, classes: Bytes,
    slots: Int32s, words: Int64s, pool: Bytes, used: Int64s,
) -> tuple[int, int]:  # fmt: skip
    """Counts words until the memory is full; returns the line and the bytes of it that are done."""
    while line < starts.shape[0]:
        at, end = starts[line] + done, ends[line]
        while at < end:
            after = word_end(text, at, end, cut, classes)
            if after - at > MAX_WORD_BYTES:
                at = after
                continue
            word, slot = _find(text, at, after, slots, words, pool)
            if word < 0:
                if used[0] == words.shape[0] or used[1] + after - at > pool.shape[0]:
                    return line, at - starts[line]
                word = used[0]
                slots[slot] = word
                words[word, 0], words[word, 1], words[word, 2] = used[1], after - at, 0
                for i in range(at, after):
                    pool[used[1] + i - at] = text[i]
                used[0] += 1
                used[1] += after - at
            words[word, 2] += 1
            at = after
        line += 1
        done = 0
    return line, 0
