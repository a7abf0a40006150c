"""Pages of Parquet, of which pyarrow tells nothing: where each lies, how it is coded, what it has.

Their headers say how a page is coded; the footer has the codings of all pages of a column, in no
order, and may lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.parquet_footer import DICTIONARY_CODINGS, ColumnChunk
from recordmill.transforms.sources.thrift import BOOLEAN, INT32, Wanted, read_struct

RLE = 3  # the coding of levels

# A header has fewer bytes, but for least and greatest texts; pyarrow reads no larger one.
_HEADER_BYTES = (1 << 9, 1 << 12, 1 << 16, 1 << 24)
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_MOST_EMPTY_PAGES = 100
_PADDING_BYTES = 100  # that the footers of old writers leave out
_WANTED: Wanted = {
    1: INT32, 2: INT32, 3: INT32,
    5: {1: INT32, 2: INT32, 3: INT32, 4: INT32},
    8: {1: INT32, 4: INT32, 5: INT32, 6: INT32, 7: BOOLEAN},
}  # fmt: skip


@dataclass(frozen=True)
class Page:
    """A page of a column chunk.

    Attributes:
      position: of its data, in bytes from the file's start.
      stored_bytes: of its data.
      unpacked_bytes: of its data, as its header says.
      is_dictionary: it has the texts of others.
      values: of a page of data, nulls included; else 0.
      coding: of its values, by Parquet's number; -1 unless it is a page of data.
      level_bytes: of the levels before the values where these are not packed; -1 where they are,
        and levels begin with how many bytes they have.
      level_codings: of repetition and definition, by Parquet's numbers.
      is_packed: its values are, where the column chunk is.
    """

    position: int
    stored_bytes: int
    unpacked_bytes: int
    is_dictionary: bool
    values: int
    coding: int
    level_bytes: int
    level_codings: tuple[int, int]
    is_packed: bool

    @property
    def has_indices(self) -> bool:
        """Whether its values are indices of a dictionary."""
        return self.coding in DICTIONARY_CODINGS


def pages(handle: IO[bytes], chunk: ColumnChunk, file_bytes: int) -> Iterator[Page]:
    """Yields the pages of a column chunk.

    Args:
      handle: the file.
      chunk: as the footer has it.
      file_bytes: of the file.

    Raises:
      BrokenFileError: a page is damaged, or not one where the footer says. No page is passed over
        that pyarrow might read.
    """
    at, values, empty = chunk.begin, chunk.values, 0
    if not 0 <= at <= file_bytes or not 0 <= chunk.stored_bytes <= file_bytes:
        raise BrokenFileError("a column that is not in the file")
    while values > 0:
        if at >= chunk.begin + chunk.stored_bytes + _PADDING_BYTES:
            raise BrokenFileError("a column that ends before its values do")
        header, position = page_header(handle, at)
        kind, unpacked, stored = (header.get(i, -1) for i in (1, 2, 3))
        if position < 0 or unpacked < 0 or stored < 0:
            raise BrokenFileError("a page whose header is damaged")
        if position + stored > file_bytes:
            raise BrokenFileError("a page that ends behind the file")
        page = _page(header, kind, position, stored, unpacked, is_packed=chunk.is_packed)
        yield page
        values -= page.values
        empty += not page.values
        if values < 0:
            raise BrokenFileError("a page that has more values than its column")
        if empty > _MOST_EMPTY_PAGES:
            raise BrokenFileError("pages without values")
        at = position + stored


def up_to_dictionary(chunk: Iterator[Page]) -> Iterator[Page]:
    """Yields the pages of a chunk up to its dictionary, of which there is one."""
    for page in chunk:
        yield page
        if page.is_dictionary:
            return


def _page(
    header: dict[int, Any], kind: int, position: int, stored: int, unpacked: int, *, is_packed: bool
) -> Page:
    values, coding, level_bytes, level_codings = 0, -1, 0, (RLE, RLE)
    unpacks = True
    if kind == _DATA_PAGE:
        data = header.get(5, {})
        values, coding, level_bytes = data.get(1, 0), data.get(2, -1), -1
        level_codings = (data.get(4, -1), data.get(3, -1))
    elif kind == _DATA_PAGE_V2:
        data = header.get(8, {})
        values, coding = data.get(1, 0), data.get(4, -1)
        level_bytes = max(0, data.get(5, 0)) + max(0, data.get(6, 0))
        unpacks = is_packed or data.get(7, True)
    return Page(
        position, stored, unpacked, kind == _DICTIONARY_PAGE, max(0, values), coding, level_bytes,
        level_codings, unpacks,
    )  # fmt: skip


def page_header(handle: IO[bytes], begin: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of the header of a page, by number, and where it ends; -1 if damaged.

    Of a damaged one, the fields before the damage are returned.
    """
    for size in _HEADER_BYTES:
        header: dict[int, Any] = {}
        handle.seek(begin)
        data = handle.read(size)
        try:
            return header, begin + read_struct(data, 0, _WANTED, header)
        except IndexError:  # it is longer than was read
            if len(data) < size:
                break
        except (ValueError, OverflowError):
            break
    return header, -1
