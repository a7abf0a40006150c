"""WordPiece at the speed of memory: a kernel finds words, the `tokenizers` library spells the new
ones.

Text repeats its words, so the ids of a word are computed once, by `tokenizers`' WordPiece model,
and looked up from then on. The kernel splits ASCII lines by BERT's rules itself; other lines are
normalized first (`normalization.py`). Measured in `benchmarks/text.py` beside `tokenizers` alone
and beside tensorflow_text's FastBertTokenizer; neither TensorFlow's 3 seconds of import nor its
memory is needed in a worker.
"""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers.models import WordPiece

from recordmill.records.errors import UsageError
from recordmill.records.jit import kernel
from recordmill.transforms.lines import Bools, Bytes, Int64s, Lines
from recordmill.transforms.normalization import Normalizer

Ids = npt.NDArray[np.int32]

MAX_WORD_CHARS = 200  # FullTokenizer's max_input_chars_per_word: a longer word is [UNK]
_MAX_WORD_BYTES = 4 * MAX_WORD_CHARS
MAX_WORDS = 1 << 18
SLOTS = 2 * MAX_WORDS
POOL_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 17  # even of one-letter words, a line fits the memory of words
_UNKNOWN = 0  # the first word of the memory stands for words too long to keep

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Vocabulary:
    """A WordPiece vocabulary: token i is line i of the file.

    Raises:
      UsageError: a special token is missing, or a token stands twice.
    """

    tokens: tuple[str, ...]
    source: str = "vocabulary"

    def __post_init__(self) -> None:
        missing = [token for token in SPECIAL_TOKENS if token not in self.ids]
        if missing:
            raise UsageError(
                f"--vocab_file {self.source} must contain {', '.join(SPECIAL_TOKENS)}; "
                f"it lacks {', '.join(missing)}: make one with `recordmill vocab`"
            )
        if len(self.ids) != len(self.tokens):
            twice = next(t for i, t in enumerate(self.tokens) if self.ids[t] != i)
            raise UsageError(f"--vocab_file {self.source} contains {twice!r} twice; remove one")

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Vocabulary:
        """Reads a vocabulary file: one token a line, UTF-8."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"--vocab_file {source} must be UTF-8: {error}") from error
        lines = text.replace("\r\n", "\n").split("\n")
        if lines and not lines[-1]:
            lines.pop()
        return cls(tuple(line.strip() for line in lines), source)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        return {token: i for i, token in enumerate(self.tokens)}

    @cached_property
    def checksum(self) -> str:
        """blake2b of the tokens: what the manifest stores."""
        return hashlib.blake2b("\n".join(self.tokens).encode(), digest_size=16).hexdigest()

    @cached_property
    def continues_word(self) -> Bools:
        """`[vocab_size] bool`: True for pieces within a word ("##x")."""
        return np.array([token.startswith("##") for token in self.tokens], np.bool_)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of many lines: line i has `ids[row_splits[i]:row_splits[i + 1]]`."""

    ids: Ids
    row_splits: Int64s


_LETTER, _SPACE, _DROPPED, _MARK = 0, 1, 2, 3


def _byte_kinds() -> Bytes:
    """What BERT's rules make of each byte: ASCII as it is, all other as letters of a word."""
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


@kernel
def _find_word(memory: Any, scratch: Bytes, length: int, hashed: np.uint64, counts: Int64s) -> int:
    """Returns the number of the word in `scratch`, a new one where it is not known; -1: no room."""
    slot_hashes, slot_words, pool, word_starts, word_lengths = memory
    if length > _MAX_WORD_BYTES:
        return _UNKNOWN
    hashed ^= hashed >> np.uint64(29)
    slot = np.int64(hashed & np.uint64(SLOTS - 1))
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
        slot = (slot + 1) & (SLOTS - 1)
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
def find_words(
    lines: Any,
    first: int,
    lower_case: bool,
    memory: Any,
    counts: Int64s,
    words: Ids,
    splits: Int64s,
) -> int:
    """Fills `words` and `splits` from line `first` on; returns the line at which memory ran out."""
    buffer, starts, ends = lines
    folded = _LOWER_CASE if lower_case else _SAME_CASE
    scratch = np.empty(_MAX_WORD_BYTES + 1, np.uint8)
    space = np.uint8(32)
    found = splits[first]
    for line in range(first, starts.shape[0]):
        splits[line] = found
        length = 0
        hashed = np.uint64(0xCBF29CE484222325)
        for at in range(starts[line], ends[line] + 1):
            byte = folded[buffer[at]] if at < ends[line] else space
            kind = _BYTE_KINDS[byte]
            if kind == _LETTER:
                if length <= _MAX_WORD_BYTES:
                    scratch[length] = byte
                    length += 1
                hashed = (hashed ^ np.uint64(byte)) * np.uint64(0x9E3779B97F4A7C15)
                continue
            if kind == _DROPPED:
                continue
            if length:
                word = _find_word(memory, scratch, length, hashed, counts)
                if word < 0:
                    return line
                words[found] = word
                found += 1
                length = 0
                hashed = np.uint64(0xCBF29CE484222325)
            if kind == _MARK:
                scratch[0] = byte
                mark = np.uint64(byte) * np.uint64(0x9E3779B97F4A7C15)
                word = _find_word(memory, scratch, 1, mark, counts)
                if word < 0:
                    return line
                words[found] = word
                found += 1
    splits[starts.shape[0]] = found
    return starts.shape[0]


