"""Which tokenizer.json our kernels can do: its parts, translated; None where one is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from recordmill.records.arrays import Bytes, Int32s
from recordmill.transforms.subwords import preparation as prepare
from recordmill.transforms.subwords import word_ends
from recordmill.transforms.subwords.best_path import make_pieces
from recordmill.transforms.subwords.char_classes import char_classes, white_space
from recordmill.transforms.subwords.merging import make_merges
from recordmill.transforms.subwords.preparation import Preparation
from recordmill.transforms.subwords.word_models import BPE, UNIGRAM, Model

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
) -> tuple[int, Preparation, bool] | None:
    """Returns how words are cut, the preparation with its spaces, and whether bytes are symbols."""
    if pre_tokenizer is None:
        marked = preparation.spaces == prepare.MARK_SPACES
        return (word_ends.MARKED_RUNS, preparation, False) if marked else None
    if preparation.spaces != prepare.PLAIN:
        return None
    parts = _parts(pre_tokenizer, "pretokenizers")
    if parts[-1]["type"] == "ByteLevel":
        return _cut_bytes(parts, preparation)
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
        return (
            word_ends.MARKED,
            replace(preparation, spaces=prepare.MARK_SPACES, prefix=prefix),
            False,
        )
    if len(parts) == 2 and parts[0]["type"] == "WhitespaceSplit" and scheme == "always":
        classes = white_space()
        prepared = replace(preparation, spaces=prepare.MARK_WORDS, classes=classes)
        return word_ends.MARKED, prepared, False
    return None


def _cut_bytes(
    parts: Sequence[Mapping[str, Any]], preparation: Preparation
) -> tuple[int, Preparation, bool] | None:
    last = parts[-1]
    if last.get("add_prefix_space", True):
        preparation = replace(preparation, spaces=prepare.PREFIX_SPACE)
    if len(parts) == 1 and last.get("use_regex", True):
        return word_ends.GPT2, preparation, True
    first = parts[0]
    if len(parts) != 2 or first["type"] != "Split" or last.get("use_regex", True):
        return None
    if first.get("behavior") != "Isolated" or first.get("invert"):
        return None
    cut = word_ends.PATTERNS.get(str(first.get("pattern", {}).get("Regex")))
    if cut is None or last.get("add_prefix_space", True):
        return None
    return cut, preparation, True


@cache
def byte_letters() -> dict[str, int]:
    """Returns the characters that stand for bytes in byte-level models."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in shown}
    others = [byte for byte in range(256) if byte not in set(shown)]
    return letters | {chr(256 + i): byte for i, byte in enumerate(others)}


def _byte_tokens(ids: Mapping[str, int]) -> Int32s:
    """Returns the ids of <0x00> to <0xFF>; none where one is missing."""
    found = [ids.get(f"<0x{byte:02X}>", -1) for byte in range(256)]
    return _NO_IDS if -1 in found else np.array(found, np.int32)


def _never_across_words(tokens: Sequence[str]) -> bool:
    """Tells whether "▁" is only at the beginning of tokens."""
    return not any(_MARK in token.lstrip(_MARK) for token in tokens)


def bpe_json(content: Mapping[str, Any], cut: int, *, by_bytes: bool) -> Model | None:
    """Returns the model of a BPE.

    Args:
      content: the file's `model`.
      cut: how words are cut.
      by_bytes: symbols are bytes.
    """
    ids: dict[str, int] = content["vocab"]
    unknown = content.get("unk_token")
    if content.get("end_of_word_suffix") or content.get("continuing_subword_prefix"):
        return None
    byte_ids, char_ids, byte_tokens = _NO_IDS, _NO_IDS, _NO_IDS
    if by_bytes:
        byte_ids = np.full(256, -1, np.int32)
        for letter, byte in byte_letters().items():
            byte_ids[byte] = ids.get(letter, -1)
        if unknown is not None and (byte_ids < 0).any():
            return None
    else:
        if content.get("ignore_merges") or not _never_across_words(list(ids)):
            return None
        char_ids = chars_of(ids)
        byte_tokens = _byte_tokens(ids) if content.get("byte_fallback") else _NO_IDS
        if not len(byte_tokens) and (unknown is None or content.get("byte_fallback")):
            return None
    pairs = np.empty((len(content["merges"]), 4), np.int64)
    for rank, merge in enumerate(content["merges"]):
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        pairs[rank] = ids[left], ids[right], rank, ids[left + right]
    whole_words = bool(content.get("ignore_merges"))
    vocabulary = [(b" ", 0)]
    if whole_words:
        letters = byte_letters()
        vocabulary = [
            (bytes(letters[c] for c in token), i)
            for token, i in ids.items()
            if token and all(c in letters for c in token)
        ]
    return Model(
        BPE, cut, char_classes(), make_merges(pairs, byte_ids=byte_ids, char_ids=char_ids),
        make_pieces([t for t, _ in vocabulary], [i for _, i in vocabulary], np.zeros(1), 0.0),
        whole_words, max(ids.values()) + 1, -1 if unknown is None else ids[unknown], byte_tokens,
        bool(content.get("fuse_unk")), False, False,
    )  # fmt: skip


def chars_of(ids: Mapping[str, int]) -> Int32s:
    """Returns the id of each character that is a token, `[1114112] int32`, -1 for none."""
    char_ids = np.full(0x110000, -1, np.int32)
    for token, token_id in ids.items():
        if len(token) == 1:
            char_ids[ord(token)] = token_id
    return char_ids


def no_merges() -> Any:
    """Returns the merges of a model that has none."""
    return make_merges(np.zeros((0, 4), np.int64), byte_ids=_NO_IDS, char_ids=_NO_IDS)


def unigram_json(content: Mapping[str, Any], cut: int, special: frozenset[str]) -> Model | None:
    """Returns the model of a Unigram.

    Args:
      content: the file's `model`.
      cut: how words are cut.
      special: pieces that are never found in text.
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
    classes: Bytes = np.zeros(1, np.uint8)
    return Model(
        UNIGRAM, cut, classes, no_merges(),
        make_pieces(spelled, numbers, scores, float(scores.min()) - 10.0), False, len(vocab),
        int(unknown), byte_tokens, True, False, False,
    )  # fmt: skip


def library_normalizer(library: Any) -> Callable[[str], str]:
    """Returns what the library's normalizer makes of a text."""

    def normalize(text: str) -> str:
        form: str = library.normalizer.normalize_str(text)
        return form

    return normalize
