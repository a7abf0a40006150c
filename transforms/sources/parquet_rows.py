"""Parquet: rows by number, a few at a time, so that a row group of any size takes little memory.

A range in bytes stands for row groups: each has a share of the file's bytes as large as its share
of all values. So ranges share no row, and the number of a row, which is its position, depends on
the file alone.

Rows can share texts, of a dictionary or with the text before them, and pyarrow unpacks what it
returns. So how long shared texts are is looked at before rows are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.transforms.sources.blocks import BrokenFileError, CompressionBombError
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.row_sizes import LimitedRows, row_sizes
from recordmill.transforms.sources.rows import (
    MOST_ROWS,
    RowOptions,
    Rows,
    column_type,
    pick_columns,
    rejected,
    rows_without_columns,
)
from recordmill.transforms.sources.work_items import SourceRange, ranges_at
from recordmill.transforms.storage import files

_READ_BYTES = 1 << 20
_MOST_FOOTER_BYTES = 1 << 30
_SIGNATURE_BYTES = 28
# Many rows can share a text of a dictionary. If all of a batch shared the longest one, they would
# have so many bytes at most; where too few rows could be read at once, indices are read.
_MOST_HELD_BYTES = 1 << 27
_FEW_ROWS = 64
_FEWEST_ROWS = 8  # of texts that can begin with the one before: fewer take too long


class EncryptedFileError(BrokenFileError):
    """A file is encrypted."""

    reason = "unreadable_file"


class RowGroup(NamedTuple):
    """Rows of a file.

    Attributes:
      begin, end: its share of the file's bytes.
      first: the number of its first row.
      rows: how many it has.
    """

    begin: int
    end: int
    first: int
    rows: int


class ParquetRows:
    """See `rows.RowSource`.

    Args:
      source: the range.
      handle: the file, open.
      file: the same.
      ratio: to how many times its bytes a file may unpack, beyond 64 MiB.
    """

    def __init__(
        self, source: SourceRange, handle: IO[bytes], file: pq.ParquetFile, ratio: int
    ) -> None:
        self._source = source
        self._ratio = ratio
        self._handle = handle
        self._file = file
        self.groups = _row_groups(file.metadata, source.size)
        self.schema: pa.Schema = file.schema_arrow
        leaves = file.metadata.schema
        self._leaves = [leaves.column(i) for i in range(len(leaves))]

    @property
    def num_rows(self) -> int:
        """The number of rows in the file."""
        return int(self._file.metadata.num_rows)

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of the range; a damaged row group is a reject, others follow."""
        source = self._source
        for number, group in enumerate(self.groups):
            if source.start <= group.begin and not 0 <= source.end <= group.begin:
                limit = LimitedRows(
                    group.end - group.begin, self._ratio, (source.size, len(self.groups))
                )
                yield from self._row_group(number, group, names, batch_bytes, limit)

    def _row_group(
        self, number: int, group: RowGroup, names: Sequence[str], batch_bytes: int,
        limit: LimitedRows,
    ) -> Iterator[Rows]:  # fmt: skip
        at, end = group.first, group.first + group.rows
        kinds = {name: column_type(self.schema, name) for name in names}
        try:
            batches = self._batches(number, names, batch_bytes, limit) if names else ()
            for batch in batches:
                rows = Rows(at, batch.num_rows, pick_columns(batch, names))
                yield from limit.parts(rows, batch_bytes, kinds)
                at += batch.num_rows
                if limit.is_exceeded:
                    return
        except CompressionBombError as error:
            yield rejected(at, error.reason, str(error))
            return
        except pa.ArrowMemoryError as error:  # more than there is, of a file that is small
            detail = f"rows {at} to {end - 1} of row group {number}: {_one_line(error)}"
            yield rejected(at, "decompression_bomb", detail)
            return
        except (pa.ArrowException, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk or a connection: the work item must be repeated
            detail = f"rows {at} to {end - 1} of row group {number}: {_one_line(error)}"
            yield rejected(at, "broken_file", detail)
            return
        if not names:
            for rows in rows_without_columns(at, end):
                yield from limit.parts(rows, batch_bytes)
                if limit.is_exceeded:
                    return
        elif at != end:
            count = at - group.first
            detail = f"row group {number} has {count} rows of {group.rows}"
            yield rejected(at, "broken_file", detail)

    def _batches(
        self, number: int, names: Sequence[str], batch_bytes: int, limit: LimitedRows
    ) -> Iterator[pa.RecordBatch]:
        """Yields a row group in batches whose memory is bounded, whatever texts rows share."""
        leaves = [
            (i, leaf)
            for i, leaf in enumerate(self._leaves)
            if any(_is_of(leaf.path, name) for name in names)
        ]
        # A damaged column is noticed here. To ask what the footer says of one ends the process.
        longest = {i: self._longest_text(number, leaf) for i, leaf in leaves}
        group = self._file.metadata.row_group(number)
        chunks = [(leaf, group.column(i), longest[i]) for i, leaf in leaves]
        values = [chunk.num_values for leaf, chunk, _ in chunks if leaf.max_repetition_level]
        if detail := limit.too_many(max(values, default=0)):
            raise CompressionBombError(detail)
        unpacked = sum(chunk.total_uncompressed_size for _, chunk, _ in chunks)
        step = max(1, min(batch_bytes * self.groups[number].rows // max(unpacked, 1), MOST_ROWS))
        few, indexed = step, []
        for leaf, chunk, most in chunks:
            is_in_lists = bool(leaf.max_repetition_level)
            if "DELTA_BYTE_ARRAY" in chunk.encodings:  # one text has all bytes at most
                fitting = _MOST_HELD_BYTES // max(chunk.total_uncompressed_size, 1)
                texts = max(_FEWEST_ROWS, min(fitting, _FEW_ROWS))
                rows = texts * self.groups[number].rows // max(chunk.num_values, 1)
                few = min(few, max(1, rows if is_in_lists else texts))
            elif leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
                few = min(few, max(1, _MOST_HELD_BYTES // max(leaf.length, 1)))
            elif most * (chunk.num_values if is_in_lists else _FEW_ROWS) > _MOST_HELD_BYTES:
                indexed.append(leaf.path)
            elif most and not is_in_lists:
                few = min(few, _MOST_HELD_BYTES // most)
        batches = _read(self._with_dictionaries(indexed), number, names, few)
        yield from batches if indexed or few == step else _merged(batches, step)

    def _longest_text(self, number: int, leaf: pq.ColumnSchema) -> int:
        """Returns how many bytes the longest text of a column's dictionary has; 0 without one.

        Raises:
          pyarrow.ArrowException, OSError: the column is damaged.
        """
        if leaf.physical_type == "BYTE_ARRAY":
            try:
                file = self._with_dictionaries([leaf.path])
                batch = next(_read(file, number, [leaf.path], 1), None)
                return _longest_of(batch.column(0)) if batch else 0
            except (pa.ArrowException, OSError):
                pass  # some codings cannot be read as indices
        next(_read(self._file, number, [leaf.path], 1), None)
        return 0

    def _with_dictionaries(self, paths: Sequence[str]) -> pq.ParquetFile:
        """Returns the file as one whose texts of such leaves are indices of dictionaries."""
        if not paths:
            return self._file
        return _open(self._handle, read_dictionary=paths, metadata=self._file.metadata)


def _row_groups(metadata: pq.FileMetaData, size: int) -> list[RowGroup]:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if any(group.num_rows < 0 for group in groups):
        raise BrokenFileError("not a whole Parquet file: a row group has fewer than no rows")
    weights = [max(group.total_byte_size, 1) for group in groups]
    whole, before, first, found = sum(weights), 0, 0, []
    for group, weight in zip(groups, weights, strict=True):
        begin, end = (size * part // whole for part in (before, before + weight))
        found.append(RowGroup(begin, end, first, group.num_rows))
        before, first = before + weight, first + group.num_rows
    return found


def _longest_of(array: pa.Array) -> int:
    """Returns how many bytes the longest text of dictionaries has, in fields and lists too."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return int(row_sizes(array.dictionary).max(initial=0))
    if pa.types.is_struct(kind):
        return max((_longest_of(array.field(i)) for i in range(kind.num_fields)), default=0)
    if isinstance(array, pa.ExtensionArray):
        return _longest_of(array.storage)
    return _longest_of(array.values) if pa.types.is_nested(kind) else 0


@contextmanager
def open_parquet(source: SourceRange, options: RowOptions) -> Iterator[ParquetRows]:
    """Opens a range of a file.

    Raises:
      BrokenFileError: it is no Parquet file, or its end is damaged.
      EncryptedFileError: it, or a column, is encrypted.
      InputChangedError: it is another file than was planned.
    """
    with files.open_read(source.path) as handle:
        check_opened(source.path, handle, source.size, source.modified_ns)
        if handle.read(4) == b"PARE":
            raise EncryptedFileError("an encrypted Parquet file; decrypt it first")
        handle.seek(0)
        try:
            file = _open(handle)
            opened = ParquetRows(source, handle, file, options.ratio)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BrokenFileError(f"not a whole Parquet file: {_one_line(error)}") from error
        except UnicodeDecodeError as error:
            raise BrokenFileError("a Parquet file with a name that is not UTF-8") from error
        handle.seek(-8, os.SEEK_END)
        footer_bytes = int.from_bytes(handle.read(4), "little")
        # A signature of 28 bytes behind the footer means that columns are encrypted.
        if footer_bytes - file.metadata.serialized_size == _SIGNATURE_BYTES:
            raise EncryptedFileError("columns of the Parquet file are encrypted; decrypt it first")
        yield opened


def _open(handle: IO[bytes], **options: Any) -> pq.ParquetFile:
    # Without a buffer size, Arrow would hold whole columns of a row group.
    return pq.ParquetFile(
        handle, buffer_size=_READ_BYTES, pre_buffer=False, page_checksum_verification=True,
        thrift_string_size_limit=_MOST_FOOTER_BYTES, **options,
    )  # fmt: skip


def _read(
    file: pq.ParquetFile, number: int, names: Sequence[str], step: int
) -> Iterator[pa.RecordBatch]:
    return file.iter_batches(step, row_groups=[number], columns=list(names), use_threads=False)


def _merged(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yields batches of so many rows or a little more, unless they have many bytes."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    try:
        for batch in batches:
            held.append(batch)
            count, size = count + batch.num_rows, size + batch.nbytes
            if count >= rows or size > _MOST_HELD_BYTES // _FEW_ROWS:
                yield _joined(held)
                held, count, size = [], 0, 0
    except (pa.ArrowException, OSError, EOFError):
        if held:  # what comes before a damage is used
            yield _joined(held)
        raise
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def cut_parquet(
    source: SourceRange, target_bytes: int, options: CutOptions
) -> Iterator[SourceRange]:
    """Yields ranges of about that many stored bytes, of whole row groups.

    A file that cannot be opened is one range: reading it rejects it.
    """
    del options  # of text
    starts = [0]
    with suppress(BrokenFileError), open_parquet(source, RowOptions()) as opened:
        for group in opened.groups:
            if group.end - starts[-1] > target_bytes and group.begin > starts[-1]:
                starts.append(group.begin)
    yield from ranges_at(source, starts)


def _is_of(path: str, name: str) -> bool:
    """Returns whether a leaf, by its path, is of the column of that name."""
    return path == name or path.startswith(f"{name}.")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
