"""What a SentencePiece .model says, read from its bytes (`sentencepiece_model.proto`).

The file is a protocol buffer, whose few fields are read here, because what Python classes there are
for it need another release of protobuf than Beam and TensorFlow do.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class PieceFile:
    """A model.

    Attributes:
      pieces: spelling, score and type of each id.
      model_type: `UNIGRAM`, `BPE`, or another that is not supported.
      space_is_suffix: of "treat_whitespace_as_suffix".
      byte_fallback: characters without a piece become bytes.
      charsmap: the compiled rules of normalization.
      add_dummy_prefix, remove_extra_spaces, escape_spaces: of the normalizer.
    """

    pieces: list[tuple[str, float, int]] = field(default_factory=list)
    model_type: int = UNIGRAM
    space_is_suffix: bool = False
    byte_fallback: bool = False
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_spaces: bool = True
    escape_spaces: bool = True


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields number and value of each field of a message.

    Raises:
      ValueError, IndexError: these bytes are no message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind not in (_FIXED64, _BYTES, _FIXED32):
            raise ValueError(f"a field of the unknown kind {kind}")
        size = 8 if kind == _FIXED64 else 4
        if kind == _BYTES:
            size, at = _varint(data, at)
        if at + size > len(data):
            raise ValueError("it is cut")
        yield key >> 3, data[at : at + size]
        at += size


def _piece(data: bytes) -> tuple[str, float, int]:
    found = dict(_fields(data))
    score = found.get(2, bytes(4))
    kind = found.get(3, NORMAL)
    if not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("a piece without score or type")
    return _bytes(found.get(1, b"")).decode("utf-8"), struct.unpack("<f", score)[0], kind


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where a message belongs")
    return value


def read_piece_file(data: bytes) -> PieceFile:
    """Reads a .model.

    Raises:
      ValueError: it is none.
    """
    try:
        return _read(data)
    except (IndexError, struct.error) as error:
        raise ValueError("it is cut") from error


def _read(data: bytes) -> PieceFile:
    pieces = []
    parts: dict[int, dict[int, int | bytes]] = {2: {}, 3: {}}
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(_bytes(value)))
        elif number in parts:
            parts[number] = dict(_fields(_bytes(value)))
    trainer, normalizer = parts[2], parts[3]
    if not pieces:
        raise ValueError("it has no pieces")
    return PieceFile(
        pieces,
        model_type=int(trainer.get(3, UNIGRAM)),
        space_is_suffix=bool(trainer.get(24, 0)),
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=_bytes(normalizer.get(2, b"")),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_spaces=bool(normalizer.get(4, 1)),
        escape_spaces=bool(normalizer.get(5, 1)),
    )
