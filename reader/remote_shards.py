"""Uncompressed shards that are not on a local disk: ranges are read once, and cut into records.

TensorFlow's own reader asks for as much memory as the length of a record says, and 2**62 ends the
process. On a local disk lengths are looked at before; elsewhere that would be a second request for
the same bytes. So here Python reads and checks them.
"""

from __future__ import annotations

import struct

from recordmill.reader.framing import FOOTER_BYTES, HEADER_BYTES, masked_crc32c, record_length
from recordmill.reader.record_ranges import Ints
from recordmill.reader.shard_files import OVERHEAD_BYTES
from recordmill.records.errors import RunError

_BLOCK_BYTES = 1 << 23


def read_bytes(path: str, begin: int, end: int) -> bytes:
    """Returns the bytes of a file from `begin` to `end`; fewer where it is shorter.

    Raises:
      RunError: it cannot be read.
    """
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(path, "rb") as handle:
            handle.seek(begin)
            return bytes(handle.read(end - begin))
    except tf.errors.OpError as error:
        reason = str(error.message).partition("\n")[0].strip() or type(error).__name__
        raise RunError(f"{path} cannot be read: {reason}") from error


def cut_records(data: bytes, *, skip: int, count: int) -> tuple[list[bytes], str]:
    """Returns records, and why the one behind them cannot be read, "" where nothing is wrong.

    Args:
      data: framed records, one behind the other; more may follow.
      skip: at the beginning, whose data is not looked at.
      count: of those to return.
    """
    records: list[bytes] = []
    at = 0
    for number in range(skip + count):
        try:
            length = record_length(data[at : at + HEADER_BYTES])
        except ValueError as error:
            return records, str(error)
        if length > len(data) - at - OVERHEAD_BYTES:
            return records, f"its length of {length} bytes is not the one of the index"
        end = at + HEADER_BYTES + length
        if number >= skip:
            record = data[at + HEADER_BYTES : end]
            if (masked_crc32c(record),) != struct.unpack_from("<I", data, end):
                return records, "the checksum of the data does not match"
            records.append(record)
        at = end + FOOTER_BYTES
    return records, ""


def unreadable_in(path: str, bounds: Ints) -> list[tuple[int, str]]:
    """Returns the records of a shard that cannot be read, and why not.

    Args:
      path: of the shard.
      bounds: `[num_records + 1] int64`: the byte offset of each record, and the end of the last.

    Raises:
      RunError: the shard cannot be read.
    """
    unreadable = []
    ends = bounds.tolist()
    first = 0
    while first < len(ends) - 1:
        last = first + 1
        while last < len(ends) - 1 and ends[last + 1] - ends[first] <= _BLOCK_BYTES:
            last += 1
        data = read_bytes(path, ends[first], ends[last])
        for record in range(first, last):
            one = data[ends[record] - ends[first] : ends[record + 1] - ends[first]]
            _, problem = cut_records(one, skip=0, count=1)
            if problem:
                unreadable.append((record, problem))
        first = last
    return unreadable
