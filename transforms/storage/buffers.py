"""Buffers that are used again and again: fresh memory costs more than what is copied into it.

The kernel clears each page before a process sees it, and a virtual machine may have to ask its host
for it first, so a gigabyte that passes through fresh arrays costs as much as writing it to a disk.
"""

from __future__ import annotations

import weakref

import numpy as np

from recordmill.records.arrays import Bytes


class Arena:
    """One buffer that is handed out in slices, until all of them are taken back at once.

    Args:
      size: of the buffer, in bytes, until more is asked for; what is never used takes no memory.
    """

    def __init__(self, size: int = 0) -> None:
        self._buffer = np.empty(size, np.uint8)
        self._used = 0

    def take(self, size: int) -> Bytes:
        """Returns `[size] uint8`, of any content; it begins where numbers of 8 bytes may."""
        begin = self._used
        self._used += -(-size // 8) * 8
        if self._used > len(self._buffer):
            return np.empty(size, np.uint8)  # the next round has room for it
        return self._buffer[begin : begin + size]

    def reset(self) -> None:
        """Takes back all slices; their holders must be done with them."""
        if self._used > len(self._buffer):
            self._buffer = np.empty(0, np.uint8)  # not both at once
            self._buffer = np.empty(self._used + self._used // 8, np.uint8)
        self._used = 0


class BlockPool:
    """Buffers of one size; one is handed out again when no array refers to it any more."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._free: list[Bytes] = []

    def take(self, size: int) -> Bytes:
        """Returns `[size] uint8`, of any content; a larger one than the pool's is fresh."""
        if size > self._block_bytes:
            return np.empty(size, np.uint8)
        block = self._free.pop() if self._free else np.empty(self._block_bytes, np.uint8)
        # All slices refer to this array, since what is behind it is not one of numpy's.
        whole = np.frombuffer(block.data, np.uint8)
        weakref.finalize(whole, self._free.append, block).atexit = False
        return whole[:size]
