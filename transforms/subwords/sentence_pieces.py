"""SentencePiece's .model: Unigram and BPE (Kudo and Richardson 2018, arXiv:1808.06226)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece import SentencePieceProcessor

from recordmill.records.arrays import Bools
from recordmill.transforms.subwords import piece_file
from recordmill.transforms.subwords.errors import unusable
from recordmill.transforms.subwords.library_lines import LibraryTokenizer
from recordmill.transforms.subwords.piece_file import PieceFile, read_piece_file
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.quick import QuickTokenizer
from recordmill.transforms.subwords.quick_pieces import joins_ascii, model_of_pieces, prepare_pieces
from recordmill.transforms.subwords.remembered import WordMemoryTokenizer
from recordmill.transforms.subwords.tokenizer import LineTokenizer, SpecialTokens
from recordmill.transforms.subwords.word_models import Model

# Releases whose rounding of scores is that of our kernels: see `best_path.py`. With another one, a
# Unigram is the library's affair: slower, but never other ids than the library's.
KNOWN_ROUNDING = ("0.2.3",)
_PART_CHARS = 1 << 18
_SPACE = re.compile("(?<=[A-Za-z]) (?=[A-Za-z])")
_KINDS = {piece_file.UNIGRAM: "unigram", piece_file.BPE: "bpe"}


@dataclass(frozen=True)
class PieceTokenizer:
    """A .model of SentencePiece.

    Attributes:
      data: the file's content.
      source: its path.

    Raises:
      UsageError: it is none, or of another kind than Unigram and BPE.
    """

    data: bytes
    source: str
    stored_name: str = "spiece.model"

    def __post_init__(self) -> None:
        if self.file.model_type not in _KINDS:
            raise unusable(self.source, "its model_type is neither unigram nor bpe")

    @cached_property
    def file(self) -> PieceFile:
        """The content of the file."""
        try:
            return read_piece_file(self.data)
        except ValueError as error:
            raise unusable(self.source, f"of a SentencePiece model, {error}") from error

    @property
    def kind(self) -> str:
        """See `Tokenizer`."""
        return _KINDS[self.file.model_type]

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """See `Tokenizer`."""
        return tuple(piece for piece, _, _ in self.file.pieces)

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """See `Tokenizer`."""
        return {token: i for i, token in enumerate(self.tokens)}

    @cached_property
    def special(self) -> SpecialTokens:
        """See `Tokenizer`: by spelling, and as the model itself says it."""
        found = SpecialTokens.find(self._special_ids)
        library = self.library()
        said = {
            "pad_id": library.pad_id(), "unknown_id": library.unk_id(),
            "begin_of_text_id": library.bos_id(), "end_of_text_id": library.eos_id(),
        }  # fmt: skip
        return replace(found, **{role: i for role, i in said.items() if i >= 0})

    @cached_property
    def _special_ids(self) -> dict[str, int]:
        kinds = (piece_file.CONTROL, piece_file.UNKNOWN, piece_file.USER_DEFINED)
        return {p: i for i, (p, _, kind) in enumerate(self.file.pieces) if kind in kinds}

    @cached_property
    def checksum(self) -> str:
        """See `Tokenizer`."""
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()

    @cached_property
    def continues_word(self) -> Bools:
        """See `Tokenizer`: words begin at spaces."""
        special = self._special_ids
        return np.array([t not in special and not t.startswith("▁") for t in self.tokens])

    @property
    def share_of_capitals(self) -> float | None:
        """None: the model says itself whether text is lower-cased."""
        return None

    def __len__(self) -> int:
        return len(self.tokens)

    def library(self) -> Any:
        """Returns the processor of `sentencepiece`.

        Raises:
          UsageError: the library cannot read the file.
        """
        return _load(self)

    def start(self, *, lower_case: bool, allow_special_tokens: bool = False) -> LineTokenizer:
        """See `Tokenizer`."""
        library = self.library()
        lines_of = LibraryTokenizer(
            (lambda lines: [self._encode_special(library, line) for line in lines])
            if allow_special_tokens
            else self._encode
        )
        if self.kind == "bpe" or sentencepiece.__version__ not in KNOWN_ROUNDING:
            return lines_of
        preparation, model = _translate(self)
        if preparation is None or model is None:
            return lines_of
        kinds = {piece_file.USER_DEFINED}
        if allow_special_tokens:
            kinds |= {piece_file.CONTROL, piece_file.UNKNOWN}
        spellings = [piece for piece, _, kind in self.file.pieces if kind in kinds]
        return QuickTokenizer(
            WordMemoryTokenizer(model), preparation, lambda: lines_of, spellings,
            searches_prepared=True,
        )  # fmt: skip

    def _encode(self, lines: list[str]) -> list[list[int]]:
        """Encodes lines; of a BPE, long ones in parts: the library takes 40 bytes for a byte."""
        library = self.library()
        if max(map(len, lines), default=0) <= _PART_CHARS or not self._cuts_at_spaces:
            encoded: list[list[int]] = library.encode(lines)
            return encoded
        return [
            [i for part in _parts(line) for i in library.encode(part)]
            if len(line) > _PART_CHARS
            else library.encode(line)
            for line in lines
        ]

    @cached_property
    def _cuts_at_spaces(self) -> bool:
        """Whether a line has the tokens of its words, each with the space before it, as a BPE.

        The sums of a Unigram depend on what stands before.
        """
        file = self.file
        kinds = (piece_file.NORMAL, piece_file.USER_DEFINED)
        words = all(
            "▁" not in p[1:] and " " not in p for p, _, kind in file.pieces if kind in kinds
        )
        spaces = file.escape_spaces and file.add_dummy_prefix and not file.space_is_suffix
        return self.kind == "bpe" and words and spaces and not joins_ascii(file.charsmap)

    def _encode_special(self, library: Any, line: str) -> list[int]:
        """Encodes the text between control symbols, which become their ids."""
        ids: list[int] = []
        for part in self._control.split(line):
            if part in self._special_ids:
                ids.append(self._special_ids[part])
            elif part:
                ids += library.encode(part)
        return ids

    @cached_property
    def _control(self) -> re.Pattern[str]:
        """Matches the control symbols; user-defined symbols are found by the library anyway."""
        kinds = (piece_file.CONTROL, piece_file.UNKNOWN)
        spelled = [re.escape(piece) for piece, _, kind in self.file.pieces if kind in kinds]
        return re.compile(f"({'|'.join(sorted(spelled, key=len, reverse=True))})")

    def decode(self, ids: Iterable[int]) -> str:
        """See `Tokenizer`."""
        text: str = self.library().decode(list(ids))
        return text


def _parts(line: str) -> Iterator[str]:
    """Yields parts of a long line, without the space between two ASCII words that it is cut at."""
    begin = 0
    while match := _SPACE.search(line, begin + _PART_CHARS):
        yield line[begin : match.start()]
        begin = match.end()
    yield line[begin:]


@lru_cache(maxsize=1)
def _load(tokenizer: PieceTokenizer) -> Any:
    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(tokenizer.data)
    except RuntimeError as error:
        raise unusable(tokenizer.source, error) from error
    return processor


@lru_cache(maxsize=1)
def _translate(tokenizer: PieceTokenizer) -> tuple[Preparation | None, Model | None]:
    """Returns the parts of a tokenizer for kernels; a job starts its tokenizer more than once."""
    return prepare_pieces(tokenizer.file, _load(tokenizer)), model_of_pieces(tokenizer.file)
