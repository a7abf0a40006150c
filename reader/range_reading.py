"""Ranges of records of uncompressed shards: read once, checked, and cut into records, in Python.

To begin with a range costs TensorFlow's own reader as much as to read some hundred records, and one
of many workers reads 64 records here and 64 there. TensorFlow also asks for as much memory as the
length of a record says, and 2**62 ends the process.
"""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from recordmill.reader.framing import FOOTER_BYTES, HEADER_BYTES, masked_crc32c, record_length
from recordmill.reader.record_ranges import Ints, RecordOffsets
from recordmill.reader.shard_files import OVERHEAD_BYTES, is_local
from recordmill.records.errors import RunError
from recordmill.records.regular_files import opened_regular

Records = npt.NDArray[np.object_]

_REMOTE_READS = 8  # at once: each waits for an answer
_OPEN_SHARDS = 32  # at once: a process may not have many
_SCANNED_BYTES = 1 << 23
_LENGTH = struct.Struct("<Q")
_FRAME = np.dtype([("length", "<u8"), ("length_crc", "<u4"), ("data_crc", "<u4")])


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record that cannot be read.

    Attributes:
      path: of its shard.
      record: its number in the shard.
      offset: its first byte in the shard, before compression; -1 if that is not known.
      problem: why not.
    """

    path: str
    record: int
    offset: int
    problem: str

    def __str__(self) -> str:
        position = f" at byte {self.offset}" if self.offset >= 0 else ""
        return f"{self.path}: record {self.record}{position}: {self.problem}"


@dataclass(frozen=True, slots=True)
class _Span:
    """What to read for a range of records.

    Attributes:
      skip, count: the records before the range, and in it.
      bounds: the byte offset of every `every`th record, and of the end.
    """

    path: str
    skip: int
    count: int
    bounds: list[int]


class _Cut(NamedTuple):
    """Records of a range, and what they are checked by.

    Attributes:
      records: without framing.
      sizes, crcs: the bytes and the crc32c of each.
      frames: the header and the footer of each, 16 bytes.
    """

    records: list[bytes]
    sizes: list[int]
    crcs: list[int]
    frames: bytes


class RangeReader:
    """Reads ranges of records, by the byte offsets of an index; may be used by several threads."""

    def __init__(self, paths: Sequence[str], offsets: RecordOffsets) -> None:
        """Opens nothing yet.

        Args:
          paths: of the shards, on a local disk or `gs://…`.
          offsets: of their records.
        """
        self._paths = paths
        self._offsets = offsets

    def read(self, ranges: Ints) -> Records:
        """Returns the records of some ranges, one range after the other: `[num_records] object`.

        Args:
          ranges: `[n, 3] int64`: shard, number of the first record in it, records.

        Raises:
          RunError: names the record that cannot be read, or the shard.
        """
        spans = [self._span(*row) for row in ranges.tolist()]
        parts = [_Cut([], [], [], b"")] * len(spans)
        ends = np.cumsum([span.count for span in spans])
        records = np.empty(ends[-1] if len(ends) else 0, object)
        for at, data in _contents(spans):
            begins = self._begins(spans[at], data)
            if begins is None:
                raise self._error(at, ranges)
            parts[at] = part = _cut(data, begins)
            records[ends[at] - len(part.records) : ends[at]] = part.records
        wrong = np.flatnonzero(~_intact(parts))
        if len(wrong):
            raise self._error(int(np.searchsorted(ends, wrong[0], side="right")), ranges)
        return records

    def _span(self, shard: int, first: int, count: int) -> _Span:
        bounds = self._offsets.bounds(shard, first, count).tolist() if count else [0]
        return _Span(self._paths[shard], first % self._offsets.every, count, bounds)

    def _begins(self, span: _Span, data: bytes) -> list[int] | None:
        """Returns where records begin in what was read, and the end; None if that cannot be."""
        base, every = span.bounds[0], self._offsets.every
        kept = [bound - base for bound in span.bounds]
        if len(data) < kept[-1]:
            return None
        if every == 1:
            return kept
        # The lengths in the shard lead from one record to the next, and must meet the index.
        at, begins = 0, []
        for _ in range(span.skip + span.count):
            begins.append(at)
            if at + HEADER_BYTES > len(data):
                return None
            at += _LENGTH.unpack_from(data, at)[0] + OVERHEAD_BYTES
        begins.append(at)
        if at > len(data) or begins[::every] != kept[: len(begins[::every])]:
            return None
        return begins[span.skip :]

    def _error(self, at: int, ranges: Ints) -> RunError:
        """Reads a range once more, to name the first record that cannot be read."""
        shard, first, count = map(int, ranges[at])
        span = self._span(shard, first, count)
        unreadable = _unreadable(_read(span), span, self._offsets.every, first - span.skip)
        return unreadable_error(next(unreadable, None), span.path)


def unreadable_error(record: UnreadableRecord | None, path: str) -> RunError:
    """Returns the error that a record cannot be read.

    Args:
      record: None where it could be read the second time.
      path: of its shard.
    """
    return RunError(
        f"every record must be readable, and one is not: {record or path}; copy the shard again, "
        "or read without it by on_error='skip_record'"
    )


def unreadable_in(path: str, bounds: Ints) -> list[UnreadableRecord]:
    """Returns the records of an uncompressed shard that cannot be read.

    Args:
      path: of the shard.
      bounds: `[num_records + 1] int64`: the byte offset of each record, and the end of the last.

    Raises:
      RunError: the shard cannot be read.
    """
    unreadable: list[UnreadableRecord] = []
    ends = bounds.tolist()
    first = 0
    while first < len(ends) - 1:
        last = first + 1
        while last < len(ends) - 1 and ends[last + 1] - ends[first] <= _SCANNED_BYTES:
            last += 1
        span = _Span(path, 0, last - first, ends[first : last + 1])
        data = _read(span)
        begins = [bound - ends[first] for bound in span.bounds]
        if len(data) < begins[-1] or not _intact([_cut(data, begins)]).all():
            unreadable += _unreadable(data, span, 1, first)
        first = last
    return unreadable


def _cut(data: bytes, begins: Sequence[int]) -> _Cut:
    """Returns the records that begin at some offsets, the last of which is the end."""
    first, *ends = begins
    if not ends:
        return _Cut([], [], [], b"")
    records = [
        data[begin + HEADER_BYTES : end - FOOTER_BYTES]
        for begin, end in zip(begins, ends, strict=False)
    ]
    # Now, while the processor has them at hand.
    sizes, crcs = list(map(len, records)), list(map(google_crc32c.value, records))
    # The footer of a record and the header of the next one follow each other.
    between = [data[end - FOOTER_BYTES : end + HEADER_BYTES] for end in ends[:-1]]
    header, footer = data[first : first + HEADER_BYTES], data[ends[-1] - FOOTER_BYTES : ends[-1]]
    return _Cut(records, sizes, crcs, b"".join([header, *between, footer]))


def _intact(parts: Sequence[_Cut]) -> npt.NDArray[np.bool_]:
    """Returns `[num_records] bool`: records whose length and both checksums are right."""
    frames = np.frombuffer(b"".join(part.frames for part in parts), _FRAME)
    sizes = np.array(list(chain.from_iterable(part.sizes for part in parts)), np.uint64)
    crcs = np.array(list(chain.from_iterable(part.crcs for part in parts)), np.uint32)
    lengths, which = np.unique(sizes, return_inverse=True)
    length_crcs = [masked_crc32c(_LENGTH.pack(length)) for length in lengths.tolist()]
    masked = ((crcs >> 15) | (crcs << 17)) + np.uint32(0xA282EAD8)
    intact: npt.NDArray[np.bool_] = (frames["length"] == sizes) & (frames["data_crc"] == masked)
    return intact & (frames["length_crc"] == np.array(length_crcs, np.uint32)[which])


def _unreadable(data: bytes, span: _Span, every: int, first: int) -> Iterator[UnreadableRecord]:
    """Yields the records of a span that cannot be read, up to the end of a group of `every`.

    Behind one whose length is wrong the others of its group are not looked for.

    Args:
      data: what was read; shorter if the shard is.
      span: where.
      every: the records between two bounds; fewer between the last two.
      first: the number of the record at the first bound.
    """
    for group, (begin, end) in enumerate(zip(span.bounds, span.bounds[1:], strict=False)):
        at, record = begin, first + group * every
        while at < end:
            base = span.bounds[0]
            problem, size = _problem(data[at - base : end - base], end - at, every > 1)
            if problem:
                yield UnreadableRecord(span.path, record, at, problem)
            if not size:
                break
            at, record = at + size, record + 1


def _problem(data: bytes, room: int, more_follow: bool) -> tuple[str, int]:
    """Returns why a record cannot be read, "" if it can, and its bytes, 0 if its length is wrong.

    Args:
      data: from the record on.
      room: the bytes up to where the index says that this record, or a later one, ends.
      more_follow: whether others may end there.
    """
    if not data:
        return "the file ends before it", 0
    try:
        length = record_length(data[:HEADER_BYTES])
    except ValueError as error:
        return str(error), 0
    size = length + OVERHEAD_BYTES
    if size > room or (size < room and not more_follow):
        return f"its length of {length} bytes is not the one of the index", 0
    if len(data) < size:
        return "the file ends inside a record", 0
    record = data[HEADER_BYTES : HEADER_BYTES + length]
    if (masked_crc32c(record),) != struct.unpack_from("<I", data, HEADER_BYTES + length):
        return "the checksum of the data does not match", size
    return "", size


def _contents(spans: Sequence[_Span]) -> Iterator[tuple[int, bytes]]:
    """Yields the position and the bytes of each span that has records, in any order."""
    local = defaultdict(list)
    remote = []
    for at, span in enumerate(spans):
        if span.count and is_local(span.path):
            local[span.path].append(at)
        elif span.count:
            remote.append(at)
    if remote:
        with ThreadPoolExecutor(_REMOTE_READS) as pool:
            read = pool.map(lambda at: _read(spans[at]), remote)
            yield from zip(remote, read, strict=True)
    # The system reads all ranges from the disk while the first ones are waited for.
    paths = list(local)
    for first in range(0, len(paths), _OPEN_SHARDS):
        with ExitStack() as files:
            opened = [
                (files.enter_context(_opened(path)), local[path])
                for path in paths[first : first + _OPEN_SHARDS]
            ]
            for descriptor, ats in opened:
                for at in ats if hasattr(os, "posix_fadvise") else ():
                    begin, end = spans[at].bounds[0], spans[at].bounds[-1]
                    os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_WILLNEED)
            for descriptor, ats in opened:
                for at in ats:
                    yield at, _pread(descriptor, spans[at])


def _read(span: _Span) -> bytes:
    """Returns the bytes of a span; fewer where the file is shorter."""
    if is_local(span.path):
        with _opened(span.path) as descriptor:
            return _pread(descriptor, span)
    import tensorflow as tf

    try:
        with tf.io.gfile.GFile(span.path, "rb") as handle:
            handle.seek(span.bounds[0])
            return bytes(handle.read(span.bounds[-1] - span.bounds[0]))
    except tf.errors.OpError as error:
        reason = str(error.message).partition("\n")[0].strip() or type(error).__name__
        raise RunError(f"{span.path} cannot be read: {reason}") from error


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Opens a local shard; gives its descriptor. An error of the system names the shard."""
    try:
        with opened_regular(path) as descriptor:
            yield descriptor
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


def _pread(descriptor: int, span: _Span) -> bytes:
    begin, end = span.bounds[0], span.bounds[-1]
    data = os.pread(descriptor, end - begin, begin)
    if len(data) == end - begin:
        return data
    parts = [data]  # the file is shorter, or the system returns less than 2 GiB
    while parts[-1] and (done := sum(map(len, parts))) < end - begin:
        parts.append(os.pread(descriptor, end - begin - done, begin + done))
    return b"".join(parts)
