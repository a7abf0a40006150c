"""Byte offsets of records from the index files, and ranges of records that follow each other.

At most 4 million byte offsets are kept, whatever the number of records: beyond that every second
(third …) record's, and a reader skips the few records between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recordmill.records.errors import UsageError

Ints = npt.NDArray[np.int64]

_MAX_OFFSETS = 1 << 22
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Records that follow each other in a shard.

    Attributes:
      shard: the position of the shard in the reader's list of paths.
      first: the number of the first record in its shard.
      count: of records.
      number: of the first record in its split, as written.
    """

    shard: int
    first: int
    count: int
    number: int


def without(
    record_ranges: Iterable[RecordRange], bad: Iterable[tuple[int, int]]
) -> list[RecordRange]:
    """Returns the ranges without some records, each (shard, number in the shard)."""
    holes: dict[int, list[int]] = {}
    for shard, record in sorted(bad):
        holes.setdefault(shard, []).append(record)
    kept = []
    for record_range in record_ranges:
        begin, end = record_range.first, record_range.first + record_range.count
        for hole in [*holes.get(record_range.shard, []), end]:
            if begin <= hole <= end:
                if hole > begin:
                    number = record_range.number + begin - record_range.first
                    kept.append(RecordRange(record_range.shard, begin, hole - begin, number))
                begin = hole + 1
    return kept


def parse_index(content: bytes, records: int, every: int, name: str) -> Ints:
    """Returns the byte offset of every `every`th record of an index file.

    Raises:
      UsageError: the file has not one line for each record.
    """
    text = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(text == 10)
    if len(ends) != records:
        raise UsageError(
            f"an index must have a line for each of the {records} records of its shard, and {name} "
            f"has {len(ends)}; see what is broken with `recordmill verify`"
        )
    if not records:
        return np.zeros(0, np.int64)
    begins = np.concatenate([[0], ends[:-1] + 1])[::every]
    offsets = np.zeros(len(begins), np.int64)
    open_ = np.ones(len(begins), bool)
    for digit in range(_DIGITS):
        at = np.minimum(begins + digit, len(text) - 1)
        value = text[at].astype(np.int64) - 48
        open_ &= (value >= 0) & (value <= 9)
        if not open_.any():
            break
        offsets = np.where(open_, offsets * 10 + value, offsets)
    return offsets


class RecordOffsets:
    """The byte offsets of the records of some shards.

    Attributes:
      every: only each `every`th record's offset is kept.
    """

    def __init__(
        self,
        read: Callable[[str], bytes],
        paths: Sequence[str],
        records: Sequence[int],
        *,
        most: int = _MAX_OFFSETS,
    ) -> None:
        """Reads the index files.

        Args:
          read: returns the bytes of a file.
          paths: of the index files.
          records: in the shard of each.
          most: offsets to keep.

        Raises:
          UsageError: an index does not belong to its shard.
        """
        self.every = max(1, -(-sum(records) // most))
        with ThreadPoolExecutor(16) as pool:
            contents = pool.map(read, paths)
            offsets = [
                parse_index(content, count, self.every, path)
                for content, count, path in zip(contents, records, paths, strict=True)
            ]
        self._bases = np.cumsum([0, *map(len, offsets)])[:-1]
        self._offsets = np.concatenate([*offsets, np.zeros(0, np.int64)])

    def find(self, shards: Ints, firsts: Ints) -> tuple[Ints, Ints]:
        """Returns the byte offset to begin at, and how many records to skip from there."""
        return self._offsets[self._bases[shards] + firsts // self.every], firsts % self.every
