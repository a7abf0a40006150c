"""The tokens of a batch as rows of ids, whatever form the records have, and the vocabulary."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from recordmill.records.errors import UsageError

if TYPE_CHECKING:
    import tensorflow as tf

Features: TypeAlias = "dict[str, tf.Tensor | tf.RaggedTensor]"
Transform: TypeAlias = "Callable[[Features, tf.Tensor], Features]"

TOKEN_FEATURES = ("tokens", "input_ids", "input_word_ids")
MAX_ROW_TOKENS = (1 << 15) - 1  # positions are packed into 15 bits


@dataclass(frozen=True)
class Vocabulary:
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


def read_vocabulary(vocab_file: str | os.PathLike[str]) -> Vocabulary:
    """Reads a vocabulary file: one token a line, UTF-8; local, or on TensorFlow's file systems.

    Raises:
      UsageError: there is no such file, it is not UTF-8, or a token stands twice.
    """
    import tensorflow as tf

    path = os.fspath(vocab_file)
    try:
        with tf.io.gfile.GFile(path, "rb") as handle:
            lines = handle.read().decode("utf-8").replace("\r\n", "\n").split("\n")
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"vocab_file must be a UTF-8 text file, got {path}: {reason}") from error
    if lines and not lines[-1]:
        lines.pop()
    tokens = tuple(line.strip() for line in lines)
    if len(set(tokens)) != len(tokens):
        twice = next(token for token in tokens if tokens.count(token) > 1)
        raise UsageError(f"vocab_file {path} contains {twice!r} twice; remove one")
    return Vocabulary(path, tokens)


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


def token_feature(features: Mapping[str, Any], asked: str | None = None) -> str:
    """Returns the name of the feature that holds the tokens.

    Raises:
      UsageError: the records have none, or none of the name that was asked for.
    """
    for name in (asked,) if asked else TOKEN_FEATURES:
        if name in features:
            return name
    wanted = repr(asked) if asked else f"one of {', '.join(TOKEN_FEATURES)}"
    raise UsageError(
        f"the records must have tokens in {wanted}, and have {', '.join(sorted(features))}: name "
        "the feature with feature=…"
    )


class RowMaker:
    """Makes `TokenRows` of a batch.

    Tokens may be strings (of a SequenceExample's `tokens`), ragged ids, or padded ids, whose length
    `input_mask` tells where there is one, and else the last id that is not `pad_id`.

    Args:
      max_seq_length: of the rows; a longer record is an error, for a reader that cuts records in
        silence loses data.
      vocabulary: needed for strings only; what it lacks is [UNK].
      pad_id: behind the tokens.
      feature: the name, where it is none of TOKEN_FEATURES.
    """

    def __init__(
        self,
        max_seq_length: int,
        *,
        vocabulary: Vocabulary | None = None,
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
        if isinstance(values, tf.RaggedTensor):
            lengths = tf.cast(values.row_lengths(), tf.int32)
            shape = [None, self.max_seq_length]
            ids = tf.cast(values, tf.int32).to_tensor(self.pad_id, shape=shape)
        else:
            tokens = tf.not_equal(values, self.pad_id) if mask is None else tf.cast(mask, tf.bool)
            places = tf.range(1, tf.shape(values)[1] + 1)
            lengths = tf.reduce_max(tf.where(tokens, places, 0), axis=1)
            ids = self.fit(tf.cast(values, tf.int32), self.pad_id)
        limit = f"a record must have at most max_seq_length={self.max_seq_length} tokens"
        check = tf.debugging.assert_less_equal(
            lengths, self.max_seq_length, f"{limit}; give the length it was written with"
        )
        with tf.control_dependencies([check] if check is not None else []):
            real = tf.range(self.max_seq_length) < lengths[:, None]
        return TokenRows(tf.where(real, ids, self.pad_id), lengths, real), rest

    def _look_up(self, pieces: tf.Tensor) -> tf.Tensor:
        import tensorflow as tf

        if self._vocabulary is None:
            raise UsageError("tokens that are strings need a vocabulary: give vocab_file=…")
        if self._table is None:
            with tf.init_scope():
                self._table = _lookup_table(self._vocabulary)
        return self._table.lookup(pieces)

    def fit(self, values: tf.Tensor, filler: int) -> tf.Tensor:
        """Returns `[batch, max_seq_length]`: cut, or padded."""
        import tensorflow as tf

        cut = values[:, : self.max_seq_length]
        missing = self.max_seq_length - tf.shape(cut)[1]
        padded = tf.pad(cut, [[0, 0], [0, missing]], constant_values=filler)
        return tf.ensure_shape(padded, [values.shape[0], self.max_seq_length])


def _lookup_table(vocabulary: Vocabulary) -> Any:
    import tensorflow as tf

    ids = tf.range(len(vocabulary), dtype=tf.int32)
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary.tokens), ids)
    return tf.lookup.StaticHashTable(pairs, vocabulary.id("[UNK]"))


def in_graph(transform: Transform) -> Transform:
    """Returns the transform marked as plain graph code.

    AutoGraph would have nothing to convert in it, and would spread its errors over many lines.
    """
    import tensorflow as tf

    marked: Transform = tf.autograph.experimental.do_not_convert(transform)
    return marked
