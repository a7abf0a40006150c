"""Some records on the page: images as pictures, rows of tokens as marked text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from recordmill.pipelines.inspection.example_lines import describe
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.image_sheet import draw, drawing_of
from recordmill.pipelines.inspection.page import Line, MarkedText, Picture, Section, jpeg_base64
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_lines import (
    LEGEND,
    LEGEND_SPANS,
    find_spans,
    token_features,
    token_lines,
)

_SIDE = 240
_MARK = re.compile("\x1b\\[([0-9;]+)m(.*?)\x1b\\[0m", re.DOTALL)
_KINDS = {"1;33": "hidden", "1;31": "replaced", "1;32": "kept"}


def examples_section(facts: Facts) -> Section:
    """Returns some records, as pictures or as marked text."""
    section = Section("examples", "Examples")
    features = {feature.name: feature for feature in facts.schema.features}
    for record, values in facts.shown:
        where = record.name
        drawing = drawing_of(values, facts.stored_schema, where)
        if drawing:
            labels = [
                describe(values[name], feature)
                for name, feature in features.items()
                if feature.kind == "classes" and name in values
            ]
            caption = " · ".join([where, *labels])
            section.pictures.append(Picture(jpeg_base64(draw(drawing, _SIDE)), caption))
        elif token_features(values):
            section.texts.append(MarkedText(where, _marked(values, facts.vocabulary)))
    if any("masked_lm_positions" in values for _, values in facts.shown):
        section.note = LEGEND
    elif any(find_spans(values) for _, values in facts.shown):
        section.note = LEGEND_SPANS
    return section


def _marked(values: Mapping[str, Any], vocabulary: Sequence[str] | None) -> list[Line]:
    lines = []
    for name in token_features(values):
        for heading, text in token_lines(values, name, vocabulary, Style(colors=True)):
            lines.append([("", f"{heading} " if heading else ""), *_pieces(text)])
    return lines


def _pieces(text: str) -> Line:
    pieces: Line = []
    at = 0
    for mark in _MARK.finditer(text):
        pieces += [("", text[at : mark.start()]), (_KINDS.get(mark[1], ""), mark[2])]
        at = mark.end()
    return [piece for piece in [*pieces, ("", text[at:])] if piece[1]]
