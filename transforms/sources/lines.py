"""Lines of text as spans of one byte buffer: millions of lines need no Python objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from recordmill.records.arrays import Bools, Bytes, Int64s
from recordmill.records.codec.jit import kernel


@dataclass(frozen=True, slots=True)
class Lines:
    """Line i is `buffer[starts[i]:ends[i]]`, without its line end.

    Attributes:
      buffer: `[bytes] uint8`, UTF-8.
      starts, ends: `[num_lines] int64`.
      non_ascii: `[num_lines] bool`.
    """

    buffer: Bytes
    starts: Int64s
    ends: Int64s
    non_ascii: Bools

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> bytes:
        return self.buffer[self.starts[index] : self.ends[index]].tobytes()

    def select(self, chosen: Any) -> Lines:
        """Returns the lines of a slice, mask or index array over the same buffer."""
        return Lines(self.buffer, self.starts[chosen], self.ends[chosen], self.non_ascii[chosen])

    @classmethod
    def from_list(cls, lines: list[bytes]) -> Lines:
        """Returns `lines` in one buffer."""
        lengths = np.array([len(line) for line in lines], np.int64)
        ends = np.cumsum(lengths)
        non_ascii = np.array([not line.isascii() for line in lines], np.bool_)
        buffer = np.frombuffer(b"".join(lines), np.uint8)
        return cls(buffer, ends - lengths, ends, non_ascii)

    def replace(self, replacements: dict[int, bytes]) -> Lines:
        """Returns the lines with other bytes for some of them.

        Args:
          replacements: index -> the new line, at least one.
        """
        extra = Lines.from_list(list(replacements.values()))
        at = np.array(list(replacements), np.int64)
        starts, ends = self.starts.copy(), self.ends.copy()
        starts[at] = extra.starts + len(self.buffer)
        ends[at] = extra.ends + len(self.buffer)
        return Lines(np.concatenate([self.buffer, extra.buffer]), starts, ends, self.non_ascii)

    def blank(self) -> Bools:
        """Returns `[num_lines] bool`: True where a line is nothing but white space."""
        blank = np.empty(len(self), np.bool_)
        _blank(self.buffer, self.starts, self.ends, blank)
        # White space beyond ASCII takes two or three bytes; longer lines of it alone are not met.
        doubtful = self.non_ascii & ~blank & (self.ends - self.starts < 64)
        for i in np.flatnonzero(doubtful).tolist():
            blank[i] = self[i].decode("utf-8", "replace").isspace()
        return blank


@kernel
def _blank(buffer: Bytes, starts: Int64s, ends: Int64s, blank: Bools) -> None:
    for i in range(starts.shape[0]):
        blank[i] = True
        for at in range(starts[i], ends[i]):
            byte = buffer[at]
            if not (byte == 32 or 9 <= byte <= 13):
                blank[i] = False
                break


@kernel
def _split_lines(buffer: Bytes, starts: Int64s, ends: Int64s, non_ascii: Bools) -> int:
    count = 0
    start = 0
    high = np.uint8(0)
    size = buffer.shape[0]
    for at in range(size):
        byte = buffer[at]
        high |= byte
        if byte == 10:
            starts[count] = start
            ends[count] = at - 1 if at > start and buffer[at - 1] == 13 else at
            non_ascii[count] = high >= 128
            count += 1
            start = at + 1
            high = np.uint8(0)
    if start < size:
        starts[count] = start
        ends[count] = size
        non_ascii[count] = high >= 128
        count += 1
    return count


def split_lines(data: bytes) -> Lines:
    r"""Splits at "\n" and "\r\n"; a last line without an end counts."""
    buffer = np.frombuffer(data, np.uint8)
    most = data.count(b"\n") + 1
    starts, ends = np.empty(most, np.int64), np.empty(most, np.int64)
    non_ascii = np.empty(most, np.bool_)
    count = _split_lines(buffer, starts, ends, non_ascii)
    return Lines(buffer, starts[:count], ends[:count], non_ascii[:count])
