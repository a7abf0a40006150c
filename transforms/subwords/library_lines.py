"""Lines tokenized by the library that wrote the file: any tokenizer, at the library's speed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.tokenizer import Tokens


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
        ids = self._encode([lines[i].decode("utf-8") for i in range(len(lines))])
        row_splits = np.zeros(len(lines) + 1, np.int64)
        np.cumsum([len(row) for row in ids], out=row_splits[1:])
        flat = np.fromiter((i for row in ids for i in row), np.int32, int(row_splits[-1]))
        return Tokens(flat, row_splits)
