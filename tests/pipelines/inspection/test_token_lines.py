"""Rows of tokens as text: what masks hide, segments, packed documents, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_lines import token_features, token_lines

VOCABULARY = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "sat",
    "##ting",
    "dog",
    "on",
    "mat",
]


def row(*tokens: str, length: int = 16) -> Any:
    ids = [VOCABULARY.index(token) for token in tokens]
    return np.array(ids + [0] * (length - len(ids)))


def shown(values: dict[str, Any], *, colors: bool = False, words: bool = True) -> list[str]:
    vocabulary = VOCABULARY if words else None
    return [
        f"{heading}: {text}"
        for name in token_features(values)
        for heading, text in token_lines(values, name, vocabulary, Style(colors))
    ]


PAIR = {
    "input_ids": row("[CLS]", "the", "[MASK]", "dog", "[SEP]", "on", "the", "mat", "[SEP]"),
    "segment_ids": np.array([0] * 5 + [1] * 4 + [0] * 7),
    "input_mask": np.array([1] * 9 + [0] * 7),
    "masked_lm_positions": np.array([2, 3, 7, 0]),
    "masked_lm_ids": np.array([5, 6, 10, 0]),
    "masked_lm_weights": np.array([1.0, 1.0, 1.0, 0.0], np.float32),
}


def test_masks_segments_and_padding() -> None:
    assert shown(PAIR) == [
        "input_ids 0: [CLS] the [MASK→cat] [dog→sat] [SEP]",
        "input_ids 1: on the [mat] [SEP]",
        ": …7",
    ]


def test_colors_only_mark() -> None:
    colored = "\n".join(shown(PAIR, colors=True))
    assert "\x1b[1;33m[MASK→cat]\x1b[0m" in colored
    assert "\x1b[1;31m[dog→sat]\x1b[0m" in colored
    assert "\x1b[1;32m[mat]\x1b[0m" in colored


def test_ids_without_a_vocabulary() -> None:
    assert shown(PAIR, words=False)[0] == "input_ids 0: 1 4 [3→5] [8→6] 2"


def test_word_pieces_are_joined() -> None:
    assert shown({"input_ids": row("the", "sat", "##ting", "cat")})[0] == (
        "input_ids: the satting cat"
    )
    tokens = {"tokens": [b"[CLS]", b"sat", b"##ting", b"[SEP]"]}
    assert shown(tokens) == ["tokens: [CLS] satting [SEP]"]


def test_documents_of_a_packed_row() -> None:
    packed = {
        "targets": row("the", "cat", "sat", "the", "dog", "on"),
        "targets_segmentation": np.array([1, 1, 1, 2, 2, 3] + [0] * 10),
    }
    assert shown(packed) == [
        "targets 1: the cat sat", "targets 2: the dog", "targets 3: on", ": …10",
    ]  # fmt: skip


def test_a_few_labels_are_no_tokens() -> None:
    assert token_features({"labels": np.array([3, 4])}) == []
