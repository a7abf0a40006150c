"""Compressed files as streams, and how much one may unpack to: kilobytes can hold terabytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from typing import IO, Any, cast

from backports import zstd


class UnpacksTooMuchError(OSError):
    """A compressed file unpacks to more than it may."""


class LimitedStream(io.BufferedIOBase):
    """A stream that ends with an error where it is longer than it may be.

    All bytes up to the limit can be read, whatever the sizes of reads: what a reader sees depends
    on the file alone.

    Args:
      stream: of unpacked bytes.
      most_bytes: it may have.
    """

    def __init__(self, stream: io.BufferedIOBase, most_bytes: int) -> None:
        self._stream = stream
        self._left = most_bytes
        self._most_bytes = most_bytes

    def readable(self) -> bool:
        """Tells that it can be read."""
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Returns `size` bytes, fewer at the end; -1: all the rest."""
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read1(1 << 20), b""))
        parts = []
        while size and (part := self.read1(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def read1(self, size: int = -1) -> bytes:
        """Returns at most `size` bytes, b"" at the end alone."""
        if size == 0:
            return b""
        if not self._left:
            if self._stream.read1(1):
                raise UnpacksTooMuchError(f"it unpacks to more than {self._most_bytes} bytes")
            return b""
        data = self._stream.read1(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer; returns how many bytes there were."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readinto1(self, buffer: Any) -> int:
        """Fills a part of a buffer; returns how many bytes there were."""
        data = self.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def open_decompressed(
    handle: IO[bytes], compression: str, most_bytes: int | None = None
) -> IO[bytes]:
    """Returns the decompressed bytes of an open file, as a stream.

    Args:
      handle: the file.
      compression: "", "gz", "bz2", "xz" or "zst".
      most_bytes: a compressed file may unpack to; a read beyond raises `UnpacksTooMuchError`.

    Returns:
      A stream whose reads raise what `sources.blocks.BROKEN_STREAM` lists, or an OSError without
      a number, where the file is damaged, and EOFError where it was cut.
    """
    if compression and most_bytes is not None:
        unlimited = cast(io.BufferedIOBase, open_decompressed(handle, compression))
        return cast(IO[bytes], LimitedStream(unlimited, most_bytes))
    if compression == "gz":
        return gzip.GzipFile(fileobj=handle)  # type: ignore[return-value]
    if compression == "bz2":
        return bz2.BZ2File(handle)
    if compression == "xz":
        return lzma.LZMAFile(handle)
    if compression == "zst":
        return zstd.ZstdFile(handle)  # type: ignore[return-value]
    return handle
