"""Read any record of a split by its number, with the index files and without TensorFlow."""

from __future__ import annotations

import operator
import os
import struct
from collections.abc import Iterator
from typing import Any, overload

import numpy as np

from recordmill.reader.dataset import open_dataset
from recordmill.reader.framing import FOOTER_BYTES, HEADER_BYTES, masked_crc32c, record_length
from recordmill.reader.narrowing import Narrowing
from recordmill.reader.options import Int64Names
from recordmill.reader.record_ranges import RecordOffsets
from recordmill.reader.selection import parse_selection
from recordmill.reader.shard_files import OVERHEAD_BYTES, OpenShards
from recordmill.reader.shard_guard import ShardGuard
from recordmill.records.errors import RunError, UsageError
from recordmill.records.example_values import parse_record
from recordmill.records.manifest import ShardInfo


class RecordTable:
    """A split as a sequence: `table[i]` is the i-th record as written, as arrays.

    What PyTorch calls a map-style dataset. May be pickled, and read by several threads at once.
    """

    def __init__(self, path: str | os.PathLike[str], split: str, *, int64: Int64Names = ()) -> None:
        """Opens a part of a split, such as "train[:10%]", of uncompressed shards.

        Args:
          path, split: as `load` takes them.
          int64: features that stay int64; all others of int64 become int32.

        Raises:
          UsageError: there is no such dataset or split, it is not on a local disk, or compressed,
            a shard or its index is not the one that the manifest describes, or a name in `int64`
            is no int64 feature.
        """
        dataset = open_dataset(path)
        if dataset.manifest.compression:
            raise UsageError(
                f"random access needs shards without compression, and those of {dataset.path} are "
                f"{dataset.manifest.compression}; write the dataset without --compression, or load"
            )
        if "://" in dataset.path:
            raise UsageError(
                f"random access needs a dataset on a local disk, got {dataset.path}; copy it, or "
                "read it with load"
            )
        counts = {name: dataset.split(name).records for name in dataset.manifest.split_shards()}
        self._schema = dataset.schema
        self._narrowing = Narrowing.of(dataset, int64)
        shards: list[ShardInfo] = []
        numbers = []
        for part in parse_selection(split, counts, dataset.path):
            chosen = dataset.split(part.split)
            dataset.check_files(chosen)
            before = sum(shard.records for shard in shards)
            numbers.append(before + np.arange(part.first, part.last))
            shards += chosen.shards
        records = [shard.records for shard in shards]
        self._paths = [dataset.file(shard.name.path) for shard in shards]
        self._numbers = np.concatenate(numbers)
        self._starts = np.cumsum([0, *records])
        self._guard = ShardGuard(dataset, shards, self._paths)
        self._offsets = RecordOffsets(
            dataset.read, [shard.name.index_path for shard in shards], records,
            [shard.record_bytes for shard in shards],
        )  # fmt: skip
        self._files = OpenShards()

    def __len__(self) -> int:
        """Returns the number of records."""
        return len(self._numbers)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields all records, in order."""
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Returns a record, or a list of records.

        Raises:
          IndexError: there is no record of that number.
          RunError: the record is broken, or has a value that does not fit int32.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"record {position} of {len(self)}")
        number = int(self._numbers[position])
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        first = number - int(self._starts[shard])
        try:
            record = parse_record(self._schema, self._read(shard, first))
        except (OSError, ValueError, struct.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunError(
                f"{self._paths[shard]}: record {first} cannot be read: {reason}; copy the shard "
                "again, and check it with `recordmill verify`"
            ) from error
        return self._narrowing.record(record, f"{self._paths[shard]}: record {first}")

    def _read(self, shard: int, first: int) -> bytes:
        """Returns a record, without framing.

        Raises:
          ValueError: it is broken, or the shard was cut.
          RunError: the shard is gone, or has changed since the table was opened.
        """
        descriptor = self._open(shard)
        at, end = self._offsets.group(shard, first)
        for _ in range(first % self._offsets.every):
            at += OVERHEAD_BYTES + _length(os.pread(descriptor, HEADER_BYTES, at), end - at)
        if self._offsets.every > 1:
            header = os.pread(descriptor, HEADER_BYTES, at)
            end = at + OVERHEAD_BYTES + _length(header, end - at)
        data = os.pread(descriptor, end - at, at)
        if OVERHEAD_BYTES + _length(data, end - at) != end - at:
            raise ValueError("its length is not the one of the index")
        if len(data) < end - at:
            raise ValueError("the file ends before it")
        record = data[HEADER_BYTES:-FOOTER_BYTES]
        if (masked_crc32c(record),) != struct.unpack_from("<I", data, len(data) - FOOTER_BYTES):
            raise ValueError("checksum of the data does not match")
        return record

    def _open(self, shard: int) -> int:
        """Returns the descriptor of a shard; once it is open, its bytes stay where they are."""
        descriptor = self._files.get(shard)
        if descriptor is None:
            if problem := self._guard.problem_of([shard]):
                raise RunError(problem)
            descriptor = self._files.open(shard, self._paths[shard])
        return descriptor


def _length(header: bytes, room: int) -> int:
    """Returns the length in a record's header.

    Args:
      header: the first bytes of the record.
      room: the bytes that it may take, framing included.

    Raises:
      ValueError: it is cut, its checksum does not match, or it is longer than it may be.
    """
    if len(header) < HEADER_BYTES:
        raise ValueError("the file ends before it")
    length = record_length(header)
    if length > room - OVERHEAD_BYTES:
        raise ValueError("its length is not the one of the index")
    return length
