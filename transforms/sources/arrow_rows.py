"""Arrow: rows by number, of files (Feather too) and of streams, which Hugging Face's datasets are.

A range in bytes stands for the record batches that begin in it, and says the number of its first
row: so the number of a row, which is its position, depends on the file alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import pyarrow as pa

from recordmill.transforms.sources.arrow_messages import (
    Beginning,
    Message,
    read_beginning,
    read_messages,
)
from recordmill.transforms.sources.arrow_slices import BatchSlices, can_skip, can_slice
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.row_sizes import LimitedRows
from recordmill.transforms.sources.rows import (
    MOST_ROWS,
    RowOptions,
    Rows,
    count_rows,
    cut_blocks,
    outer_names,
    pick_columns,
    rejected,
    rows_without_columns,
    whole_batch,
)
from recordmill.transforms.sources.work_items import SourceRange, ranges_at
from recordmill.transforms.storage import files

_DAMAGE = (pa.ArrowException, OSError, EOFError)


class ArrowRows:
    """See `rows.RowSource`.

    Args:
      source: the range.
      handle: the file, open.
      beginning: of it.
      ratio: to how many times its bytes a batch may unpack, beyond 64 MiB.
    """

    def __init__(
        self, source: SourceRange, handle: IO[bytes], beginning: Beginning, ratio: int
    ) -> None:
        self._source = source
        self._handle = handle
        self._beginning = beginning
        self._ratio = ratio
        self.schema: pa.Schema = beginning.schema

    @property
    def num_rows(self) -> int:
        """The number of rows in the file, up to where it is damaged."""
        return count_rows(self.batches(0))

    def batches(self, start: int) -> Iterator[Message]:
        """Yields the record batches from a byte on, where a message begins; 0 for all.

        Raises:
          BrokenFileError: the file cannot be read on.
        """
        for message in self._all_messages(start):
            if message.is_batch:
                yield message

    def _all_messages(self, start: int) -> Iterator[Message]:
        return read_messages(self._handle, self._beginning, start, self._source.size)

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of the range; a damaged batch is a reject, others follow."""
        outer = outer_names(self.schema, names)
        kinds = [field.type for field in self.schema]
        by_slices = self._beginning.is_native and all(map(can_skip, kinds))
        if by_slices and all(can_slice(self.schema.field(name).type) for name in outer):
            yield from self._sliced(names, outer, batch_bytes)
        else:
            yield from self._by_batch(names, batch_bytes)

    def _messages(self) -> Iterator[tuple[int, Message]]:
        """Yields the batches of the range, and the number of the first row of each."""
        first = self._source.first_row
        for message in self.batches(self._source.start):
            if 0 <= self._source.end <= message.position:
                return
            yield first, message
            first += message.rows

    def _sliced(self, names: Sequence[str], outer: list[str], batch_bytes: int) -> Iterator[Rows]:
        at = self._source.first_row
        try:
            for first, message in self._messages():
                at = first
                end = first + message.rows
                limit = LimitedRows(message.end - message.position, self._ratio)
                try:
                    for rows in self._slices(message, first, names, outer, batch_bytes):
                        yield from limit.parts(rows, batch_bytes)
                        if limit.is_exceeded:
                            break
                except (BrokenFileError, pa.ArrowException) as error:
                    detail = f"the batch of rows {first} to {end - 1}: {error}"
                    yield rejected(first, "broken_file", " ".join(detail.split()))
                at = end
        except BrokenFileError as error:
            yield rejected(at, error.reason, str(error))

    def _slices(
        self, message: Message, first: int, names: Sequence[str], outer: list[str], most: int
    ) -> Iterator[Rows]:
        if not names:
            yield from rows_without_columns(first, first + message.rows)
            return
        slices = BatchSlices(self._handle, message, self.schema, outer)
        count = message.rows
        step = max(1, min(most * count // max(slices.stored_bytes, 1), MOST_ROWS))
        at = 0
        while at < count:
            batch = slices.take(at, min(at + step, count), most)
            yield Rows(first + at, batch.num_rows, pick_columns(batch, names))
            at += batch.num_rows

    def _by_batch(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of whole batches, as pyarrow reads them."""
        at = self._source.first_row
        # Dictionaries are before the batches, so a file with some is one range, and counts as one.
        limit = LimitedRows(self._source.size, self._ratio) if self._has_dictionaries() else None
        begin = 0
        try:
            fed = _Fed(self._handle, self._beginning.data)
            reader = pa.ipc.open_stream(fed)
            for message in self._all_messages(self._source.start):
                if 0 <= self._source.end <= message.position:
                    return
                begin = begin or message.position
                part = LimitedRows(message.end - message.position, self._ratio)
                if detail := part.too_many(message.unpacked_bytes(self._handle)):
                    yield rejected(at, "decompression_bomb", detail)
                    if not message.is_batch:  # what is behind it cannot be read without it
                        return
                    at, begin = at + message.rows, 0
                    continue
                fed.add(message)
                if not message.is_batch:
                    continue
                batch = reader.read_next_batch()
                counted = limit or LimitedRows(message.end - begin, self._ratio)
                yield from counted.parts(whole_batch(batch, names, at), batch_bytes)
                if limit and limit.is_exceeded:
                    return
                at, begin = at + batch.num_rows, 0
        except (BrokenFileError, StopIteration, *_DAMAGE) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            yield rejected(at, "broken_file", f"from row {at} on: {' '.join(str(error).split())}")

    def _has_dictionaries(self) -> bool:
        return any(map(_has_dictionary, [field.type for field in self.schema]))


@contextmanager
def open_arrow(source: SourceRange, options: RowOptions) -> Iterator[ArrowRows]:
    """Opens a range of a file.

    Raises:
      BrokenFileError: it is no Arrow file, or its beginning is damaged.
      InputChangedError: it is another file than was planned.
    """
    with files.open_read(source.path) as handle:
        check_opened(source.path, handle, source.size, source.modified_ns)
        yield ArrowRows(source, handle, read_beginning(handle, source.size), options.ratio)


def cut_arrow(source: SourceRange, target_bytes: int, options: CutOptions) -> Iterator[SourceRange]:
    """Yields ranges of about that many bytes.

    A file that cannot be opened, or that has dictionaries, which stand before the batches, is one
    range.
    """
    del options  # of text
    cuts: tuple[list[int], list[int]] = ([0], [0])
    with suppress(BrokenFileError), open_arrow(source, RowOptions()) as opened:
        if not any(map(_has_dictionary, [field.type for field in opened.schema])):
            cuts = cut_blocks(opened.batches(0), target_bytes)
    yield from ranges_at(source, *cuts)


def _has_dictionary(kind: pa.DataType) -> bool:
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return bool(pa.types.is_dictionary(kind)) or any(map(_has_dictionary, inner))


class _Fed:
    """The schema of a file, and messages of it that are added, as a stream for pyarrow."""

    closed = False

    def __init__(self, handle: IO[bytes], head: bytes) -> None:
        self._handle = handle
        self._head = head
        self._waiting: deque[tuple[int, int]] = deque()

    def add(self, message: Message) -> None:
        """Adds a message behind those before."""
        self._waiting.append((message.position, message.end))

    def read(self, size: int = -1) -> bytes:
        data, self._head = self._head[:size], self._head[size:]
        while self._waiting and len(data) < size:
            at, end = self._waiting.popleft()
            self._handle.seek(at)
            more: Any = self._handle.read(min(size - len(data), end - at))
            if at + len(more) < end and more:
                self._waiting.appendleft((at + len(more), end))
            data = data + more if data else more
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Leaves the file open."""
