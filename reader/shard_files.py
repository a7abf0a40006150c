"""Shards on a local disk: opened as regular files, and known by size and time."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import google_crc32c

from recordmill.reader.framing import FOOTER_BYTES, HEADER_BYTES

OVERHEAD_BYTES = HEADER_BYTES + FOOTER_BYTES  # framing.OVERHEAD_BYTES, without numba
_CHUNK_BYTES = 1 << 22


class Stamp(NamedTuple):
    """By what a changed file is known: its size in bytes, and when it was last written."""

    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        """Returns the stamp of a file."""
        return cls(status.st_size, status.st_mtime_ns)


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
