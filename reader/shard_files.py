"""Shards on a local disk as a reader must find them: there, unchanged, with lengths that can be.

TensorFlow reads a record's length and asks for so much memory, whatever the file has: a length of
2**62 ends the process. So the lengths of a range are compared with the index before TensorFlow
reads it. And a shard that is replaced while it is read would give records of another dataset.
"""

from __future__ import annotations

import os
import stat
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from recordmill.reader.framing import FOOTER_BYTES, HEADER_BYTES, masked_crc32c

Ints = npt.NDArray[np.int64]

OVERHEAD_BYTES = HEADER_BYTES + FOOTER_BYTES  # framing.OVERHEAD_BYTES, without numba
_LENGTH_BYTES = 8
# Records of this mean size or more have their lengths read one by one, smaller ones with the bytes
# between: a call of the system costs as much as copying so many bytes.
_SINGLE_BYTES = 1 << 14
_CHUNK_BYTES = 1 << 22


class Stamp(NamedTuple):
    """By what a changed file is known: its size in bytes, and when it was last written."""

    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Returns the stamp of a file."""
        return cls(status.st_size, status.st_mtime_ns)


class WrongLength(NamedTuple):
    """A record whose length has a right checksum, and is not what the index says.

    Attributes:
      record: its position among those that were checked.
      offset: of its first byte in the shard.
      length: in bytes, without framing, as the shard has it.
    """

    record: int
    offset: int
    length: int

    def __str__(self) -> str:
        return f"its length of {self.length} bytes is not the one of the index"


def is_local(path: str) -> bool:
    """Tells whether a path is on a disk of this machine's file system."""
    return "://" not in path


@contextmanager
def open_regular(path: str) -> Iterator[int]:
    """Opens a file for reading; gives its descriptor.

    Raises:
      OSError: there is none, or it is no regular file: a pipe would wait for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def has_checksum(path: str, size: int, crc32c: int) -> bool:
    """Reads a local file, and tells whether it has this size and crc32c."""
    found = 0
    with open_regular(path) as descriptor:
        if os.fstat(descriptor).st_size != size:
            return False
        at = 0
        while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
            found = google_crc32c.extend(found, chunk)
            at += len(chunk)
    return (at, found) == (size, crc32c)


def first_wrong_length(descriptor: int, kept: Ints, every: int) -> WrongLength | None:
    """Returns the first record of a range whose length, with a right checksum, is a wrong one.

    A length whose checksum is wrong is left to TensorFlow, which compares that first.

    Args:
      descriptor: of the shard, uncompressed.
      kept: `[groups + 1] int64`: the byte offset of each `every`th record, and of the range's end.
      every: records in each group but the shard's last one, which may have fewer.
    """
    if len(kept) < 2:
        return None
    lengths_at = _reader_of_lengths(descriptor, kept, every)
    at, ends, groups = kept[:-1], kept[1:], np.arange(len(kept) - 1)
    wrong = []
    for step in range(every):
        lengths = lengths_at(at)
        there = slice(0, len(lengths))  # a shard that was cut has fewer
        at, ends, groups = at[there], ends[there], groups[there]
        room = ends - at - OVERHEAD_BYTES
        fits = lengths.astype(np.int64) == room
        if step < every - 1:
            fits |= (room >= 0) & (lengths <= np.maximum(room, 0).astype(np.uint64))
        for bad in np.flatnonzero(~fits):
            if _checksum_matches(descriptor, int(at[bad])):
                record = int(groups[bad]) * every + step
                wrong.append(WrongLength(record, int(at[bad]), int(lengths[bad])))
                break
        at = at + lengths.astype(np.int64) + OVERHEAD_BYTES
        goes_on = fits & (at < ends)
        at, ends, groups = at[goes_on], ends[goes_on], groups[goes_on]
        if not len(at):
            break
    return min(wrong, default=None)


def _reader_of_lengths(
    descriptor: int, kept: Ints, every: int
) -> Callable[[Ints], npt.NDArray[np.uint64]]:
    """Returns what reads the lengths at ascending byte offsets, up to the end of the file."""
    begin, end = int(kept[0]), int(kept[-1])
    if end - begin >= _SINGLE_BYTES * (len(kept) - 1) * every:

        def one_by_one(at: Ints) -> npt.NDArray[np.uint64]:
            read = b"".join(os.pread(descriptor, _LENGTH_BYTES, offset) for offset in at.tolist())
            return np.frombuffer(read[: len(read) // 8 * 8], "<u8")

        return one_by_one
    data = np.frombuffer(os.pread(descriptor, end - begin, begin), np.uint8)
    if len(data) < _LENGTH_BYTES:
        return lambda at: np.zeros(0, np.uint64)
    words = np.lib.stride_tricks.sliding_window_view(data, _LENGTH_BYTES)

    def together(at: Ints) -> npt.NDArray[np.uint64]:
        there = at[at - begin + _LENGTH_BYTES <= len(data)]
        return words[there - begin].view("<u8").ravel()

    return together


def _checksum_matches(descriptor: int, offset: int) -> bool:
    header = os.pread(descriptor, HEADER_BYTES, offset)
    if len(header) < HEADER_BYTES:
        return False
    checksum: int = struct.unpack_from("<I", header, _LENGTH_BYTES)[0]
    return masked_crc32c(header[:_LENGTH_BYTES]) == checksum


class OpenShards:
    """Descriptors of shards, closed with this object; may be used by several threads."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _close_all, self._descriptors)

    def get(self, shard: int) -> int | None:
        """Returns the descriptor of a shard, None where it is not open."""
        return self._descriptors.get(shard)

    def open(self, shard: int, path: str) -> int:
        """Opens a shard that is not open, and returns its descriptor.

        Raises:
          OSError: it cannot be opened.
        """
        with self._lock:
            if shard not in self._descriptors:
                with open_regular(path) as descriptor:
                    self._descriptors[shard] = os.dup(descriptor)
            return self._descriptors[shard]

    def __reduce__(self) -> tuple[type[OpenShards], tuple[()]]:
        """Pickles without open files."""
        return OpenShards, ()


def _close_all(descriptors: dict[int, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])
