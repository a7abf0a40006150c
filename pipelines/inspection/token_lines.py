"""Records of tokens as text for people: what masks hide, segments, documents of packed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from recordmill.pipelines.inspection.styles import Style

LEGEND = (
    "[MASK→word] hides word, [other→word] replaces it, [word] is predicted and kept; "
    "…n is n times padding"
)
# Rows of token ids, and the feature that says which segment or document each token belongs to.
_ROWS = {
    "input_ids": "segment_ids",
    "input_word_ids": "input_type_ids",
    "tokens": "",
    "inputs": "inputs_segmentation",
    "targets": "targets_segmentation",
    "labels": "",
    "encoder_input_ids": "",
    "decoder_input_ids": "",
}
# Features of rows -> the feature that is 1 on their padding, in Cerebras' form of T5.
_PADDING = {
    "encoder_input_ids": "encoder_mask",
    "decoder_input_ids": "decoder_mask",
    "labels": "decoder_mask",
}
_LENGTHS = ("input_mask", "attention_mask")
_SHORT = 16  # a feature with fewer values, such as a class of `labels`, is no row of tokens


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    group: int  # of its segment or document
    joined: bool  # it continues the word before


def token_features(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of the features that are rows of tokens."""
    return [
        name
        for name in _ROWS
        if name in values
        and (isinstance(values[name], list) or _is_row(values[name]))
        and np.ndim(values[name]) == 1
    ]


def _is_row(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "i" and len(value) >= _SHORT


def token_lines(
    values: Mapping[str, Any], name: str, vocabulary: Sequence[str] | None, style: Style
) -> Iterator[tuple[str, str]]:
    """Yields a heading and the text of each segment of a row.

    Args:
      values: feature -> values, as `parse_any` returns them.
      name: of the feature with the row, one of `token_features`.
      vocabulary: the token of each id; None shows ids.
      style: of the output.
    """
    row = values[name]
    word = _word_of(vocabulary)
    groups = values.get(_ROWS[name], ())
    length = row_length(values, name)
    marks = _marks(values, word, style) if name in ("input_ids", "input_word_ids") else {}
    tokens = []
    for position, token in enumerate(row[:length]):
        text = word(token)
        joined = text.startswith("##") and position not in marks
        shown = marks[position](text) if position in marks else text.removeprefix("##" * joined)
        group = int(groups[position]) if len(groups) > position else 0
        tokens.append(_Token(shown, group, joined))
    several = len({token.group for token in tokens}) > 1
    for group, members in groupby(tokens, key=lambda token: token.group):
        yield f"{name} {group}" if several else name, _sentence(members)
    if len(row) > length:
        yield "", f"…{len(row) - length}"


def _word_of(vocabulary: Sequence[str] | None) -> Callable[[Any], str]:
    def word(token: Any) -> str:
        if isinstance(token, bytes):
            return token.decode("utf-8", "replace")
        if vocabulary is None or not 0 <= int(token) < len(vocabulary):
            return str(int(token))
        return vocabulary[int(token)]

    return word


def row_length(values: Mapping[str, Any], name: str) -> int:
    """Returns the number of tokens in a row, without the padding at its end."""
    row, groups = values[name], values.get(_ROWS[name], ())
    padding = values.get(_PADDING.get(name, ""), ())
    if len(padding) and len(padding) == len(row):
        return int(np.count_nonzero(np.asarray(padding) == 0))
    if name in ("input_ids", "labels") and "labels" in values and "input_mask" in values:
        # Of causal models the mask is 1 where there is a label, so the last token has none.
        labelled = np.flatnonzero(values["input_mask"])
        last = int(labelled[-1]) + 1 if len(labelled) else 0
        return min(last + 1, len(row)) if name == "input_ids" else last
    for mask in _LENGTHS:
        if name.startswith("input") and len(values.get(mask, ())) == len(row):
            return int(np.count_nonzero(values[mask]))
    if name.endswith(("puts", "gets")) and len(groups) == len(row):
        return int(np.count_nonzero(groups))
    if isinstance(row, list):
        return len(row)
    return int(np.flatnonzero(row)[-1]) + 1 if np.any(row) else 0


def _marks(
    values: Mapping[str, Any], word: Callable[[Any], str], style: Style
) -> dict[int, Callable[[str], str]]:
    """Returns, for each predicted position, what shows the token there and the one it hides."""
    positions = values.get("masked_lm_positions", ())
    hidden = values.get("masked_lm_ids", ())
    weights = values.get("masked_lm_weights", np.ones(len(positions)))
    return {
        int(position): _mark(word(token), style)
        for position, token, weight in zip(positions, hidden, weights, strict=False)
        if weight
    }


def _mark(hidden: str, style: Style) -> Callable[[str], str]:
    def show(text: str) -> str:
        if text == hidden:
            return style("kept", f"[{text}]")
        if text == "[MASK]":
            return style("hidden", f"[MASK→{hidden}]")
        return style("replaced", f"[{text}→{hidden}]")

    return show


def _sentence(tokens: Iterator[_Token]) -> str:
    return "".join(token.text if token.joined else f" {token.text}" for token in tokens).strip()
