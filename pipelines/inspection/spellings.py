"""Tokens as people read them: how a tokenizer's file spells spaces, line ends and bytes, undone.

WordPiece says that a token continues a word ("##x"), SentencePiece that one begins ("▁x"). GPT-2's
byte-level BPE spells each byte as a character ("Ġ" is the space), and a character may be divided
between tokens: their bytes are joined before they are decoded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from recordmill.records.errors import visible

WORD_PIECES, BYTES, PIECES = "##", "Ġ", "▁"
_OCTET = re.compile(r"<0x([0-9A-F]{2})>")
_SPECIAL = re.compile(r"<[^<>]+>|\[[A-Z]+\]")


@dataclass(frozen=True, slots=True)
class Spelled:
    """A token as it stands in a sentence.

    Attributes:
      text: of it; "" where its bytes are shown with those of a later token.
      joined: it continues what stands before.
    """

    text: str
    joined: bool


def _octets() -> dict[str, int]:
    """Returns GPT-2's characters of bytes: printable ones are themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


_OCTETS = _octets()


def find_spelling(vocabulary: Sequence[str] | None) -> str:
    """Returns how tokens are spelled: `WORD_PIECES`, `BYTES` or `PIECES`.

    Args:
      vocabulary: the token of each id; None is that of words.
    """
    return WORD_PIECES if vocabulary is None else _find(tuple(vocabulary))


@lru_cache(maxsize=4)
def _find(vocabulary: tuple[str, ...]) -> str:
    # "Ġ" and "▁" are characters as well, of which a vocabulary of another kind may have one or two.
    counts = {
        spelling: sum(token.startswith(spelling) for token in vocabulary)
        for spelling in (WORD_PIECES, BYTES, PIECES)
    }
    return max(counts, key=lambda spelling: counts[spelling])


def spell(tokens: Sequence[str], spelling: str) -> list[Spelled]:
    """Returns each token of a row as it stands in a sentence.

    Args:
      tokens: as the tokenizer's file spells them.
      spelling: from `find_spelling`.
    """
    if spelling == WORD_PIECES:
        return [
            Spelled(visible(token.removeprefix("##")), token.startswith("##")) for token in tokens
        ]
    spelled: list[Spelled] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for token in [*tokens, None]:
        data = None if token is None else _bytes_of(token, spelling)
        if data is None and (broken := decoder.decode(b"", final=True)):
            spelled[-1] = replace(spelled[-1], text=spelled[-1].text + broken)
        if data is not None:
            text = decoder.decode(data)
            spelled.append(Spelled(_visible(text.removeprefix(" ")), not text.startswith(" ")))
        elif token is not None:
            spelled.append(Spelled(visible(token), joined=False))
    return spelled


def is_special(token: str) -> bool:
    """Tells whether a token stands for no text, such as "[CLS]" and "</s>"."""
    return _SPECIAL.fullmatch(token) is not None


def spell_alone(token: str, spelling: str) -> str:
    """Returns a token as it stands in a list: "␣" for spaces; as in the file where it is no text.

    Args:
      token, spelling: as of `spell`.
    """
    if spelling == WORD_PIECES or (data := _bytes_of(token, spelling)) is None:
        return visible(token)
    try:
        return _visible(data.decode("utf-8")).replace(" ", "␣")
    except UnicodeDecodeError:
        return visible(token)


def _bytes_of(token: str, spelling: str) -> bytes | None:
    """Returns the bytes that a token stands for, None for one that stands for no text."""
    if spelling == PIECES and (octet := _OCTET.fullmatch(token)):
        return bytes([int(octet[1], 16)])
    if _SPECIAL.fullmatch(token):
        return None
    if spelling == PIECES:
        return token.replace(PIECES, " ").encode()
    if all(char in _OCTETS for char in token):
        return bytes(_OCTETS[char] for char in token)
    return None


def _visible(text: str) -> str:
    """Returns text on one line, without characters that a terminal would obey."""
    return "".join(
        "⏎" if char == "\n"
        else " " if char.isspace()
        else char if char.isprintable()
        else f"\\u{ord(char):04x}"
        for char in text
    )  # fmt: skip
