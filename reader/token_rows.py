"""Turn the tokens of a batch, in any form that records have, into rows of ids; the vocabulary."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from recordmill.reader.dataset import read_file
from recordmill.reader.features import Features
from recordmill.reader.narrowing import to_int32
from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

Names = Literal["seqio", "cerebras"]
NAMES = ("seqio", "cerebras")
TOKEN_FEATURES = ("tokens", "input_ids", "input_word_ids", "targets")
MAX_ROW_TOKENS = (1 << 15) - 1  # positions are packed into 15 bits


@dataclass(frozen=True)
class TokenVocabulary:
    """A WordPiece vocabulary file: token i is line i.

    Attributes:
      path: of the file.
      tokens: in order of id.
    """

    path: str
    tokens: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """Returns the id of a token.

        Raises:
          UsageError: the vocabulary lacks it.
        """
        try:
            return self.tokens.index(token)
        except ValueError:
            raise UsageError(
                f"vocab_file {self.path} must contain {token}, which it lacks: give the "
                "vocabulary that the dataset was written with"
            ) from None


def read_vocabulary(vocab_file: str | os.PathLike[str]) -> TokenVocabulary:
    """Reads a vocabulary file: one token a line, UTF-8; local, or on TensorFlow's file systems.

    Raises:
      UsageError: there is no such file, it is not UTF-8, or a token occurs twice.
    """
    path = os.fspath(vocab_file)
    try:
        content = read_file(path)
        if content is None:
            raise UsageError("there is no such file")
        lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"vocab_file must be a UTF-8 text file, got {path}: {error}") from error
    if lines and not lines[-1]:
        lines.pop()
    tokens = tuple(line.strip() for line in lines)
    if len(set(tokens)) != len(tokens):
        twice = next(token for token in tokens if tokens.count(token) > 1)
        raise UsageError(f"vocab_file {path} contains {twice!r} twice; remove one")
    return TokenVocabulary(path, tokens)


def read_vocabulary_if_given(vocab_file: str | os.PathLike[str] | None) -> TokenVocabulary | None:
    """Returns `read_vocabulary` of a file, or None without one."""
    return None if vocab_file is None else read_vocabulary(vocab_file)


@dataclass(frozen=True)
class TokenRows:
    """Rows of ids.

    Attributes:
      ids: `[batch, max_seq_length] int32`, padded with `pad_id`.
      lengths: `[batch] int32`: the tokens in each row.
      mask: `[batch, max_seq_length] bool`: True on tokens.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    mask: tf.Tensor


def token_feature(features: Mapping[str, Any], name: str | None = None) -> str:
    """Returns the name of the feature that holds the tokens: one of TOKEN_FEATURES, or `name`.

    Raises:
      UsageError: the records do not have it.
    """
    for candidate in (name,) if name else TOKEN_FEATURES:
        if candidate in features:
            return candidate
    expected = repr(name) if name else f"one of {', '.join(TOKEN_FEATURES)}"
    raise UsageError(
        f"the records must have tokens in {expected}, and have {', '.join(sorted(features))}: name "
        "the feature with feature=…"
    )


def check_unmasked(features: Mapping[str, Any], transform: str) -> None:
    """Checks that records are not masked already: their ids are not the text any more.

    Raises:
      UsageError: they have masked_lm_positions.
    """
    if "masked_lm_positions" in features:
        raise UsageError(
            f"{transform} needs unmasked records, and these have masked_lm_positions: write "
            f"them with --task=mlm_tokens, or read them without {transform}"
        )


