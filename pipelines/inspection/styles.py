"""Colours of a terminal, and plain text in a pipe."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import IO

_CODES = {"title": "1", "name": "2", "hidden": "1;33", "replaced": "1;31", "kept": "1;32"}


@dataclass(frozen=True, slots=True)
class Style:
    """How words of an output are marked.

    Attributes:
      colors: with escape sequences of terminals.
    """

    colors: bool

    def __call__(self, kind: str, text: str) -> str:
        """Returns text in the colour of its kind: title, name, hidden, replaced or kept."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.colors else text


def style_for(color: str, output: IO[str]) -> Style:
    """Returns the style of an output.

    Args:
      color: as in --color: "auto" is colours on a terminal, unless NO_COLOR is set or the
        terminal is dumb (https://no-color.org).
      output: where the text goes.
    """
    if color != "auto":
        return Style(color == "always")
    refused = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Style(output.isatty() and not refused)
