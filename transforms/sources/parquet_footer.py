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
_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_DICTIONARY_CODINGS = frozenset({2, 8})


@dataclass(frozen=True)
class ColumnChunk:
    """The part of a column in a row group.

    Attributes:
      codings: of its pages, by Parquet's numbers.
      codec: as `pyarrow.decompress` takes it; "" for none, "unknown" for one that it lacks.
      values: nulls included.
      unpacked_bytes: of its pages.
      stored_bytes: of its pages.
      begin: of its first page, in bytes from the file's start.
      has_dictionary: texts may be of a dictionary.
    """

    codings: frozenset[int]
    codec: str
    values: int
    unpacked_bytes: int
    stored_bytes: int
    begin: int
    has_dictionary: bool


@dataclass(frozen=True)
class RowGroup:
    """Rows, and the part of each column in them."""

    rows: int
    columns: list[ColumnChunk]

    @property
    def begin(self) -> int:
        """Where the first column begins, in bytes from the file's start."""
        return self.columns[0].begin if self.columns else 0


def read_row_groups(handle: IO[bytes], columns: int) -> list[RowGroup]:
    """Returns the row groups of a file that pyarrow opens.

    Args:
      handle: the file.
      columns: that each must have.

    Raises:
      BrokenFileError: the footer is damaged.
    """
    end = handle.seek(-_END_BYTES, os.SEEK_END)
    size = int.from_bytes(handle.read(4), "little")
    handle.seek(max(0, end - size))
    fields: dict[int, Any] = {}
    try:
        read_struct(handle.read(size), 0, _WANTED, fields)
    except (IndexError, ValueError, OverflowError) as error:
        raise BrokenFileError("not a whole Parquet file: its footer is damaged") from error
    groups = []
    for number, group in enumerate(fields.get(4, [])):
        chunks = [_column_chunk(column.get(3, {})) for column in group.get(1, [])]
        if len(chunks) != columns:
            raise BrokenFileError(f"row group {number} has {len(chunks)} of {columns} columns")
        if group.get(3, 0) < 0:
            raise BrokenFileError(f"row group {number} has {group[3]} rows")
        groups.append(RowGroup(group.get(3, 0), chunks))
    return groups


def _column_chunk(fields: dict[int, Any]) -> ColumnChunk:
    codings = frozenset(fields.get(2, []))
    begin, dictionary = fields.get(9, 0), fields.get(11, 0)
    return ColumnChunk(
        codings,
        _CODECS.get(fields.get(4, 0), "unknown"),
        fields.get(5, 0),
        fields.get(6, 0),
        fields.get(7, 0),
        min(begin, dictionary) if dictionary > 0 else begin,
        11 in fields or not codings or bool(codings & _DICTIONARY_CODINGS),
    )
