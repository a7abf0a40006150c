"""Boxes of tables and annotations: the meaning of their numbers, and their units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import orjson

from recordmill.records.errors import UsageError, listed
from recordmill.transforms.images.references import box_sides
from recordmill.transforms.images.source_spec import SourceSpec

Box = tuple[float, float, float, float]

_USUAL_SIDES = ("xmin", "ymin", "xmax", "ymax")
# Where --box_format is given, the first of these that the table has; a field `bbox` or `box` with
# all four numbers comes after them.
_SIDES = {
    "xyxy": (
        _USUAL_SIDES, ("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2"),
        ("left", "top", "right", "bottom"),
    ),
    "xywh": (
        ("x", "y", "w", "h"), ("x", "y", "width", "height"), ("xmin", "ymin", "width", "height"),
        ("xmin", "ymin", "w", "h"), ("x_min", "y_min", "width", "height"),
        ("left", "top", "width", "height"),
    ),
    "cxcywh": (
        ("cx", "cy", "w", "h"), ("cx", "cy", "width", "height"), ("xc", "yc", "w", "h"),
        ("x_center", "y_center", "width", "height"), ("x_center", "y_center", "w", "h"),
    ),
}  # fmt: skip
_WHOLE_BOXES = ("bbox", "box")
_SAMPLES = 100
_LARGEST_FRACTION = 2.0  # fractions a little above 1 are boxes a little beyond the image


def box_columns(columns: Sequence[str], spec: SourceSpec, table: str) -> tuple[str, ...]:
    """Returns the columns of a table that hold boxes: four, or one of all numbers, or none.

    Args:
      columns: of the table.
      spec: says what the boxes are.
      table: its path, for messages.

    Raises:
      UsageError: --box_format or --box_units is given, and the table has no boxes.
    """
    box_format = spec.box_format
    if not box_format:
        if set(_USUAL_SIDES) <= set(columns):
            return _USUAL_SIDES
        if spec.box_units:
            raise UsageError(
                f"--box_units={spec.box_units} must go with a table of boxes, and {table} has "
                f"{listed(columns)}; name their form by --box_format, or remove --box_units"
            )
        return ()
    for sides in (*_SIDES[box_format], *((name,) for name in _WHOLE_BOXES)):
        if set(sides) <= set(columns):
            return sides
    wanted = "; ".join(", ".join(sides) for sides in _SIDES[box_format])
    raise UsageError(
        f"--box_format={box_format} must go with a table of boxes, with the columns {wanted}; or "
        f"bbox; {table} has {listed(columns)}"
    )


def read_box(values: Sequence[Any], spec: SourceSpec) -> Box:
    """Returns what `to_corners` does of the numbers of a table's box."""
    return to_corners(values, spec.box_format or "xyxy")


def to_corners(values: Sequence[Any], box_format: str = "xyxy") -> Box:
    """Returns `(xmin, ymin, xmax, ymax)`, in the units of the four numbers.

    Raises:
      ValueError: they are not four finite numbers.
      TypeError: one is neither number nor text.
    """
    if len(values) == 1:
        values = _whole_box(values[0])
    a, b, c, d = box_sides(values)
    if box_format == "xywh":
        return a, b, a + c, b + d
    if box_format == "cxcywh":
        return a - c / 2, b - d / 2, a + c / 2, b + d / 2
    return a, b, c, d


def _whole_box(value: Any) -> Sequence[Any]:
    """Reads four numbers in one field: a list, its JSON, or text as `1 2 3 4`."""
    if isinstance(value, str):
        text = value.strip()
        value = orjson.loads(text) if text.startswith("[") else re.split(r"[\s,;]+", text)
    if not isinstance(value, Sequence):
        raise TypeError(f"{value!r} is no list of four numbers")
    return value


class UnitsCheck:
    """Refuses boxes whose first 100 look like another unit than the one that they are taken for.

    Args:
      source: the file of the boxes, for messages.
      spec: says their unit; where it names none, it is pixels.
    """

    def __init__(self, source: str, spec: SourceSpec) -> None:
        self._source = source
        self._are_fractions = spec.boxes_are_fractions
        self._boxes: list[Box] = []
        self._is_open = spec.box_units != "pixels"

    def add(self, box: Box) -> None:
        """Adds a box.

        Raises:
          UsageError: this one completes the sample, which has another unit.
        """
        if not self._is_open:
            return
        self._boxes.append(box)
        if len(self._boxes) == _SAMPLES:
            self.finish()

    def finish(self) -> None:
        """Judges a sample that is smaller than it could be.

        Raises:
          UsageError: it has another unit.
        """
        boxes, self._boxes = self._boxes, []
        if not self._is_open or not boxes:
            return
        self._is_open = False
        largest = max(max(map(abs, box)) for box in boxes)
        if self._are_fractions:
            if largest > _LARGEST_FRACTION:
                raise UsageError(
                    f"--box_units=fraction must go with boxes in [0, 1]; {self._source} has "
                    f"{largest:g}: give --box_units=pixels"
                )
        elif largest <= 1 and not all(side.is_integer() for box in boxes for side in box):
            shown = ", ".join(f"{side:g}" for side in boxes[0])
            raise UsageError(
                f"all boxes of {self._source} are within [0, 1], as {shown}, so they look like "
                "fractions of the image: give --box_units=fraction, or --box_units=pixels if they "
                "are pixels"
            )
