"""Read a shard of another tool once: its counts, checksum, index and features.

Nothing is written to it. Memory is a block, or a record where that is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.codec.framing import OVERHEAD_BYTES, index_lines
from recordmill.records.state import Count
from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.examples.record_source import (
    RecordBatch,
    RecordFileRange,
    StoredSums,
    read_records,
)
from recordmill.transforms.examples.schema_survey import SchemaSurvey
from recordmill.transforms.examples.shard_files import ShardFile
from recordmill.transforms.sources.changes import reading
from recordmill.transforms.storage.buffers import BlockPool


class ShardDamage(msgspec.Struct, frozen=True):
    """Why a shard cannot be taken as it is.

    Attributes:
      file: its name.
      position: of the first damaged record, in bytes from the beginning, after decompression.
      problem: of that record.
      count: of damaged records; more may lie behind one whose length is damaged.
    """

    file: str
    position: Count
    problem: str
    count: Count


@dataclass(slots=True)
class ScannedShard:
    """What one pass over a shard finds.

    Attributes:
      records: their number.
      file_bytes: as stored.
      record_bytes: after decompression.
      crc32c: of the file.
      least_bytes, most_bytes: of a record without its frame; 0 where there is none.
      damage: None where the shard is whole.
    """

    records: int = 0
    file_bytes: int = 0
    record_bytes: int = 0
    crc32c: int = 0
    least_bytes: int = 0
    most_bytes: int = 0
    damage: ShardDamage | None = field(default=None)


def scan_shard(
    source: ShardFile,
    write_index: Callable[[bytes], object],
    *,
    survey: SchemaSurvey | None,
    checker: SchemaChecker | None,
    block_bytes: int,
    pool: BlockPool | None = None,
) -> ScannedShard:
    """Reads a shard.

    Args:
      source: the file.
      write_index: is given the lines of the index, in order.
      survey: what its features are added to; None where they are given.
      checker: of the features that are given; None where they are not.
      block_bytes: how much is read at once.
      pool: has the memory for blocks.

    Raises:
      InputChangedError: the file is another one than was planned, or becomes one meanwhile.
    """
    found, stored = ScannedShard(), StoredSums()
    whole = RecordFileRange(
        source.path, source.name, source.format, source.compression, source.size,
        modified_ns=source.modified_ns,
    )  # fmt: skip

    def damaged(position: int, problem: str, count: int = 1) -> None:
        first = found.damage or ShardDamage(source.name, position, problem, 0)
        found.damage = ShardDamage(first.file, first.position, first.problem, first.count + count)

    with reading(source.path, source.size, source.modified_ns):
        for batch in read_records(whole, block_bytes, pool, stored):
            if not source.compression:
                stored.add(batch.data[: batch.used_bytes])
            if len(batch.begins):
                _add(batch, found, write_index)
                if survey is not None:
                    survey.add(batch.data, batch.begins, batch.ends)
                offsets = np.append(batch.begins, batch.ends[-1])
                for bad in checker.check(batch.data, offsets) if checker else ():
                    position = batch.position + int(batch.begins[bad.index])
                    damaged(position, f"not as --schema says: {bad.problem}")
            for reject in batch.rejects:
                damaged(reject.position, reject.detail or REASONS[reject.reason])
    if found.damage is None and stored.size_bytes != source.size:
        damaged(found.record_bytes, "bytes behind the compressed records")
    if found.damage is None and stored.streams > 1 and source.compression == "zlib":
        damaged(0, "more than one ZLIB stream, of which TensorFlow reads the first alone")
    found.file_bytes, found.crc32c = stored.size_bytes, stored.crc32c
    return found


def _add(batch: RecordBatch, found: ScannedShard, write_index: Callable[[bytes], object]) -> None:
    offsets = np.append(batch.begins, batch.ends[-1])
    write_index(index_lines(offsets, batch.position))
    sizes = batch.ends - batch.begins - OVERHEAD_BYTES
    least = int(sizes.min())
    found.least_bytes = min(found.least_bytes, least) if found.records else least
    found.most_bytes = max(found.most_bytes, int(sizes.max()))
    found.records += len(sizes)
    found.record_bytes += int(batch.ends[-1] - batch.begins[0])