class TokenRowBuilder:
    """Makes `TokenRows` of a batch: `[batch, max_seq_length]`.

    Tokens may be strings (of a SequenceExample's `tokens`), ragged ids, or padded ids, whose length
    `input_mask` gives where there is one, and else the last id that is not `pad_id`.

    Args:
      max_seq_length: of the rows; a longer record is an error, for a reader that cuts records in
        silence loses data.
      vocabulary: needed for strings only; what it lacks is [UNK].
      pad_id: behind the tokens.
      feature: the name, where it is none of TOKEN_FEATURES.

    Raises:
      UsageError: `max_seq_length` is not valid.
    """

    def __init__(
        self,
        max_seq_length: int,
        *,
        vocabulary: TokenVocabulary | None = None,
        pad_id: int = 0,
        feature: str | None = None,
    ) -> None:
        if not 2 <= max_seq_length <= MAX_ROW_TOKENS:
            raise UsageError(
                f"max_seq_length must be in [2, {MAX_ROW_TOKENS}], got {max_seq_length}"
            )
        self.max_seq_length = max_seq_length
        self.pad_id = pad_id
        self.feature = feature
        self._vocabulary = vocabulary
        self._table: Any = None

    def __call__(self, features: Features) -> tuple[TokenRows, Features]:
        """Returns the rows, and the features that were not used up for them."""
        import tensorflow as tf

        rest = dict(features)
        name = token_feature(rest, self.feature)
        values = rest.pop(name)
        mask = rest.pop("input_mask", None)
        if values.dtype == tf.string:
            values = tf.ragged.map_flat_values(self._look_up, values)
        values = to_int32({name: values}, _describe_id)[name]
        if isinstance(values, tf.RaggedTensor):
            lengths = tf.cast(values.row_lengths(), tf.int32)
            shape = [None, self.max_seq_length]
            ids = tf.cast(values, tf.int32).to_tensor(self.pad_id, shape=shape)
        else:
            tokens = tf.not_equal(values, self.pad_id) if mask is None else tf.cast(mask, tf.bool)
            ends = tf.range(1, tf.shape(values)[1] + 1)
            lengths = tf.reduce_max(tf.where(tokens, ends, 0), axis=1)
            ids = self.set_width(tf.cast(values, tf.int32), self.pad_id)
        with tf.control_dependencies(self._check_lengths(lengths)):
            real = tf.range(self.max_seq_length) < lengths[:, None]
        return TokenRows(tf.where(real, ids, self.pad_id), lengths, real), rest

    def without(self, rows: TokenRows, removed: Sequence[int]) -> TokenRows:
        """Returns the rows without some ids; what is behind moves to the left."""
        import tensorflow as tf

        kept = rows.mask
        for token in removed:
            kept &= tf.not_equal(rows.ids, token)
        ragged = tf.ragged.boolean_mask(rows.ids, kept)
        lengths = tf.cast(ragged.row_lengths(), tf.int32)
        ids = ragged.to_tensor(self.pad_id, shape=[None, self.max_seq_length])
        return TokenRows(ids, lengths, tf.range(self.max_seq_length) < lengths[:, None])

    def _check_lengths(self, lengths: tf.Tensor) -> list[Any]:
        """Returns control dependencies that fail where a record is too long.

        The schema does not show it: rows may be padded beyond their tokens.
        """
        import tensorflow as tf

        from recordmill.reader.one_line_errors import check_in_graph

        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
        message = tf.strings.join(
            [
                f"a record must have at most max_seq_length={self.max_seq_length} tokens, and one "
                "has ",
                tf.strings.as_string(longest),
                "; give the length it was written with",
            ]
        )
        return check_in_graph(longest <= self.max_seq_length, message)

    def _look_up(self, pieces: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        if self._vocabulary is None:
            raise UsageError("tokens that are strings need a vocabulary: give vocab_file=…")
        if self._table is None:
            with tf.init_scope():
                self._table = _lookup_table(self._vocabulary)
        return self._table.lookup(pieces)

    def set_width(self, values: tf.Tensor, filler: int) -> tf.Tensor:
        """Returns `[batch, max_seq_length]`: cut, or padded."""
        import tensorflow as tf

        cut = values[:, : self.max_seq_length]
        missing = self.max_seq_length - tf.shape(cut)[1]
        padded = tf.pad(cut, [[0, 0], [0, missing]], constant_values=filler)
        return tf.ensure_shape(padded, [values.shape[0], self.max_seq_length])


def _describe_id(feature: str) -> tuple[str, str]:
    return (
        f"token ids must fit int32, and one of feature {feature!r} is ",
        "; name the feature that holds the tokens with feature=…",
    )


def _lookup_table(vocabulary: TokenVocabulary) -> Any:
    import tensorflow as tf

    ids = tf.range(len(vocabulary), dtype=tf.int32)
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary.tokens), ids)
    return tf.lookup.StaticHashTable(pairs, vocabulary.id("[UNK]"))
