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

from recordmill.reader.shard_files import OVERHEAD_BYTES
from recordmill.records.errors import UsageError

Ints = npt.NDArray[np.int64]

_MAX_OFFSETS = 1 << 22
_DIGITS = 18  # of a number that fits into 63 bits
_SPACE = 32


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


def parse_index(content: bytes, records: int, every: int, name: str, *, record_bytes: int) -> Ints:
    """Returns the byte offset of every `every`th record of an index file.

    Args:
      content: of the file.
      records: in its shard.
      every: which offsets to return.
      name: of the file, for messages.
      record_bytes: of all records of the shard, framing included.

    Raises:
      UsageError: the file has not one line for each record, or its offsets are not those of
        records that follow each other in so many bytes.
    """
    text = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(text == 10)
    if len(ends) != records or (records and ends[-1] != len(text) - 1):
        raise UsageError(
            f"an index must have a line for each of the {records} records of its shard, and {name} "
            f"has {len(ends)}; see what is broken with `recordmill verify`"
        )
    if not records:
        return np.zeros(0, np.int64)
    begins = np.concatenate([[0], ends[:-1] + 1])[::every]
    offsets = np.zeros(len(begins), np.int64)
    digits = np.zeros(len(begins), np.int64)
    open_ = np.ones(len(begins), bool)
    for digit in range(_DIGITS):
        at = np.minimum(begins + digit, len(text) - 1)
        value = text[at].astype(np.int64) - 48
        open_ &= (value >= 0) & (value <= 9)
        if not open_.any():
            break
        digits += open_
        offsets = np.where(open_, offsets * 10 + value, offsets)
    after = text[np.minimum(begins + digits, len(text) - 1)]
    rooms = np.diff(np.append(offsets, record_bytes))
    least = np.full(len(begins), every * OVERHEAD_BYTES)
    least[-1] = OVERHEAD_BYTES
    wrong = (digits == 0) | (after != _SPACE)
    wrong[0] |= offsets[0] != 0
    if not wrong.any():
        wrong = rooms < least  # this line's offset, or the next one's
    if wrong.any():
        line = int(np.argmax(wrong)) * every
        text_of_line = content.split(b"\n", line + 1)[line][:60].decode("ascii", "replace")
        raise UsageError(
            f"{name}: line {line + 1} must give the offset of a record in the {record_bytes} bytes "
            f"of its shard, and is {text_of_line!r}; see what is broken with `recordmill verify`"
        )
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
        sizes: Sequence[int],
        *,
        most: int = _MAX_OFFSETS,
    ) -> None:
        """Reads the index files.

        Args:
          read: returns the bytes of a file.
          paths: of the index files.
          records: in the shard of each.
          sizes: the bytes of these records, framing included.
          most: offsets to keep.

        Raises:
          UsageError: an index does not belong to its shard.
        """
        self.every = max(1, -(-sum(records) // most))
        with ThreadPoolExecutor(16) as pool:
            contents = pool.map(read, paths)
            offsets = [
                parse_index(content, count, self.every, path, record_bytes=size)
                for content, count, path, size in zip(contents, records, paths, sizes, strict=True)
            ]
        self._bases = np.cumsum([0, *map(len, offsets)])
        self._offsets = np.concatenate([*offsets, np.zeros(0, np.int64)])
        self._sizes = np.array(sizes, np.int64)

    def group(self, shard: int, record: int) -> tuple[int, int]:
        """Returns where the group of `every` records begins and ends that holds a record."""
        at = int(self._bases[shard]) + record // self.every
        is_last = at + 1 == self._bases[shard + 1]
        end = self._sizes[shard] if is_last else self._offsets[at + 1]
        return int(self._offsets[at]), int(end)

    def bounds(self, shard: int, first: int, count: int) -> Ints:
        """Returns where the groups of `every` records lie that hold some records of a shard.

        Returns:
          `[groups + 1] int64`: the byte offset of each group, and the end of the last one.
        """
        begin, end = int(self._bases[shard]), int(self._bases[shard + 1])
        low = begin + first // self.every
        high = min(begin + (first + count - 1) // self.every + 1, end)
        last = self._offsets[high] if high < end else self._sizes[shard]
        return np.append(self._offsets[low:high], last)
