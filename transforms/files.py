"""Files on any of Beam's file systems, written whole or not at all.

A file appears under its name only by a rename of a finished and closed temporary one, so that a
killed writer, or two writers of the same content at once, leave nothing that a reader could take
for the file.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy.typing as npt
import zstandard
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from recordmill.records.errors import RunError

_PLAIN = CompressionTypes.UNCOMPRESSED
_WRITE_BYTES = 1 << 22
_MIME = "application/octet-stream"


def join(base: str, *parts: str) -> str:
    """Joins path parts with "/" on every file system."""
    return "/".join([base.rstrip("/") or "/", *parts]) if base != "/" else "/" + "/".join(parts)


def is_local(path: str) -> bool:
    """Tells whether `path` is on this machine's own file system."""
    return "://" not in path


def open_read(path: str, offset: int = 0) -> IO[bytes]:
    """Opens a file for reading its bytes as they are, from `offset` on."""
    handle: Any = (
        open(path, "rb") if is_local(path) else FileSystems.open(path, _MIME, _PLAIN)  # noqa: SIM115
    )
    if offset:
        handle.seek(offset)
    return handle


def read_bytes(path: str, offset: int = 0, size: int = -1) -> bytes:
    """Returns `size` bytes from `offset` on, or all the rest."""
    with open_read(path, offset) as handle:
        if size < 0:
            return handle.read()
        data = handle.read(size)
        while len(data) < size:
            more = handle.read(size - len(data))
            if not more:
                break
            data += more
        return data


@contextmanager
def writing(path: str, partial_folder: str = "") -> Iterator[IO[bytes]]:
    """Opens `path` for writing; it appears under its name when the block ends without an error.

    Until then it lies in `partial_folder`, or beside its place.
    """
    folder, _, name = path.rpartition("/")
    make_folder(folder)
    make_folder(partial_folder)
    beside = partial_folder or folder
    temporary = f"{beside}/" * bool(beside) + f".{name}.{uuid.uuid4().hex[:12]}.tmp"
    try:
        handle = FileSystems.create(temporary, _MIME, _PLAIN)
        try:
            yield handle
        finally:
            handle.close()
        rename([temporary], [path])
    except BaseException as error:
        delete_quietly([temporary])
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise RunError(
                f"no space left while writing {path}: free some, or choose another --temp_dir or "
                f"--output, and run the same command again ({error.strerror})"
            ) from error
        raise


def write_bytes(path: str, data: bytes, partial_folder: str = "") -> None:
    """Writes a whole file."""
    with writing(path, partial_folder) as handle:
        handle.write(data)


def write_array(handle: IO[bytes], array: npt.NDArray[Any]) -> None:
    """Writes the bytes of a contiguous array, without a second copy of all of them."""
    data = memoryview(array.data).cast("B") if array.size else b""
    for at in range(0, len(data), _WRITE_BYTES):
        handle.write(bytes(data[at : at + _WRITE_BYTES]))


def make_folder(path: str) -> None:
    """Creates a folder and its parents where the file system has folders."""
    if path and is_local(path):
        os.makedirs(path, exist_ok=True)


def rename(sources: list[str], targets: list[str]) -> None:
    """Renames files; an existing target is replaced.

    Raises:
      RunError: names the file system's reason.
    """
    try:
        FileSystems.rename(sources, targets)
    except (BeamIOError, OSError) as error:
        reasons = getattr(error, "exception_details", None)
        why = next(iter(reasons.values())) if reasons else error
        raise RunError(
            f"cannot rename {sources[0]} to {targets[0]}: {why}; mend that and run the same "
            "command again"
        ) from error


def exists(path: str) -> bool:
    """Tells whether there is such a file or folder."""
    return bool(FileSystems.exists(path))


def size(path: str) -> int:
    """Returns the bytes of a file, -1 where there is none."""
    if is_local(path):
        return os.path.getsize(path) if os.path.isfile(path) else -1
    found = FileSystems.match([path])[0].metadata_list
    return int(found[0].size_in_bytes) if found else -1


def delete_quietly(paths: Iterable[str]) -> None:
    """Deletes what is there of `paths`."""
    # Beam takes local paths for globs when it deletes; a name may have brackets.
    present = [path for path in paths if exists(path)]
    for path in filter(is_local, present):
        os.remove(path)
    remote = [path for path in present if not is_local(path)]
    if remote:
        FileSystems.delete(remote)


def list_files(folder: str) -> dict[str, int]:
    """Returns path -> size of every file below `folder`, {} where there is none."""
    if is_local(folder):
        return {
            f"{root}/{name}": os.path.getsize(f"{root}/{name}")
            for root, _, names in os.walk(folder)
            for name in names
        }
    found = FileSystems.match([join(folder, "**")])[0].metadata_list
    return {item.path: item.size_in_bytes for item in found}


def count(folder: str, ending: str) -> int:
    """Returns how many files below `folder` have that ending."""
    return sum(path.endswith(ending) for path in list_files(folder))


def delete_folder(folder: str) -> None:
    """Deletes a folder with all that is in it."""
    if is_local(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    files = list(list_files(folder))
    if files:
        FileSystems.delete(files)


class _ZstdReader(io.RawIOBase):
    """Zstandard frames one behind the other; a cut file is an error, as it is in the other formats.

    zstandard's own stream takes a file's end for the end of its text, wherever it was cut.
    """

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self._frame: Any = None
        self._compressed = b""
        self._text = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            # 4 KiB can hold 128 MiB of one repeated byte; of ordinary text they hold 20 KiB.
            data = self._compressed or self._handle.read(1 << 12)
            if not data:
                if self._frame:
                    raise EOFError("compressed file ended before the end of a frame")
                return 0
            self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            self._text = memoryview(self._frame.decompress(data))
            self._compressed = b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._text))
        buffer[:count], self._text = self._text[:count], self._text[count:]
        return count


def open_decompressed(handle: IO[bytes], compression: str) -> IO[bytes]:
    """Returns the decompressed bytes of an open file, as a stream.

    Args:
      handle: the file.
      compression: "", "gz", "bz2", "xz" or "zst".
    """
    if compression == "gz":
        return gzip.GzipFile(fileobj=handle)  # type: ignore[return-value]
    if compression == "bz2":
        return bz2.BZ2File(handle)
    if compression == "xz":
        return lzma.LZMAFile(handle)
    if compression == "zst":
        return io.BufferedReader(_ZstdReader(handle))
    return handle
