"""Which Unigram of a tokenizer.json our kernels can do: its parts, translated; None for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recordmill.records.arrays import Int32s
from recordmill.transforms.subwords import preparation as prepare
from recordmill.transforms.subwords.best_path import make_pieces
from recordmill.transforms.subwords.char_classes import white_space
from recordmill.transforms.subwords.errors import panics_as_errors
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.word_models import Model

_NO_IDS = np.zeros(0, np.int32)
# Normalizers that leave ASCII alone, or change each of its characters alone.
_BY_CHARACTER = (
    "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Precompiled", "Nmt",
)  # fmt: skip
_MARK = "▁"


def prepare_json(
    normalizer: Mapping[str, Any] | None, normalize: Callable[[str], str]
) -> Preparation | None:
    """Returns how a normalizer prepares lines, without what pre-tokenizers do to spaces.

    Args:
      normalizer: of the file.
      normalize: what the library makes of a text.
    """
    if normalizer is None:
        return Preparation()
    parts = list(_parts(normalizer, "normalizers"))
    blanks, spaces, prefix = "", prepare.PLAIN, ""
    for part in parts:
        if part["type"] == "Replace" and part.get("pattern") == {"Regex": " {2,}"}:
            blanks = "double" if part.get("content") == " " else "?"
        elif part["type"] == "Strip":
            blanks = "all"
        elif part == {"type": "Prepend", "prepend": _MARK}:
            prefix = "always"
        elif part == {"type": "Replace", "pattern": {"String": " "}, "content": _MARK}:
            spaces = prepare.MARK_SPACES
        elif part["type"] not in _BY_CHARACTER:
            return None
    if blanks == "?" or (prefix and spaces == prepare.PLAIN):
        return None
    marks = spaces != prepare.PLAIN
    if marks and len(parts) != 1 + bool(prefix):
        return None
    if marks:
        return Preparation(spaces=spaces, prefix=prefix)
    foreign, case = np.ones(256, np.bool_), np.arange(256, dtype=np.uint8)
    for code in range(128):
        form = normalize(chr(code)) if code != 32 else " "
        if form == chr(code) or (chr(code).isupper() and form == chr(code).lower()):
            foreign[code], case[code] = False, ord(form)
    return Preparation(lambda texts: [normalize(t) for t in texts], foreign, blanks, case)


def _parts(content: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """Returns the members of a sequence, also of sequences in it, or the one that there is."""
    if content.get("type") != "Sequence":
        return [content]
    name = name if name in content else "pretokenizers"
    return [part for member in content[name] for part in _parts(member, name)]


def cut_json(
    pre_tokenizer: Mapping[str, Any] | None, preparation: Preparation
) -> tuple[bool, Preparation] | None:
    """Returns whether some "▁" in a row begin one word, and the preparation with its spaces."""
    if pre_tokenizer is None:
        return (True, preparation) if preparation.spaces == prepare.MARK_SPACES else None
    if preparation.spaces != prepare.PLAIN:
        return None
    parts = _parts(pre_tokenizer, "pretokenizers")
    last = parts[-1]
    if (
        last["type"] != "Metaspace"
        or last.get("replacement") != _MARK
        or not last.get("split", True)
    ):
        return None
    scheme = last.get("prepend_scheme", "always" if last.get("add_prefix_space", True) else "never")
    if len(parts) == 1:
        prefix = "" if scheme == "never" else "missing"
        return False, replace(preparation, spaces=prepare.MARK_SPACES, prefix=prefix)
    if len(parts) == 2 and parts[0]["type"] == "WhitespaceSplit" and scheme == "always":
        return False, replace(preparation, spaces=prepare.MARK_WORDS, classes=white_space())
    return None


def _byte_tokens(ids: Mapping[str, int]) -> Int32s:
    """Returns the ids of <0x00> to <0xFF>; none where one is missing."""
    found = [ids.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
    return _NO_IDS if -1 in found else np.array(found, np.int32)


def unigram_json(
    content: Mapping[str, Any], special: frozenset[str], *, runs: bool
) -> Model | None:
    """Returns the model of a Unigram.

    Args:
      content: the file's `model`.
      special: pieces that are never found in text.
      runs: see `Model`.
    """
    vocab: Sequence[tuple[str, float]] = content["vocab"]
    unknown = content.get("unk_id")
    if unknown is None:
        return None
    scores = np.array([score for _, score in vocab], np.float64)
    ids = {piece: i for i, (piece, _) in enumerate(vocab)}
    byte_tokens = _byte_tokens(ids) if content.get("byte_fallback") else _NO_IDS
    if content.get("byte_fallback") and not len(byte_tokens):
        return None
    found = [(piece.encode(), i) for piece, i in ids.items() if piece and piece not in special]
    spelled, numbers = [piece for piece, _ in found], [i for _, i in found]
    pieces = make_pieces(spelled, numbers, scores, float(scores.min()) - 10.0)
    return Model(runs, pieces, int(unknown), byte_tokens, False, False)


def library_normalizer(library: Any) -> Callable[[str], str]:
    """Returns what the library's normalizer makes of a text."""

    def normalize(text: str) -> str:
        with panics_as_errors():
            form: str = library.normalizer.normalize_str(text)
        return form

    return normalize
