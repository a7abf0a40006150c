"""Find records that cannot be read: their position, and the problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from recordmill.reader.byte_offset_dataset import open_records
from recordmill.reader.record_ranges import Ints
from recordmill.reader.remote_shards import unreadable_in
from recordmill.reader.shard_files import (
    OVERHEAD_BYTES,
    WrongLength,
    first_wrong_length,
    is_local,
    open_regular,
)
from recordmill.records.errors import RunError

_BATCH_RECORDS = 512
_CHECKED_RECORDS = 4096


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record that cannot be read.

    Attributes:
      path: of its shard.
      record: its number in the shard.
      offset: its first byte in the shard, before compression.
      problem: what TensorFlow reports of it.
    """

    path: str
    record: int
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: record {self.record} at byte {self.offset}: {self.problem}"


def _readable(path: str, compression: str, offset: int, count: int) -> tuple[int, int]:
    """Returns how many of `count` records from an offset on can be read, and their bytes."""
    readable = size = 0
    # An error is met twice: by a batch, then by its records alone. It ends the loop, because the
    # dataset of a file that is gone fails again each time it is asked.
    for batch in (_BATCH_RECORDS, 1):
        if readable == count:
            break
        begin, skip = (0, readable) if compression else (offset + size, 0)
        records = open_records(path, compression, begin).skip(skip).take(count - readable)
        lengths = records.map(tf.strings.length).batch(batch)
        with suppress(tf.errors.OpError):
            for block in lengths.as_numpy_iterator():
                readable += len(block)
                size += int(block.sum(dtype=np.int64)) + OVERHEAD_BYTES * len(block)
    return readable, size


def _problem(path: str, compression: str, offset: int, skip: int) -> str:
    try:
        for _ in open_records(path, compression, offset).skip(skip).take(1):
            return "it could be read the second time"
    except tf.errors.OpError as error:
        line = str(error.message).splitlines()[0]
        return line.partition("} ")[2].partition(" [Op:")[0] or line
    return "the file ends before it"


def first_unreadable_record(
    path: str, compression: str, *, first: int, count: int, offset: int
) -> UnreadableRecord | None:
    """Returns the first of some records that follow each other that cannot be read.

    Args:
      path: of the shard.
      compression: "", "GZIP" or "ZLIB".
      first: the number of the record at `offset`.
      count: of records to look at.
      offset: the byte to begin at; 0 where the shard is compressed.
    """
    readable, size = _readable(path, compression, offset, count)
    if readable == count:
        return None
    begin, skip = (0, first + readable) if compression else (offset + size, 0)
    problem = _problem(path, compression, begin, skip)
    return UnreadableRecord(path, first + readable, offset + size, problem)


def unreadable_records(
    path: str, compression: str, offsets: Ints, size: int
) -> list[UnreadableRecord]:
    """Returns all records of a shard that cannot be read.

    Behind a broken record of a compressed shard nothing can be read.

    Args:
      path: of the shard.
      compression: "", "GZIP" or "ZLIB".
      offsets: `[num_records] int64`, of all its records, before compression.
      size: the bytes of all its records, framing included.

    Raises:
      RunError: the shard is gone.
    """
    bounds = np.append(offsets, size)
    if not compression and not is_local(path):
        found = unreadable_in(path, bounds)
        return [UnreadableRecord(path, record, int(offsets[record]), why) for record, why in found]
    unreadable: list[UnreadableRecord] = []
    record = 0
    while record < len(offsets):
        begin = 0 if compression else int(offsets[record])
        wrong = None if compression else _wrong_length(path, bounds[record:])
        count = wrong.record if wrong else len(offsets) - record
        first = first_unreadable_record(path, compression, first=record, count=count, offset=begin)
        if not first and wrong:
            first = UnreadableRecord(path, record + count, wrong.offset, str(wrong))
        if not first:
            break
        unreadable.append(first)
        record = first.record + 1
        if compression:
            unreadable += [
                UnreadableRecord(path, i, int(offsets[i]), "a record before it is broken")
                for i in range(record, len(offsets))
            ]
            break
    return unreadable


def _wrong_length(path: str, bounds: Ints) -> WrongLength | None:
    """Returns the first record whose length TensorFlow must not see: it would ask for so much.

    Raises:
      RunError: the shard is gone.
    """
    try:
        with open_regular(path) as descriptor:
            for begin in range(0, len(bounds) - 1, _CHECKED_RECORDS):
                some = bounds[begin : begin + _CHECKED_RECORDS + 1]
                if wrong := first_wrong_length(descriptor, some, 1):
                    return wrong._replace(record=begin + wrong.record)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    return None


def scan_shards(
    paths: Sequence[str], compression: str, offsets: Callable[[int], Ints], sizes: Sequence[int]
) -> list[list[UnreadableRecord]]:
    """Returns `unreadable_records` of each shard; reads all of them once, 4 at a time.

    Args:
      paths: of the shards.
      compression: "", "GZIP" or "ZLIB".
      offsets: returns the byte offsets of all records of shard i.
      sizes: the bytes of the records of each shard, framing included.
    """
    with ThreadPoolExecutor(4) as pool:
        return list(
            pool.map(
                lambda i: unreadable_records(paths[i], compression, offsets(i), sizes[i]),
                range(len(paths)),
            )
        )
