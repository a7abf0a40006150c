"""Normalize text as BERT's BasicTokenizer does, to one string with spaces between its words.

Ids must equal those of google-research/bert (tokenization.py: FullTokenizer) on every line of every
language, so the rules here are its rules: drop NUL, U+FFFD and control characters; put spaces
around CJK ideographs; lower-case, decompose (NFD) and drop accents where asked; put spaces around
punctuation. ASCII lines never come here: the tokenizer's kernel applies the same rules to them byte
by byte.
"""

from __future__ import annotations

import unicodedata

_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def _clean(char: str) -> str:
    code = ord(char)
    if char.isspace() and (char in " \t\n\r" or unicodedata.category(char) != "Cc"):
        return " "
    if code in (0, 0xFFFD) or unicodedata.category(char) in ("Cc", "Cf"):
        return ""
    if any(first <= code <= last for first, last in _CJK):
        return f" {char} "
    return char


def _is_punctuation(char: str) -> bool:
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def normalize(text: str, *, lower_case: bool) -> str:
    """Returns `text` with single words between spaces, exactly as BERT's BasicTokenizer splits
    it."""
    text = "".join(map(_clean, text))
    if lower_case:
        decomposed = unicodedata.normalize("NFD", text.lower())
        text = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
    return "".join(f" {char} " if _is_punctuation(char) else char for char in text)


def _depends_on_neighbours(char: str) -> bool:
    """Returns whether lower-casing or decomposing `char` may differ beside other characters.

    Capital sigma has a final form, and NFD sorts combining characters, of which only those in Mn
    are dropped.
    """
    decomposed = unicodedata.normalize("NFD", char.lower())
    return char == "Σ" or any(
        unicodedata.combining(c) and unicodedata.category(c) != "Mn" for c in decomposed
    )


class _CharTable(dict[int, str]):
    """Character -> its normal form, filled as characters come, for `str.translate`."""

    def __init__(self, *, lower_case: bool) -> None:
        self._lower_case = lower_case
        self.contextual: set[str] = set()

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if self._lower_case and _depends_on_neighbours(char):
            self.contextual.add(char)
        form = normalize(char, lower_case=self._lower_case)
        self[code] = form
        return form


class Normalizer:
    """`normalize`, character by character from a table wherever that gives the same."""

    def __init__(self, *, lower_case: bool) -> None:
        self._lower_case = lower_case
        self._table = _CharTable(lower_case=lower_case)

    def __call__(self, text: str) -> str:
        """Returns `normalize(text)`."""
        table = self._table
        form = text.translate(table)
        if table.contextual and not table.contextual.isdisjoint(text):
            return normalize(text, lower_case=self._lower_case)
        return form
