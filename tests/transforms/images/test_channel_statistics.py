"""Which pixels are counted, and how: the sums that the figures are made of."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.channel_statistics import channel_histograms
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_spec import (
    AugmentationSpec,
    EncodeSpec,
    ImageSpec,
    TransformSpec,
)
from recordmill.transforms.images.preparing import prepare, untouched
from recordmill.transforms.images.references import ImageObject, ImageReference, StoredBytes

from ...pictures import drawn, jpeg, turned_jpeg


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_histogram_a_channel(mode: str) -> None:
    image = drawn(37, 23).convert(mode)
    found = channel_histograms(image)
    values = np.asarray(image).reshape(37 * 23, -1)
    assert found.dtype == np.int64
    for channel, counts in enumerate(found):
        expected = np.bincount(values[:, channel], minlength=256)
        np.testing.assert_array_equal(counts, expected)


def test_of_one_pixel() -> None:
    found = channel_histograms(Image.new("RGB", (1, 1), (0, 255, 7)))
    assert [counts.argmax() for counts in found] == [0, 255, 7]
    assert found.sum() == 3


def work(channels: Literal[1, 3] = 3, **options: object) -> ImageSpec:
    given = {
        "task": "classification",
        "format": "tfds",
        "labels": {"cat": 0},
        "transform": TransformSpec((16, 20), "fit", (9, 9, 9)),
        "encode": EncodeSpec("PNG"),
        "channels": channels,
    }
    return ImageSpec(**{**given, **options})  # type: ignore[arg-type]


def reference(*labels: str) -> ImageReference:
    return ImageReference("cat/a.jpg", StoredBytes("a.jpg"), labels)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("data", [jpeg(300, 200), turned_jpeg(6)])
def test_what_is_counted_is_what_is_written(channels: Literal[1, 3], data: bytes) -> None:
    image, labels = untouched(reference("cat"), data, work(channels))
    plain = prepare(reference("cat"), data, None, work(channels), key=1, copy=None)
    written = Image.open(io.BytesIO(plain.encoded))
    np.testing.assert_array_equal(np.asarray(image), np.asarray(written))
    assert labels == ["cat"]


def test_augmentation_does_not_show() -> None:
    changing = work(augmentation=AugmentationSpec.parse("color,rotate"))
    image, _ = untouched(reference("cat"), jpeg(), changing)
    np.testing.assert_array_equal(
        np.asarray(image), np.asarray(untouched(reference("cat"), jpeg(), work())[0])
    )


def test_labels_of_objects() -> None:
    objects = tuple(ImageObject(name, (0, 0, 5, 5)) for name in ("cat", "cat", "eel"))
    found = ImageReference("a.jpg", StoredBytes("a.jpg"), objects=objects)
    detection = work(task="detection", format="object_detection")
    assert untouched(found, jpeg(), detection)[1] == ["cat", "cat"]


@pytest.mark.parametrize(
    ("labels", "data", "reason"),
    [
        (("cat",), jpeg(300, 200)[:900], "truncated_image"),
        (("eel",), jpeg(), "unknown_label"),
        ((), jpeg(), "label_count"),
    ],
)
def test_images_that_are_not_counted(labels: tuple[str, ...], data: bytes, reason: str) -> None:
    with pytest.raises(ImageRejectedError) as caught:
        untouched(reference(*labels), data, work())
    assert caught.value.reason == reason
