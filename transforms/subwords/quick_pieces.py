"""Which SentencePiece models our kernels can do: their parts, translated; None for others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from recordmill.records.arrays import Bools
from recordmill.transforms.subwords import piece_file
from recordmill.transforms.subwords import preparation as prepare
from recordmill.transforms.subwords.best_path import make_pieces
from recordmill.transforms.subwords.piece_file import PieceFile
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.word_models import Model

_MARK = "▁"
_UNKNOWN_PENALTY = 10.0
_NO_IDS = np.zeros(0, np.int32)


def prepare_pieces(file: PieceFile, library: Any) -> Preparation | None:
    """Returns how lines are prepared; None where pairs of ASCII characters are normalized.

    Args:
      file: the model.
      library: its processor.
    """
    if not file.escape_spaces or joins_ascii(file.charsmap):
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


def joins_ascii(charsmap: bytes) -> bool:
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
    """Returns the model of a Unigram; None where a piece goes over words, or is of another kind."""
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
    scores = np.array([score for _, score, _ in file.pieces], np.float64)
    least = np.float32(min(score for _, _, score in normal)) - np.float32(_UNKNOWN_PENALTY)
    pieces = make_pieces(
        [piece.encode() for _, piece, _ in normal], [i for i, _, _ in normal], scores, float(least)
    )
    return Model(
        True, pieces, unknown[0], byte_tokens, True, True,
        max(abs(score) for _, _, score in normal),
    )  # fmt: skip
