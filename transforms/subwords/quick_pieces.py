"""Which SentencePiece models our kernels can do: their parts, translated; None for others."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recordmill.records.arrays import Bools
from recordmill.transforms.subwords import piece_file
from recordmill.transforms.subwords import preparation as prepare
from recordmill.transforms.subwords.best_path import make_pieces
from recordmill.transforms.subwords.merging import Merges, make_merges
from recordmill.transforms.subwords.piece_file import PieceFile
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.quick_json import no_merges
from recordmill.transforms.subwords.word_ends import MARKED_RUNS
from recordmill.transforms.subwords.word_models import BPE, UNIGRAM, Model

_MARK = "▁"
_UNKNOWN_PENALTY = 10.0
_NO_IDS = np.zeros(0, np.int32)


def prepare_pieces(file: PieceFile, library: Any) -> Preparation | None:
    """Returns how lines are prepared; None where pairs of ASCII characters are normalized.

    Args:
      file: the model.
      library: its processor.
    """
    if not file.escape_spaces or _joins_ascii(file.charsmap):
        return None
    blanks = "all" if file.remove_extra_spaces else ""
    prefix = "always" if file.add_dummy_prefix else ""
    return prepare_marked(library.normalize, blanks=blanks, prefix=prefix)


def prepare_marked(normalize: Callable[[Any], Any], *, blanks: str, prefix: str) -> Preparation:
    """Returns how lines are prepared by a normalizer of SentencePiece that writes "▁" for spaces.

    Args:
      normalize: a text, or a list of them, as SentencePiece normalizes it. It must not replace two
        ASCII characters together.
      blanks, prefix: see `Preparation`.
    """
    foreign: Bools = np.ones(256, np.bool_)
    for code in range(32, 127):
        text = f"a{chr(code)}a"
        foreign[code] = normalize(text).endswith(text.replace(" ", _MARK)) is False
    splits_lines = (blanks, prefix, normalize("a\n \nb")) == ("all", "always", "▁a▁b")
    return Preparation(
        normalize, foreign, blanks, spaces=prepare.MARK_SPACES, prefix=prefix, marked=True,
        splits_lines=splits_lines,
    )  # fmt: skip


def _joins_ascii(charsmap: bytes) -> bool:
    """Tells whether rules of normalization replace two ASCII characters together.

    The rules are a double array of Darts-clone, behind its size.
    """
    if not charsmap:
        return False
    (size,) = struct.unpack_from("<I", charsmap)
    units = np.frombuffer(charsmap, "<u4", size // 4, 4)

    def below(node: int, byte: int) -> int:
        unit = int(units[node])
        found = node ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6)) ^ byte
        fits = found < len(units) and int(units[found]) & 0x800000FF == byte
        return found if fits else -1

    firsts = (below(0, code) for code in range(1, 128))
    return any(below(node, code) >= 0 for node in firsts if node >= 0 for code in range(1, 128))


def model_of_pieces(file: PieceFile) -> Model | None:
    """Returns the model; None where a piece goes over words, or is of a kind that is not known."""
    normal = [(i, p, s) for i, (p, s, kind) in enumerate(file.pieces) if kind == piece_file.NORMAL]
    if any(kind == piece_file.UNUSED for _, _, kind in file.pieces) or file.space_is_suffix:
        return None
    if not normal or any(_MARK in piece.lstrip(_MARK) for _, piece, _ in normal):
        return None
    unknown = [i for i, (_, _, kind) in enumerate(file.pieces) if kind == piece_file.UNKNOWN]
    byte_ids = {p: i for i, (p, _, kind) in enumerate(file.pieces) if kind == piece_file.BYTE}
    byte_tokens = _NO_IDS
    if file.byte_fallback:
        found = [byte_ids.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
        byte_tokens = np.array(found, np.int32)
    if len(unknown) != 1 or -1 in byte_tokens:
        return None
    is_bpe = file.model_type == piece_file.BPE
    scores = np.array([score for _, score, _ in file.pieces], np.float64)
    least = np.float32(min(score for _, _, score in normal)) - np.float32(_UNKNOWN_PENALTY)
    pieces = make_pieces(
        [piece.encode() for _, piece, _ in normal], [i for i, _, _ in normal], scores, float(least)
    )
    return Model(
        BPE if is_bpe else UNIGRAM, MARKED_RUNS, np.zeros(1, np.uint8),
        merges_of_pieces(normal, len(file.pieces)) if is_bpe else no_merges(), pieces, False,
        len(file.pieces), unknown[0], byte_tokens, True, True, not is_bpe,
        max(abs(score) for _, _, score in normal),
    )  # fmt: skip


def merges_of_pieces(pieces: Sequence[tuple[int, str, float]], num_ids: int) -> Merges:
    """Returns which pairs of pieces are a piece, in order of its score.

    Args:
      pieces: id, spelling and score of each.
      num_ids: of the model. A character that is in pieces and is none gets a symbol from there on.
    """
    symbols = {piece: i for i, piece, _ in pieces}
    for _, piece, _ in pieces:
        for char in piece:
            symbols.setdefault(char, num_ids + len(symbols))
    ranks: dict[float, int] = defaultdict(lambda: len(ranks))
    found = []
    for i, piece, score in sorted(pieces, key=lambda row: -row[2]):
        rank = ranks[score]
        for cut in range(1, len(piece)):
            left, right = symbols.get(piece[:cut]), symbols.get(piece[cut:])
            if left is not None and right is not None:
                found.append((left, right, rank, i))
    char_ids = np.full(0x110000, -1, np.int32)
    for text, number in symbols.items():
        if len(text) == 1:
            char_ids[ord(text)] = number
    pairs = np.array(found, np.int64).reshape(-1, 4)
    return make_merges(pairs, byte_ids=_NO_IDS, char_ids=char_ids)
