"""What all objectives share: the examples that they yield, special ids, order and names.

An objective says how documents are cut and how many bytes a chunk will become, and turns the chunks
of a block into columns for the encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recordmill.records import text_formats as formats
from recordmill.records.arrays import Int64s
from recordmill.records.codec.encoding import Column
from recordmill.records.errors import UsageError
from recordmill.records.schema import Schema
from recordmill.transforms.sources.kept_fields import KeptField
from recordmill.transforms.subwords.tokenizer import Ids, Tokenizer
from recordmill.transforms.text.chunks import Chunks, CutSpec
from recordmill.transforms.text.masking import TokenKinds

OutputBytes = npt.NDArray[np.float64]  # `[num_chunks]`, expected

_BATCH_EXAMPLES = 4096


@dataclass(frozen=True, slots=True)
class ExampleBatch:
    """Examples in the order in which they are written.

    Attributes:
      columns: feature -> values, for `encode_batch`.
      lengths: `[num_examples] int32`: the tokens of each, without padding.
      counts: what `statistics.json` adds up.
      classes: class -> examples that have it.
    """

    columns: dict[str, Column]
    lengths: Ids
    counts: dict[str, int]
    classes: Mapping[str, int] = field(default_factory=dict)


class Objective(Protocol):
    """A text objective, ready to work: vocabulary and options are bound."""

    @property
    def wants_partners(self) -> bool:
        """Whether its examples need chunks of other documents."""
        ...

    @property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer that ids are of."""
        ...

    @property
    def copies(self) -> int:
        """How often each document is used."""
        ...

    @property
    def schema(self) -> Schema:
        """The records' features."""
        ...

    @property
    def cut(self) -> CutSpec:
        """How documents are cut into chunks."""
        ...

    def estimate_output_bytes(self, chunks: Chunks) -> OutputBytes:
        """Returns `[num_chunks] float64`: the bytes of all copies of each chunk in the output."""
        ...

    def examples(self, chunks: Chunks, chosen: Int64s, copies: Int64s) -> Iterator[ExampleBatch]:
        """Yields the examples of the chosen chunks, each in the given copy.

        Args:
          chunks: a random sample of the corpus, which includes the chosen.
          chosen, copies: `[n] int64`.
        """
        ...


@dataclass(frozen=True)
class SpecialIds:
    """The special ids of BERT's family, and what masking needs to know of the others.

    Raises:
      UsageError: an id that is asked for is one that the tokenizer does not have.
    """

    vocabulary: Tokenizer

    @cached_property
    def cls(self) -> int:
        """Of [CLS]."""
        return special_id(self.vocabulary, "cls_id")

    @cached_property
    def sep(self) -> int:
        """Of [SEP]."""
        return special_id(self.vocabulary, "sep_id")

    def count_unknown(self, ids: Ids) -> int:
        """Counts the tokens that are not in the vocabulary, before any is masked."""
        unknown = self.vocabulary.special.unknown_id
        return 0 if unknown is None else int(np.count_nonzero(ids == unknown))

    @cached_property
    def kinds(self) -> TokenKinds:
        """Which ids are never masked, and which continue a word."""
        size = len(self.vocabulary)
        never = np.zeros(size, np.bool_)
        never[[self.cls, self.sep]] = True
        mask_id = special_id(self.vocabulary, "mask_id")
        return TokenKinds(mask_id, size, never, self.vocabulary.continues_word)


_ROLES = {
    "pad_id": "[PAD] or <pad>", "unknown_id": "[UNK] or <unk>", "cls_id": "[CLS] or <s>",
    "sep_id": "[SEP] or </s>", "mask_id": "[MASK] or <mask>",
    "end_of_text_id": "<|endoftext|> or </s>, or --eos_id,",
}  # fmt: skip
_NEEDED = {
    "bert": ("cls_id", "sep_id", "mask_id"),
    "mlm": ("cls_id", "sep_id", "mask_id"),
    "mlm_tokens": ("cls_id", "sep_id"),
    "classify": ("cls_id", "sep_id"),
}


def special_id(tokenizer: Tokenizer, role: str) -> int:
    """Returns a special id that an objective cannot do without.

    Args:
      tokenizer: to be used.
      role: a field of `SpecialTokens`.

    Raises:
      UsageError: the tokenizer has none.
    """
    found: int | None = getattr(tokenizer.special, role)
    if found is None:
        raise UsageError(
            f"--tokenizer {tokenizer.source} must have {_ROLES.get(role, role)} for this --task, "
            "and has none; use another tokenizer, or another task"
        )
    return found


def check_special_tokens(tokenizer: Tokenizer, objective: str) -> None:
    """Checks that a tokenizer has the special tokens that an objective needs.

    Raises:
      UsageError: it lacks one.
    """
    for role in _NEEDED.get(objective, ()):
        special_id(tokenizer, role)


def in_order_of_keys(keys: npt.NDArray[np.uint64], most: int = _BATCH_EXAMPLES) -> Iterator[Int64s]:
    """Yields the examples in order of their keys, which are random and stable.

    Args:
      keys: of the examples.
      most: examples at a time, where memory asks for fewer than usually.
    """
    order = np.argsort(keys, kind="stable")
    size = min(most, _BATCH_EXAMPLES)
    for begin in range(0, len(order), size):
        yield order[begin : begin + size]


def v2_named(columns: dict[str, Column]) -> dict[str, Column]:
    """Returns the columns under the names of Model Garden's second version."""
    return {formats.V2_NAMES.get(name, name): values for name, values in columns.items()}


def with_kept_fields(schema: Schema, kept: Sequence[KeptField], task: str) -> Schema:
    """Returns the schema with the kept fields of documents.

    Raises:
      UsageError: the schema has a feature of the same name.
    """
    own = {feature.name for feature in schema.features}
    taken = sorted(own & {field.name for field in kept})
    if taken:
        raise UsageError(
            f"--keep_fields must name fields that --task={task} has no feature of, got "
            f"{', '.join(taken)}; rename them in the input"
        )
    features = (field.feature(f"the field {field.name} of the document") for field in kept)
    return Schema((*schema.features, *features))


def kept_columns(
    chunks: Chunks, of_example: Int64s, kept: Sequence[KeptField]
) -> dict[str, Column]:
    """Returns the kept fields of examples.

    Args:
      chunks: carry the fields as the last of their texts.
      of_example: `[num_examples] int64`: the chunk of each.
      kept: the fields.
    """
    if not kept or chunks.fields is None:
        return {}
    rows = chunks.fields.texts(of_example)
    return columns_of_texts([row[len(row) - len(kept) :] for row in rows], kept)


def columns_of_texts(rows: Sequence[Sequence[str]], kept: Sequence[KeptField]) -> dict[str, Column]:
    """Returns the values of kept fields, given the text of each."""
    return {
        field.name: field.column([row[position] for row in rows])
        for position, field in enumerate(kept)
    }
