"""A tokenizer whose kernels do most lines, and whose library does the others: the same ids.

The library gets the lines that contain the spelling of an added token, which it finds before it
cuts words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.tokenizer import LineTokenizer, Tokens


class QuickLines(Protocol):
    """Kernels that give the ids of most lines, by a memory of words."""

    def clear(self) -> None:
        """Removes all words from the memory."""
        ...

    def tokenize(self, lines: Lines) -> tuple[Tokens, Bools]:
        """Returns the ids of prepared lines, and `[num_lines] bool`: where a library must say."""
        ...


class QuickTokenizer:
    """A `LineTokenizer`.

    Args:
      quick: the kernels.
      preparation: what is done to lines first.
      library: returns the library's `LineTokenizer`; it is called when a line first needs it.
      spellings: of the tokens with which a line goes to the library.
      searches_prepared: also where it has one of them only once it is prepared.
    """

    def __init__(
        self,
        quick: QuickLines,
        preparation: Preparation,
        library: Callable[[], LineTokenizer],
        spellings: Sequence[str],
        *,
        searches_prepared: bool = False,
    ) -> None:
        self._memory = quick
        self._preparation = preparation
        self._make_library = library
        self._library: LineTokenizer | None = None
        if searches_prepared:
            spellings = [*spellings, *(text.replace(" ", "▁") for text in spellings)]
        longest_first = sorted(filter(None, spellings), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(re.escape(text.encode()) for text in longest_first))
        self._searches = bool(longest_first)
        in_spellings = any("\n" in text for text in spellings)
        self.splits_lines = preparation.splits_lines and not in_spellings
        self._searches_prepared = searches_prepared and self._searches

    def clear(self) -> None:
        """Removes all words from the memory."""
        self._memory.clear()

    def tokenize(self, lines: Lines) -> Tokens:
        """See `LineTokenizer`."""
        prepared = self._preparation.apply(lines)
        slow = self._with_added_tokens(lines)
        if self._searches_prepared:
            slow |= self._with_added_tokens(prepared)
        chosen = np.flatnonzero(~slow)
        if len(chosen) < len(lines):
            prepared = prepared.select(chosen)
        quick, doubtful = self._memory.tokenize(prepared)
        slow[chosen[doubtful]] = True
        if not slow.any():
            return quick
        if self._library is None:
            self._library = self._make_library()
        return _merge(quick, chosen, self._library.tokenize(lines.select(slow)), slow)

    def _with_added_tokens(self, lines: Lines) -> Bools:
        """Returns `[num_lines] bool`: lines that may contain an added token."""
        found = np.zeros(len(lines), np.bool_)
        if not self._searches or not len(lines):
            return found
        if (np.diff(lines.starts) < 0).any():
            for i in range(len(lines)):
                found[i] = self._pattern.search(lines[i]) is not None
            return found
        begin, end = int(lines.starts[0]), int(lines.ends.max())
        data = memoryview(lines.buffer)[begin:end]  # type: ignore[arg-type]
        for match in self._pattern.finditer(data):
            # A match over the end of a line may hide another: both its lines count.
            places = np.array([match.start(), match.end() - 1]) + begin
            found[np.maximum(np.searchsorted(lines.starts, places, side="right") - 1, 0)] = True
        return found


def _merge(quick: Tokens, chosen: Int64s, library: Tokens, by_library: Bools) -> Tokens:
    """Returns the tokens of all lines: of the library where it did a line, else the quick ones.

    Args:
      quick, chosen: tokens of some lines, and which these are.
      library, by_library: tokens of others, or of the same, and which these are.
    """
    sizes = np.empty(len(by_library), np.int64)
    begins = np.empty(len(by_library), np.int64)
    sizes[chosen], begins[chosen] = np.diff(quick.row_splits), quick.row_splits[:-1]
    sizes[by_library] = np.diff(library.row_splits)
    begins[by_library] = library.row_splits[:-1] + len(quick.ids)
    splits = np.concatenate([[0], np.cumsum(sizes)])
    index = np.repeat(begins - splits[:-1], sizes) + np.arange(splits[-1])
    return Tokens(np.concatenate([quick.ids, library.ids])[index], splits)
