"""Lines tokenized by the library that wrote the file: any tokenizer, at the library's speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.tokenizer import Tokens

_BATCH_BYTES = 1 << 22  # of lines that are Python's strings at once


class LibraryTokenizer:
    """A `LineTokenizer` that calls a library for all lines.

    Args:
      encode: lines -> the ids of each.
    """

    splits_lines = False

    def __init__(self, encode: Callable[[list[str]], list[list[int]]]) -> None:
        self._encode = encode

    def tokenize(self, lines: Lines) -> Tokens:
        """See `LineTokenizer`."""
        row_splits = np.zeros(len(lines) + 1, np.int64)
        flat = [np.zeros(0, np.int32)]
        for begin, end in batches(lines):
            ids = self._encode([lines[i].decode("utf-8") for i in range(begin, end)])
            row_splits[begin + 1 : end + 1] = [len(row) for row in ids]
            count = int(row_splits[begin + 1 : end + 1].sum())
            flat.append(np.fromiter((i for row in ids for i in row), np.int32, count))
        np.cumsum(row_splits, out=row_splits)
        return Tokens(np.concatenate(flat), row_splits)


def batches(lines: Lines) -> Iterator[tuple[int, int]]:
    """Yields ranges of lines that have some megabytes, or are one line."""
    ends = np.cumsum(lines.ends - lines.starts)
    if len(ends):
        numbers = np.arange(_BATCH_BYTES, int(ends[-1]) + _BATCH_BYTES, _BATCH_BYTES)
        cuts = np.unique([0, *np.searchsorted(ends, numbers).tolist(), len(lines)])
        yield from pairwise(cuts.tolist())
