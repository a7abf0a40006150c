"""The names and types that the readers of images want, as literal tables."""

from __future__ import annotations

from typing import ClassVar

import pytest

from recordmill.records import image_formats
from recordmill.records.image_formats import ImageContent

CLASSES = ("background", "cat")


def content(task: str, **options) -> ImageContent:
    return ImageContent(task, CLASSES, (None, None, 3), **options)


def shapes(schema) -> dict[str, tuple]:
    return {f.name: (f.dtype, f.shape) for f in schema.features}


ONE_STRING, ONE_NUMBER = ("bytes", ()), ("int64", ())
STRINGS, NUMBERS, FLOATS = ("bytes", (None,)), ("int64", (None,)), ("float32", (None,))


class TestTfds:
    BOTH: ClassVar = {"image": ONE_STRING, "image/filename": ONE_STRING}

    def test_classification(self):
        assert shapes(image_formats.tfds(content("classification"))) == self.BOTH | {
            "label": ONE_NUMBER
        }
        several = image_formats.tfds(content("classification", multilabel=True))
        assert shapes(several) == self.BOTH | {"labels": NUMBERS}

    def test_segmentation(self):
        schema = image_formats.tfds(content("segmentation"))
        assert shapes(schema) == self.BOTH | {"segmentation_mask": ONE_STRING}
        assert schema["segmentation_mask"].image_shape == (None, None, 1)

    def test_detection(self):
        expected = self.BOTH | {
            "objects/bbox": ("float32", (None, 4)),
            "objects/label": NUMBERS,
            "objects/is_crowd": NUMBERS,
            "objects/area": FLOATS,
        }
        assert shapes(image_formats.tfds(content("detection"))) == expected
        masks = image_formats.tfds(content("detection", masks=True))
        assert shapes(masks) == expected | {"objects/mask": STRINGS}


class TestOthers:
    ENCODED: ClassVar = {
        "image/encoded": ONE_STRING,
        "image/format": ONE_STRING,
        "image/height": ONE_NUMBER,
        "image/width": ONE_NUMBER,
        "image/filename": ONE_STRING,
    }

    def test_imagenet(self):
        assert shapes(image_formats.imagenet(content("classification"))) == self.ENCODED | {
            "image/channels": ONE_NUMBER,
            "image/colorspace": ONE_STRING,
            "image/class/label": ONE_NUMBER,
            "image/class/synset": ONE_STRING,
        }

    @pytest.mark.parametrize("schema", [image_formats.object_detection, image_formats.model_garden])
    def test_detection(self, schema):
        expected = self.ENCODED | {
            "image/source_id": ONE_STRING,
            "image/key/sha256": ONE_STRING,
            "image/object/bbox/xmin": FLOATS,
            "image/object/bbox/xmax": FLOATS,
            "image/object/bbox/ymin": FLOATS,
            "image/object/bbox/ymax": FLOATS,
            "image/object/class/text": STRINGS,
            "image/object/class/label": NUMBERS,
            "image/object/is_crowd": NUMBERS,
            "image/object/difficult": NUMBERS,
            "image/object/area": FLOATS,
        }
        assert shapes(schema(content("detection"))) == expected
        masks = shapes(schema(content("detection", masks=True)))
        assert masks == expected | {"image/object/mask": STRINGS}

    def test_model_garden(self):
        both = self.ENCODED | {"image/source_id": ONE_STRING}
        assert shapes(image_formats.model_garden(content("segmentation"))) == both | {
            "image/segmentation/class/encoded": ONE_STRING
        }
        assert shapes(image_formats.model_garden(content("classification"))) == both | {
            "image/class/label": ONE_NUMBER,
            "image/class/text": ONE_STRING,
        }
        several = image_formats.model_garden(content("classification", multilabel=True))
        assert several["image/class/label"].shape == (None,)

    def test_raw(self):
        sizes = dict.fromkeys(("height", "width", "channel"), ONE_NUMBER)
        assert shapes(image_formats.raw(content("classification"))) == sizes | {
            "image": ONE_STRING,
            "label": ONE_NUMBER,
        }
        assert shapes(image_formats.raw(content("segmentation"))) == sizes | {
            "image": ONE_STRING,
            "mask": ONE_STRING,
        }

    def test_unet(self):
        fixed = ImageContent("segmentation", CLASSES, (256, 320, 1))
        assert shapes(image_formats.unet(fixed)) == {
            "image": ("float32", (256, 320, 1)),
            "mask": ("float32", (256, 320, 1)),
        }

    def test_what_was_drawn(self):
        schema = image_formats.imagenet(content("classification", augmentation=True))
        assert schema["image/augmentation"].dtype == "bytes"

    def test_classes_have_names(self):
        assert image_formats.tfds(content("classification"))["label"].classes == CLASSES
