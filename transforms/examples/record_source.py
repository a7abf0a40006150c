"""Where existing records come from: TFRecord files of any tool, plain, GZIP or ZLIB.

The compression is told by a file's first bytes, not by its name. A plain file can be read from the
beginning of any record on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from typing import IO, Annotated

import google_crc32c
import msgspec
import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.framing import (
    HEADER_BYTES,
    OVERHEAD_BYTES,
    FrameDefect,
    scan_records,
    walk_lengths,
)
from recordmill.records.errors import RunError
from recordmill.records.hashing import U64
from recordmill.records.state import Count
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.sources.blocks import BROKEN_STREAM
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files
from recordmill.transforms.storage.buffers import BlockPool
from recordmill.transforms.storage.unpacking import UnpacksTooMuchError, open_decompressed

BLOCK_BYTES = 1 << 23
KEYED_ELEMENTS = "keyed elements"  # of a PCollection, in files of a run, with hashes of keys beside
_WBITS = {"gz": 31, "zlib": 15}
_PACKED_BYTES = 1 << 20
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class RecordFileRange(SourceRange):
    """Records of a file: those that begin in `[start, end)` of a plain one.

    Attributes:
      weight: how often each record is written; a fraction is the share of records that are.
      begin_share, end_share: where the file lies in the input, in [0, 1], by stored bytes.
      ordinal: of the file in the input.
    """

    weight: _NotNegative = 1.0
    begin_share: _NotNegative = 0.0
    end_share: _NotNegative = 1.0
    ordinal: Count = 0


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Whole records of a file, as they are framed there.

    Attributes:
      data: `[bytes] uint8`.
      begins, ends: `[num_records] int64`: of each record with its frame.
      position: of `data` in the decompressed file.
      used_bytes: of `data`, those of the records and of a damaged one behind them.
      rejects: what could not be read behind them.
      origins: `[num_records] int64`: the position of what each was made of; None where records lie
        in the file as they are.
      numbers: `[num_records] int64`: which of several that were made of one each is; None where
        each is the only one.
      extent: all positions in the file are below it; 0 for the size of the file.
      keys: `[num_records] uint64` that decide the order; None where position or content does.
      groups: `[num_records] uint64`: of elements with keys, the hashes of these.
    """

    data: Bytes
    begins: Int64s
    ends: Int64s
    position: int
    used_bytes: int
    rejects: tuple[Reject, ...] = ()
    origins: Int64s | None = None
    numbers: Int64s | None = None
    extent: int = 0
    keys: U64 | None = None
    groups: U64 | None = None

    @property
    def positions(self) -> Int64s:
        """`[num_records] int64`: where each record, or what it was made of, is in the input."""
        return self.position + self.begins if self.origins is None else self.origins


def is_record_length(header: bytes) -> bool:
    """Tells whether 12 bytes are the length of a record and the checksum of that."""
    if len(header) < HEADER_BYTES:
        return False
    # Not by a kernel: the driver looks at the first bytes of files alone, and needs none.
    crc = google_crc32c.value(header[:8])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32)
    length = int.from_bytes(header[:8], "little")
    return masked == int.from_bytes(header[8:HEADER_BYTES], "little") and length < 1 << 62


