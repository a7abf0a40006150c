"""Find the ends of records in CSV and TSV, by the state machine of Python's csv module.

Quotes count only at the beginning of a field, and a line end inside quotes does not end a record.
The ends of records allow the reader to read such files in blocks, and to cut large files into
ranges without a change of their rows.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from typing import Literal

import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.jit import kernel

_FIELD_START, _IN_FIELD, _IN_QUOTES, _QUOTE_IN_QUOTES = 0, 1, 2, 3


@kernel
def _scan(data: Bytes, delimiter: int, state: Int64s, ends: Int64s) -> int:
    now = state[0]
    count = 0
    for at in range(data.shape[0]):
        byte = data[at]
        if now == _IN_QUOTES:
            if byte == 34:
                now = _QUOTE_IN_QUOTES
        elif byte == 34 and (now == _FIELD_START or now == _QUOTE_IN_QUOTES):
            now = _IN_QUOTES
        elif byte == 10:
            ends[count] = at + 1
            count += 1
            now = _FIELD_START
        elif byte == delimiter or byte == 13:
            now = _FIELD_START
        else:
            now = _IN_FIELD
    state[0] = now
    return count


def delimiter_of(input_format: str, given: str = "") -> str:
    """Returns the given delimiter, or else the usual one of "csv" or "tsv"."""
    return given or ("\t" if input_format == "tsv" else ",")


class RecordScanner:
    """Finds record ends in consecutive blocks of a file, from its beginning or any record's.

    Args:
      delimiter: what stands between fields.
      quotes: whether quotes have a meaning; without, each line is a record.
      begins_file: a byte order mark at the beginning is none of the first field's.
    """

    def __init__(self, delimiter: str, *, quotes: bool = True, begins_file: bool = False) -> None:
        self._may_have_bom = begins_file
        self._delimiter = ord(delimiter)
        self._quotes = quotes
        self._state = np.array([_FIELD_START], np.int64)

    def record_ends(self, block: Bytes) -> Int64s:
        """Returns the offsets in a block just after each record, `[num_ends] int64`.

        Args:
          block: `[bytes] uint8`, the bytes that follow those of the last call.
        """
        if self._may_have_bom and len(block):
            self._may_have_bom = False
            if block[:3].tobytes() == codecs.BOM_UTF8:
                return self.record_ends(block[3:]) + 3
        if not self._quotes:
            return np.flatnonzero(block == 10) + 1
        ends = np.empty(int(np.count_nonzero(block == 10)), np.int64)
        return ends[: _scan(block, self._delimiter, self._state, ends)]


def csv_rows(text: str, delimiter: str, *, quotes: bool, strict: bool) -> Iterator[list[str]]:
    """Yields the fields of rows, as `parse_row` takes each; [] for a blank one.

    Raises:
      csv.Error: one cannot be read.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    lines = io.StringIO(text, newline="")
    return csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=strict)


def parse_row(
    record: str, delimiter: str, *, quotes: bool = True, strict: bool = False
) -> list[str]:
    """Returns the fields of one record, [] for a blank one.

    Args:
      record: with its line end.
      delimiter: what stands between fields.
      quotes: whether quotes have a meaning.
      strict: whether a field must end behind its second quote. Else quotes that enclose nothing
        make one row of two.

    Raises:
      csv.Error: the record cannot be read.
    """
    rows = list(csv_rows(record, delimiter, quotes=quotes, strict=strict))
    if len(rows) > 1:
        raise csv.Error("more than one row")
    return rows[0] if rows else []
