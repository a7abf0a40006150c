"""A tokenizer.json of BERT's kind, by the kernel and memory of words of `vocab.txt`.

Its rules of normalization and of words are nearly those of google-research/bert. On ASCII they are
the same; what is not ASCII is normalized and cut into words by the library, and only the ids of
words are remembered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from recordmill.records.arrays import Bools
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.hugging_face import JsonTokenizer, library_lines
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.subwords.tokenizer import LineTokenizer, Tokens
from recordmill.transforms.text.tokenization import WordPieces
from recordmill.transforms.text.word_memory import MAX_WORD_CHARS, WordMemory

_SHORT = 64  # characters; longer parts are hardly met again


class _Words:
    """`WordPieces` for a `QuickTokenizer`: no line is doubtful."""

    def __init__(self, pieces: WordPieces) -> None:
        self._pieces = pieces

    def clear(self) -> None:
        self._pieces.clear()

    def tokenize(self, lines: Lines) -> tuple[Tokens, Bools]:
        return self._pieces.tokenize(lines), np.zeros(len(lines), np.bool_)


@dataclass(frozen=True)
class WordPieceFile(JsonTokenizer):
    """A tokenizer.json whose model is WordPiece."""

    def start(self, *, lower_case: bool, allow_special_tokens: bool = False) -> LineTokenizer:
        """See `Tokenizer`; a file with other rules than BERT's is the library's."""
        added = [t for t in self.file.added_tokens if allow_special_tokens or not t.special]
        library = self.library(allow_special_tokens=allow_special_tokens)
        if any(token.normalized for token in added) or not self._has_rules_of_bert:
            return library_lines(library)
        memory = WordMemory(
            lower_case=bool((self.file.normalizer or {})["lowercase"]), normalize=_words(library)
        )
        unknown = json.loads(self.data)["model"]["unk_token"]
        return QuickTokenizer(
            _Words(WordPieces(library.model, self.ids[unknown], memory)),
            Preparation(),
            lambda: library_lines(library),
            [token.content for token in added],
        )

    @property
    def _has_rules_of_bert(self) -> bool:
        normalizer, cut = self.file.normalizer or {}, self.file.pre_tokenizer or {}
        model = json.loads(self.data)["model"]
        return (
            normalizer.get("type") == "BertNormalizer"
            and normalizer.get("clean_text") is True
            and isinstance(normalizer.get("lowercase"), bool)
            and cut.get("type") == "BertPreTokenizer"
            and model.get("unk_token") in model["vocab"]
            and 0 < model.get("max_input_chars_per_word", 0) <= MAX_WORD_CHARS
        )


def _words(library: Any) -> Callable[[str], str]:
    """Returns what makes a text its words between spaces, as the library cuts them.

    No rule reaches over a space, so that the library gets only what between spaces is not ASCII,
    and what it made of it before is remembered.
    """
    normalize, cut = library.normalizer.normalize_str, library.pre_tokenizer.pre_tokenize_str

    def part(text: str) -> str:
        return " ".join([word for word, _ in cut(normalize(text))])

    remembered = lru_cache(maxsize=1 << 14)(part)

    def words(text: str) -> str:
        parts = text.split(" ")
        for i, old in enumerate(parts):
            if not old.isascii():
                parts[i] = remembered(old) if len(old) < _SHORT else part(old)
        return " ".join(parts)

    return words
