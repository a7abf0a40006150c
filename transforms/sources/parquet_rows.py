"""Parquet: rows by number, read page by page, so that a row group of any size takes little memory.

A range in bytes stands for the row groups whose first byte lies in it. So ranges share no row, and
the number of a row, which is its position, depends on the file alone.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.column_format import MOST_ROWS, Damage, Rows, pick_columns
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

_READ_BYTES = 1 << 20
_MOST_FOOTER_BYTES = 1 << 30
_SIGNATURE_BYTES = 28


class EncryptedFileError(BrokenFileError):
    """A file is encrypted."""

    reason = "unreadable_file"


class ParquetRows:
    """See `column_format.ColumnFormat`.

    Args:
      source: the range.
      file: it, open.
    """

    def __init__(self, source: SourceRange, file: pq.ParquetFile) -> None:
        self._source = source
        self._file = file
        self.metadata: pq.FileMetaData = file.metadata
        self.schema: pa.Schema = file.schema_arrow

    @property
    def num_rows(self) -> int:
        """The number of rows in the file."""
        return int(self.metadata.num_rows)

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows | Damage]:
        """Yields the rows of the range; a damaged row group ends with a damage, others follow."""
        metadata = self.metadata
        first = 0
        for number, begin in enumerate(row_group_begins(metadata)):
            count = metadata.row_group(number).num_rows
            if self._source.start <= begin and not 0 <= self._source.end <= begin:
                yield from self._row_group(number, first, count, names, batch_bytes)
            first += count

    def _row_group(
        self, number: int, first: int, count: int, names: Sequence[str], batch_bytes: int
    ) -> Iterator[Rows | Damage]:
        at, end = first, first + count
        step = self._batch_rows(number, names, batch_bytes)
        if not names:
            for at in range(first, end, step):
                yield Rows(at, min(step, end - at), {})
            return
        try:
            for batch in self._file.iter_batches(
                step, row_groups=[number], columns=list(names), use_threads=False
            ):
                yield Rows(at, batch.num_rows, pick_columns(batch, names))
                at += batch.num_rows
        except (pa.ArrowException, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk or a connection: the work item must be repeated
            detail = f"rows {at} to {end - 1} of row group {number}: {_one_line(error)}"
            yield Damage(at, "broken_file", detail)
            return
        if at != end:
            yield Damage(at, "broken_file", f"row group {number} has {at - first} rows of {count}")

    def _batch_rows(self, number: int, names: Sequence[str], batch_bytes: int) -> int:
        group = self.metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        size = sum(
            column.total_uncompressed_size
            for column in columns
            if any(_is_of(column.path_in_schema, name) for name in names)
        )
        return max(1, min(batch_bytes * group.num_rows // max(size, 1), MOST_ROWS))


@contextmanager
def open_parquet(source: SourceRange) -> Iterator[ParquetRows]:
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
            # Without a buffer size, Arrow would hold whole columns of a row group.
            file = pq.ParquetFile(
                handle, buffer_size=_READ_BYTES, pre_buffer=False,
                page_checksum_verification=True, thrift_string_size_limit=_MOST_FOOTER_BYTES,
            )  # fmt: skip
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BrokenFileError(f"not a whole Parquet file: {_one_line(error)}") from error
        handle.seek(-8, os.SEEK_END)
        footer_bytes = int.from_bytes(handle.read(4), "little")
        # A signature of 28 bytes behind the footer means that columns are encrypted. Arrow ends the
        # process where it is asked for the place of such a column.
        if footer_bytes - file.metadata.serialized_size == _SIGNATURE_BYTES:
            raise EncryptedFileError("columns of the Parquet file are encrypted; decrypt it first")
        yield ParquetRows(source, file)


def row_group_begins(metadata: pq.FileMetaData) -> list[int]:
    """Returns where the first column of each row group begins, in bytes from the file's start."""
    begins = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        begin = 0
        if group.num_columns:
            column = group.column(0)
            begin = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:
                begin = min(begin, column.dictionary_page_offset)
        begins.append(begin)
    return begins


def cut_parquet(source: SourceRange, target_bytes: int) -> list[int]:
    """Returns where to cut a file into ranges of about that many stored bytes, from 0 on.

    A file that cannot be opened is one range: reading it rejects it.
    """
    try:
        with open_parquet(source) as opened:
            begins = sorted(row_group_begins(opened.metadata))
    except BrokenFileError:
        return [0]
    starts = [0]
    for begin, end in itertools.pairwise([*begins, source.size]):
        if end - starts[-1] > target_bytes and begin > max(starts[-1], begins[0]):
            starts.append(begin)
    return starts


def _is_of(path: str, name: str) -> bool:
    """Returns whether a leaf, by its path, is of the column of that name."""
    return path == name or path.startswith(f"{name}.")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
