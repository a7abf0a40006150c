"""Reading an image's bytes from where its reference says they are stored."""

from __future__ import annotations

import errno
import gzip
import os
import struct
import zipfile
import zlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import IO, Any, cast

import numpy as np

from recordmill.records.errors import RunError
from recordmill.transforms.images.references import StoredBytes
from recordmill.transforms.sources.changes import check_opened, check_stamp
from recordmill.transforms.storage import files

_UNPACK_SLACK = 1 << 16  # of an idx file beyond its pixels: its header
# Other failures are the machine's or the storage's, and no reason to reject the image.
_FILE_ERRORS = {
    errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP,
    errno.ENAMETOOLONG, errno.EINVAL,
}  # fmt: skip
_ZIP_HEADER = struct.Struct("<4s5H3I2H")  # of a member, without its name


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of the memory and the files of one reader of images.

    Attributes:
      image_bytes: of one image's file or unpacked member.
      unpacked_bytes: of a packed idx file (.gz): a worker that reads from it holds all its pixels.
      open_files: archives that stay open.
    """

    image_bytes: int = 1 << 29
    unpacked_bytes: int = 1 << 28
    open_files: int = 8


DEFAULT_LIMITS = ReadLimits()


class UnreadableBytesError(Exception):
    """The bytes of an image cannot be read; the message says why."""


class ImageReader:
    """Reads images one after the other; archives stay open between them.

    Memory: the image, and where idx files are packed (.gz), the pixels of the last one. Not for
    several threads at once.
    """

    def __init__(self, limits: ReadLimits = DEFAULT_LIMITS, *, packs: str = "") -> None:
        self._limits = limits
        self._packs = packs
        self._open: OrderedDict[str, IO[bytes]] = OrderedDict()
        self._unpacked: tuple[str, bytes] = ("", b"")

    def __enter__(self) -> ImageReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes what is open; reading again opens it again."""
        while self._open:
            self._open.popitem()[1].close()
        self._unpacked = ("", b"")

    def read(self, stored: StoredBytes) -> bytes:
        """Returns the bytes of the image's file, or for "idx" of its pixels, `[h, w, c] uint8`.

        Raises:
          UnreadableBytesError: they are not there, cut short, damaged or too many.
          InputChangedError: the file is another one than was listed.
        """
        self._check_size(stored.size)
        if stored.storage == "packed":
            path = files.join(self._packs, stored.path)
            stored = replace(stored, path=path, storage="range")
        try:
            if stored.storage == "file":
                return self._whole(stored)
            try:
                return self._part(stored)
            finally:  # whatever is wrong with the bytes: another archive is the reason
                if handle := self._open.get(stored.path):
                    check_opened(stored.path, handle, -1, stored.modified_ns)
        except OSError as error:
            if error.errno is not None and error.errno not in _FILE_ERRORS:
                raise RunError(
                    f"{stored.path} cannot be read: {error.strerror or error}; fix that and run "
                    "the same command again"
                ) from error
            raise UnreadableBytesError(error.strerror or str(error)) from error
        except (EOFError, zlib.error) as error:
            raise UnreadableBytesError(getattr(error, "strerror", None) or str(error)) from error

    def _whole(self, stored: StoredBytes) -> bytes:
        path = stored.path
        if not files.is_local(path):
            data = files.read_bytes(path, 0, self._limits.image_bytes + 1)
            self._check_size(len(data))
            if stored.modified_ns:
                check_stamp(path, (len(data), 0), stored.size, stored.modified_ns)
            return data
        with files.open_read(path) as handle:
            self._check_size(os.fstat(handle.fileno()).st_size)
            data = handle.read()
            # Behind the reading: what changed before or meanwhile shows now.
            check_opened(path, handle, stored.size, stored.modified_ns)
            return data

    def _part(self, stored: StoredBytes) -> bytes:
        if stored.storage == "zip":
            return self._zip_member(stored)
        if stored.storage == "range":
            return self._range(stored.path, stored.offset, stored.size)
        return self._pixels(stored)

    def _handle(self, path: str) -> IO[bytes]:
        handle = self._open.pop(path, None)
        if handle is None:
            while len(self._open) >= self._limits.open_files:
                self._open.popitem(last=False)[1].close()
            handle = files.open_read(path)
        self._open[path] = handle
        return handle

    def _range(self, path: str, offset: int, size: int) -> bytes:
        handle = self._handle(path)
        handle.seek(offset)
        data = handle.read(size)
        while len(data) < size and (more := handle.read(size - len(data))):
            data += more
        if len(data) < size:
            raise UnreadableBytesError(f"{path} ends within it; it changed or was cut")
        return data

    def _zip_member(self, stored: StoredBytes) -> bytes:
        head = self._range(stored.path, stored.offset, _ZIP_HEADER.size)
        magic, _, _, method, _, _, _, _, _, name, extra = _ZIP_HEADER.unpack(head)
        if magic != b"PK\3\4":
            raise UnreadableBytesError(f"{stored.path} has no member there; it changed")
        start = stored.offset + _ZIP_HEADER.size + name + extra
        data = self._range(stored.path, start, stored.size)
        if method == zipfile.ZIP_DEFLATED:
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            data = inflate.decompress(data, self._limits.image_bytes + 1)
            self._check_size(len(data))
            if not inflate.eof:
                raise UnreadableBytesError("the compressed member is cut short")
        if stored.crc32 is not None and zlib.crc32(data) != stored.crc32:
            raise UnreadableBytesError("the member's checksum is wrong")
        return data

    def _pixels(self, stored: StoredBytes) -> bytes:
        if stored.path.endswith(".gz"):
            data = self._unpack(stored)[stored.offset : stored.offset + stored.size]
        else:
            data = self._range(stored.path, stored.offset, stored.size)
        if len(data) < stored.size:
            raise UnreadableBytesError(f"{stored.path} ends within it; it changed or was cut")
        if stored.is_planar:
            height, width, channels = stored.shape
            planes = np.frombuffer(data, np.uint8).reshape(channels, height, width)
            return planes.transpose(1, 2, 0).tobytes()
        return data

    def _unpack(self, stored: StoredBytes) -> bytes:
        path = stored.path
        if self._unpacked[0] != path:
            self._unpacked = ("", b"")
            with files.open_read(path) as handle:
                stream = gzip.GzipFile(fileobj=cast(Any, handle))
                check_opened(path, handle, -1, stored.modified_ns)
                self._unpacked = (path, stream.read(self._limits.unpacked_bytes + _UNPACK_SLACK))
        return self._unpacked[1]

    def _check_size(self, size: int) -> None:
        if size > self._limits.image_bytes:
            raise UnreadableBytesError(
                f"{size >> 20} MiB, and at most {self._limits.image_bytes >> 20} MiB are read"
            )
