"""WordPiece tokenization: a kernel finds words, the `tokenizers` library tokenizes new ones.

Text repeats its words, so `tokenizers`' WordPiece model computes the ids of a word once, and later
they are looked up (`word_memory.py`). `benchmarks/text.py` compares this with `tokenizers` alone
and with tensorflow_text's FastBertTokenizer. A worker does not need TensorFlow, which takes 3
seconds to import.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tokenizers.models import WordPiece

from recordmill.records.arrays import Bools, Int64s
from recordmill.records.codec.jit import kernel
from recordmill.records.errors import UsageError
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.tokenizer import (
    VOCAB_TXT,
    Ids,
    LineTokenizer,
    SpecialTokens,
    Tokens,
)
from recordmill.transforms.text.text_spec import SPECIAL_TOKENS
from recordmill.transforms.text.vocabulary_lines import checksum_of, vocabulary_lines
from recordmill.transforms.text.word_memory import MAX_WORD_CHARS, WordMemory


@dataclass(frozen=True)
class Vocabulary:
    """A WordPiece vocabulary: token i is line i of the file.

    Raises:
      UsageError: a special token is missing, or a token occurs twice.
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
        """Reads a vocabulary file: one token on each line, UTF-8.

        Raises:
          UsageError: the content is not UTF-8, or no valid vocabulary.
        """
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"--vocab_file {source} must be UTF-8: {error}") from error
        return cls(vocabulary_lines(text), source)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Token -> id."""
        return {token: i for i, token in enumerate(self.tokens)}

    @cached_property
    def checksum(self) -> str:
        """blake2b of the tokens, for the manifest."""
        return checksum_of(self.tokens)

    @cached_property
    def continues_word(self) -> Bools:
        """`[vocab_size] bool`: True for pieces within a word ("##x")."""
        return np.array([token.startswith("##") for token in self.tokens], np.bool_)

    @cached_property
    def share_of_capitals(self) -> float | None:
        """The share of tokens with capital letters; None where no token has a letter with case."""
        words = [token for token in self.tokens if not _is_special(token)]
        if not any(token != token.upper() for token in words):
            return None
        return sum(token != token.lower() for token in words) / len(words)

    @property
    def kind(self) -> str:
        """See `Tokenizer`."""
        return "wordpiece"

    @property
    def stored_name(self) -> str:
        """See `Tokenizer`."""
        return VOCAB_TXT

    @cached_property
    def special(self) -> SpecialTokens:
        """See `Tokenizer`."""
        return SpecialTokens.find(self.ids)

    def __len__(self) -> int:
        return len(self.tokens)

    def start(self, *, lower_case: bool, allow_special_tokens: bool = False) -> LineTokenizer:
        """See `Tokenizer`; `[MASK]` in text is always text, as BERT's own tokenizer has it."""
        return WordPieceTokenizer(self, lower_case=lower_case)

    def decode(self, ids: Iterable[int]) -> str:
        """See `Tokenizer`: spaces stand between words."""
        return " ".join(self.tokens[i] for i in ids).replace(" ##", "")


def _is_special(token: str) -> bool:
    """Returns whether a token represents no text, such as [unused12] and <S>."""
    return len(token) > 2 and (token[0] + token[-1]) in ("[]", "<>")


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


class WordPieces:
    """Lines -> ids by a WordPiece model of `tokenizers`, of words as BERT cuts them.

    Not thread-safe: the memory of words is shared between calls. It is bounded: when it is full it
    starts anew, which changes speed and nothing else.

    Args:
      model: of the library; words of more than `MAX_WORD_CHARS` are unknown to it.
      unknown_id: its id of such words.
      memory: of words.
    """

    def __init__(self, model: Any, unknown_id: int, memory: WordMemory) -> None:
        self._model = model
        self._unknown_id = unknown_id
        self._memory = memory
        self.clear()

    def clear(self) -> None:
        """Removes all words from the memory."""
        self._memory.clear()
        # Word i of the memory has the ids `spellings[spelling_splits[i]:spelling_splits[i + 1]]`.
        self._spellings = np.array([self._unknown_id], np.int32)
        self._spelling_splits = np.array([0, 1], np.int64)

    def _learn(self) -> None:
        """Asks the library for the ids of the words that are new since the last call."""
        known = len(self._spelling_splits) - 1
        if known == len(self._memory):
            return
        pool, starts, lengths = self._memory.words_from(known)
        data = pool.tobytes()
        spelled = [
            [token.id for token in self._model.tokenize(data[start : start + length].decode())]
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
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
        lines, first_part = self._memory.prepare(lines)
        row_splits = np.zeros(len(lines) + 1, np.int64)
        parts: list[Ids] = []
        for part in self._memory.split(lines):
            self._learn()
            part_splits = np.empty(len(part.splits), np.int64)
            parts.append(
                _spell(part.words, part.splits, self._spellings, self._spelling_splits, part_splits)
            )
            row_splits[part.first : part.end + 1] = row_splits[part.first] + part_splits
            if part.fills_memory:
                self.clear()
        ids = parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, np.int32), *parts])
        return Tokens(ids, row_splits if first_part is None else row_splits[first_part])


class WordPieceTokenizer(WordPieces):
    """Lines -> ids equal to google-research/bert's FullTokenizer."""

    splits_lines = False

    def __init__(self, vocabulary: Vocabulary, *, lower_case: bool) -> None:
        model = WordPiece(
            vocabulary.ids, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS
        )
        super().__init__(model, vocabulary.ids["[UNK]"], WordMemory(lower_case=lower_case))
