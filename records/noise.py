"""How much of a row T5's span corruption takes: tokens, spans and lengths.

The writer and the reader count by these functions, so that their records have the same shapes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.errors import UsageError

_EXTRA_IDS = 100  # sentinels that T5 has behind a vocabulary without any
MAX_RAW_TOKENS = 1 << 15  # of a row before corruption; a row may have fewer


@dataclass(frozen=True, slots=True)
class NoiseCounts:
    """How many tokens of a record are noise, and in how many spans.

    Attributes:
      density: the share of tokens, in (0, 1).
      mean_span_length: in tokens, 1 or more.

    Raises:
      UsageError: a value is beyond that.
    """

    density: float
    mean_span_length: float

    def __post_init__(self) -> None:
        if not 0 < self.density < 1:
            raise UsageError(f"noise_density must be in (0, 1), got {self.density}")
        if not self.mean_span_length >= 1:
            raise UsageError(
                f"mean_noise_span_length must be 1 or more, got {self.mean_span_length}"
            )

    def up_to(self, max_length: int) -> tuple[Int64s, Int64s]:
        """Returns noise tokens and noise spans of records of 0, 1, … `max_length` tokens.

        `[max_length + 1] int64` each. A record of one token has no noise; T5 never has a row
        without a token between two spans.
        """
        lengths = np.arange(max_length + 1)
        most = np.maximum(lengths - 1, 1)
        noise = np.clip(np.rint(lengths * self.density), 1, most).astype(np.int64)
        noise = np.where(lengths > 1, noise, 0)
        spans = np.maximum(np.rint(noise / self.mean_span_length), 1).astype(np.int64)
        return noise, np.where(noise > 0, np.minimum(spans, lengths - noise), 0)

    def most_spans(self, max_length: int) -> int:
        """Returns the most spans of a record of up to `max_length` tokens."""
        return int(self.up_to(max_length)[1].max())

    def corrupted_lengths(self, max_length: int) -> tuple[int, int]:
        """Returns the most tokens, end included, of input and target of such a record."""
        noise, spans = self.up_to(max_length)
        return int((np.arange(max_length + 1) - noise + spans).max()) + 1, int(
            (noise + spans).max()
        ) + 1

    def raw_length(self, inputs_length: int) -> int:
        """Returns the most tokens of a record before corruption, as seqio's random_spans_helper.

        Args:
          inputs_length: the most tokens of its input, sentinels and end included.

        Returns:
          At most MAX_RAW_TOKENS.
        """
        length = inputs_length
        while length < MAX_RAW_TOKENS and self._lengths(length + 1)[0] <= inputs_length:
            length += 1
        # seqio: with half of it noise, the target shall not be longer than the input.
        return length - (self.density == 0.5 and self._lengths(length)[1] > inputs_length)

    def _lengths(self, length: int) -> tuple[int, int]:
        """Returns the lengths of input and target of a record, as T5 computes them."""
        noise = round(length * self.density)
        spans = round(noise / self.mean_span_length)
        return length - noise + spans + 1, noise + spans + 1


def default_sentinel_ids(vocabulary_size: int) -> tuple[int, ...]:
    """Returns the sentinels of a vocabulary that has none, in the order of their spans."""
    return tuple(range(vocabulary_size + _EXTRA_IDS - 1, vocabulary_size - 1, -1))
