"""Read any record of a split by its number, with the index files and without TensorFlow."""

from __future__ import annotations

import mmap
import operator
import os
import struct
from collections.abc import Iterator
from typing import Any, overload

import numpy as np

from recordmill.reader.dataset import open_dataset
from recordmill.reader.examples import parse_record
from recordmill.reader.record_ranges import RecordOffsets
from recordmill.reader.selection import parse_selection
from recordmill.records.errors import RunError, UsageError

_HEADER_BYTES = 12
_FOOTER_BYTES = 4


class RecordTable:
    """A split as a sequence: `table[i]` is the i-th record as written, as arrays.

    What PyTorch calls a map-style dataset. May be pickled, and read by several threads at once.
    """

    def __init__(self, path: str | os.PathLike[str], split: str) -> None:
        """Opens a part of a split, such as "train[:10%]", of uncompressed shards.

        Raises:
          UsageError: there is no such dataset or split, it is not on a local disk, or compressed.
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
        self._paths: list[str] = []
        records: list[int] = []
        index_paths: list[str] = []
        numbers = []
        for part in parse_selection(split, counts, dataset.path):
            chosen = dataset.split(part.split)
            dataset.check_files(chosen)
            numbers.append(sum(records) + np.arange(part.first, part.last))
            for shard in chosen.shards:
                self._paths.append(dataset.file(shard.name.path))
                index_paths.append(shard.name.index_path)
                records.append(shard.records)
        self._numbers = np.concatenate(numbers)
        self._starts = np.cumsum([0, *records])
        self._offsets = RecordOffsets(dataset.read, index_paths, records)
        self._files: dict[int, mmap.mmap] = {}

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
          RunError: the record is broken.
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
            return parse_record(self._schema, self._read(shard, first))
        except (ValueError, struct.error) as error:
            raise RunError(
                f"{self._paths[shard]}: record {first} cannot be read: {error}; copy the shard "
                "again, and check it with `recordmill verify`"
            ) from error

    def _read(self, shard: int, first: int) -> bytes:
        offsets, skips = self._offsets.find(np.array([shard]), np.array([first]))
        data = self._open(shard)
        at = int(offsets[0])
        for _ in range(int(skips[0])):
            at += _HEADER_BYTES + struct.unpack_from("<Q", data, at)[0] + _FOOTER_BYTES
        length, checksum = struct.unpack_from("<QI", data, at)
        if _masked(data[at : at + 8]) != checksum:
            raise ValueError("checksum of the length does not match")
        end = at + _HEADER_BYTES + length
        record = data[at + _HEADER_BYTES : end]
        if (_masked(record),) != struct.unpack_from("<I", data, end):
            raise ValueError("checksum of the data does not match")
        return record

    def _open(self, shard: int) -> mmap.mmap:
        """Returns the shard's bytes, which the system reads where they are looked at."""
        if shard not in self._files:
            with open(self._paths[shard], "rb") as file:
                self._files[shard] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return self._files[shard]

    def __getstate__(self) -> dict[str, Any]:
        """Returns what is pickled: all but open files."""
        return {**self.__dict__, "_files": {}}


def _masked(data: bytes) -> int:
    """Returns the masked crc32c of TFRecord framing."""
    import google_crc32c

    crc = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
