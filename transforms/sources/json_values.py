"""Find the ends of JSON values without parsing, and recognize files of an object on each line."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

import numpy as np

from recordmill.records.arrays import Bytes, Int64s
from recordmill.records.codec.jit import kernel

_PLAIN, _IN_STRING, _ESCAPED = 0, 1, 2
SNIFFED_BYTES = 1 << 16  # of a file's beginning, which decide how its objects lie


@kernel
def _scan(data: Bytes, state: Int64s, ends: Int64s) -> int:
    """Writes the ends of values; `state`: the depth, whether in a string, whether in an array."""
    depth, mode, in_array = state[0], state[1], state[2]
    count = 0
    for at in range(data.shape[0]):
        byte = data[at]
        if mode == _ESCAPED:
            mode = _IN_STRING
        elif mode == _IN_STRING:
            if byte == 92:  # backslash
                mode = _ESCAPED
            elif byte == 34:
                mode = _PLAIN
        elif byte == 34:
            mode = _IN_STRING
        elif byte == 123 or byte == 91:  # { [
            if depth == 0:
                in_array = 1 if byte == 91 else 0
            depth += 1
        elif byte == 125 or byte == 93:  # } ]
            depth = max(depth - 1, 0)
            if depth == 0:
                ends[count] = at + 1
                count += 1
        elif byte == 44 and depth == 1 and in_array == 1:
            ends[count] = at + 1
            count += 1
    state[0], state[1], state[2] = depth, mode, in_array
    return count


def scan_values(data: Bytes, state: Int64s) -> Int64s:
    """Finds where the values of JSON end, in consecutive blocks.

    Args:
      data: `[bytes] uint8`, the next block.
      state: `[3] int64`, zeros before the first block; it is updated.

    Returns:
      `[num_ends] int64`: the offsets after each object of the top level, and after the comma or
      bracket that follows an element of an array there.
    """
    ends = np.empty(int(np.isin(data, (44, 93, 125)).sum()), np.int64)
    return ends[: _scan(data, state, ends)]


def has_object_lines(beginning: bytes) -> bool:
    """Returns whether JSON has an object on each line, by the first value of a file.

    Args:
      beginning: some 64 KiB of the file, UTF-8.
    """
    text = beginning[:SNIFFED_BYTES].removeprefix(codecs.BOM_UTF8).lstrip()
    if text.startswith(b"["):
        return False
    line, newline, _ = text.partition(b"\n")
    state = np.zeros(3, np.int64)
    ends = scan_values(np.frombuffer(line, np.uint8), state)
    if len(ends):
        return not line[int(ends[0]) :].strip()
    # An object goes on over the line end, unless that is in a string, where JSON has none.
    return bool(not newline or not state[0] or state[1] != _PLAIN)


def read_beginning(blocks: Iterable[bytes]) -> bytes:
    """Returns as much of a file as `has_object_lines` looks at."""
    beginning = b""
    for block in blocks:
        beginning += block
        if len(beginning) >= SNIFFED_BYTES:
            break
    return beginning