@kernel
def _spell(
    words: Ids, splits: Int64s, spellings: Ids, spelling_splits: Int64s, token_splits: Int64s
) -> Ids:
    total = 0
    for line in range(splits.shape[0] - 1):
        token_splits[line] = total
        for i in range(splits[line], splits[line + 1]):
            total += spelling_splits[words[i] + 1] - spelling_splits[words[i]]
    token_splits[splits.shape[0] - 1] = total
    ids = np.empty(total, np.int32)
    at = 0
    for i in range(splits[0], splits[splits.shape[0] - 1]):
        for j in range(spelling_splits[words[i]], spelling_splits[words[i] + 1]):
            ids[at] = spellings[j]
            at += 1
    return ids


_WORD_END = re.compile(rb"[\t\n\r -/:-@\[-`{-~]")
_TO_LAST_WORD_END = re.compile(rb".*[\t\n\r -/:-@\[-`{-~]", re.DOTALL)
_DROPPED_BYTES = np.flatnonzero(_BYTE_KINDS == _DROPPED).astype(np.uint8).tobytes()


def cut_long_lines(lines: Lines) -> tuple[Lines, Int64s]:
    """Cuts lines over the limit between words; of a word over the limit, [UNK], it leaves a part.

    Returns:
      The shorter lines, and `[num_lines + 1]`: where the parts of each line begin among them.
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


class WordPieceTokenizer:
    """Lines -> ids equal to google-research/bert's FullTokenizer.

    Not thread-safe: the memory of words is shared between calls. It is bounded: at 2**18 words it
    starts anew, which changes speed and nothing else.
    """

    def __init__(self, vocabulary: Vocabulary, *, lower_case: bool) -> None:
        self._unknown_id = vocabulary.ids["[UNK]"]
        self._model: Any = WordPiece(
            vocabulary.ids, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS
        )
        self._lower_case = lower_case
        self._normalize = Normalizer(lower_case=lower_case)
        self._slot_hashes = np.zeros(SLOTS, np.uint64)
        self._slot_words = np.empty(SLOTS, np.int32)
        self._pool = np.empty(POOL_BYTES, np.uint8)
        self._word_starts = np.empty(MAX_WORDS, np.int64)
        self._word_lengths = np.empty(MAX_WORDS, np.int32)
        self._counts = np.zeros(2, np.int64)
        self._forget()

    def _forget(self) -> None:
        self._slot_words.fill(-1)
        self._word_lengths[_UNKNOWN] = 0
        self._counts[:] = (1, 0)
        self._spellings = np.array([self._unknown_id], np.int32)
        self._spelling_splits = np.array([0, 1], np.int64)

    def _normalized(self, lines: Lines) -> Lines:
        """Returns `lines` with the normal form of those that are not ASCII."""
        chosen = np.flatnonzero(lines.non_ascii)
        if not len(chosen):
            return lines
        forms = [self._normalize(lines[i].decode("utf-8")).encode() for i in chosen.tolist()]
        base = len(lines.buffer)
        lengths = np.array([len(form) for form in forms], np.int64)
        form_ends = base + np.cumsum(lengths)
        starts, ends = lines.starts.copy(), lines.ends.copy()
        starts[chosen], ends[chosen] = form_ends - lengths, form_ends
        buffer = np.concatenate([lines.buffer, np.frombuffer(b"".join(forms), np.uint8)])
        return Lines(buffer, starts, ends, lines.non_ascii)

    def _learn(self) -> None:
        """Asks the library for the ids of the words that are new since the last call."""
        known = len(self._spelling_splits) - 1
        count = int(self._counts[0])
        if known == count:
            return
        pool = self._pool[: self._counts[1]].tobytes()
        starts = self._word_starts[known:count].tolist()
        lengths = self._word_lengths[known:count].tolist()
        spelled = [
            [token.id for token in self._model.tokenize(pool[start : start + length].decode())]
            for start, length in zip(starts, lengths, strict=True)
        ]
        sizes = np.array([len(ids) for ids in spelled], np.int64)
        self._spelling_splits = np.concatenate(
            [self._spelling_splits, self._spelling_splits[-1] + np.cumsum(sizes)]
        )
        new = np.array([i for ids in spelled for i in ids], np.int32)
        self._spellings = np.concatenate([self._spellings, new])

    def tokenize(self, lines: Lines) -> Tokens:
        """Returns the ids of each line.

        Args:
          lines: valid UTF-8.

        Returns:
          `ids` in [0, vocab_size), `row_splits` of shape `[num_lines + 1]`.
        """
        lines = self._normalized(lines)
        if len(lines) and (lines.ends - lines.starts).max() > MAX_LINE_BYTES:
            shorter, first_part = cut_long_lines(lines)
            tokens = self._tokenize(shorter)
            return Tokens(tokens.ids, tokens.row_splits[first_part])
        return self._tokenize(lines)

    def _tokenize(self, lines: Lines) -> Tokens:
        """Returns the ids of lines in normal form, none over the limit."""
        spans = (lines.buffer, lines.starts, lines.ends)
        words = np.empty(int((lines.ends - lines.starts).sum()) + 1, np.int32)
        splits = np.zeros(len(lines) + 1, np.int64)
        token_splits = np.zeros(len(lines) + 1, np.int64)
        parts: list[Ids] = []
        first = 0
        while first < len(lines) or not parts:
            memory = (
                self._slot_hashes, self._slot_words, self._pool,
                self._word_starts, self._word_lengths,
            )  # fmt: skip
            end = find_words(spans, first, self._lower_case, memory, self._counts, words, splits)
            self._learn()
            part_splits = np.empty(end - first + 1, np.int64)
            ids = _spell(
                words, splits[first : end + 1], self._spellings, self._spelling_splits, part_splits
            )
            token_splits[first : end + 1] = token_splits[first] + part_splits
            parts.append(ids)
            if end < len(lines):
                self._forget()
                splits[end] = 0
            first = end
        return Tokens(np.concatenate(parts) if len(parts) > 1 else parts[0], token_splits)
