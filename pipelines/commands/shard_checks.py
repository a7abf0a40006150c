"""Check one shard and its index in one pass over their bytes, and name every defect.

Memory is a few blocks of the file, or one record where that is larger.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import google_crc32c
import numpy as np

from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.codec.framing import (
    OVERHEAD_BYTES,
    Bytes,
    FrameDefect,
    Offsets,
    index_lines,
    scan_records,
)
from recordmill.records.manifest import ShardInfo
from recordmill.records.schema import Schema
from recordmill.transforms.storage import files

BLOCK_BYTES = 1 << 22
_MAX_NAMED = 20  # the defects of one file that are named; further ones are only counted
_WBITS = {"ZLIB": 15, "GZIP": 31}
_GZIP = b"\x1f"  # with which each stream begins


@dataclass(frozen=True, slots=True)
class ShardToCheck:
    """What to check a shard against.

    Attributes:
      dataset: the dataset's folder.
      shard: its entry in the manifest.
      schema: the schema of its records.
      compression: "", "GZIP" or "ZLIB".
      block_bytes: how much is read at once.
    """

    dataset: str
    shard: ShardInfo
    schema: Schema
    compression: str
    block_bytes: int = BLOCK_BYTES


@dataclass(slots=True)
class FileDefects:
    """The defects of one file, a line each; those beyond the first twenty are only counted."""

    path: str
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, problem: str) -> None:
        """Adds a defect."""
        self.count += 1
        if self.count <= _MAX_NAMED:
            self.lines.append(f"{self.path}: {problem}")

    def report(self) -> list[str]:
        """Returns the lines to print."""
        more = self.count - len(self.lines)
        return [*self.lines, f"{self.path}: and {more} more"] if more else self.lines


@dataclass(slots=True)
class ShardReport:
    """The result of checking a shard and its index.

    Attributes:
      shard: the defects of the shard.
      index: the defects of its index.
      records: the number of whole records in the shard.
      file_bytes: the bytes that were read.
      crc32c: the checksum of these bytes.
    """

    shard: FileDefects
    index: FileDefects
    records: int = 0
    file_bytes: int = 0
    crc32c: int = 0


def unread_defect(error: OSError) -> str:
    """Returns the defect of a file that is not there, or cannot be read."""
    missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
    return "missing" if missing else f"cannot be read: {error.strerror or error}"


class _IndexCheck:
    """Compares the lines of an index file with the records, block by block."""

    def __init__(self, target: ShardToCheck, defects: FileDefects) -> None:
        self._defects = defects
        self._lines = b""
        self._at = 0
        self._records = 0
        self._wanted = not target.compression
        path = files.join(target.dataset, target.shard.name.index_path)
        if not self._wanted:
            return
        try:
            self._lines = files.read_bytes(path)
        except OSError as error:
            defects.add(unread_defect(error))
            self._wanted = False

    def compare(self, offsets: Offsets, base: int) -> None:
        if not self._wanted:
            return
        expected = index_lines(offsets, base)
        if self._lines[self._at : self._at + len(expected)] != expected:
            self._name_first_difference(expected)
            self._wanted = False
        self._at += len(expected)
        self._records += len(offsets) - 1

    def _name_first_difference(self, expected: bytes) -> None:
        found = self._lines[self._at :].splitlines()
        for i, line in enumerate(expected.splitlines()):
            if i >= len(found) or found[i] != line:
                what = repr(found[i].decode("ascii", "replace")) if i < len(found) else "the end"
                number = self._records + i
                self._defects.add(
                    f"line {number + 1} must be {line.decode()!r}, where record {number} lies, "
                    f"and is {what}"
                )
                return
        self._defects.add(f"the line end after line {self._records + len(found)} is missing")

    def end(self) -> None:
        if self._wanted and self._at != len(self._lines):
            more = self._lines[self._at :].count(b"\n") or 1
            self._defects.add(
                f"has {more} lines after that of the last record, {self._records - 1}"
            )


class _ShardCheck:
    def __init__(self, target: ShardToCheck) -> None:
        self._target = target
        name = target.shard.name
        self._path = files.join(target.dataset, name.path)
        self.report = ShardReport(FileDefects(name.path), FileDefects(name.index_path))
        self._index = _IndexCheck(target, self.report.index)
        self._checker = SchemaChecker(target.schema) if target.schema.features else None
        self._record_bytes = 0
        self._broken = False  # the beginning of the next record is no longer known

    def _defect(self, problem: str) -> None:
        self.report.shard.add(problem)

    def run(self) -> ShardReport:
        try:
            self._walk()
        except OSError as error:
            self._defect(unread_defect(error))
            return self.report
        self._compare_sums()
        return self.report

    def _blocks(self) -> Iterator[bytes]:
        """Yields the file's bytes as they are, and sums them up."""
        with files.open_read(self._path) as handle:
            while block := handle.read(self._target.block_bytes):
                self.report.crc32c = google_crc32c.extend(self.report.crc32c, block)
                self.report.file_bytes += len(block)
                yield block

    def _framed(self) -> Iterator[bytes]:
        """Yields the bytes of the records, decompressed."""
        if not self._target.compression:
            yield from self._blocks()
            return
        several = self._target.compression == "GZIP"  # streams, all of which TensorFlow reads
        stream = zlib.decompressobj(_WBITS[self._target.compression])
        for block in self._blocks():
            if several and stream.eof and block[:1] == _GZIP:
                stream = zlib.decompressobj(_WBITS["GZIP"])
            if self._broken or stream.eof:
                continue  # the rest is read for the checksum only
            while block and not stream.eof:
                before = self.report.file_bytes - len(block)
                try:
                    yield stream.decompress(block, self._target.block_bytes)
                except zlib.error as error:
                    self._defect(f"{self._target.compression} data after byte {before}: {error}")
                    self._broken = True
                    break
                block = stream.unconsumed_tail
                if several and stream.unused_data[:1] == _GZIP:  # behind its end
                    block = stream.unused_data
                    stream = zlib.decompressobj(_WBITS["GZIP"])
        if not self._broken and not stream.eof:
            self._defect(f"{self._target.compression} data is cut at byte {self.report.file_bytes}")
            self._broken = True

    def _walk(self) -> None:
        carried = b""
        for block in self._framed():
            if self._broken:
                continue
            carried = self._take(carried + block if carried else block)
        if carried and not self._broken:
            self._defect(
                f"record {self.report.records} at byte {self._record_bytes} is cut: the file ends "
                f"{len(carried)} bytes after its beginning"
            )
            self._broken = True

    def _take(self, buffer: bytes) -> bytes:
        """Checks the whole records at the beginning of `buffer`; returns the bytes after them."""
        data = np.frombuffer(buffer, np.uint8)
        at = 0
        while True:
            offsets, used, defect = scan_records(data[at:])
            self._check(data[at:], offsets)
            at += used
            if defect is FrameDefect.NONE:
                return buffer[at:]
            self._defect(f"record {self.report.records} at byte {self._record_bytes}: {defect}")
            if defect is FrameDefect.LENGTH:
                self._broken = True
                return b""
            # The length has a checksum of its own, which is right: go on after the record.
            length = int.from_bytes(buffer[at : at + 8], "little") + OVERHEAD_BYTES
            self._index.compare(np.array([0, length], np.int64), self._record_bytes)
            self.report.records += 1
            self._record_bytes += length
            at += length

    def _check(self, data: Bytes, offsets: Offsets) -> None:
        for bad in self._checker.check(data, offsets) if self._checker else ():
            at = self._record_bytes + int(offsets[bad.index])
            self._defect(f"record {self.report.records + bad.index} at byte {at}: {bad.problem}")
        self._index.compare(offsets, self._record_bytes)
        self.report.records += len(offsets) - 1
        self._record_bytes += int(offsets[-1])

    def _compare_sums(self) -> None:
        expected, report = self._target.shard, self.report
        pairs = [("bytes", report.file_bytes, expected.file_bytes)]
        if not self._broken:
            pairs += [
                ("records", report.records, expected.records),
                ("bytes of records", self._record_bytes, expected.record_bytes),
            ]
            self._index.end()
        for what, found, wanted in pairs:
            if found != wanted:
                self._defect(f"must have {wanted} {what} by the manifest, and has {found}")
        if report.crc32c != expected.crc32c and not report.shard.count:
            self._defect(
                f"crc32c must be {expected.crc32c:08x} by the manifest, and is {report.crc32c:08x}"
            )


def check_shard(target: ShardToCheck) -> ShardReport:
    """Reads a shard and its index; returns every defect of both."""
    return _ShardCheck(target).run()
