"""Avro: rows by number; blocks of a file are work items.

A range in bytes stands for the blocks that begin in it, and says the number of its first row. So
the number of a row, which is its position, depends on the file alone.
"""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import IO, Any, cast

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from backports import zstd

from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.column_format import (
    MOST_ROWS,
    Damage,
    RowBlock,
    Rows,
    count_rows,
    cut_blocks,
    outer_names,
    pick_columns,
    rows_without_columns,
)
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

_SYNC_BYTES = 16
_PREFIX_BYTES = 20  # of two numbers of up to 10 bytes
_CODECS = ("null", "deflate", "bzip2", "xz", "zstandard")
_ESCAPED = "surrogateescape"
# What fastavro, its codecs and Arrow raise on damaged bytes.
_SENSELESS = (
    EOFError, ValueError, KeyError, IndexError, TypeError, OverflowError, OSError, MemoryError,
    zlib.error, lzma.LZMAError, pa.ArrowException, StopIteration,
    RecursionError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType,
    zstd.ZstdError,
)  # fmt: skip
_TYPES = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(),
    "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(),
    "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip


class UnknownCodecError(BrokenFileError):
    """Blocks are compressed in a way that is not read."""

    reason = "unreadable_file"


class AvroRows:
    """See `column_format.ColumnFormat`.

    Args:
      source: the range.
      handle: the file, open.
      lists: arrays and maps have types of Arrow; else they are JSON, as text.

    Raises:
      BrokenFileError: it is no Avro file.
      UnknownCodecError: its blocks are compressed by a codec that is not read.
    """

    def __init__(self, source: SourceRange, handle: IO[bytes], *, lists: bool = False) -> None:
        self._source = source
        self._handle = handle
        begin = _Feed(handle)
        try:
            reader: Any = fastavro.block_reader(cast(Any, begin))
            written: Any = reader.writer_schema
            codec, fields = reader.codec, written["fields"]
        except (KeyError, TypeError) as error:
            raise BrokenFileError("not an Avro file of records") from error
        except _SENSELESS as error:
            raise BrokenFileError(f"not an Avro file: {_one_line(error)}") from error
        if codec not in _CODECS:
            raise UnknownCodecError(
                f"an Avro file with codec {codec!r}; write it anew with one of {', '.join(_CODECS)}"
            )
        self._written = written
        self._begin = begin.position
        handle.seek(0)
        self._head = handle.read(self._begin)
        self._sync = self._head[-_SYNC_BYTES:]
        self._feed: _Feed | None = None
        self._reader: Any = None
        named: dict[str, Any] = {}
        self.schema = pa.schema(
            [(each["name"], _arrow_type(each["type"], named, lists)) for each in fields]
        )

    @property
    def num_rows(self) -> int:
        """The number of rows in the file, up to where it is damaged."""
        return count_rows(self.blocks(0))

    def blocks(self, start: int) -> Iterator[RowBlock]:
        """Yields the blocks from a byte on, where one begins; 0 for all.

        Raises:
          BrokenFileError: the file cannot be read on.
        """
        at = start or self._begin
        while at < self._source.size:
            self._handle.seek(at)
            prefix = self._handle.read(_PREFIX_BYTES)
            rows, used = _number(prefix, 0)
            size, used = _number(prefix, used)
            end = at + used + size + _SYNC_BYTES
            if rows < 0 or size < 0 or used < 0 or end > self._source.size:
                raise BrokenFileError(f"the file ends within the block at byte {at}, or is damaged")
            self._handle.seek(end - _SYNC_BYTES)
            if self._handle.read(_SYNC_BYTES) != self._sync:
                raise BrokenFileError(f"the block at byte {at} does not end with the file's marker")
            yield RowBlock(at, end, rows)
            at = end

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows | Damage]:
        """Yields the rows of the range; a damaged block ends with a damage, others follow."""
        at = self._source.first_row
        outer = outer_names(self.schema, names)
        try:
            for block in self.blocks(self._source.start):
                if 0 <= self._source.end <= block.position:
                    return
                end = at + block.rows
                if names:
                    yield from self._block(block, at, names, outer, batch_bytes)
                else:
                    yield from rows_without_columns(at, end)
                at = end
        except BrokenFileError as error:
            yield Damage(at, error.reason, str(error))

    def _block(
        self, block: RowBlock, first: int, names: Sequence[str], outer: list[str], most: int
    ) -> Iterator[Rows | Damage]:
        at, end = first, first + block.rows
        step = max(1, min(most * block.rows // max(block.end - block.position, 1), MOST_ROWS))
        try:
            records = self._records(block, outer)
            while rows := list(islice(records, step)):
                arrays = [
                    _array([row[name] for row in rows], self.schema.field(name).type)
                    for name in outer
                ]
                batch = pa.RecordBatch.from_arrays(arrays, outer)
                yield Rows(at, len(rows), pick_columns(batch, names))
                at += len(rows)
            if at != end:
                raise BrokenFileError(f"it has {at - first} rows of {block.rows}")
        except (*_SENSELESS, BrokenFileError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            detail = f"the block of rows {first} to {end - 1}: {_one_line(error)}"
            yield Damage(at, "broken_file", detail)

    def _records(self, block: RowBlock, outer: list[str]) -> Iterator[dict[str, Any]]:
        """Yields the records of a block, with the fields that are asked for and maybe others."""
        if self._reader is None or self._feed is None:
            self._feed = _Feed(self._handle, self._head)
            self._reader = fastavro.block_reader(
                cast(Any, self._feed),
                reader_schema=self._asked(outer),
                handle_unicode_errors=_ESCAPED,
            )
        self._feed.position = block.position
        reader, self._reader = self._reader, None  # of no use any more where the block is damaged
        yield from next(reader)
        self._reader = reader

    def _asked(self, outer: list[str]) -> Any:
        """Returns a schema with which other fields are skipped; None where those define types."""
        fields = [field for field in self._written["fields"] if field["name"] in outer]
        asked = {"type": "record", "name": self._written["name"], "fields": fields}
        try:
            fastavro.parse_schema(json.loads(json.dumps(asked)))
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
            return None
        return asked


@contextmanager
def open_avro(source: SourceRange, *, lists: bool = False) -> Iterator[AvroRows]:
    """Opens a range of a file.

    Args:
      source: the range.
      lists: see `AvroRows`.

    Raises:
      BrokenFileError: it is no Avro file, or its beginning is damaged.
      UnknownCodecError: its blocks are compressed by a codec that is not read.
      InputChangedError: it is another file than was planned.
    """
    with files.open_read(source.path) as handle:
        check_opened(source.path, handle, source.size, source.modified_ns)
        yield AvroRows(source, handle, lists=lists)


def cut_avro(source: SourceRange, target_bytes: int) -> tuple[list[int], list[int]]:
    """Returns where to cut a file into ranges of about that many bytes.

    A file that cannot be opened is one range: reading it rejects it.

    Returns:
      Where ranges begin, from 0 on, and the number of the first row of each.
    """
    with suppress(BrokenFileError), open_avro(source) as opened:
        return cut_blocks(opened.blocks(0), target_bytes)
    return [0], [0]


class _Feed:
    """The head of a file, and then what lies at `position`, as a file for fastavro.

    Attributes:
      position: of the next byte.
    """

    def __init__(self, handle: IO[bytes], head: bytes = b"") -> None:
        self._handle = handle
        self._head = head
        self.position = 0

    def tell(self) -> int:
        return self.position

    def read(self, size: int) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        self._handle.seek(self.position)
        data = self._handle.read(size)
        self.position += len(data)
        return data


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number in Avro's form, and where the next begins.

    Raises:
      BrokenFileError: the bytes end before it does.
    """
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value >> 1 ^ -(value & 1), at
    raise BrokenFileError("a block begins with no number")


def _arrow_type(written: Any, named: dict[str, Any], lists: bool = False) -> pa.DataType:
    """Returns the type of a field: struct for a record, text for all that Arrow has no type for.

    Args:
      written: the type in Avro's form.
      named: the types that have names so far.
      lists: arrays and maps have types too.
    """
    if isinstance(written, list):
        others = [each for each in written if each != "null"]
        return _arrow_type(others[0], named, lists) if len(others) == 1 else pa.string()
    if isinstance(written, str):
        return _TYPES.get(written) or named.get(written, pa.string())
    kind, name = written["type"], written.get("name", "")
    if isinstance(kind, (dict, list)):
        return _arrow_type(kind, named, lists)
    if lists and kind == "array":
        return pa.list_(_arrow_type(written["items"], named, lists))
    if lists and kind == "map":
        return pa.map_(pa.string(), _arrow_type(written["values"], named, lists))
    if "logicalType" in written or kind in ("array", "map"):
        found = pa.string()
    elif kind in ("record", "error"):
        named[name] = pa.string()  # of a record inside of itself
        fields = [
            (each["name"], _arrow_type(each["type"], named, lists)) for each in written["fields"]
        ]
        found = pa.struct(fields)
    else:
        found = _arrow_type(kind, named, lists)
    if name:
        named[name] = found
    return found


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        present = pa.array([value is not None for value in values])
        columns = [
            _array([None if value is None else value[field.name] for value in values], field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pc.invert(present))
    if not pa.types.is_string(kind):
        return pa.array(values, kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, UnicodeEncodeError, TypeError):
        texts = [None if value is None else _text(value) for value in values]
        return pa.array(texts, pa.binary()).view(kind)


def _text(value: Any) -> bytes:
    """Returns a value as text, JSON where it has parts; bytes that are no UTF-8 stay."""
    if isinstance(value, (dict, list)):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return str(value).encode("utf-8", _ESCAPED)


def _one_line(error: Exception) -> str:
    return " ".join(f"{error or type(error).__name__}".split())
