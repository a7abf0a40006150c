"""What hostile Avro files need beyond fastavro: blocks that unpack to too much, odd types."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from backports import zstd

from recordmill.transforms.sources.blocks import BrokenFileError

_MOST_STREAMS = 100  # of a block; writers make one
_READER_MEMORY = 1 << 28  # bytes of the dictionary of xz


_MOST_FIELDS = 100_000  # that a schema unfolds to: names in names double them at each level
_MOST_LEVELS = (
    100  # of compiled code, which has a stack, and of Arrow, whose time grows much faster
)
_CHECKED = ("int", "long", "string", "bytes")  # of which fastavro finds that data end


@dataclass(frozen=True, slots=True)
class _Unfolded:
    """A type with those that its names stand for.

    Attributes:
      is_empty: its values take no bytes.
      fields: how many there are.
      levels: how deep they lie.
    """

    is_empty: bool = False
    fields: int = 1
    levels: int = 1

    @staticmethod
    def around(parts: Sequence[_Unfolded], *, is_empty: bool = False) -> _Unfolded:
        fields = 1 + sum(part.fields for part in parts)
        levels = 1 + max((part.levels for part in parts), default=0)
        return _Unfolded(is_empty, fields, levels)


@dataclass(slots=True)
class SchemaFacts:
    """What a schema lets data do to a reader of it.

    Attributes:
      is_recursive: records hold records of their own type, to any depth.
      is_unskippable: fastavro may skip values of an array without finding that data end, or takes
        one type for another because the last parts of their names are equal.
      problem: why no data of the schema are read, or "".
    """

    is_recursive: bool = False
    is_unskippable: bool = False
    problem: str = ""
    _named: dict[str, _Unfolded] = field(default_factory=dict)
    _last_names: set[str] = field(default_factory=set)

    def check(self, written: Any) -> None:
        """Finds the facts of the schema of a file, as fastavro parses it: names are whole."""
        rows = self._visit(written, (), in_array=False)
        if rows.is_empty:  # a few bytes stand for any number of them
            self.problem = "rows without bytes, such as null, are not read"
        if rows.fields > _MOST_FIELDS or rows.levels > _MOST_LEVELS:
            self.problem = (
                f"the schema unfolds to {rows.fields} fields in {rows.levels} levels; at most "
                f"{_MOST_FIELDS} in {_MOST_LEVELS} are read"
            )

    def _visit(self, kind: Any, inside: tuple[str, ...], *, in_array: bool) -> _Unfolded:
        """Adds what a type shows, within records of such names."""
        if isinstance(kind, list):  # which of them it is takes a byte
            return _Unfolded.around([self._visit(k, inside, in_array=in_array) for k in kind])
        if isinstance(kind, str):
            self.is_recursive |= kind in inside
            self.is_unskippable |= in_array and kind not in _CHECKED
            return self._named.get(kind, _Unfolded(is_empty=kind == "null"))
        name, inner = kind.get("name", ""), kind["type"]
        if inner == "array":
            items = self._visit(kind["items"], inside, in_array=True)
            if items.is_empty:
                self.problem = "arrays of values without bytes, such as null, are not read"
            found = _Unfolded.around([items])
        elif inner == "map":
            values = self._visit(kind["values"], inside, in_array=in_array)
            found = _Unfolded.around([values])
        elif inner in ("record", "error"):
            within = (*inside, name)
            types = [each["type"] for each in kind["fields"]]
            parts = [self._visit(each, within, in_array=in_array) for each in types]
            found = _Unfolded.around(parts, is_empty=all(part.is_empty for part in parts))
        elif inner == "fixed":
            self.is_unskippable |= in_array
            found = _Unfolded(is_empty=kind["size"] <= 0)
        elif inner == "enum":
            found = _Unfolded()
        else:
            found = self._visit(inner, inside, in_array=in_array)
        if name:
            last = name.rpartition(".")[2]
            self.is_unskippable |= last in self._last_names
            self._last_names.add(last)
            self._named[name] = found
        return found


def header(schema: str, sync: bytes) -> bytes:
    """Returns the beginning of an Avro file without compression, of a schema and a marker."""
    metadata = {"avro.schema": schema, "avro.codec": "null"}
    parts = [b"Obj\x01", number(len(metadata))]
    for text in (text for pair in metadata.items() for text in pair):
        parts += [number(len(text.encode())), text.encode()]
    return b"".join([*parts, number(0), sync])


def number(value: int) -> bytes:
    """Returns a number of at least 0 in Avro's form."""
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def read_number(data: bytes, at: int) -> tuple[int, int]:
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


def unpack(data: bytes, codec: str, most_bytes: int) -> bytes | None:
    """Returns what a block unpacks to, None where that is more than so many bytes.

    Raises:
      EOFError: it is cut.
      zlib.error, OSError, lzma.LZMAError, zstd.ZstdError, pyarrow.ArrowException: it is damaged.
    """
    if codec == "null":
        return data
    if codec == "snappy":
        return _unpack_snappy(data, most_bytes)
    parts: list[bytes] = []
    left = most_bytes
    while True:
        decompressor = _decompressor(codec)
        try:
            part = decompressor.decompress(data, left + 1)
        except (OSError, lzma.LZMAError, zstd.ZstdError):
            if parts:  # what lies behind is no more of it, as Python's own functions take it
                break
            raise
        if len(part) > left:
            return None
        parts.append(part)
        if codec == "deflate":  # some writers leave out its end, others have a checksum behind it
            break
        if not decompressor.eof:
            raise EOFError("the compressed data end too early")
        left -= len(part)
        data = decompressor.unused_data
        if not data:
            break
        if len(parts) == _MOST_STREAMS:  # each copies what is left
            raise EOFError(f"it has more than {_MOST_STREAMS} compressed streams")
    return b"".join(parts)


def _unpack_snappy(data: bytes, most_bytes: int) -> bytes | None:
    """Returns what a block of Snappy unpacks to: it begins with its size, and its CRC-32 follows.

    Source: "Required Codecs" of Avro's specification, and Snappy's format_description.txt.
    """
    size = 0
    for at in range(5):
        byte = data[at] if at < len(data) - 4 else 128
        size |= (byte & 127) << 7 * at
        if byte < 128:
            break
    else:
        raise EOFError("a block of Snappy begins with no size")
    if size > most_bytes:
        return None
    unpacked: bytes = pa.decompress(data[:-4], size, "snappy", asbytes=True)
    if zlib.crc32(unpacked) != int.from_bytes(data[-4:], "big"):
        raise EOFError("the checksum of a block differs")
    return unpacked


def _decompressor(codec: str) -> Any:
    if codec == "deflate":
        return zlib.decompressobj(-zlib.MAX_WBITS)
    if codec == "bzip2":
        return bz2.BZ2Decompressor()
    if codec == "xz":
        return lzma.LZMADecompressor(memlimit=_READER_MEMORY)
    return zstd.ZstdDecompressor()