def compression_of(start: bytes, name: str = "") -> str:
    """Returns how a file is compressed that begins so: "", "gz", "zlib", "bz2", "xz" or "zst".

    Args:
      start: its first 12 bytes.
      name: of the file, whose extension counts where the bytes say nothing.

    Raises:
      ValueError: it holds no records.
    """
    if not start or is_record_length(start):
        return ""
    if start.startswith(b"\x1f\x8b"):
        return "gz"
    for magic, kind in ((b"BZh", "bz2"), (b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zst")):
        if start.startswith(magic):
            return kind
    if start[0] & 15 == 8 and int.from_bytes(start[:2], "big") % 31 == 0:
        return "zlib"
    raise ValueError("no TFRecord: it begins with neither the length of a record nor GZIP or ZLIB")


@dataclass(slots=True)
class StoredSums:
    """A file as it is stored, added up while its records are read.

    Attributes:
      size_bytes, crc32c: of what was read so far.
      streams: of zlib, one behind another.
    """

    size_bytes: int = 0
    crc32c: int = 0
    streams: int = 0

    def add(self, data: bytes | Bytes) -> None:
        """Adds the next bytes."""
        self.size_bytes += len(data)
        self.crc32c = google_crc32c.extend(self.crc32c, data)


class _Inflated:
    """The decompressed bytes of an open file, of one zlib stream or several, one behind another."""

    def __init__(self, handle: IO[bytes], compression: str, stored: StoredSums | None) -> None:
        self._handle = handle
        self._stored = stored
        self._wbits = _WBITS[compression]
        self._stream = zlib.decompressobj(self._wbits)
        self._packed = b""

    def _fetch(self) -> bytes:
        packed = self._handle.read(_PACKED_BYTES)
        if self._stored is not None:
            self._stored.add(packed)
            self._stored.streams = max(self._stored.streams, 1)
        return packed

    def read(self, size: int) -> bytes:
        """Returns up to `size` bytes, fewer at the end and where few are packed together.

        Raises:
          EOFError, zlib.error: the file is cut or damaged.
        """
        while True:
            if self._stream.eof:
                self._packed = self._stream.unused_data or self._fetch()
                if not self._packed.strip(b"\0"):
                    return b""
                self._stream = zlib.decompressobj(self._wbits)
                if self._stored is not None:
                    self._stored.streams += 1
            packed = self._packed or self._fetch()
            if not packed:
                raise EOFError("the compressed stream ends too early")
            data = self._stream.decompress(packed, size)
            self._packed = self._stream.unconsumed_tail
            if data:
                return data


def _opened(
    handle: IO[bytes], compression: str, stored: StoredSums | None
) -> IO[bytes] | _Inflated:
    if compression in _WBITS:
        return _Inflated(handle, compression, stored)
    return open_decompressed(handle, compression)


class _Filler:
    """Reads blocks of a stream, and keeps the damage that ended it."""

    def __init__(self, stream: IO[bytes] | _Inflated, *, packed: bool, most: int) -> None:
        self._stream = stream
        self.packed = packed
        self._left = most
        self.damage = ""
        self.ended = False

    def most(self, wanted: int) -> int:
        """Returns how many of so many bytes there can be."""
        return min(wanted, self._left) if self._left >= 0 else wanted

    def fill(self, out: Bytes) -> int:
        """Fills an array; returns the bytes, fewer where the stream ends or is damaged."""
        done, wanted = 0, self.most(len(out))
        while done < wanted and not self.ended:
            try:
                count = self._read_into(out[done:wanted])
            except BROKEN_STREAM as error:
                self._end(error)
                break
            except (OSError, UnpacksTooMuchError) as error:
                if error.errno is not None or not self.packed:
                    raise
                self._end(error)
                break
            self.ended = not count
            done += count
            if self._left >= 0:
                self._left -= count
        self.ended = self.ended or not self._left
        return done

    def _read_into(self, out: Bytes) -> int:
        if isinstance(self._stream, BufferedReader):  # a plain file of this machine
            return self._stream.readinto(out.data)
        data = self._stream.read(len(out))
        out[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)

    def _end(self, error: Exception) -> None:
        self.damage = f"{type(error).__name__}: {error}"
        self.ended = True


def read_records(
    source: RecordFileRange,
    block_bytes: int = BLOCK_BYTES,
    pool: BlockPool | None = None,
    stored: StoredSums | None = None,
) -> Iterator[RecordBatch]:
    """Yields the records of a range, with both checksums of each checked.

    A record whose data is damaged is left out, and the ones behind it are read. Where a length is
    damaged, or the file is cut, nothing behind it can be found: that is one reject.

    Args:
      source: of a plain file any range that begins at a record; else a whole file.
      block_bytes: how much is read at once; a record that is larger is read whole.
      pool: has the memory for blocks; without it is fresh.
      stored: what a compressed file is added to as it is stored.

    Raises:
      InputChangedError: it is another file than was planned.
    """
    with files.open_read(source.path, source.start) as handle:
        check_opened(source.path, handle, source.size, source.modified_ns)
        compression = ""
        if not source.start:
            try:
                compression = compression_of(handle.read(HEADER_BYTES), source.name)
            except ValueError as error:
                yield _last_reject(source, 0, "broken_file", str(error))
                return
            handle.seek(0)
        most = source.end - source.start if source.end >= 0 else -1
        filler = _Filler(_opened(handle, compression, stored), packed=bool(compression), most=most)
        yield from _batches(source, filler, block_bytes, pool)


def _batches(
    source: RecordFileRange, filler: _Filler, block_bytes: int, pool: BlockPool | None
) -> Iterator[RecordBatch]:
    carried, position = np.zeros(0, np.uint8), source.start
    while True:
        wanted = block_bytes
        if len(carried) >= HEADER_BYTES:
            length = int.from_bytes(carried[:8].tobytes(), "little")
            missing = length + OVERHEAD_BYTES - len(carried)
            # A length may lie: no more memory than the file has, or twice what is unpacked.
            there = len(carried) if filler.packed else source.size
            wanted = max(block_bytes, min(missing, there))
        size = len(carried) + filler.most(wanted)
        buffer = pool.take(size) if pool else np.empty(size, np.uint8)
        buffer[: len(carried)] = carried
        data = buffer[: len(carried) + filler.fill(buffer[len(carried) :])]
        used, broken = 0, False
        for batch in _scanned(source, data, position):
            used = batch.position - position + batch.used_bytes
            broken = any(reject.reason == "broken_file" for reject in batch.rejects)
            yield batch
        if broken:
            return
        carried, position = data[used:], position + used
        if filler.ended:
            if len(carried) or filler.damage:
                yield _last_reject(
                    source, position, "broken_file",
                    filler.damage or f"the last record is cut after {len(carried)} bytes",
                )  # fmt: skip
            return


def _scanned(source: RecordFileRange, data: Bytes, position: int) -> Iterator[RecordBatch]:
    """Yields the whole records at the beginning of a block, a batch up to each damaged one."""
    at = 0
    while True:
        rest = data[at:]
        offsets, used, defect = scan_records(rest)
        rejects: tuple[Reject, ...] = ()
        if defect is FrameDefect.LENGTH:
            rejects = (_reject(source, position + at + used, "broken_file", str(defect)),)
        elif defect is FrameDefect.DATA:
            rejects = (_reject(source, position + at + used, "broken_record", str(defect)),)
            used += int.from_bytes(rest[used : used + 8].tobytes(), "little") + OVERHEAD_BYTES
        if used or rejects:
            yield RecordBatch(rest, offsets[:-1], offsets[1:], position + at, used, rejects)
        if defect is not FrameDefect.DATA:
            return
        at += used


def _reject(source: RecordFileRange, position: int, reason: str, detail: str) -> Reject:
    return Reject(source.name, position, "read", reason, detail)


def _last_reject(source: RecordFileRange, position: int, reason: str, detail: str) -> RecordBatch:
    none = np.zeros(0, np.int64)
    rejects = (_reject(source, position, reason, detail),)
    return RecordBatch(np.zeros(0, np.uint8), none, none, position, 0, rejects)


def keys_path(path: str) -> str:
    """Returns the file of the hashes of the keys of elements."""
    return f"{path}.keys"


def read_elements(
    source: RecordFileRange, block_bytes: int, pool: BlockPool | None = None
) -> Iterator[RecordBatch]:
    """Yields the records of a file that a users' pipeline has spooled.

    Args:
      source, block_bytes, pool: as `read_records` takes them.

    Raises:
      RunError: the file is missing or damaged.
    """
    lost = RunError(
        f"{source.path} is missing or damaged; run the pipeline again, from its beginning"
    )
    if files.size(source.path) != source.size:
        raise lost
    keys = None
    if source.format == KEYED_ELEMENTS:
        path = keys_path(source.path)
        keys = np.frombuffer(files.read_bytes(path) if files.exists(path) else b"", "<u8")
    done = 0
    for batch in read_records(source, block_bytes, pool):
        first, done = done, done + len(batch.begins)
        if batch.rejects or (keys is not None and done > len(keys)):
            raise lost
        yield batch if keys is None else replace(batch, groups=keys[first:done])


def record_starts(source: SourceRange, target_bytes: int, block_bytes: int = 1 << 22) -> list[int]:
    """Returns where a plain file can be cut into ranges of about `target_bytes`, 0 first.

    Lengths alone are read, each with its checksum, up to the first that is damaged: no data that
    looks like a record can mislead it.
    """
    starts, wanted, at = [0], target_bytes, 0
    with files.open_read(source.path) as handle:
        while at + OVERHEAD_BYTES <= source.size:
            handle.seek(at)
            data = np.frombuffer(handle.read(block_bytes), np.uint8)
            found, after, whole = walk_lengths(data, at, wanted, target_bytes)
            starts += found
            wanted = found[-1] + target_bytes if found else wanted
            if after == at or not whole:
                break
            at = after
    return starts
