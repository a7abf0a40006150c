"""The messages of Arrow's IPC form: where each is, without its body.

A file is a stream between a magic number and a footer, so both are walked in the same way; of files
that have no stream, as Polars writes them, the footer says where messages are. The metadata of a
message is a flatbuffer, of which pyarrow gives no positions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.rows import RowBlock

FILE_MAGIC = b"ARROW1\0\0"
_CONTINUES = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_CODECS = ("lz4", "zstd")
_MOST_METADATA_BYTES = 1 << 28
_PREFIX = struct.Struct("<4si")
_FOOTER = struct.Struct("<i6s")
_MOST_PADDING_BYTES = 64
# What is raised where metadata make no sense.
_SENSELESS = (struct.error, IndexError, pa.ArrowException, OSError, ValueError)
_LENGTH_BYTES = 8  # before a compressed buffer: of it, unpacked


@dataclass(frozen=True, slots=True)
class Message(RowBlock):
    """A message, which has rows if it is a record batch.

    Attributes:
      body: where its body begins in the file.
      metadata: its flatbuffer.
      kind: what it is.
    """

    body: int
    metadata: bytes
    kind: int

    @property
    def is_batch(self) -> bool:
        """Whether it is a record batch, and no dictionary."""
        return self.kind == _BATCH

    def unpacked_bytes(self, handle: IO[bytes]) -> int:
        """Returns how many bytes the buffers of a batch or a dictionary have in memory.

        Raises:
          BrokenFileError: the metadata make no sense.
        """
        layout = self.layout()
        total = 0
        for position, size in layout.buffers:
            if layout.codec and size >= _LENGTH_BYTES:
                handle.seek(position)
                length = int.from_bytes(handle.read(_LENGTH_BYTES), "little", signed=True)
                size = length if length >= 0 else size
            total += size
        return total

    def layout(self) -> BatchLayout:
        """Returns where the buffers of a record batch, or a dictionary, are.

        Raises:
          BrokenFileError: the metadata make no sense.
        """
        try:
            batch = _header(self.metadata)[1]
            if self.kind == _DICTIONARY:
                batch = batch.table(1) or batch
            nodes = batch.pairs(1)
            buffers = [(self.body + offset, size) for offset, size in batch.pairs(2)]
            views = batch.numbers(4)
            compression = batch.table(3)
            codec = _CODECS[compression.int8(0)] if compression else ""
        except (struct.error, IndexError) as error:
            raise BrokenFileError(f"the batch at byte {self.position} has no layout") from error
        for begin, size in buffers:
            if size < 0 or not self.body <= begin <= begin + size <= self.end:
                raise BrokenFileError(f"the batch at byte {self.position} has buffers beyond it")
        return BatchLayout(codec, nodes, buffers, views)


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """The buffers of a record batch, in order of its columns.

    Attributes:
      codec: "", "lz4" or "zstd".
      nodes: for each column, and each column inside of one, `(rows, nulls)`.
      buffers: `(position in the file, bytes)` each.
      views: for each column of views, how many buffers of text it has.
    """

    codec: str
    nodes: list[tuple[int, int]]
    buffers: list[tuple[int, int]]
    views: list[int]


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a stream begins with.

    Attributes:
      schema: of the rows.
      data: the message of the schema, with its prefix.
      end: of that message, in the file.
      is_native: the bytes of numbers are in the order of this machine.
      messages: where each is, dictionaries first, of a file without a stream; None: they follow
        each other.
    """

    schema: pa.Schema
    data: bytes
    end: int
    is_native: bool
    messages: tuple[int, ...] | None = None


