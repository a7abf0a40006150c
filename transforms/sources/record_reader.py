"""Files with a document a record, JSONL, CSV and TSV, to documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.blocks import BrokenFileError, read_blocks, without_bom
from recordmill.transforms.sources.document_batch import BatchMaker, DocumentBatch
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.json_texts import JsonTexts
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.sources.row_fields import (
    RecordRejectedError,
    required_field,
    text_field,
)
from recordmill.transforms.sources.row_lines import cut_rows
from recordmill.transforms.sources.work_items import SourceRange


class RecordFormat(Protocol):
    """Finds and parses the records of one format; an instance reads one range, in order."""

    blank_bytes: bytes | None
    """Records of these bytes alone are skipped; None means all white space."""

    number_field: str
    """The field that tells records apart, a number; "" where it is their position."""

    def record_ends(self, block: bytes) -> Int64s:
        """Returns `[num_ends] int64`: the offsets in the next block just behind each record."""
        ...

    def parse(self, record: bytes) -> dict[str, object] | None:
        """Returns the fields of the next record, valid UTF-8; None if it holds no fields.

        Raises:
          RecordRejectedError: the record cannot be read.
        """
        ...

    def read_texts(
        self, data: bytes, starts: Int64s, ends: Int64s, *, name: str, most_bytes: int
    ) -> JsonTexts | None:
        """Returns a field of the next records, as `json_texts.read_texts`; None without a kernel.

        Records that are not taken are parsed.
        """
        ...


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


class RecordReader:
    """Reads the records that begin in a range of a file.

    Args:
      source: the range.
      spec: names the fields.
      limits: sizes.
      maker: of the batches.
      record_format: of the file.
    """

    def __init__(
        self,
        source: SourceRange,
        spec: DocumentSpec,
        limits: DocumentLimits,
        maker: BatchMaker,
        record_format: RecordFormat,
    ) -> None:
        self._source = source
        self._spec = spec
        self._limits = limits
        self._maker = maker
        self._format = record_format
        # A text that stays as it is, and nothing else, and no path through nested objects.
        self._reads_texts = (
            spec.keeps_text
            and "." not in spec.text_field
            and spec.text_names == [spec.text_field]
            and not spec.other_names
        )
        self._position = 0  # of the block that is read

    def read(self, start: int) -> Iterator[DocumentBatch]:
        """Yields the documents of the records from byte `start` on, where one begins."""
        blocks = split_records(
            self._source, self._spec, start, self._limits, self._format.record_ends,
            self._maker.reject,
        )  # fmt: skip
        for block in blocks:
            self._position = block.position
            starts, ends = _without_empty_lines(block.data, block.starts, block.ends)
            yield self._batch(block.data, starts, ends)
            del block  # before the next one is read
        yield from self._maker.remaining()

    def _batch(self, data: bytes, starts: Int64s, ends: Int64s) -> DocumentBatch:
        """Makes a batch of the records `data[start:end]`."""
        spec = self._spec
        if self._reads_texts:
            found = self._format.read_texts(
                data, starts, ends, name=spec.text_field, most_bytes=self._limits.record_bytes
            )
            if found is not None:
                return self._batch_of_texts(found, data, starts, ends)
        rows = RowCollector(spec)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            row = self._row(data[start:end], self._position + start)
            if row is not None:
                rows.add(self._position + start if row.number is None else row.number, row)
        return rows.batch(self._maker)

    def _batch_of_texts(
        self, texts: JsonTexts, data: bytes, starts: Int64s, ends: Int64s
    ) -> DocumentBatch:
        """Makes a batch of texts that a kernel has read, and of those that it has not taken."""
        lines, keep = Lines(texts.pool, texts.starts, texts.ends, texts.non_ascii), texts.taken
        parsed: dict[int, bytes] = {}
        for i in np.flatnonzero(~keep).tolist():
            start = int(starts[i])
            row = self._row(data[start : int(ends[i])], self._position + start)
            if row is not None:
                parsed[i] = row.texts[0].encode()
        if parsed:
            lines = lines.replace(parsed)
            for i, text in parsed.items():
                keep[i], lines.non_ascii[i] = True, not text.isascii()
        if not keep.all():
            lines, starts = lines.select(keep), starts[keep]
        return self._maker.batch(lines, np.arange(len(lines)), self._position + starts)

    def _row(self, record: bytes, position: int) -> RecordRow | None:
        """Returns what is used of a record; None where it has no fields, or is rejected."""
        if len(record) > self._limits.record_bytes:
            self._maker.reject(position, "read", "line_too_long")
            return None
        record, _ = without_bom(record, position)
        if not record.strip(self._format.blank_bytes):
            return None
        try:
            if not record.isascii():
                record = self._spec.decode(record).encode()
            fields = self._format.parse(record)
            return None if fields is None else self._numbered(fields)
        except UnicodeDecodeError as error:
            self._maker.reject(position + error.start, "read", "undecodable", error.reason)
        except RecordRejectedError as error:
            self._maker.reject(position, "parse", error.reason, error.detail)
        return None

    def _numbered(self, fields: dict[str, object]) -> RecordRow:
        row, name = read_row(fields, self._spec), self._format.number_field
        number = fields[name] if name else None
        return row._replace(number=number) if isinstance(number, int) else row


def _without_empty_lines(data: bytes, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
    """Drops records that are a line end alone, which are none: a file may hold a billion."""
    short = np.flatnonzero(ends - starts == 1)
    if not len(short):
        return starts, ends
    keep = np.ones(len(starts), np.bool_)
    keep[short] = np.frombuffer(data, np.uint8)[starts[short]] != 10
    return starts[keep], ends[keep]


class RecordRow(NamedTuple):
    """What is used of a record: its texts, what its document carries along, group and split; and
    its number in the file, where it has one.
    """

    texts: list[str]
    carried: tuple[str, ...]
    group: int
    split: int
    number: int | None = None


def read_row(fields: dict[str, object], spec: DocumentSpec) -> RecordRow:
    """Checks the fields of a record.

    Raises:
      RecordRejectedError: one that is asked for is not there, or not of its kind.
    """
    required_field(fields, spec.text_field)
    group, split = spec.group_of(fields), spec.split_of(fields)
    texts = [text_field(fields, n, filled=spec.must_be_filled(n)) for n in spec.text_names]
    return RecordRow(texts, spec.row.carried(fields), group, split)


class RowCollector:
    """Collects records until a batch is made of them.

    Args:
      spec: names the fields.

    Attributes:
      size: the bytes of text that are held.
    """

    def __init__(self, spec: DocumentSpec) -> None:
        self._spec = spec
        self._begin()

    def _begin(self) -> None:
        self.size = 0
        self._texts: list[bytes] = []
        self._positions: list[int] = []
        self._identities: list[int] = []
        self._groups: list[int] = []
        self._splits: list[int] = []
        self._carried: list[tuple[str, ...]] = []

    def add(self, position: int, row: RecordRow, identity: int | None = None) -> None:
        """Adds a record.

        Args:
          position: in its file.
          row: what is used of it.
          identity: what its key is made of, 64 bits; None: the position. Of all records or none.
        """
        texts = [text.encode() for text in row.texts]
        self.size += sum(map(len, texts))
        self._texts += texts
        self._positions.append(position)
        self._carried.append(row.carried)
        if identity is not None:
            self._identities.append(identity)
        self._groups.append(row.group)
        self._splits.append(row.split)

    def batch(self, maker: BatchMaker) -> DocumentBatch:
        """Makes a batch of what was added since the last one."""
        spec = self._spec
        texts = Lines.from_list(self._texts)
        lines, of_row = cut_rows(texts, len(spec.text_names), spec)
        made = maker.batch(
            lines,
            of_row,
            np.array(self._positions, np.int64),
            groups=spec.groups(self._groups),
            splits=spec.splits(self._splits),
            carried=self._carried if spec.row.is_carried else None,
            identities=np.array(self._identities, np.uint64) if self._identities else None,
        )
        self._begin()
        return made
