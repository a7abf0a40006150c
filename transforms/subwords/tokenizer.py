"""What the text job needs of a tokenizer, whatever its kind and its file.

A `Tokenizer` says what ids there are. It is small and pure, and objectives hold it. Its `start`
returns a `LineTokenizer`, which does the work, and holds a memory of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bools, Int64s
from recordmill.transforms.sources.lines import Lines

Ids = npt.NDArray[np.int32]

# Role -> the spellings that libraries give it; the first that a tokenizer has is taken.
_SPELLINGS = {
    "pad_id": ("[PAD]", "<pad>", "<|padding|>", "<|finetune_right_pad_id|>", "<|pad|>"),
    "unknown_id": ("[UNK]", "<unk>"),
    "begin_of_text_id": ("<s>", "<|begin_of_text|>", "<bos>"),
    "end_of_text_id": ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"),
    "mask_id": ("[MASK]", "<mask>"),
    "cls_id": ("[CLS]", "<s>"),
    "sep_id": ("[SEP]", "</s>"),
}
_SENTINEL = re.compile(r"<extra_id_(\d+)>")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids of many lines: line i has `ids[row_splits[i]:row_splits[i + 1]]`."""

    ids: Ids
    row_splits: Int64s


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The ids of special tokens by what they are for; None where the tokenizer has none.

    Attributes:
      pad_id, unknown_id, mask_id: as they are called.
      begin_of_text_id, end_of_text_id: around a document.
      cls_id, sep_id: of BERT, and what RoBERTa has in their place: `<s>`, `</s>`.
      sentinel_ids: of T5's `<extra_id_0>`, `<extra_id_1>`, …, in this order.
    """

    pad_id: int | None = None
    unknown_id: int | None = None
    begin_of_text_id: int | None = None
    end_of_text_id: int | None = None
    mask_id: int | None = None
    cls_id: int | None = None
    sep_id: int | None = None
    sentinel_ids: tuple[int, ...] = ()

    @classmethod
    def find(cls, ids: Mapping[str, int]) -> SpecialTokens:
        """Finds special tokens by their spelling.

        Args:
          ids: special token -> id, or all tokens where the file does not tell them apart.
        """
        roles = {
            role: next((ids[text] for text in spellings if text in ids), None)
            for role, spellings in _SPELLINGS.items()
        }
        numbers = {
            int(match[1]): token_id
            for text, token_id in ids.items()
            if (match := _SENTINEL.fullmatch(text))
        }
        return cls(**roles, sentinel_ids=tuple(numbers[number] for number in sorted(numbers)))


class LineTokenizer(Protocol):
    """Lines -> ids. Not thread-safe: the memory of words is shared between calls.

    Attributes:
      splits_lines: a line end is a space, and lines have the tokens that they have in a text.
    """

    splits_lines: bool

    def tokenize(self, lines: Lines) -> Tokens:
        """Returns the ids of each line, without special tokens around them.

        Args:
          lines: valid UTF-8.

        Returns:
          `ids` in [0, number of ids), `row_splits` of shape `[num_lines + 1]`.
        """
        ...


VOCAB_TXT = "vocab.txt"  # BERT's, whose manifests name no kind of tokenizer


class Tokenizer(Protocol):
    """The ids of a tokenizer, and how to start it."""

    @property
    def kind(self) -> str:
        """Its model: "wordpiece", "bpe" or "unigram"."""
        ...

    @property
    def source(self) -> str:
        """The path that it was read from, for messages."""
        ...

    @property
    def stored_name(self) -> str:
        """The name of its file in `_meta` of a dataset."""
        ...

    @property
    def tokens(self) -> Sequence[str]:
        """`[num_ids]`: the spelling of each id as in the file, "" for ids that no token has."""
        ...

    @property
    def ids(self) -> Mapping[str, int]:
        """Token -> id."""
        ...

    @property
    def special(self) -> SpecialTokens:
        """The special tokens by what they are for."""
        ...

    @property
    def checksum(self) -> str:
        """blake2b of all that decides ids, for the manifest."""
        ...

    @property
    def continues_word(self) -> Bools:
        """`[num_ids] bool`: True for tokens within a word."""
        ...

    @property
    def share_of_capitals(self) -> float | None:
        """The share of tokens with capital letters, where --do_lower_case must fit it."""
        ...

    def __len__(self) -> int:
        """The number of ids."""
        ...

    def __hash__(self) -> int:
        """Of the file's content."""
        ...

    def start(self, *, lower_case: bool, allow_special_tokens: bool = False) -> LineTokenizer:
        """Returns what tokenizes lines.

        Args:
          lower_case: of vocab.txt only; other files say it themselves.
          allow_special_tokens: the spelling of a special token in text becomes its id.
        """
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Returns ids as text."""
        ...
