"""Elements are checked where they are made."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from recordmill.transforms import Box, Document, Image

PIXELS = np.zeros((2, 3, 3), np.uint8)


def test_documents_are_frozen_and_can_be_replaced() -> None:
    document = Document("one\ntwo", key="a.txt#0", group="a")
    assert replace(document, text="three") == Document("three", "a.txt#0", "a")
    with pytest.raises(FrozenInstanceError):
        document.text = "three"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": None}, "Document.text must be str, got NoneType"),
        ({"text": b"bytes"}, "Document.text must be str, got bytes"),
        ({"text": "", "key": 3}, "Document.key must be str or None, got int"),
        ({"text": "", "group": 3}, "Document.group must be str or None, got int"),
    ],
)
def test_wrong_documents(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Document(**values)


@pytest.mark.parametrize(
    "image",
    [
        Image(b"\xff\xd8"),
        Image(PIXELS, "a.png", "cat", (Box("cat", 0, 0.5, 2, 2),), PIXELS[:, :, 0]),
        Image(PIXELS[:, :, :1], label=("cat", "dog"), boxes=(), mask=b"\x89PNG"),
        Image(PIXELS[:, :, 0], label=0.5),
        Image(PIXELS, label=np.float32(0.5)),  # type: ignore[arg-type]
    ],
)
def test_images_go_through_pickle(image: Image) -> None:
    back = pickle.loads(pickle.dumps(image))
    assert (back.key, back.label, back.boxes) == (image.key, image.label, image.boxes)
    np.testing.assert_array_equal(back.data, image.data)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": "text"}, "Image.data must be bytes, or an array of uint8 .*, got str"),
        ({"data": PIXELS.astype(np.int32)}, "Image.data must be .*, got an array of int32"),
        ({"data": b"", "key": 1}, "Image.key must be str or None, got int"),
        ({"data": b"", "label": ["a"]}, "Image.label must be a number, got list"),
        ({"data": b"", "label": (1,)}, "Image.label must be str, got int"),
        ({"data": b"", "label": True}, "Image.label must be a number, got bool"),
        ({"data": b"", "boxes": []}, "Image.boxes must be tuple, got list"),
        ({"data": b"", "boxes": ((1, 2, 3, 4),)}, "Image.boxes must be Box, got tuple"),
        ({"data": b"", "mask": 3}, "Image.mask must be bytes, or an array .*, got int"),
    ],
)
def test_wrong_types_of_images(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Image(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"data": PIXELS[:, :, :2]},
            r"shape \[height, width\] or \[height, width, 1\] or .*, got \[2, 3, 2\]",
        ),
        ({"data": PIXELS[:0]}, r"got \[0, 3, 3\]"),
        ({"data": b"", "mask": PIXELS}, r"Image.mask .*, got \[2, 3, 3\]"),
        ({"data": b"", "label": math.nan}, "Image.label must be finite, got nan"),
    ],
)
def test_wrong_values_of_images(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Image(**values)


def test_wrong_boxes() -> None:
    with pytest.raises(ValueError, match=r"Box.ymin must be finite, got inf"):
        Box("cat", 0, math.inf, 1, 1)
    with pytest.raises(TypeError, match=r"Box.xmax must be a number, got str"):
        Box("cat", 0, 0, "1", 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Box.label must be str, got int"):
        Box(1, 0, 0, 1, 1)  # type: ignore[arg-type]
