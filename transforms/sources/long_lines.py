"""Cut lines over a limit at white space, at the same bytes whatever blocks a file is read in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from recordmill.records.arrays import Bools
from recordmill.transforms.sources.lines import Lines


def cut_at_white_space(lines: Lines, limit_bytes: int, *, whole: bool) -> tuple[Lines, Bools]:
    """Cuts lines over the limit at white space, counted from the line's own beginning.

    Args:
      lines: any.
      limit_bytes: the longest part.
      whole: whether the last line is whole; where it is not, it has the cuts that it will have
        when it is.

    Returns:
      The parts, and `[num_parts] bool`: True where one begins a line.
    """
    long = np.flatnonzero(lines.ends - lines.starts > limit_bytes)
    if not len(long):
        return lines, np.ones(len(lines), np.bool_)
    runs: list[tuple[Lines, Bools]] = []
    done = 0
    for i in long.tolist():
        runs.append((lines.select(slice(done, i)), np.ones(i - done, np.bool_)))
        is_whole = whole or i < len(lines) - 1
        parts = _cut_line(lines, i, limit_bytes, whole=is_whole)
        runs.append((parts, np.arange(len(parts)) == 0))
        done = i + 1
    runs.append((lines.select(slice(done, None)), np.ones(len(lines) - done, np.bool_)))
    cut = Lines(
        lines.buffer,
        np.concatenate([part.starts for part, _ in runs]),
        np.concatenate([part.ends for part, _ in runs]),
        np.concatenate([part.non_ascii for part, _ in runs]),
    )
    return cut, np.concatenate([begins for _, begins in runs])


def _cut_line(lines: Lines, index: int, limit_bytes: int, *, whole: bool) -> Lines:
    """Returns the parts of one line."""
    data = lines[index]
    # The carriage return at the end of an unfinished line may be half of its end.
    size = len(data) - (not whole and data.endswith(b"\r"))
    cuts = [0]
    while size - cuts[-1] > limit_bytes:
        cuts.append(_next_cut(data, cuts[-1], limit_bytes))
    cuts.append(len(data))
    bounds = np.array(cuts, np.int64) + lines.starts[index]
    non_ascii = [not data[begin:end].isascii() for begin, end in pairwise(cuts)]
    return Lines(lines.buffer, bounds[:-1], bounds[1:], np.array(non_ascii, np.bool_))


def _next_cut(data: bytes, begin: int, limit_bytes: int) -> int:
    """Returns the last space within the limit, or else the end of the last whole character."""
    cut = data.rfind(b" ", begin + 1, begin + limit_bytes)
    if cut >= 0:
        return cut
    cut = begin + limit_bytes
    while data[cut] & 0xC0 == 0x80 and cut > begin + 1:  # within a character
        cut -= 1
    return cut