def read_beginning(handle: IO[bytes], size: int) -> Beginning:
    """Reads the schema.

    Raises:
      BrokenFileError: the file is no stream or file of Arrow's.
    """
    handle.seek(0)
    head = handle.read(_MOST_PADDING_BYTES)
    is_file = head.startswith(FILE_MAGIC)
    # Some writers fill the magic up to as many bytes as they align by.
    rest = head[len(FILE_MAGIC) :]
    padding = (len(rest) - len(rest.lstrip(b"\0"))) // 8 * 8
    position = len(FILE_MAGIC) + padding if is_file else 0
    try:
        message = _message(handle, position, size)
        if message is None or message.kind != _SCHEMA or message.end > message.body:
            raise BrokenFileError("not an Arrow file: it does not begin with a schema")
        data = _PREFIX.pack(_CONTINUES, len(message.metadata)) + message.metadata
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        _decode_names(schema)
        order = _header(message.metadata)[1].int8(0)
        return Beginning(schema, data, message.end, order == 0)
    except (BrokenFileError, *_SENSELESS) as error:
        if is_file:
            with suppress(BrokenFileError, *_SENSELESS):
                return _read_footer(handle, size)
        if isinstance(error, BrokenFileError):
            raise
        raise BrokenFileError(f"not an Arrow file: {' '.join(str(error).split())}") from error


def _read_footer(handle: IO[bytes], size: int) -> Beginning:
    """Reads the schema and the places of messages from the end of a file.

    Raises:
      BrokenFileError: the messages that it names are not all that there is.
      struct.error, IndexError, pa.ArrowException, OSError, ValueError: it is damaged, or none.
    """
    handle.seek(size - _FOOTER.size)
    footer_bytes, magic = _FOOTER.unpack(handle.read(_FOOTER.size))
    begin = size - _FOOTER.size - footer_bytes
    if magic != FILE_MAGIC[:6] or not 0 < footer_bytes <= min(begin, _MOST_METADATA_BYTES):
        raise IndexError("no footer")
    handle.seek(begin)
    footer = _FlatTable.root(handle.read(footer_bytes))
    schema = pa.ipc.open_file(handle).schema
    _decode_names(schema)
    described = footer.table(1)
    blocks = [*footer.blocks(2), *footer.blocks(3)]
    in_order = sorted(blocks)
    followers = [*(at for at, _ in in_order[1:]), begin]
    for (at, length), following in zip(in_order, followers, strict=False):
        if not 0 <= following - at - length < _MOST_PADDING_BYTES:
            raise BrokenFileError(f"the footer does not say what follows the batch at byte {at}")
    data = schema.serialize().to_pybytes()
    is_native = described is not None and described.int8(0) == 0
    first = in_order[0][0] if blocks else begin
    return Beginning(schema, data, first, is_native, tuple(at for at, _ in blocks))


def read_messages(
    handle: IO[bytes], beginning: Beginning, start: int, size: int
) -> Iterator[Message]:
    """Yields the messages of a stream or file from a byte on, where one begins; 0 for all.

    Args:
      handle: the file; its position may be moved meanwhile.
      beginning: of it.
      start: of a message.
      size: of the file.

    Raises:
      BrokenFileError: the file ends within a message, or what is there is none.
    """
    if beginning.messages is None:
        yield from walk_messages(handle, start or beginning.end, size)
        return
    for position in beginning.messages:
        if position >= start:
            message = _message(handle, position, size)
            if message is None:
                raise BrokenFileError(f"there is no Arrow message at byte {position}")
            yield message


def walk_messages(handle: IO[bytes], position: int, size: int) -> Iterator[Message]:
    """Yields the messages from a position on.

    Args:
      handle: the file; its position may be moved meanwhile.
      position: of a message.
      size: of the file.

    Raises:
      BrokenFileError: the file ends within a message, or what is there is none.
    """
    while message := _message(handle, position, size):
        yield message
        position = message.end
    _check_end(handle, position, size)


def _check_end(handle: IO[bytes], position: int, size: int) -> None:
    """Checks that the end mark at a position is that of the file, and no damage.

    Raises:
      BrokenFileError: more follows than a file's footer.
    """
    end = position + _PREFIX.size
    handle.seek(max(0, size - _FOOTER.size))
    tail = handle.read(_FOOTER.size)
    if len(tail) == _FOOTER.size and tail.endswith(FILE_MAGIC[:6]):
        footer_bytes, _ = _FOOTER.unpack(tail)
        if 0 <= size - end - footer_bytes - _FOOTER.size < _MOST_PADDING_BYTES:
            return
    if end < size:
        raise BrokenFileError(
            f"bytes follow the end mark at byte {position}: it is damage, or files were joined"
        )


