"""The location of a reader's records: paths of shards, byte offsets in them, their schema."""

from __future__ import annotations

from dataclasses import dataclass

from recordmill.reader.narrowing import Narrowing
from recordmill.reader.record_ranges import RecordOffsets
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
