"""`label_map.pbtxt`: the classes by number, as the Object Detection API reads them."""

from __future__ import annotations

from collections.abc import Mapping

LABEL_MAP_PATH = "label_map.pbtxt"
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\""})


def label_map(labels: Mapping[str, int]) -> bytes:
    """Returns a StringIntLabelMap in protobuf's text form, in order of the numbers.

    Args:
      labels: name -> number, from 1 on: 0 is the background, which has no item.
    """
    items = sorted((number, name) for name, number in labels.items())
    return "".join(
        f'item {{\n  id: {number}\n  name: "{name.translate(_ESCAPED)}"\n}}\n'
        for number, name in items
    ).encode()
