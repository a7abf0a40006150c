"""Find records that cannot be read: their position, and the problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import tensorflow as tf

from recordmill.reader.range_reading import UnreadableRecord, unreadable_in
from recordmill.reader.record_ranges import Ints
from recordmill.reader.shard_files import OVERHEAD_BYTES
from recordmill.reader.tensorflow_internals import first_line

_BATCH_RECORDS = 512
_THREADS = 4


def first_unreadable_record(path: str, compression: str, count: int) -> UnreadableRecord | None:
    """Returns the first of a compressed shard's first `count` records that cannot be read."""
    records = tf.data.TFRecordDataset(path, compression)
    readable = size = 0
    # An error is met twice: by a batch, then by its records alone. It ends the loop, because the
    # dataset of a file that is gone fails again each time it is asked.
    for batch in (_BATCH_RECORDS, 1):
        some = records.skip(readable).take(count - readable)
        with suppress(tf.errors.OpError):
            for block in some.map(tf.strings.length).batch(batch).as_numpy_iterator():
                readable += len(block)
                size += int(block.sum(dtype=np.int64)) + OVERHEAD_BYTES * len(block)
        if readable == count:
            return None
    problem = "the file ends before it"
    try:
        for _ in records.skip(readable).take(1):
            problem = "it could be read the second time"
    except tf.errors.OpError as error:
        problem = first_line(error)
    return UnreadableRecord(path, readable, size, problem)


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
    if not compression:
        return unreadable_in(path, np.append(offsets, size))
    first = first_unreadable_record(path, compression, len(offsets))
    if not first:
        return []
    return [
        first,
        *(
            UnreadableRecord(path, i, int(offsets[i]), "a record before it is broken")
            for i in range(first.record + 1, len(offsets))
        ),
    ]


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
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(
            pool.map(
                lambda i: unreadable_records(paths[i], compression, offsets(i), sizes[i]),
                range(len(paths)),
            )
        )
