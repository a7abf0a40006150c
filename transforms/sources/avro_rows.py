"""Avro: rows by number; blocks of a file are work items.

A range in bytes stands for the blocks that begin in it, and says the number of its first row. So
the number of a row, which is its position, depends on the file alone.
"""

from __future__ import annotations

import json
import lzma
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import IO, Any, cast

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from backports import zstd
from fastavro import _read_py

from recordmill.transforms.sources.avro_format import (
    SchemaFacts,
    header,
    number,
    read_number,
    unpack,
)
from recordmill.transforms.sources.blocks import BrokenFileError, CompressionBombError
from recordmill.transforms.sources.changes import check_opened
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.row_sizes import LimitedRows
from recordmill.transforms.sources.rows import (
    MOST_ROWS,
    RowBlock,
    RowOptions,
    Rows,
    count_rows,
    cut_blocks,
    outer_names,
    pick_columns,
    rejected,
    rows_without_columns,
)
from recordmill.transforms.sources.work_items import SourceRange, ranges_at
from recordmill.transforms.storage import files

_SYNC_BYTES = 16
_MOST_HEADER_BYTES = 1 << 26
_PREFIX_BYTES = 20  # of two numbers of up to 10 bytes
_CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")
_ESCAPED = "surrogateescape"
# What fastavro, its codecs and Arrow raise on damaged bytes.
_SENSELESS = (
    EOFError, ValueError, KeyError, IndexError, TypeError, OverflowError, OSError, MemoryError,
    zlib.error, lzma.LZMAError, pa.ArrowException, StopIteration,
    RecursionError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType,
    fastavro.read.SchemaResolutionError,
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


class UnknownTypeError(UnknownCodecError):
    """Rows have a type that is not read."""


class AvroRows:
    """See `rows.RowSource`.

    Args:
      source: the range.
      handle: the file, open.
      ratio: to how many times its bytes a block may unpack, beyond 64 MiB.
      lists: arrays and maps have types of Arrow; else they are JSON, as text.

    Raises:
      BrokenFileError: it is no Avro file.
      UnknownCodecError: its blocks are compressed by a codec that is not read.
      UnknownTypeError: a few bytes of its schema's types stand for endless values.
    """

    def __init__(
        self, source: SourceRange, handle: IO[bytes], ratio: int, *, lists: bool = False
    ) -> None:
        self._source = source
        self._handle = handle
        self._ratio = ratio
        begin = _Begin(handle)
        try:
            reader: Any = fastavro.block_reader(cast(Any, begin))
            written: Any = reader.writer_schema
            codec, fields = reader.codec, written["fields"]
            self._facts = facts = SchemaFacts()
            facts.check(written)
            named: dict[str, Any] = {}
            self.schema = pa.schema(
                [(each["name"], _arrow_type(each["type"], named, lists)) for each in fields]
            )
        except (KeyError, TypeError) as error:
            raise BrokenFileError("not an Avro file of records") from error
        except _SENSELESS as error:
            raise BrokenFileError(f"not an Avro file: {_one_line(error)}") from error
        if codec not in _CODECS:
            raise UnknownCodecError(
                f"an Avro file with codec {codec!r}; write it anew with one of {', '.join(_CODECS)}"
            )
        self._codec = codec
        self._written, self._schema_text = written, reader.metadata["avro.schema"]
        if facts.problem:
            raise UnknownTypeError(facts.problem)
        if len({each["name"] for each in fields}) < len(fields):
            raise BrokenFileError("two fields of the Avro file have one name")
        self._begin = begin.position
        handle.seek(self._begin - _SYNC_BYTES)
        self._sync = handle.read(_SYNC_BYTES)
        self._feed: _Feed | None = None
        self._reader: Any = None

    @property
    def num_rows(self) -> int:
        """The number of rows in the file, up to where it is damaged."""
        return count_rows(self.blocks(0))

    def blocks(self, start: int) -> Iterator[RowBlock]:
        """Yields the blocks from a byte on, where one begins; 0 for all.

        Raises:
          BrokenFileError: the file cannot be read on.
          CompressionBombError: nor where a block says that it has very many rows.
        """
        at = start or self._begin
        while at < self._source.size:
            self._handle.seek(at)
            prefix = self._handle.read(_PREFIX_BYTES)
            rows, used = read_number(prefix, 0)
            size, used = read_number(prefix, used)
            end = at + used + size + _SYNC_BYTES
            if rows < 0 or size < 0 or used < 0 or end > self._source.size:
                raise BrokenFileError(f"the file ends within the block at byte {at}, or is damaged")
            if detail := LimitedRows(size, self._ratio).too_many(rows):
                raise CompressionBombError(f"the block at byte {at}: {detail}")
            self._handle.seek(end - _SYNC_BYTES)
            if self._handle.read(_SYNC_BYTES) != self._sync:
                raise BrokenFileError(f"the block at byte {at} does not end with the file's marker")
            yield RowBlock(at, end, rows)
            at = end

    def rows(self, names: Sequence[str], batch_bytes: int) -> Iterator[Rows]:
        """Yields the rows of the range; a damaged block is a reject, others follow."""
        at = self._source.first_row
        outer = outer_names(self.schema, names)
        try:
            for block in self.blocks(self._source.start):
                if 0 <= self._source.end <= block.position:
                    return
                end = at + block.rows
                yield from self._block(block, at, names, outer, batch_bytes)
                at = end
        except BrokenFileError as error:
            yield rejected(at, error.reason, str(error))

    def _block(
        self, block: RowBlock, first: int, names: Sequence[str], outer: list[str], most: int
    ) -> Iterator[Rows]:
        if not block.rows:
            return
        at, end = first, first + block.rows
        step = max(1, min(most * block.rows // max(block.end - block.position, 1), MOST_ROWS))
        try:
            data = self._unpacked(block)
            if not names:
                limit = LimitedRows(block.end - block.position, self._ratio)
                for each in rows_without_columns(first, end):
                    if not limit.is_exceeded:
                        yield from limit.parts(each, most)
                return
            records = self._records(block.rows, data, outer)
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
            reason = error.reason if isinstance(error, BrokenFileError) else "broken_file"
            yield rejected(
                at, reason, f"the block of rows {first} to {end - 1}: {_one_line(error)}"
            )

    def _records(self, rows: int, data: bytes, outer: list[str]) -> Iterator[dict[str, Any]]:
        """Yields the records of a block, with the fields that are asked for and maybe others."""
        if self._reader is None or self._feed is None:
            self._feed = _Feed(header(self._schema_text, self._sync))
            # Compiled code goes down into records of records until the process has no stack left.
            module = _read_py if self._facts.is_recursive else fastavro
            self._reader = module.block_reader(
                cast(Any, self._feed),
                reader_schema=self._asked(outer),
                handle_unicode_errors=_ESCAPED,
            )
        self._feed.add(number(rows) + number(len(data)), data, self._sync)
        reader, self._reader = self._reader, None  # of no use any more where the block is damaged
        yield from next(reader)
        self._reader = reader

    def _unpacked(self, block: RowBlock) -> bytes:
        """Returns the rows of a block as bytes.

        Raises:
          CompressionBombError: there are too many.
          BrokenFileError: there are too few.
        """
        self._handle.seek(block.position)
        stored = self._handle.read(block.end - block.position - _SYNC_BYTES)
        _, at = read_number(stored, 0)
        _, at = read_number(stored, at)
        limit = LimitedRows(len(stored), self._ratio)
        unpacked = unpack(stored[at:], self._codec, limit.most_bytes)
        if unpacked is None:
            raise CompressionBombError(limit.too_many(limit.most_bytes + 1))
        if block.rows > len(unpacked):
            raise BrokenFileError(f"it has {len(unpacked)} bytes for {block.rows} rows")
        return unpacked

    def _asked(self, outer: list[str]) -> Any:
        """Returns a schema with which other fields are skipped; None where those define types.

        Nor where fastavro would skip wrongly.
        """
        fields = [field for field in self._written["fields"] if field["name"] in outer]
        if self._facts.is_unskippable or len(fields) == len(self._written["fields"]):
            return None
        asked = {"type": "record", "name": self._written["name"], "fields": fields}
        try:
            fastavro.parse_schema(json.loads(json.dumps(asked)))
        except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType):
            return None
        return asked


@contextmanager
def open_avro(source: SourceRange, options: RowOptions) -> Iterator[AvroRows]:
    """Opens a range of a file.

    Raises:
      BrokenFileError: it is no Avro file, or its beginning is damaged.
      UnknownCodecError: its blocks are compressed by a codec that is not read.
      UnknownTypeError: a few bytes of its schema's types stand for endless values.
      InputChangedError: it is another file than was planned.
    """
    with files.open_read(source.path) as handle:
        check_opened(source.path, handle, source.size, source.modified_ns)
        yield AvroRows(source, handle, options.ratio, lists=options.lists)


def cut_avro(source: SourceRange, target_bytes: int, options: CutOptions) -> Iterator[SourceRange]:
    """Yields ranges of about that many bytes.

    A file that cannot be opened is one range: reading it rejects it.
    """
    del options  # of text
    cuts: tuple[list[int], list[int]] = ([0], [0])
    with suppress(BrokenFileError), open_avro(source, RowOptions()) as opened:
        cuts = cut_blocks(opened.blocks(0), target_bytes)
    yield from ranges_at(source, *cuts)


class _Begin:
    """The beginning of a file as fastavro reads it.

    Attributes:
      position: of the next byte.
    """

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self.position = 0

    def read(self, size: int) -> bytes:
        data = self._handle.read(min(size, _MOST_HEADER_BYTES - self.position))
        self.position += len(data)
        return data


class _Feed:
    """Bytes for fastavro, which are added block by block.

    Args:
      data: the first.
    """

    def __init__(self, data: bytes) -> None:
        self._parts = deque([data])

    def add(self, *parts: bytes) -> None:
        self._parts.extend(parts)

    def tell(self) -> int:
        return 0

    def read(self, size: int) -> bytes:
        """Returns so many bytes, fewer at the end."""
        if self._parts and len(self._parts[0]) == size:
            return self._parts.popleft()
        wanted, found = size, []
        while self._parts and wanted:
            part = self._parts.popleft()
            if len(part) > wanted:
                self._parts.appendleft(part[wanted:])
            found.append(part[:wanted])
            wanted -= len(found[-1])
        return b"".join(found)


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
