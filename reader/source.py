"""The location of a reader's records: paths of shards, byte offsets in them, their schema."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recordmill.reader.narrowing import Narrowing
from recordmill.reader.record_ranges import Ints, RecordOffsets
from recordmill.reader.shard_files import is_local
from recordmill.reader.shard_guard import ShardGuard
from recordmill.records.schema import Schema


@dataclass(frozen=True)
class RecordSource:
    """The location of the records.

    Attributes:
      paths: of the shards, in the order that record ranges count in.
      compression: "", "GZIP" or "ZLIB".
      record_offsets: of the records; None where files can only be read from the beginning.
      schema: of the records.
      narrowing: which of their numbers become int32.
      record_bytes: the mean size of a record.
      guard: notices shards that change.
    """

    paths: tuple[str, ...]
    compression: str
    record_offsets: RecordOffsets | None
    schema: Schema
    narrowing: Narrowing
    record_bytes: int
    guard: ShardGuard

    @property
    def skips_records(self) -> bool:
        """True where a read range may begin behind the byte at which reading begins."""
        return self.record_offsets is None or self.record_offsets.every > 1

    @property
    def is_remote(self) -> bool:
        """True where some uncompressed shards are not on a local disk; see `remote_shards.py`."""
        return self.record_offsets is not None and not all(map(is_local, self.paths))

    def find(self, shards: Ints, firsts: Ints) -> tuple[Ints, Ints]:
        """Returns the bytes to begin at, and the records to skip from there, `[n] int64` each.

        Args:
          shards: `[n] int64`, positions in `paths`.
          firsts: `[n] int64`, numbers of records in their shards.
        """
        if self.record_offsets is None:
            return 0 * firsts, firsts
        return self.record_offsets.find(shards, firsts)

    def problem_before_reading(self, shards: Ints, firsts: Ints, counts: Ints) -> str:
        """Returns why some ranges of records must not be read, in one line, "" where they may be.

        Args:
          shards, firsts: as `find` takes them.
          counts: `[n] int64`, records to read.
        """
        problem = self.guard.problem_of(np.unique(shards).tolist())
        if problem or self.record_offsets is None:
            return problem
        ranges = zip(shards.tolist(), firsts.tolist(), counts.tolist(), strict=True)
        return self.guard.wrong_length(self.record_offsets, ranges)
