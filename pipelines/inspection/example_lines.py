"""One record as lines for people, and as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from recordmill.pipelines.inspection.record_files import Record
from recordmill.pipelines.inspection.record_values import record_forms
from recordmill.pipelines.inspection.styles import Style
from recordmill.pipelines.inspection.token_form import UNKNOWN_FORM, TokenForm
from recordmill.pipelines.inspection.token_lines import token_features, token_lines
from recordmill.records.errors import visible
from recordmill.records.schema import Feature, Schema

_MOST_VALUES = 12
_MOST_TEXT = 200
_NAME_WIDTH = 26
_HEAD_BYTES = 16  # that are shown of bytes which are no text
_MASKING = (
    "input_mask", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights", "segment_ids",
    "input_type_ids", "inputs_segmentation", "targets_segmentation", "inputs_position",
    "targets_position", "position_ids",
)  # fmt: skip
# Features with the class of each pixel.
MASKS = ("segmentation_mask", "image/segmentation/class/encoded", "mask")
_IMAGE_STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"RIFF")


def is_image(value: Any) -> bool:
    """Tells whether a value begins as an encoded image does."""
    return isinstance(value, bytes) and value.startswith(_IMAGE_STARTS)


def example_lines(
    record: Record,
    values: Mapping[str, Any],
    schema: Schema | None,
    vocabulary: Sequence[str] | None,
    style: Style,
    form: TokenForm = UNKNOWN_FORM,
) -> Iterator[str]:
    """Yields the lines of a record: where it is, its text, its other features.

    Args:
      record: where it is.
      values: feature -> values, as `parse_any` returns them.
      schema: of the dataset, None where no manifest has one.
      vocabulary: the token of each id; None shows ids.
      style: of the output.
      form: of the rows of tokens.
    """
    where = f"{record.file}, record {record.position}, {len(record.data):,} bytes"
    title = record.split if record.number is None else record.name
    forms = record_forms(record)
    sequence = any(steps is not None for _, steps in forms.values())
    yield f"{style('title', title)}  {visible(where)}" + (", a SequenceExample" if sequence else "")
    for name in token_features(values, form):
        for heading, text in token_lines(values, name, vocabulary, style, form):
            yield named_line(heading, text, style)
    for name, text in other_features(record, values, schema, form):
        yield named_line(name, text, style)


def other_features(
    record: Record,
    values: Mapping[str, Any],
    schema: Schema | None,
    form: TokenForm = UNKNOWN_FORM,
) -> Iterator[tuple[str, str]]:
    """Yields name and text of the features that the text of the rows of tokens does not show.

    Args:
      record, values, schema, form: as of `example_lines`.
    """
    forms = record_forms(record)
    features = {feature.name: feature for feature in schema.features} if schema else {}
    rows = token_features(values, form)
    for name in sorted(values):
        if name not in rows and not (rows and name in _MASKING):
            steps = forms.get(name, ("", None))[1]
            text = describe(values[name], features.get(name))
            if steps is not None:
                text = f"{steps:,} step{'s' * (steps != 1)}: {text}"
            yield name, visible(text)


def named_line(name: str, text: str, style: Style) -> str:
    """Returns a line of a record: a name and what it has."""
    return f"  {style('name', f'{visible(name):<{_NAME_WIDTH}}')} {text}"


def describe(values: Any, feature: Feature | None = None) -> str:
    """Returns the values of a feature in a few words."""
    if not len(values):
        return "no values"
    if feature and feature.kind == "pixels":
        shape = " x ".join(str(size or "?") for size in feature.image_shape)
        return f"{shape} pixels, {len(values[0]):,} bytes"
    if feature and feature.kind == "boxes":
        boxes = np.reshape(values, (-1, 4))
        return f"{len(boxes)}: " + _some([f"({_numbers(box)})" for box in boxes])
    if isinstance(values, list):
        return _some([_bytes(value) for value in values])
    if feature and feature.classes:
        classes = dict(enumerate(feature.classes))
        return _some([f"{value} ({classes.get(int(value), 'no class')})" for value in values])
    return _some([f"{value:.6g}" if values.dtype.kind == "f" else str(value) for value in values])


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def _some(texts: Sequence[str]) -> str:
    if len(texts) <= _MOST_VALUES:
        return ", ".join(texts)
    return f"{', '.join(texts[:_MOST_VALUES])}, … ({len(texts):,} values)"


def _bytes(value: bytes) -> str:
    if is_image(value):
        return _image(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        more = "…" if len(value) > _HEAD_BYTES else ""
        return f"{len(value):,} bytes: {value[:_HEAD_BYTES].hex(' ')}{more}"
    shown = json.dumps(text[:_MOST_TEXT], ensure_ascii=False)
    return shown if len(text) <= _MOST_TEXT else f"{shown} … ({len(text):,} characters)"


def _image(value: bytes) -> str:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(value)) as image:
            return (
                f"{image.format} {image.width} x {image.height} {image.mode}, {len(value):,} bytes"
            )
    except Exception as error:  # what Pillow raises for broken images is any of twenty classes
        return f"{len(value):,} bytes that are no image: {error}"


def example_json(record: Record, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a record for JSON: bytes that are no text are given by length and first bytes."""
    return {
        "split": record.split,
        "number": record.number,
        "file": record.file,
        "position": record.position,
        "features": {name: _json_values(values[name]) for name in sorted(values)},
    }


def _json_values(values: Any) -> list[Any]:
    if isinstance(values, list):
        return [_json_bytes(value) for value in values]
    numbers: list[Any] = values.tolist()
    return numbers


def _json_bytes(value: bytes) -> str | dict[str, Any]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"bytes": len(value), "begins": value[:_HEAD_BYTES].hex()}