def _message(handle: IO[bytes], position: int, size: int) -> Message | None:
    """Returns the message at a position; None at the end of the stream."""
    handle.seek(position)
    prefix = handle.read(_PREFIX.size)
    if not prefix and position == size:
        return None
    if len(prefix) < _PREFIX.size:
        raise BrokenFileError(f"the file ends within the message at byte {position}")
    mark, length = _PREFIX.unpack(prefix)
    if mark == _CONTINUES and not length:
        return None
    if mark != _CONTINUES or not 0 < length <= _MOST_METADATA_BYTES:
        raise BrokenFileError(f"there is no Arrow message at byte {position}")
    metadata = handle.read(length)
    body = position + _PREFIX.size + length
    try:
        kind, header = _header(metadata)
        rows = header.int64(0) if kind == _BATCH else 0
        end = body + _FlatTable.root(metadata).int64(3)
    except (struct.error, IndexError) as error:
        raise BrokenFileError(f"there is no Arrow message at byte {position}") from error
    if kind not in (_SCHEMA, _DICTIONARY, _BATCH) or rows < 0:
        raise BrokenFileError(f"there is no Arrow message at byte {position}")
    if len(metadata) < length or not body <= end <= size:
        raise BrokenFileError(f"the file ends within the message at byte {position}")
    return Message(position, end, rows, body, metadata, kind)


def _decode_names(fields: Any) -> None:
    """Asks for the names of all columns and fields, which raises where one is not UTF-8."""
    for field in fields:
        if field.name is not None and field.type.num_fields:
            _decode_names([field.type.field(i) for i in range(field.type.num_fields)])


def _header(metadata: bytes) -> tuple[int, _FlatTable]:
    """Returns the kind of a message, and its header.

    Raises:
      struct.error, IndexError: the metadata are damaged.
    """
    message = _FlatTable.root(metadata)
    header = message.table(2)
    if header is None:
        raise IndexError("no header")
    return message.int8(1), header


@dataclass(frozen=True, slots=True)
class _FlatTable:
    """A table of a flatbuffer; fields by their number."""

    data: bytes
    at: int

    @classmethod
    def root(cls, data: bytes) -> _FlatTable:
        return cls(data, *struct.unpack_from("<I", data))

    def _field(self, number: int) -> int:
        """Returns where a field is, 0 where it is left out."""
        table = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        (size,) = struct.unpack_from("<H", self.data, table)
        entry = 4 + 2 * number
        if entry + 2 > size:
            return 0
        (offset,) = struct.unpack_from("<H", self.data, table + entry)
        return self.at + int(offset) if offset else 0

    def int8(self, number: int) -> int:
        at = self._field(number)
        return int(struct.unpack_from("<b", self.data, at)[0]) if at else 0

    def int64(self, number: int) -> int:
        at = self._field(number)
        return int(struct.unpack_from("<q", self.data, at)[0]) if at else 0

    def table(self, number: int) -> _FlatTable | None:
        at = self._field(number)
        return (
            _FlatTable(self.data, at + struct.unpack_from("<I", self.data, at)[0]) if at else None
        )

    def _vector(self, number: int, item: str) -> list[tuple[int, ...]]:
        at = self._field(number)
        if not at:
            return []
        at += struct.unpack_from("<I", self.data, at)[0]
        (count,) = struct.unpack_from("<I", self.data, at)
        items = struct.Struct(f"<{item}")
        if count * items.size > len(self.data):
            raise IndexError("a vector beyond the metadata")
        return [items.unpack_from(self.data, at + 4 + i * items.size) for i in range(count)]

    def numbers(self, number: int) -> list[int]:
        return [value for (value,) in self._vector(number, "q")]

    def blocks(self, number: int) -> list[tuple[int, int]]:
        """Returns where messages are that a footer names, and how long each is."""
        found = self._vector(number, "qi4xq")
        return [(position, metadata + body) for position, metadata, body in found]

    def pairs(self, number: int) -> list[tuple[int, int]]:
        return [(first, second) for first, second in self._vector(number, "qq")]
