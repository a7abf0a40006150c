"""Some records on the page: images as pictures, rows of tokens as marked text, others as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recordmill.pipelines.inspection.contents import LABELS
from recordmill.pipelines.inspection.example_lines import other_features
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.image_sheet import draw, drawing_of, mask_names_of
from recordmill.pipelines.inspection.page import Line, MarkedText, Picture, Section, jpeg_base64
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_lines import legend_lines, token_features, token_lines

_SIDE = 240
_HELD = "pixels of the mask"
_MOST_BESIDE = 6  # features of a picture; of more, all but labels are folded
_MARK = re.compile("\x1b\\[([0-9;]+)m(.*?)\x1b\\[0m", re.DOTALL)
_KINDS = {"1;33": "hidden", "1;31": "replaced", "1;32": "kept"}


def examples_section(facts: Facts) -> Section:
    """Returns some records with all of their features."""
    section = Section("examples", "Examples")
    labels = {f.name for f in facts.schema.features if f.kind == "classes"} | {*LABELS}
    labels.add(_HELD)
    names = mask_names_of(facts.records.manifest)
    for record, values in facts.shown:
        where = record.name
        others = list(other_features(record, values, facts.schema, facts.form))
        drawing = drawing_of(values, facts.stored_schema, where, names)
        if drawing:
            if held := drawing.describe_mask():
                others.insert(0, (_HELD, held))
            few = len(others) <= _MOST_BESIDE
            beside = [pair for pair in others if few or pair[0] in labels]
            folded = [pair for pair in others if pair not in beside]
            picture = jpeg_base64(draw(drawing, _SIDE))
            section.pictures.append(Picture(picture, where, beside, folded))
        else:
            section.texts.append(MarkedText(where, _marked(values, facts), others))
    legend = legend_lines([values for _, values in facts.shown], facts.vocabulary, facts.form)
    section.note = "; ".join(legend)
    return section


def _marked(values: Mapping[str, Any], facts: Facts) -> list[Line]:
    style = Style(colors=True)
    lines = []
    for name in token_features(values, facts.form):
        for heading, text in token_lines(values, name, facts.vocabulary, style, facts.form):
            lines.append([("", f"{heading} " if heading else ""), *_pieces(text)])
    return lines


def _pieces(text: str) -> Line:
    pieces: Line = []
    at = 0
    for mark in _MARK.finditer(text):
        pieces += [("", text[at : mark.start()]), (_KINDS.get(mark[1], ""), mark[2])]
        at = mark.end()
    return [piece for piece in [*pieces, ("", text[at:])] if piece[1]]
