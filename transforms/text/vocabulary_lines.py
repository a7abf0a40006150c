"""The tokens of a vocab.txt, and their checksum, without the kernels that tokenize by them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def vocabulary_lines(text: str) -> tuple[str, ...]:
    """Returns the tokens of a vocab.txt: token i is line i."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return tuple(line.strip() for line in lines)


def checksum_of(tokens: Sequence[str]) -> str:
    """Returns the blake2b of tokens, for the manifest."""
    return hashlib.blake2b("\n".join(tokens).encode(), digest_size=16).hexdigest()
