"""Parquet: rows by number, read page by page, so that a row group of any size takes little memory.

A range in bytes stands for the row groups whose first byte lies in it. So ranges share no row, and
the number of a row, which is its position, depends on the file alone.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.transforms.sources.blocks import BrokenFileError, CompressionBombError
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.column_format import (
    MOST_ROWS,
    Damage,
    Rows,
    column_type,
    pick_columns,
    rows_without_columns,
)
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.input_spec import USUAL_COMPRESSION_RATIO
from recordmill.transforms.sources.parquet_deltas import (
    SharedTexts,
    checked,
    says_deltas,
    says_shared,
    shared_texts,
)
from recordmill.transforms.sources.parquet_footer import Leaf, read_row_groups
from recordmill.transforms.sources.parquet_pages import pages, up_to_dictionary
from recordmill.transforms.sources.row_sizes import LimitedRows
from recordmill.transforms.sources.work_items import SourceRange, ranges_at
from recordmill.transforms.storage import files

_READ_BYTES = 1 << 20
_MOST_FOOTER_BYTES = 1 << 30
_SIGNATURE_BYTES = 28
# Many rows can share a text of a dictionary. If all of a batch shared the longest one, they would
# have so many bytes at most; where too few rows could be read at once, indices are read.
_MOST_HELD_BYTES = 1 << 27
_FEW_ROWS = 64


class EncryptedFileError(BrokenFileError):
    """A file is encrypted."""

    reason = "unreadable_file"


class ParquetRows:
    """See `column_format.ColumnFormat`.

    Args:
      source: the range.
      handle: the file, open.
      file: the same.
      ratio: to how many times its bytes a row group may unpack, beyond 64 MiB.
    """

    def __init__(
        self, source: SourceRange, handle: IO[bytes], file: pq.ParquetFile, ratio: int
    ) -> None:
        self._source = source
        self._ratio = ratio
        self._handle = handle
        self._file = file
        metadata = file.metadata
        self.groups = read_row_groups(handle, metadata.num_columns, metadata.created_by or "")
        self.schema: pa.Schema = file.schema_arrow
        self._leaves = [_leaf(metadata.schema.column(i)) for i in range(metadata.num_columns)]

    @property
    def num_rows(self) -> int:
        """The number of rows in the file."""
        return int(self._file.metadata.num_rows)

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows | Damage]:
        """Yields the rows of the range; a damaged row group ends with a damage, others follow."""
        first = 0
        for number, group in enumerate(self.groups):
            if self._source.start <= group.begin and not 0 <= self._source.end <= group.begin:
                stored = sum(column.stored_bytes for column in group.columns)
                limit = LimitedRows(max(0, min(stored, self._source.size)), self._ratio)
                yield from self._row_group(number, first, names, batch_bytes, limit)
            first += group.rows

    def _row_group(
        self, number: int, first: int, names: Sequence[str], batch_bytes: int, limit: LimitedRows
    ) -> Iterator[Rows | Damage]:
        group = self.groups[number]
        at, end = first, first + group.rows
        if not names:
            for rows in rows_without_columns(first, end):
                yield from limit.parts(rows, batch_bytes)
                if limit.is_exceeded:
                    return
            return
        leaves = self._leaves_of(names)
        in_lists = (group.columns[i].values for i in leaves if self._leaves[i].is_in_lists)
        if detail := limit.too_many(max(in_lists, default=0)):
            yield Damage(first, "decompression_bomb", detail)
            return
        kinds = {name: column_type(self.schema, name) for name in names}
        try:
            for batch in self._batches(number, names, batch_bytes, limit):
                rows = Rows(at, batch.num_rows, pick_columns(batch, names))
                yield from limit.parts(rows, batch_bytes, kinds)
                if limit.is_exceeded:
                    return
                at += batch.num_rows
        except (pa.ArrowException, OSError, EOFError, BrokenFileError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the disk or a connection: the work item must be repeated
            reason = error.reason if isinstance(error, BrokenFileError) else "broken_file"
            detail = f"rows {at} to {end - 1} of row group {number}: {_one_line(error)}"
            yield Damage(at, reason, detail)
            return
        if at != end:
            yield Damage(
                at, "broken_file", f"row group {number} has {at - first} rows of {group.rows}"
            )

    def _batches(
        self, number: int, names: Sequence[str], batch_bytes: int, limit: LimitedRows
    ) -> Iterator[pa.RecordBatch]:
        """Yields a row group in batches whose memory is bounded, whatever texts rows share."""
        step = self._batch_rows(number, names, batch_bytes)
        texts = self._shared_texts(number, names, limit)
        shared = {leaf: column for leaf, column in texts.items() if column.longest}
        flat = [column for i, column in shared.items() if not self._leaves[i].is_in_lists]
        is_known = all(column.total >= 0 for column in shared.values())
        longest, total = sum(each.longest for each in flat), sum(each.total for each in flat)
        in_lists = sum(column.total for column in shared.values()) - total  # maybe all of one row
        if is_known and min(longest * step, total) + in_lists <= _MOST_HELD_BYTES:
            yield from _read(self._file, number, names, step)
        elif is_known and len(flat) == len(shared) and longest <= _MOST_HELD_BYTES // _FEW_ROWS:
            few = _MOST_HELD_BYTES // longest
            yield from _merged(_read(self._file, number, names, min(few, step)), step)
        else:
            yield from self._indexed(number, names, step, shared, limit)

    def _indexed(
        self, number: int, names: Sequence[str], step: int, shared: dict[int, SharedTexts],
        limit: LimitedRows,
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Yields a row group with indices of dictionaries, and few rows of texts without these."""
        indexed = [leaf for leaf, column in shared.items() if not column.has_deltas]
        others = {leaf: column for leaf, column in shared.items() if column.has_deltas}
        if any(column.total < 0 for column in others.values()):
            raise BrokenFileError("a dictionary that cannot be unpacked")
        lists = [column.total for i, column in others.items() if self._leaves[i].is_in_lists]
        if detail := limit.too_many(sum(lists)):
            raise CompressionBombError(detail)
        flat = [column.longest for i, column in others.items() if not self._leaves[i].is_in_lists]
        few = max(1, (_MOST_HELD_BYTES - sum(lists)) // max(sum(flat), 1))
        file = self._with_dictionaries(indexed) if indexed else self._file
        batches = _read(file, number, names, min(few, step))
        yield from batches if indexed else _merged(batches, step)

    def _leaves_of(self, names: Sequence[str]) -> list[int]:
        """Returns the numbers of the leaves of columns."""
        paths = enumerate(leaf.path for leaf in self._leaves)
        return [i for i, path in paths if any(_is_of(path, name) for name in names)]

    def _shared_texts(
        self, number: int, names: Sequence[str], limit: LimitedRows
    ) -> dict[int, SharedTexts]:
        """Checks the pages that are read; returns what rows share of each column of texts.

        On remote storage each page would be a request, so there the footer is believed.
        """
        is_local = files.is_local(self._source.path)
        texts = {}
        for i in self._leaves_of(names):
            leaf, column = self._leaves[i], self.groups[number].columns[i]
            if not is_local and not (leaf.is_text and says_shared(column)):
                continue
            chunk = checked(pages(self._handle, column, self._source.size), limit)
            if not leaf.is_text:
                deque(chunk, maxlen=0)
                continue
            if not is_local and not says_deltas(column):
                chunk = up_to_dictionary(chunk)
            texts[i] = shared_texts(chunk, self._handle, column, leaf, limit)
        return texts

    def _with_dictionaries(self, leaves: Sequence[int]) -> pq.ParquetFile:
        """Returns the file as one whose text is indices of dictionaries."""
        paths = [self._leaves[i].path for i in leaves]
        return _open(self._handle, read_dictionary=paths, metadata=self._file.metadata)

    def _batch_rows(self, number: int, names: Sequence[str], batch_bytes: int) -> int:
        group = self.groups[number]
        size = sum(group.columns[i].unpacked_bytes for i in self._leaves_of(names))
        return max(1, min(batch_bytes * group.rows // max(size, 1), MOST_ROWS))


@contextmanager
def open_parquet(
    source: SourceRange, ratio: int = USUAL_COMPRESSION_RATIO, *, lists: bool = False
) -> Iterator[ParquetRows]:
    """Opens a range of a file, of which a row group may unpack to so many times its bytes.

    Raises:
      BrokenFileError: it is no Parquet file, or its end is damaged.
      EncryptedFileError: it, or a column, is encrypted.
      InputChangedError: it is another file than was planned.
    """
    del lists  # they have types of Arrow in any case
    with files.open_read(source.path) as handle:
        check_opened(source.path, handle, source.size, source.modified_ns)
        if handle.read(4) == b"PARE":
            raise EncryptedFileError("an encrypted Parquet file; decrypt it first")
        handle.seek(0)
        try:
            file = _open(handle)
            opened = ParquetRows(source, handle, file, ratio)
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


def _leaf(column: pq.ColumnSchema) -> Leaf:
    kind = column.physical_type
    width = column.length if kind == "FIXED_LEN_BYTE_ARRAY" else 0
    levels = (column.max_repetition_level > 0, column.max_definition_level > 0)
    return Leaf(column.path, kind == "BYTE_ARRAY" or width > 0, width, levels)


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
    try:
        for batch in batches:
            held.append(batch)
            is_large = sum(each.nbytes for each in held) > _MOST_HELD_BYTES // _FEW_ROWS
            if is_large or sum(each.num_rows for each in held) >= rows:
                yield _joined(held)
                held = []
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
    begins: list[int] = []
    with suppress(BrokenFileError), open_parquet(source) as opened:
        begins = sorted(group.begin for group in opened.groups)
    starts = [0]
    for begin, end in itertools.pairwise([*begins, source.size]):
        if end - starts[-1] > target_bytes and begin > max(starts[-1], begins[0]):
            starts.append(begin)
    yield from ranges_at(source, starts)


def _is_of(path: str, name: str) -> bool:
    """Returns whether a leaf, by its path, is of the column of that name."""
    return path == name or path.startswith(f"{name}.")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
