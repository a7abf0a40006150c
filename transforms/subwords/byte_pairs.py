"""BPE of a tokenizer.json by `fastokens`, wherever it gives the ids of `tokenizers`.

`fastokens` is thirty to a hundred times as fast, and young. So it is taken only for a tokenizer for
which both gave the same ids when the job was planned: of lines that tokenizers differ on, here, and
of a sample of the corpus. Else `tokenizers` does all lines, and the ids are the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from recordmill.records.arrays import Bools, Int64s
from recordmill.transforms.sources.lines import Lines
from recordmill.transforms.subwords.errors import panics_as_errors
from recordmill.transforms.subwords.library_lines import batches
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.subwords.tokenizer import LineTokenizer, Tokens

_PARTS = (
    "the", " the", "The", " WATER", "'s", "'S", "'ſ", "'ll", "'", "''", " '", "don't", "we've",
    "naïve", "é", "e\u0301", "中文", "のの", "한국", "ß", "🙂", " ", "  ", "   ", "\t", "\n",
    "\r\n", "\n\n ", "\u3000", "\xa0", "\u2028", "\x85", "\x1c", "\x00", "\x7f", "-", "...",
    "!!\n", "12", "12345", " 1984", "Ⅷ", "²", "٣٤", "▁", "▁▁", "▁the", "\u200b", "\ufeff", "ﬁ",
    "…", "Ａ", "aaaaaaa", "abababab", "----------", "x" * 300, "é" * 200, "ab", "<", "unk>",
    "def x():\n    return", "ǅ", "ʰ", "์", "किताब", "שלום", "مرحبا", "привет", "\U0001f9d1\u200d🚀",
)  # fmt: skip
_AWKWARD_LINES = 600
_COMPARED = 20  # lines at once
ALL, UNSPELLED = "all", "unspelled"


class BytePairs:
    """`QuickLines` of a BPE; a line with which the library fails is doubtful.

    Args:
      data: of a tokenizer.json.
      allow_special_tokens: it finds special tokens in text.

    Raises:
      ValueError: fastokens cannot do such a file.
    """

    def __init__(self, data: bytes, *, allow_special_tokens: bool) -> None:
        from fastokens import Tokenizer

        with panics_as_errors():
            self._library: Any = Tokenizer.from_json_str(data.decode("utf-8"))
        self._library.no_truncation()
        self._library.no_padding()
        self._as_text = not allow_special_tokens

    def clear(self) -> None:
        """Does nothing: what the library remembers is bounded."""

    def tokenize(self, lines: Lines) -> tuple[Tokens, Bools]:
        """See `QuickLines`."""
        ids, sizes = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        doubtful = np.zeros(len(lines), np.bool_)
        for begin, end in batches(lines):
            texts = [lines[i].decode("utf-8") for i in range(begin, end)]
            for flat, splits in self._encode(texts, doubtful[begin:end]):
                ids.append(np.frombuffer(flat, np.int32))
                bounds: Int64s = np.frombuffer(splits, np.int64)
                sizes.append(bounds[1:] - bounds[:-1])
        row_splits = np.zeros(len(lines) + 1, np.int64)
        np.cumsum(np.concatenate(sizes), out=row_splits[1:])
        return Tokens(np.concatenate(ids), row_splits), doubtful

    def _encode(self, texts: list[str], doubtful: Bools) -> Iterator[tuple[bytes, bytes]]:
        """Yields ids and splits of texts, none of those with which the library fails."""
        try:
            with panics_as_errors():
                found = self._library.encode_batch_flat(texts, False, self._as_text)
            yield found
        except Exception:  # such as a regular expression that needs too much stack
            if len(texts) > 1:
                for i, text in enumerate(texts):
                    yield from self._encode([text], doubtful[i : i + 1])
                return
            doubtful[0] = True
            yield b"", bytes(16)


def quick_pairs(
    pairs: BytePairs, library: Callable[[], LineTokenizer], spellings: Sequence[str], lines: str
) -> QuickTokenizer:
    """Returns a tokenizer by fastokens.

    Args:
      pairs: of the file.
      library: returns one by `tokenizers`.
      spellings: of all added tokens, and of others that look like such, as <0x0A>.
      lines: which fastokens does: `ALL`, or `UNSPELLED`: those in which no added token is spelled.
    """
    return QuickTokenizer(pairs, Preparation(), library, spellings if lines == UNSPELLED else ())


def lines_of_fastokens(
    pairs: BytePairs, library: LineTokenizer, spellings: Sequence[str], texts: Sequence[str]
) -> str:
    """Returns which lines fastokens gives the ids of `tokenizers` for: see `quick_pairs`, or "".

    Args:
      pairs, spellings: see `quick_pairs`.
      library: by `tokenizers`.
      texts: of the corpus, on which they are compared beside awkward lines.
    """
    for lines in (ALL, UNSPELLED):
        tokenizer = quick_pairs(pairs, lambda: library, spellings, lines)
        if agree(tokenizer, library, [*awkward_lines(spellings), *texts]):
            return lines
    return ""


def agree(tokenizer: LineTokenizer, library: LineTokenizer, texts: Sequence[str]) -> bool:
    """Returns whether two tokenizers give texts the same ids."""
    for begin in range(0, len(texts), _COMPARED):  # `tokenizers` takes 500 bytes a token
        lines = Lines.from_list([text.encode() for text in texts[begin : begin + _COMPARED]])
        try:
            ours, theirs = tokenizer.tokenize(lines), library.tokenize(lines)
        except Exception:  # a fault of a library, whatever it is
            return False
        same_rows = np.array_equal(ours.row_splits, theirs.row_splits)
        if not same_rows or not np.array_equal(ours.ids, theirs.ids):
            return False
    return True


def awkward_lines(spellings: Sequence[str]) -> Iterator[str]:
    """Yields lines that tokenizers differ on, the same in every process.

    Args:
      spellings: see `quick_pairs`.
    """
    rng = random.Random(0)
    parts = [*_PARTS, *(rng.sample(spellings, 50) if len(spellings) > 50 else spellings)]
    yield from ("", *parts)
    for _ in range(_AWKWARD_LINES):
        yield "".join(rng.choices(parts, k=rng.randint(2, 12)))
    for begin in range(0, 0x3000, 64):  # and characters of all scripts
        yield "".join(f"{chr(code)}a {chr(code)}" for code in range(begin, begin + 64))


@cache
def byte_letters() -> dict[str, int]:
    """Returns the characters that stand for bytes in byte-level models."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in shown}
    others = [byte for byte in range(256) if byte not in set(shown)]
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}
