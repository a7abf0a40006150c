"""Rows of one of Arrow's record batches, read from its buffers: a batch of any size takes little
memory, also where its buffers are compressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa

from recordmill.records.arrays import Int64s
from recordmill.transforms.sources.arrow_messages import BatchLayout, Message
from recordmill.transforms.sources.blocks import BrokenFileError

_OFFSETS = {
    "string": np.int32, "binary": np.int32, "list": np.int32, "map": np.int32,
    "large_string": np.int64, "large_binary": np.int64, "large_list": np.int64,
}  # fmt: skip
_READ_BYTES = 1 << 18


def can_slice(kind: pa.DataType) -> bool:
    """Returns whether `BatchSlices` reads columns of a type: of strings, numbers, structs, lists.

    It does not read dictionaries, views, unions and run ends.
    """
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    return _form(kind) != "" and all(map(can_slice, inner))


def can_skip(kind: pa.DataType) -> bool:
    """Returns whether the buffers of columns of a type can be counted."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    known = _form(kind) or _is_view(kind) or pa.types.is_dictionary(kind)
    return bool(known) and all(map(can_skip, inner))


class BatchSlices:
    """Reads rows of a batch, from the first to the last.

    Args:
      handle: the file.
      message: the batch.
      schema: of the file; `can_skip` holds for all types.
      names: of the columns to read, for whose types `can_slice` holds.

    Raises:
      BrokenFileError: the batch makes no sense.
    """

    def __init__(
        self, handle: IO[bytes], message: Message, schema: pa.Schema, names: Sequence[str]
    ) -> None:
        self._schema = pa.schema([schema.field(name) for name in names])
        parts = _Parts(handle, message.layout())
        columns = {}
        for field in schema:
            if field.name in names:
                columns[field.name] = _Column(field.type, parts)
            else:
                parts.skip(field.type)
        self._columns = [columns[name] for name in names]
        for column in self._columns:
            if column.length != message.rows:
                raise BrokenFileError(f"the batch at byte {message.position} has uneven columns")
        self.stored_bytes = sum(column.stored_bytes for column in self._columns)

    def take(self, begin: int, end: int, most_bytes: int) -> pa.RecordBatch:
        """Returns rows from `begin` on, up to `end`, or fewer where strings have more bytes."""
        for column in self._columns:
            end = column.fitting(begin, end, most_bytes)
        arrays = [column.take(begin, end) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Parts:
    """The nodes and buffers of a batch, which columns take in order."""

    def __init__(self, handle: IO[bytes], layout: BatchLayout) -> None:
        self._handle = handle
        self._layout = layout
        self._node = self._buffer = self._view = 0

    def node(self) -> tuple[int, int]:
        self._node += 1
        try:
            return self._layout.nodes[self._node - 1]
        except IndexError:
            raise BrokenFileError("a batch has fewer columns than the schema") from None

    def buffer(self) -> _Buffer:
        self._buffer += 1
        try:
            position, size = self._layout.buffers[self._buffer - 1]
        except IndexError:
            raise BrokenFileError("a batch has fewer buffers than the schema") from None
        return _Buffer(self._handle, position, size, self._layout.codec)

    def skip(self, kind: pa.DataType) -> None:
        """Leaves a column out."""
        self._node += 1
        form = _form(kind)
        if _is_view(kind):
            self._buffer += 2 + (self._layout.views[self._view : self._view + 1] or [0])[0]
            self._view += 1
        else:
            self._buffer += {"null": 0, "struct": 1, "fixed_list": 1}.get(form, 2)
            self._buffer += form in ("string", "binary", "large_string", "large_binary")
        for i in range(kind.num_fields):
            self.skip(kind.field(i).type)


class _Column:
    """A column of a batch.

    Args:
      kind: its type.
      parts: what it takes its nodes and buffers from.
    """

    def __init__(self, kind: pa.DataType, parts: _Parts) -> None:
        self._kind = kind
        self._form = form = _form(kind)
        self.length, nulls = parts.node()
        self._validity = self._values = self._data = None
        if form != "null":
            validity = parts.buffer()
            self._validity = validity if nulls and validity.size else None
        if form in _OFFSETS or form in ("fixed", "bool"):
            self._values = parts.buffer()
        if form in ("string", "binary", "large_string", "large_binary"):
            self._data = parts.buffer()
        self._children = [_Column(kind.field(i).type, parts) for i in range(kind.num_fields)]
        buffers = (self._values, self._data)
        self.stored_bytes = sum(each.size for each in buffers if each)
        self.stored_bytes += sum(child.stored_bytes for child in self._children)

    def fitting(self, begin: int, end: int, most_bytes: int) -> int:
        """Returns up to which row strings have no more bytes, but at least one row."""
        if self._data is None:
            return end
        at = self._offsets(begin, end)
        return max(begin + 1, begin + int(np.searchsorted(at, at[0] + most_bytes, "right")) - 1)

    def take(self, begin: int, end: int) -> pa.Array:
        """Returns rows; `begin` is never less than before."""
        count, form = end - begin, self._form
        if form == "null":
            return pa.nulls(count)
        validity = _bits(self._validity, begin, end) if self._validity else None
        if form == "struct":
            children = [child.take(begin, end) for child in self._children]
            return pa.Array.from_buffers(self._kind, count, [validity], children=children)
        if form == "fixed_list":
            step = self._kind.list_size
            children = [self._children[0].take(begin * step, end * step)]
            return pa.Array.from_buffers(self._kind, count, [validity], children=children)
        if form in _OFFSETS:
            at = self._offsets(begin, end)
            first, last = int(at[0]), int(at[-1])
            offsets = pa.py_buffer((at - first).astype(_OFFSETS[form]))
            if self._data is None:
                children = [self._children[0].take(first, last)]
                return pa.Array.from_buffers(
                    self._kind, count, [validity, offsets], children=children
                )
            data = pa.py_buffer(self._data.read(first, last))
            return pa.Array.from_buffers(self._kind, count, [validity, offsets, data])
        assert self._values is not None  # what has neither offsets nor children has values
        if form == "bool":
            values = _bits(self._values, begin, end)
        else:
            width = self._kind.bit_width // 8
            values = pa.py_buffer(self._values.read(begin * width, end * width))
        return pa.Array.from_buffers(self._kind, count, [validity, values])

    def _offsets(self, begin: int, end: int) -> Int64s:
        """Returns `[end - begin + 1] int64`: where strings or lists begin, and the last one ends.

        Raises:
          BrokenFileError: they descend, or lie beyond the strings or lists.
        """
        width = np.dtype(_OFFSETS[self._form]).itemsize
        assert self._values is not None  # a buffer of offsets
        held = self._values.read(begin * width, (end + 1) * width)
        at = np.frombuffer(held, _OFFSETS[self._form]).astype(np.int64)
        most = self._children[0].length if self._data is None else self._data.whole_bytes
        if at[0] < 0 or at[-1] > most or np.any(np.diff(at) < 0):
            raise BrokenFileError("the offsets of strings or lists are damaged")
        return at


class _Buffer:
    """Bytes of a file, decompressed where that is needed, from the first to the last."""

    def __init__(self, handle: IO[bytes], position: int, size: int, codec: str) -> None:
        self._handle = handle
        self.size = size
        self.whole_bytes = size
        self._position = position
        self._stream: pa.CompressedInputStream | None = None
        self._held, self._held_at = b"", 0
        if codec and size:
            self._begin(codec)

    def read(self, begin: int, end: int) -> bytes:
        """Returns bytes; `begin` is never less than before.

        Raises:
          BrokenFileError: there are fewer, or they cannot be decompressed.
        """
        if self._stream is None:
            self._handle.seek(self._position + begin)
            data = self._handle.read(min(end, self.whole_bytes) - begin) if end > begin else b""
        else:
            data = self._decompressed(begin, end)
        if len(data) < end - begin:
            raise BrokenFileError("a buffer of a batch is too short")
        return data

    def _begin(self, codec: str) -> None:
        """Reads how many bytes a compressed buffer has; -1 stands for one that is not."""
        if self.size < 8:
            raise BrokenFileError("a compressed buffer is too short")
        self._handle.seek(self._position)
        self.whole_bytes = int.from_bytes(self._handle.read(8), "little", signed=True)
        section = _Section(self._handle, self._position + 8, self.size - 8)
        if self.whole_bytes == -1:
            self._position, self.whole_bytes = self._position + 8, self.size - 8
        else:
            self._stream = pa.CompressedInputStream(pa.PythonFile(section, mode="r"), codec)

    def _decompressed(self, begin: int, end: int) -> bytes:
        assert self._stream is not None
        parts = [self._held]
        at = self._held_at + len(self._held)
        try:
            while at < end and (part := self._stream.read(max(_READ_BYTES, 1))):
                if at + len(part) <= begin:
                    parts = []
                parts.append(part)
                at += len(part)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise BrokenFileError(f"a compressed buffer is damaged: {error}") from error
        data = b"".join(parts)
        data = data[max(0, begin - (at - len(data))) :]
        self._held, self._held_at = data, at - len(data)
        return data[: end - begin]


class _Section:
    """A part of a file as a file of its own, for pyarrow."""

    closed = False

    def __init__(self, handle: IO[bytes], position: int, size: int) -> None:
        self._handle = handle
        self._at = position
        self._end = position + size

    def read(self, size: int = -1) -> bytes:
        wanted = self._end - self._at if size < 0 else min(size, self._end - self._at)
        self._handle.seek(self._at)
        data = self._handle.read(wanted)
        self._at += len(data)
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        """Leaves the file open."""


def _bits(buffer: _Buffer, begin: int, end: int) -> Any:
    """Returns bits from `begin` on as a buffer of Arrow's."""
    data = np.frombuffer(buffer.read(begin // 8, -(-end // 8)), np.uint8)
    if begin % 8:
        bits = np.unpackbits(data, bitorder="little")[begin % 8 : begin % 8 + end - begin]
        data = np.packbits(bits, bitorder="little")
    return pa.py_buffer(data)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _form(kind: pa.DataType) -> str:
    """Returns how a type lies in buffers; "" for those that `_Column` does not read."""
    types = pa.types
    for name, is_form in (
        ("null", types.is_null), ("bool", types.is_boolean), ("string", types.is_string),
        ("binary", types.is_binary), ("large_string", types.is_large_string),
        ("large_binary", types.is_large_binary), ("struct", types.is_struct),
        ("list", types.is_list), ("large_list", types.is_large_list), ("map", types.is_map),
        ("fixed_list", types.is_fixed_size_list),
    ):  # fmt: skip
        if is_form(kind):
            return name
    plain = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return "fixed" if plain else ""
