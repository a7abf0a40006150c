"""What chunks carry along of their documents: the label and the kept fields, as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Int64s

_WORD_BYTES = 2


@dataclass(frozen=True, slots=True)
class ChunkFields:
    """The texts of each chunk, as a JSON list, in words of uint16 such as run files are made of.

    Attributes:
      starts, counts: `[num_chunks] int64`, in `words`; chunks of a document share them.
      words: `[num_words] uint16`: the bytes of the lists, each with a space behind it where their
        number is odd.
    """

    starts: Int64s
    counts: Int64s
    words: npt.NDArray[np.uint16]

    @classmethod
    def encode(cls, rows: Sequence[tuple[str, ...]]) -> ChunkFields:
        """Makes one entry of each row of texts."""
        lists = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows]
        data = [text.encode() for text in lists]
        padded = [text + b" " * (len(text) % _WORD_BYTES) for text in data]
        counts = np.array([len(text) // _WORD_BYTES for text in padded], np.int64)
        words = np.frombuffer(b"".join(padded), "<u2").astype(np.uint16)
        return cls(np.cumsum(counts) - counts, counts, words)

    @classmethod
    def concatenate(cls, parts: Sequence[ChunkFields]) -> ChunkFields:
        """Returns the entries of all parts."""
        bases = np.cumsum([0, *(len(part.words) for part in parts)])
        starts = [part.starts + base for part, base in zip(parts, bases, strict=False)]
        return cls(
            np.concatenate([np.zeros(0, np.int64), *starts]),
            np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)]),
            np.concatenate([np.zeros(0, np.uint16), *(part.words for part in parts)]),
        )

    def take(self, chosen: npt.NDArray[Any]) -> ChunkFields:
        """Returns some of the entries, by number or by truth value, over the same words."""
        return ChunkFields(self.starts[chosen], self.counts[chosen], self.words)

    def own_words(self) -> ChunkFields:
        """Returns the same entries over a copy of their words alone."""
        ends = np.cumsum(self.counts)
        starts = ends - self.counts
        total = int(ends[-1]) if len(ends) else 0
        index = np.repeat(self.starts - starts, self.counts) + np.arange(total)
        return ChunkFields(starts, self.counts, self.words[index])

    @property
    def sizes(self) -> Int64s:
        """`[num_chunks] int64`: the bytes of each list."""
        return self.counts * _WORD_BYTES

    def texts(self, chosen: Int64s) -> list[list[str]]:
        """Returns the texts of each chosen chunk."""
        data = self.words.astype("<u2").tobytes()
        begins = (self.starts[chosen] * _WORD_BYTES).tolist()
        sizes = self.sizes[chosen].tolist()
        return [
            json.loads(data[begin : begin + size])
            for begin, size in zip(begins, sizes, strict=True)
        ]


def take_fields(fields: ChunkFields | None, chosen: npt.NDArray[Any]) -> ChunkFields | None:
    """Returns the entries of some chunks, None where chunks carry nothing."""
    return None if fields is None else fields.take(chosen)


def joined_fields(parts: Sequence[ChunkFields | None]) -> ChunkFields | None:
    """Returns the entries of the chunks of all parts, None where chunks carry nothing."""
    found = [part for part in parts if part is not None]
    return ChunkFields.concatenate(found) if found else None
