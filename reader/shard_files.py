"""Shards on a local disk: opened once, and known by size and time."""

from __future__ import annotations

import os
import threading
import weakref
from typing import NamedTuple

import google_crc32c

from recordmill.reader.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.regular_files import opened_regular

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


def has_checksum(path: str, size: int, crc32c: int) -> bool:
    """Reads a local file, and tells whether it has this size and crc32c."""
    found = 0
    with opened_regular(path) as descriptor:
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
                with opened_regular(path) as descriptor:
                    self._descriptors[shard] = os.dup(descriptor)
            return self._descriptors[shard]

    def __reduce__(self) -> tuple[type[OpenShards], tuple[()]]:
        """Pickles without open files."""
        return OpenShards, ()


def _close_all(descriptors: dict[int, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])
