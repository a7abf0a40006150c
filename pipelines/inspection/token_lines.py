"""Records of tokens as text for people: what masks hide, segments, documents of packed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from recordmill.pipelines.inspection.spellings import (
    WORD_PIECES,
    Spelled,
    find_spelling,
    is_special,
    spell,
)
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_form import UNKNOWN_FORM, TokenForm
from recordmill.records.errors import visible

_LEGEND_SPANS = "[<0>→words] is sentinel 0, and the words of the targets that it stands for"
_LEGEND = "[MASK→word] hides word, [other→word] replaces it, [word] is predicted and kept"
_LEGEND_OF_IDS = (
    "[id→hidden] is on a predicted position and stands for the token hidden, [id] is predicted and "
    "kept; --vocab_file shows words instead of ids"
)
_LEGEND_PIECES = {
    True: "##x, beside a mark or a special token, continues the word before it",
    False: "what stands without a space behind a mark continues the word before it",
}
_PADDING_LEGEND = "…n is n times padding"
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
_DECODER_ROWS = ("decoder_input_ids",)
_LENGTHS = ("input_mask", "attention_mask")
_SHORT = 16  # a feature with fewer values, such as a class of `labels`, is no row of tokens


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    group: int  # of its segment or document
    joined: bool  # it continues the word before
    closed: bool  # a mark or a special token: what continues it is no part of its text


def token_features(values: Mapping[str, Any], form: TokenForm = UNKNOWN_FORM) -> list[str]:
    """Returns the names of the features that are rows of tokens.

    Args:
      values: feature -> values, as `parse_any` returns them.
      form: of the dataset. Where it is unknown, rows are long, or have the spans of T5.
    """
    names = [name for name in _ROWS if name in values and name not in form.kept]
    if form.rows:
        return [name for name in names if name != "labels" or form.labels]
    spans = ("inputs", "targets") if find_spans(values) else ()
    return [
        name
        for name in names
        if (isinstance(values[name], list) or _is_row(values[name]) or name in spans)
        and np.ndim(values[name]) == 1
    ]


def legend_lines(
    shown: Sequence[Mapping[str, Any]],
    vocabulary: Sequence[str] | None,
    form: TokenForm = UNKNOWN_FORM,
) -> list[str]:
    """Returns what the marks in the text of some records mean.

    Args:
      shown: the values of each record.
      vocabulary, form: as of `token_lines`.
    """
    lines = []
    masks = any("masked_lm_positions" in values for values in shown)
    spans = any(find_spans(values, form) for values in shown)
    if masks:
        lines.append(_LEGEND_OF_IDS if vocabulary is None else _LEGEND)
    if spans:
        lines.append(_LEGEND_SPANS)
    if (masks or spans) and vocabulary is not None:
        lines.append(_LEGEND_PIECES[find_spelling(vocabulary) == WORD_PIECES])
    return [*lines, _PADDING_LEGEND] if masks else lines


def find_spans(values: Mapping[str, Any], form: TokenForm = UNKNOWN_FORM) -> dict[int, list[int]]:
    """Returns each sentinel of a record of T5, and the tokens of the targets that it stands for.

    The end of the targets is part of no span. Where the form has no sentinels, targets begin with
    one, which is in the inputs once; the next ones count down from it, or up, in both rows. {}
    where the rows of a record are not so.

    Args:
      values: feature -> values, as `parse_any` returns them.
      form: of the dataset.
    """
    if form.sentinels:
        return _known_spans(values, form)
    inputs, targets = (values.get(name, ()) for name in ("inputs", "targets"))
    if isinstance(inputs, list) or isinstance(targets, list) or not len(inputs) or not len(targets):
        return {}
    found = max((_spans(inputs.tolist(), targets.tolist(), step) for step in (-1, 1)), key=len)
    if found and found[last := next(reversed(found))][-1:] == [int(inputs[-1])]:
        found[last].pop()  # both rows have the end of text
    return found


def _known_spans(values: Mapping[str, Any], form: TokenForm) -> dict[int, list[int]]:
    """Returns the spans of a row whose sentinels are known: its targets always end with the end."""
    name = form.span_rows[1]
    targets = values.get(name, ())
    if isinstance(targets, list) or not len(targets):
        return {}
    length = len(targets) if name == "targets" else row_length(values, name)
    found: dict[int, list[int]] = {}
    sentinels = iter(form.sentinels)
    expected = next(sentinels)
    for token in targets[: length - 1].tolist():
        if token == expected:
            found[token] = []
            expected = next(sentinels, -1)
        elif not found:
            return {}
        else:
            found[next(reversed(found))].append(token)
    return found


def _spans(inputs: list[int], targets: list[int], step: int) -> dict[int, list[int]]:
    given = set(inputs)
    found: dict[int, list[int]] = {}
    sentinel = targets[0]
    for token in targets:
        if token == sentinel and (token in given or found):
            found[token] = []
            sentinel += step
        elif not found:
            return {}
        else:
            found[next(reversed(found))].append(token)
    shared = [token for token in inputs if token in found]
    stands = len(found) > 1 and any(found.values()) and 0 < len(shared) < len(inputs)
    return found if stands and shared == list(found)[: len(shared)] else {}


def _is_row(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "i" and len(value) >= _SHORT


def token_lines(
    values: Mapping[str, Any],
    name: str,
    vocabulary: Sequence[str] | None,
    style: Style,
    form: TokenForm = UNKNOWN_FORM,
) -> Iterator[tuple[str, str]]:
    """Yields a heading and the text of each segment of a row.

    Args:
      values: feature -> values, as `parse_any` returns them.
      name: of the feature with the row, one of `token_features`.
      vocabulary: the token of each id; None shows ids.
      style: of the output.
      form: of the dataset.
    """
    row = values[name]
    word = _word_of(vocabulary)
    groups = values.get(_ROWS[name], ())
    length = row_length(values, name)
    if name == "labels" and (told := _next_tokens(values)):
        yield name, told
        return
    if len(groups) != len(row):
        groups = _documents(values, len(row))
    marks = _marks(values, word, style) if name in ("input_ids", "input_word_ids") else {}
    joined: Mapping[int, bool] = {}
    if name in (form.span_rows or ("inputs", "targets")) or name in _DECODER_ROWS:
        marks, joined = _span_marks(values, name, vocabulary, style, form)
    words = [word(token) for token in row[:length]]
    tokens = []
    for position, piece in enumerate(spell(words, find_spelling(vocabulary))):
        is_marked = position in marks
        shown = marks[position](words[position]) if is_marked else piece.text
        group = int(groups[position]) if len(groups) > position else 0
        continues = joined.get(position, False) if is_marked else piece.joined
        tokens.append(_Token(shown, group, continues, is_marked or is_special(words[position])))
    several = len({token.group for token in tokens}) > 1
    spelling = find_spelling(vocabulary)
    for group, members in groupby(tokens, key=lambda token: token.group):
        yield f"{name} {group}" if several else name, _sentence(list(members), spelling)
    if len(row) > length:
        yield "", f"…{len(row) - length}"


def _word_of(vocabulary: Sequence[str] | None) -> Callable[[Any], str]:
    def word(token: Any) -> str:
        if isinstance(token, bytes):
            return visible(token.decode("utf-8", "replace"))
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
    if name == "input_ids" and len(values.get("labels", ())) == len(row):
        # Of causal models the mask may be 1 where there is a label: the last token has none.
        last = _last(values.get("input_mask", ()))
        if 0 < last < len(row) and values["labels"][last - 1] == row[last] != row[-1]:
            return last + 1
    for mask in _LENGTHS:
        if name.startswith("input") and len(values.get(mask, ())) == len(row):
            # Ones of a mask of the loss begin after the prompt: the last one ends the row.
            return _last(values[mask])
    if name.endswith(("puts", "gets")) and len(groups) == len(row):
        return _last(groups)
    if isinstance(row, list):
        return len(row)
    return _last(row)


def _last(row: Any) -> int:
    """Returns the number of values up to the last one that is not 0."""
    filled = np.flatnonzero(row)
    return int(filled[-1]) + 1 if len(filled) else 0


def _documents(values: Mapping[str, Any], length: int) -> Any:
    """Returns the number of each token's document where positions begin again, () elsewhere."""
    positions = values.get("position_ids", ())
    if len(positions) != length or isinstance(positions, list):
        return ()
    begins = np.diff(positions, prepend=-1) < 0
    return 1 + np.cumsum(begins) if begins.any() else ()


