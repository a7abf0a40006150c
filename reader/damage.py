"""Find records that cannot be read: their position, and the problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from recordmill.reader.byte_offset_dataset import open_records
from recordmill.reader.record_ranges import Ints

_OVERHEAD_BYTES = 16  # framing.OVERHEAD_BYTES, without numba


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
    lengths = open_records(path, compression, offset).take(count).map(tf.strings.length)
    readable, size = lengths.ignore_errors().reduce(
        (np.int64(0), np.int64(0)),
        lambda state, length: (
            state[0] + 1,
            state[1] + tf.cast(length, tf.int64) + _OVERHEAD_BYTES,
        ),
    )
    return int(readable), int(size)


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


def unreadable_records(path: str, compression: str, offsets: Ints) -> list[UnreadableRecord]:
    """Returns all records of a shard that cannot be read.

    Behind a broken record of a compressed shard nothing can be read.

    Args:
      path: of the shard.
      compression: "", "GZIP" or "ZLIB".
      offsets: `[num_records] int64`, of all its records, before compression.
    """
    unreadable: list[UnreadableRecord] = []
    record = 0
    while record < len(offsets):
        begin = 0 if compression else int(offsets[record])
        first = first_unreadable_record(
            path, compression, first=record, count=len(offsets) - record, offset=begin
        )
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


def scan_shards(
    paths: Sequence[str], compression: str, offsets: Callable[[int], Ints]
) -> list[list[UnreadableRecord]]:
    """Returns `unreadable_records` of each shard; reads all of them once, 4 at a time.

    Args:
      paths: of the shards.
      compression: "", "GZIP" or "ZLIB".
      offsets: returns the byte offsets of all records of shard i.
    """
    with ThreadPoolExecutor(4) as pool:
        return list(
            pool.map(
                lambda i: unreadable_records(paths[i], compression, offsets(i)), range(len(paths))
            )
        )
