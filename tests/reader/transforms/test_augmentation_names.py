from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader.transforms import augmentation_names as names
from recordmill.reader.transforms.image_augmentation import augment_images
from recordmill.reader.transforms.image_decoding import RandomCrop, decode_images
from recordmill.records.augmentations import AUGMENTATIONS
from recordmill.records.errors import UsageError
from recordmill.transforms.images.image_spec import ImageSpec

from .test_image_augmentation import decoded
from .test_image_decoding import keys_of, marked, noise


def test_names_and_strengths_are_those_of_the_writer() -> None:
    written = {name: kind().strengths for name, kind in AUGMENTATIONS.items()}
    assert written == {**names.STRENGTHS, "crop": (names.CROP,)}
    assert ImageSpec().min_visible == names.MIN_VISIBLE


def changed(**options: Any) -> dict[str, np.ndarray]:
    text = options.pop("text", "")
    found = augment_images(text, seed=3, **options)(decoded(marked(30)), keys_of(30))
    return {
        "image": found["image"].numpy(),
        "mask": found["mask"].numpy(),
        "boxes": found["boxes"].flat_values.numpy(),
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"flip": True}, {"flip_left_right": 0.5}),
        ({"flip": 1.0}, {"flip_left_right": 1.0}),
        ({}, {"flip_left_right": 0.5}),
        ({"flip": False, "vertical_flip": True}, {"flip_left_right": 0.0, "flip_up_down": 0.5}),
        ({"rotate": True}, {"rotate": 15.0}),
        ({"translate": True}, {"translate": 0.1}),
        ({"scale": True}, {"zoom": (0.8, 1.2)}),
        ({"scale": 0.3}, {"zoom": (0.7, 1.3)}),
        ({"brightness": True, "contrast": True}, {"brightness": 0.2, "contrast": 0.2}),
        ({"color": 0.4}, {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}),
        ({"translate": 0.5, "min_visible": True}, {"translate": 0.5, "min_visibility": 0.1}),
        ({"text": "flip"}, {"flip": 0.5, "min_visible": 0.1}),
        ({"text": "rotate(10), color"}, {"flip": 0, "rotate": 10, "color": True,
                                         "min_visible": True}),
        ({"text": "rot90,shear", "min_visible": 0.0}, {"flip": 0, "rot90": True, "shear": 0.1}),
        ({"text": "blur,noise,cutout"}, {"flip": 0, "blur": 1.0, "noise": True, "cutout": 0.25,
                                         "min_visible": True}),
        ({"text": "randaugment"}, {"flip": 0, "randaugment": (2, 9), "min_visible": True}),
        ({"randaugment": True}, {"flip": True, "randaugment": (2.0, 9.0)}),
        ({"text": "translate(0.6)", "min_visible": 0.0}, {"flip": 0, "translate": 0.6}),
    ],
    ids=str,
)  # fmt: skip
def test_the_same_thing_by_two_names(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = changed(**one), changed(**other)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(first["image"], marked(30).astype(np.float32))


def test_an_operation_that_is_not_named_is_not_done() -> None:
    images = noise(20)
    found = augment_images("brightness(0)")({"image": tf.constant(images, tf.float32)}, keys_of(20))
    np.testing.assert_array_equal(found["image"].numpy(), images)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "flop"}, r"the augmentation must be one of .*, got 'flop'; did you mean 'flip'"),
        ({"text": "crop(0.3)"}, r"crop belongs to decoding.*give decode_images\(crop=True\)"),
        ({"text": "rot90(2)"}, "rot90 takes no number, got '2'"),
        ({"text": "randaugment(2)"}, "randaugment takes two numbers in parentheses, got '2'"),
        ({"text": "randaugment(0,9)"}, r"must be \(operations from 1 to 14, .*got \(0, 9"),
        ({"text": "randaugment(2.5,9)"}, r"operations from 1 to 14.*got \(2.5, 9\)"),
        ({"text": "randaugment(2,11)"}, r"magnitude in \[0, 10\]\), got \(2, 11\)"),
        ({"randaugment": 2}, r"must be \(operations, magnitude\), such as \(2, 9\), or"),
        ({"text": "blur(60)"}, r"blur must be in \[0, 50\], got 60"),
        ({"text": "cutout(2)"}, r"cutout must be in \[0, 1\], got 2"),
        ({"text": "noise", "blur": 1.0}, "names all operations: put blur into it too"),
        ({"text": "flip,flip"}, "must name each operation once, got flip twice"),
        ({"text": "rotate(x)"}, r"rotate takes a number in parentheses, got 'x'"),
        ({"text": "rotate("}, r"augmentations must be like flip,rotate\(10\), got 'rotate\('"),
        ({"text": "flip", "rotate": 5}, "names all operations: put rotate into it too"),
        ({"text": "flip", "zoom": (0.5, 1)}, "names all operations: put zoom into it too"),
        ({"text": "rotate(200)"}, r"rotate must be in \[0, 180\], got 200"),
        ({"flip": True, "flip_left_right": 0.3}, "flip and flip_left_right are the same"),
        ({"scale": 0.2, "zoom": (0.5, 1)}, "scale and zoom are the same"),
        ({"color": True, "contrast": 0.2}, "color is all of brightness, contrast, saturation"),
        ({"hue": True}, r"hue must be a number in \[0, 0.5\], got True"),
        ({"flip": "yes"}, "flip must be a number, True or False, got 'yes'"),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        changed(**options)


def test_crop_is_part_of_decoding() -> None:
    png = tf.stack([tf.io.encode_png(image) for image in marked(6)])
    features = {"image": png}
    by_name = decode_images(size=(20, 20), crop=True)(features, keys_of(6))["image"].numpy()
    crop = RandomCrop(area=(0.25, 1.0))
    by_type = decode_images(size=(20, 20), random_crop=crop)(features, keys_of(6))["image"].numpy()
    whole = decode_images(size=(20, 20), crop=False)(features, keys_of(6))["image"].numpy()
    np.testing.assert_array_equal(by_name, by_type)
    assert not np.array_equal(by_name, whole)
    with pytest.raises(UsageError, match="crop and random_crop are the same"):
        decode_images(size=(20, 20), crop=0.5, random_crop=crop)