def _next_tokens(values: Mapping[str, Any]) -> str:
    """Returns, in words, that labels are the next tokens; "" where they are something else."""
    row, labels = values.get("input_ids", ()), values["labels"]
    if len(row) != len(labels) or isinstance(row, list) or len(row) < 2:
        return ""
    mask = values.get("input_mask", values.get("attention_mask", np.ones(len(row))))
    counted = (np.asarray(mask) != 0) & (labels >= 0)
    if not counted[:-1].any() or np.any((labels[:-1] != row[1:]) & counted[:-1]):
        return ""
    return f"the next token, at {int(counted.sum())} of {len(row)} positions"


def _span_marks(
    values: Mapping[str, Any],
    name: str,
    vocabulary: Sequence[str] | None,
    style: Style,
    form: TokenForm,
) -> tuple[dict[int, Callable[[str], str]], dict[int, bool]]:
    """Returns what shows the sentinels of a row, and which of them continue the word before.

    Those of inputs are shown with the words they stand for.
    """
    word, spelling = _word_of(vocabulary), find_spelling(vocabulary)
    marks, joined = {}, {}
    with_words = name == (form.span_rows or ("inputs",))[0]
    for number, (sentinel, hidden) in enumerate(find_spans(values, form).items()):
        known = word(sentinel)
        text = known if known.startswith("<") else f"<{number}>"
        continues = False
        if with_words:
            spelled = spell([word(token) for token in hidden], spelling)
            continues = bool(spelled) and spelled[0].joined and spelling != WORD_PIECES
            text = f"[{text}→{_sentence(_tokens(spelled), spelling)}]"
        for position in np.flatnonzero(np.asarray(values[name]) == sentinel):
            marks[int(position)] = _shown_as(style("hidden", text))
            joined[int(position)] = continues
    return marks, joined


def _tokens(spelled: Iterable[Spelled]) -> list[_Token]:
    return [_Token(piece.text, 0, piece.joined, is_special(piece.text)) for piece in spelled]


def _shown_as(text: str) -> Callable[[str], str]:
    return lambda _: text


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


def _sentence(tokens: Sequence[_Token], spelling: str) -> str:
    """Returns tokens as text. A word piece keeps its "##" where no letters are before it."""
    text = ""
    closed = True
    for token in tokens:
        if token.joined and closed and spelling == WORD_PIECES:
            text += f" {WORD_PIECES}{token.text}"
        else:
            text += token.text if token.joined else f" {token.text}"
        closed = token.closed
    return text.strip()
