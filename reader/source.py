"""The location of a reader's records: paths of shards, byte offsets in them, their schema."""

from __future__ import annotations

from dataclasses import dataclass

from recordmill.reader.record_ranges import Ints, RecordOffsets
from recordmill.records.schema import Schema


@dataclass(frozen=True)
class RecordSource:
    """The location of the records.

    Attributes:
      paths: of the shards, in the order that record ranges count in.
      compression: "", "GZIP" or "ZLIB".
      record_offsets: of the records; None where files can only be read from the beginning.
      schema: of the records.
      record_bytes: the mean size of a record.
    """

    paths: tuple[str, ...]
    compression: str
    record_offsets: RecordOffsets | None
    schema: Schema
    record_bytes: int

    @property
    def skips_records(self) -> bool:
        """True where a read range may begin behind the byte at which reading begins."""
        return self.record_offsets is None or self.record_offsets.every > 1

    def find(self, shards: Ints, firsts: Ints) -> tuple[Ints, Ints]:
        """Returns the bytes to begin at, and the records to skip from there, `[n] int64` each.

        Args:
          shards: `[n] int64`, positions in `paths`.
          firsts: `[n] int64`, numbers of records in their shards.
        """
        if self.record_offsets is None:
            return 0 * firsts, firsts
        return self.record_offsets.find(shards, firsts)
