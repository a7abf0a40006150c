"""Arrays to and from files, without a copy of their bytes."""

from __future__ import annotations

import os
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from recordmill.records.arrays import Bytes
from recordmill.records.regular_files import open_regular
from recordmill.transforms.storage import files

# The kernel caches what is written at once in as large a piece of memory, and large ones are those
# that a virtual machine has to ask its host for: a write of megabytes takes five times as long.
_WRITE_BYTES = 1 << 16


def write_array(handle: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Writes the bytes of a contiguous array, `[…]` of any dtype, without a copy of them."""
    data = memoryview(array.data).cast("B") if array.size else memoryview(b"")
    for at in range(0, len(data), _WRITE_BYTES):
        handle.write(data[at : at + _WRITE_BYTES])


def begin_sync(handle: IO[bytes], begin: int, end: int) -> None:
    """Makes this machine's disk write what was written to a file, while the caller goes on.

    So the sync at the end of the file has little left to wait for.

    Args:
      handle: of `writing`.
      begin, end: the range of bytes.
    """
    try:
        descriptor = handle.fileno()
        # The advice drops pages from memory once they are on the disk, and for that writes them.
        os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)
    except (AttributeError, OSError):  # a remote file, or a system without the call
        pass


def read_into(path: str, offset: int, out: Bytes) -> int:
    """Reads bytes from `offset` on into `[size] uint8`; returns their number, fewer at the end."""
    if not files.is_local(path):
        data = files.read_bytes(path, offset, len(out))
        out[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)
    done = 0
    with open_regular(path) as handle:
        handle.seek(offset)
        while done < len(out):
            count = handle.readinto(out[done:].data)  # type: ignore[attr-defined]
            if not count:
                break
            done += count
    return done
