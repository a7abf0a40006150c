"""What the footer of a Parquet file says of its row groups.

pyarrow tells it too, and ends the process where it is asked for a column whose part is damaged.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO, Any

from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.thrift import INT32, INT64, Wanted, read_struct

_END_BYTES = 8
_COLUMN = {2: [INT32], 4: INT32, 5: INT64, 6: INT64, 7: INT64, 9: INT64, 11: INT64}
_WANTED: Wanted = {4: [{1: [{3: _COLUMN}], 3: INT64}]}
_CODECS = {
    0: "", 1: "snappy", 2: "gzip", 4: "brotli", 5: "lz4_hadoop", 6: "zstd", 7: "lz4_raw",
}  # fmt: skip
_MOST_OVERLAP = 2
_MOST_ROWS = 1 << 62
DICTIONARY_CODINGS = frozenset({2, 8})  # PLAIN_DICTIONARY, RLE_DICTIONARY


@dataclass(frozen=True)
class ColumnChunk:
    """The part of a column in a row group.

    Attributes:
      codings: of its pages, by Parquet's numbers.
      codec: as `pyarrow.decompress` takes it, or "lz4_hadoop"; "" for none, "unknown" for others.
      is_packed: all pages are packed, also those that say that they are not.
      values: nulls included.
      unpacked_bytes: of its pages.
      stored_bytes: of its pages.
      begin: of its first page, in bytes from the file's start.
      has_dictionary: texts may be of a dictionary.
    """

    codings: frozenset[int]
    codec: str
    is_packed: bool
    values: int
    unpacked_bytes: int
    stored_bytes: int
    begin: int
    has_dictionary: bool


@dataclass(frozen=True)
class Leaf:
    """A column of values: one of the schema, or what is in such a one.

    Attributes:
      path: its name, with those of what it is in.
      is_text: its values are bytes.
      width: of values that all have so many bytes, else 0.
      levels: whether it has levels of repetition, as in lists, and of definition.
    """

    path: str
    is_text: bool
    width: int
    levels: tuple[bool, bool]

    @property
    def is_in_lists(self) -> bool:
        """Whether a row may have several values."""
        return self.levels[0]


@dataclass(frozen=True)
class RowGroup:
    """Rows, and the part of each column in them."""

    rows: int
    columns: list[ColumnChunk]

    @property
    def begin(self) -> int:
        """Where the first column begins, in bytes from the file's start."""
        return self.columns[0].begin if self.columns else 0


def read_row_groups(handle: IO[bytes], columns: int, created_by: str = "") -> list[RowGroup]:
    """Returns the row groups of a file that pyarrow opens.

    Args:
      handle: the file.
      columns: that each must have.
      created_by: the program that wrote the file, as it says.

    Raises:
      BrokenFileError: the footer is damaged.
    """
    end = handle.seek(-_END_BYTES, os.SEEK_END)  # where the footer does
    size = int.from_bytes(handle.read(4), "little")
    handle.seek(max(0, end - size))
    fields: dict[int, Any] = {}
    try:
        read_struct(handle.read(size), 0, _WANTED, fields)
    except (IndexError, ValueError, OverflowError) as error:
        raise BrokenFileError("not a whole Parquet file: its footer is damaged") from error
    # As pyarrow has it, which passes over what this program said of pages.
    is_packed = created_by.lower().split()[:1] == ["parquet-cpp"]
    groups, stored = [], 0
    for number, group in enumerate(fields.get(4, [])):
        chunks = [_column_chunk(column.get(3, {}), is_packed) for column in group.get(1, [])]
        if len(chunks) != columns:
            raise BrokenFileError(f"row group {number} has {len(chunks)} of {columns} columns")
        if group.get(3, 0) < 0:
            raise BrokenFileError(f"row group {number} has {group[3]} rows")
        groups.append(RowGroup(group.get(3, 0), chunks))
        stored += sum(max(0, chunk.stored_bytes) for chunk in chunks)
    if sum(group.rows for group in groups) > _MOST_ROWS:
        raise BrokenFileError("more rows than there are numbers for")
    if stored > _MOST_OVERLAP * end:
        raise BrokenFileError("row groups that lie over each other")
    return groups


def _column_chunk(fields: dict[int, Any], is_packed: bool) -> ColumnChunk:
    codings = frozenset(fields.get(2, []))
    begin, dictionary = fields.get(9, 0), fields.get(11, 0)
    return ColumnChunk(
        codings,
        _CODECS.get(fields.get(4, 0), "unknown"),
        is_packed,
        fields.get(5, 0),
        fields.get(6, 0),
        fields.get(7, 0),
        min(begin, dictionary) if dictionary > 0 else begin,
        dictionary > 0 or not codings or bool(codings & DICTIONARY_CODINGS),
    )
