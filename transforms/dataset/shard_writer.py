"""Write one shard: its file, its index and its description, in one pass.

The description is written last: if it exists, the shard is whole.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache
from typing import IO, Any, Generic, TypeVar

import google_crc32c
import msgspec
import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.records.codec.framing import Bytes, index_lines
from recordmill.records.errors import RunError
from recordmill.records.manifest import ShardInfo
from recordmill.records.shards import ShardName
from recordmill.records.state import FileSum
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.rejects import RejectFile
from recordmill.transforms.dataset.run_state import parse_state
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files
from recordmill.transforms.storage.array_files import begin_sync, write_array

_SYNC_BYTES = 1 << 23
_RejectsOf = Callable[[Any], Iterable[RejectFile]]
StatisticsT = TypeVar("StatisticsT")


class _Compressor:
    """Bytes as they go to the file; equal input gives equal output, without a time in the
    header."""

    def __init__(self, compression: str) -> None:
        wbits = {"": 0, "ZLIB": 15, "GZIP": 31}[compression]
        self._zlib = zlib.compressobj(6, zlib.DEFLATED, wbits) if wbits else None

    def add(self, data: Bytes) -> Bytes:
        return np.frombuffer(self._zlib.compress(data.data), np.uint8) if self._zlib else data

    def end(self) -> Bytes:
        return np.frombuffer(self._zlib.flush() if self._zlib else b"", np.uint8)


class ShardWriter:
    """Writes a shard, and computes its counts, checksum and index lines in the same pass."""

    def __init__(self, handle: IO[bytes], index: IO[bytes] | None, compression: str) -> None:
        self._handle = handle
        self._index = index
        self._compressor = _Compressor(compression)
        self._crc = 0
        self._file_bytes = 0
        self._begun_bytes = 0  # that the disk is writing
        self._record_bytes = 0
        self._records = 0
        self._index_bytes = 0
        self._index_crc = 0

    def _write(self, data: Bytes) -> None:
        self._crc = google_crc32c.extend(self._crc, data)
        write_array(self._handle, data)
        self._file_bytes += len(data)
        if self._file_bytes - self._begun_bytes >= _SYNC_BYTES:
            begin_sync(self._handle, self._begun_bytes, self._file_bytes)
            self._begun_bytes = self._file_bytes

    def add(self, framed: Bytes, offsets: Int64s) -> None:
        """Appends framed records.

        Args:
          framed: `[bytes] uint8`: records with length and checksums, one behind the other.
          offsets: `[num_records + 1]`: where each begins in `framed`, and where the last ends.
        """
        self._write(self._compressor.add(framed))
        if self._index is not None:
            lines = index_lines(offsets, self._record_bytes)
            self._index.write(lines)
            self._index_bytes += len(lines)
            self._index_crc = google_crc32c.extend(self._index_crc, lines)
        self._record_bytes += int(offsets[-1])
        self._records += len(offsets) - 1

    def close(self, name: ShardName, statistics: StatisticsT) -> ShardDescription[StatisticsT]:
        """Writes the bytes that the compressor still holds; returns the description."""
        self._write(self._compressor.end())
        info = ShardInfo(
            name.split, name.index, name.count, self._records, self._file_bytes,
            self._record_bytes, self._crc, name.template,
        )  # fmt: skip
        index = None if self._index is None else (self._index_bytes, self._index_crc)
        return ShardDescription(info, statistics, index)


class ShardDescription(msgspec.Struct, Generic[StatisticsT], frozen=True):
    """What a finished shard says of itself.

    Attributes:
      shard: its entry in the manifest.
      statistics: of its records, of the kind that its job keeps.
      index: bytes and crc32c of its index; None where it has none.
    """

    shard: ShardInfo
    statistics: StatisticsT
    index: FileSum | None = None


def read_description(job: Job, name: ShardName) -> ShardDescription[Any] | None:
    """Returns what a finished shard says of itself; None where it says nothing."""
    kind = ShardDescription[job.shard_statistics]  # type: ignore[name-defined]
    found = job.workspace.read_state(job.workspace.done_path(name), kind)
    return found if found and found.shard.name == name else None


def read_descriptions(job: Job) -> Iterator[ShardDescription[Any]]:
    """Yields what all shards say of themselves, when they are finished.

    Raises:
      RunError: one is missing, damaged or of another run.
    """
    workspace, names = job.workspace, list(job.shard_names())
    kind = ShardDescription[job.shard_statistics]  # type: ignore[name-defined]
    contents = files.read_many(map(workspace.done_path, names))
    try:
        for name, content in zip(names, contents, strict=True):
            done = parse_state(content, workspace.token, kind)
            if done is None or done.shard.name != name:
                raise RunError(
                    f"{workspace.done_path(name)} is damaged or of another run; run the same "
                    "command again"
                )
            yield done
    except FileNotFoundError as error:
        raise RunError(f"{error.filename} is missing; run the same command again") from error


def finished_shard(
    job: Job, name: ShardName, rejected: _RejectsOf | None = None
) -> ShardInfo | None:
    """Returns what a finished shard says of itself, None where it is not finished.

    A shard whose file, index or rejects are not there in their sizes is not finished, whatever its
    description says; nor is one on a disk of this machine whose bytes have another checksum, since
    it waits there from an earlier process. Storage services check what they store.

    Args:
      job: whose shard it is.
      name: of the shard.
      rejected: the files of rejects that its statistics name; None where they name none.
    """
    found = read_description(job, name)
    if found is None:
        return None
    workspace = job.workspace
    info, path = found.shard, workspace.shard_path(name)
    whole = _is_whole(workspace, path, name.path, info.file_bytes, info.crc32c)
    whole = whole and holds_index(workspace, name, found.index)
    lists = rejected(found.statistics) if rejected else ()
    whole = whole and all(workspace.holds_rejects(each.number, each.size_bytes) for each in lists)
    return info if whole else None


def holds_index(workspace: Workspace, name: ShardName, index: tuple[int, int] | None) -> bool:
    """Tells whether the index of a finished shard is there and whole; without one it is.

    Args:
      workspace: of the run.
      name: of the shard.
      index: bytes and crc32c, None where the shard has none.
    """
    path = workspace.index_path(name)
    return index is None or _is_whole(workspace, path, name.index_path, *index)


def _is_whole(workspace: Workspace, path: str, target: str, size: int, crc32c: int) -> bool:
    """Tells whether a finished file, staged or published, has its size and its checksum."""
    if not workspace.holds(path, target, size):
        return False
    if not files.is_local(path):
        return True
    for each in (path, files.join(workspace.output, target)):
        with suppress(FileNotFoundError):
            status = os.stat(each)
            return _checksum(each, status.st_ino, status.st_mtime_ns) == crc32c
    return False


@lru_cache(maxsize=1024)  # each part of a shard of images asks for it
def _checksum(path: str, _inode: int, _modified_ns: int) -> int:
    return files.checksum(path)


def write_shard(job: Job, name: ShardName, fill: Callable[[ShardWriter], StatisticsT]) -> ShardInfo:
    """Writes a shard, its index and its description.

    Args:
      job: whose shard it is.
      name: of the shard.
      fill: adds the records; returns the statistics of the shard.

    Raises:
      RunError: the storage does not hold what was written, or the run lost its folders.
    """
    path, partial = job.workspace.shard_path(name), job.workspace.partial_folder
    job.workspace.check_own()
    with ExitStack() as stack:
        handle = stack.enter_context(files.writing(path, partial))
        index = None
        if not job.compression:
            index = stack.enter_context(files.writing(job.workspace.index_path(name), partial))
        writer = ShardWriter(handle, index, job.compression)
        description = writer.close(name, fill(writer))
        job.workspace.check_own()
    info = description.shard
    size = files.size(path)
    if size != info.file_bytes:
        raise RunError(
            f"{path} has {size} bytes where {info.file_bytes} were written; check the storage and "
            "run the same command again"
        )
    job.workspace.write_state(job.workspace.done_path(name), description)
    return info
