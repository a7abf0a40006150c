"""Rows of files that are records of bytes, one behind another: JSONL, CSV, TSV, pages of dumps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.blocks import BrokenFileError, read_blocks, without_bom
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.row_fields import RecordRejectedError
from recordmill.transforms.sources.rows import NO_SCHEMA, RowMaker, RowOptions, Rows
from recordmill.transforms.sources.work_items import SourceRange

_MOST_RECORDS = 1 << 16  # of a batch


class RecordBlock(NamedTuple):
    """Records that follow each other.

    Attributes:
      data: bytes of the file, UTF-8 where it is valid.
      position: of `data`, in bytes from the file's beginning.
      starts, ends: `[records] int64`: each is `data[start:end]`, with what ends it.
    """

    data: bytes
    position: int
    starts: Int64s
    ends: Int64s


def split_records(
    source: SourceRange, spec: DocumentSpec, start: int, limits: DocumentLimits,
    record_ends: Callable[[bytes], Int64s], reject: Callable[[int, str, str, str], None],
) -> Iterator[RecordBlock]:  # fmt: skip
    """Yields the records that begin in a range of a file, those that end in one block together.

    Args:
      source: the range.
      spec: names the encoding.
      start: the byte where the first record begins.
      limits: sizes; a longer record is a reject.
      record_ends: returns `[ends] int64`: the offsets in the next block just behind each record.
      reject: is called with position, stage, reason and detail of what cannot be read.
    """
    # Where a compressed file is cut, a range has whole records.
    range_end = -1 if source.compression else source.end
    rest, position, skips = b"", start, False
    if 0 <= range_end <= start:
        return
    for block in _blocks_and_end(source, spec, start, limits.block_bytes):
        if isinstance(block, BrokenFileError):
            reject(position + len(rest), "read", block.reason, str(block))
            return
        data = rest + block
        ends = record_ends(block) + len(rest)
        if not block and data:
            ends = np.array([len(data)], np.int64)
        used = int(ends[-1]) if len(ends) else 0
        is_last = not block
        del block  # which `data` has
        if len(data) > limits.record_bytes and not used:
            if not skips:
                reject(position, "read", "line_too_long", "")
            skips, used = True, len(data)
        else:
            starts = np.concatenate([[0], ends[:-1]]).astype(np.int64) if used else ends
            if skips and used:
                starts, ends, skips = starts[1:], ends[1:], False
            if range_end >= 0:
                inside = starts + position < range_end
                is_last |= not inside.all()
                starts, ends = starts[inside], ends[inside]
            yield RecordBlock(data, position, starts, ends)
        rest, position = data[used:], position + used
        del data
        if is_last or 0 <= range_end <= position:
            return


def _blocks_and_end(
    source: SourceRange, spec: DocumentSpec, start: int, block_bytes: int
) -> Iterator[bytes | BrokenFileError]:
    """Yields blocks, and in the end b"", or the damage that ends the file."""
    try:
        yield from read_blocks(source, spec, start, block_bytes)
    except BrokenFileError as error:
        yield error
        return
    yield b""


class RecordRows:
    """See `rows.RowSource`; a format says where records end, and what each holds.

    An instance reads one range, in order. Rows that end in one block are read together: a subclass
    may read them at once, by `block_rows`, and leave those that it cannot read to this class.

    Args:
      source: the range.
      options: how it is read.
    """

    schema = NO_SCHEMA
    num_rows = 0
    blank_bytes: bytes | None = None
    """Records of these bytes alone are skipped; None means all white space."""

    def __init__(self, source: SourceRange, options: RowOptions) -> None:
        self.source = source
        self.options = options

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just behind each record."""
        raise NotImplementedError

    def parse(self, record: bytes) -> dict[str, object] | None:
        """Returns the fields of the next record, valid UTF-8; None if it holds no fields.

        Raises:
          RecordRejectedError: the record cannot be read.
        """
        raise NotImplementedError

    def start(self) -> int:
        """Returns the byte where the first record of the range begins."""
        return self.source.start

    def position_of(self, fields: dict[str, object], position: int) -> int:
        """Returns what tells a record from others: its position, or a number that it has."""
        del fields
        return position

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of the range in order."""
        maker = RowMaker(names, partial=self.options.partial)
        for block in self.blocks(batch_bytes, maker):
            for part in _parts(block):
                yield self.block_rows(part, maker)
                del part
            del block  # before the next one is read
        rest = maker.take()
        if rest.rejects:
            yield rest

    def blocks(self, batch_bytes: int, maker: RowMaker) -> Iterator[RecordBlock]:
        """Yields the records of the range; those that are too long are rejects."""
        return split_records(
            self.source, self.options.spec, self.start(),
            replace(self.options.limits, block_bytes=batch_bytes), self.record_ends, maker.reject,
        )  # fmt: skip

    def block_rows(self, block: RecordBlock, maker: RowMaker) -> Rows:
        """Returns the rows of some records, and the rejects since the last ones."""
        self.add_records(block, maker)
        return maker.take()

    def add_records(self, block: RecordBlock, maker: RowMaker) -> None:
        """Parses records one by one."""
        for position, record in self.records(block, maker):
            try:
                fields = self.parse(record)
                if fields is not None:
                    maker.add(self.position_of(fields, position), fields)
            except RecordRejectedError as error:
                maker.reject(position, "parse", error.reason, error.detail)

    def records(self, block: RecordBlock, maker: RowMaker) -> Iterator[tuple[int, bytes]]:
        """Yields the records that hold something, each valid UTF-8, with its position."""
        data, position, starts, ends = block
        is_utf8 = _is_utf8(block)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            at = position + start
            if end - start > self.options.limits.record_bytes:
                maker.reject(at, "read", "line_too_long")
                continue
            record, _ = without_bom(data[start:end], at)
            if not record.strip(self.blank_bytes):
                continue
            if not is_utf8 and not record.isascii():
                try:
                    record = self.options.spec.decode(record).encode()
                except UnicodeDecodeError as error:
                    maker.reject(at + error.start, "read", "undecodable", error.reason)
                    continue
            yield at, record


def _parts(block: RecordBlock) -> Iterator[RecordBlock]:
    """Yields some records at a time: a megabyte may have half a million, and a reject for each."""
    for begin in range(0, len(block.starts), _MOST_RECORDS):
        some = slice(begin, begin + _MOST_RECORDS)
        yield block._replace(starts=block.starts[some], ends=block.ends[some])


def _is_utf8(block: RecordBlock) -> bool:
    """Returns whether records are valid UTF-8, at once: a hundred times as fast as one by one."""
    if not len(block.starts):
        return True
    try:
        str(memoryview(block.data)[int(block.starts[0]) : int(block.ends[-1])], "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def without_empty_lines(block: RecordBlock) -> RecordBlock:
    """Drops records that are a line end alone, which are none: a file may hold a billion."""
    data, _, starts, ends = block
    short = np.flatnonzero(ends - starts == 1)
    if not len(short):
        return block
    keep = np.ones(len(starts), np.bool_)
    keep[short] = np.frombuffer(data, np.uint8)[starts[short]] != 10
    return block._replace(starts=starts[keep], ends=ends[keep])
