from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader.transforms.image_augmentation import augment_images, normalise_images
from recordmill.reader.transforms.image_decoding import RandomCrop, decode_images
from recordmill.records.augmentations import AUGMENTATIONS
from recordmill.records.errors import UsageError

from .test_image_decoding import HEIGHT, WIDTH, check_boxes, keys_of, marked, noise


def decoded(images: np.ndarray) -> dict[str, Any]:
    count = len(images)
    box = tf.constant([[12 / HEIGHT, 16 / WIDTH, 30 / HEIGHT, 44 / WIDTH]] * count)
    return {
        "image": tf.constant(images, tf.float32),
        "mask": tf.constant(images[..., 0] > 127, tf.int32),
        "boxes": tf.RaggedTensor.from_row_lengths(box, [1] * count),
        "image/object/area": tf.RaggedTensor.from_row_lengths(tf.range(count), [1] * count),
    }


@pytest.mark.parametrize(
    "options",
    [
        {"flip_left_right": 1.0},
        {"flip_left_right": 0.0, "flip_up_down": 1.0},
        {"translate": 0.2},
        {"zoom": (0.6, 1.4)},
        {"translate": 0.6, "min_visibility": 0.0},
        {"flip_up_down": 0.5, "zoom": (0.8, 1.2), "translate": 0.1},
    ],
    ids=lambda options: "-".join(options),
)
def test_masks_and_boxes_move_with_the_image(options: dict[str, Any]) -> None:
    found = augment_images(**options)(decoded(marked(40)), keys_of(40))
    seen = check_boxes(found)
    assert seen == int(found["image/object/area"].row_lengths().numpy().sum())
    assert seen == 40 or options.get("translate", 0) > 0.5
    assert (found["boxes"].flat_values.numpy() != decoded(marked(1))["boxes"].numpy()[0]).any()


def test_a_box_holds_what_was_turned() -> None:
    """The box around a turned box is that of its corners: it holds what is bright, closely."""
    found = augment_images(rotate=180.0, flip_left_right=0.0)(decoded(marked(50)), keys_of(50))
    for mask, box in zip(found["mask"].numpy(), found["boxes"].to_list(), strict=True):
        rows, columns = np.nonzero(mask)
        pixels = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
        size = np.array([HEIGHT, WIDTH, HEIGHT, WIDTH])
        assert np.allclose(np.array(box[0]) * size, pixels, atol=2.5)
    assert (found["mask"].numpy() == (found["image"].numpy()[..., 0] > 127)).mean() > 0.98


def test_flips_have_their_probability_and_leave_the_others() -> None:
    images = noise(400)[:, :4, :4].astype(np.float32)
    found = augment_images(flip_left_right=0.3)({"image": tf.constant(images)}, keys_of(400))
    same = (found["image"].numpy() == images).all(axis=(1, 2, 3))
    mirrored = (found["image"].numpy() == images[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same ^ mirrored).all()
    assert abs(mirrored.mean() - 0.3) < 0.07


def test_what_happens_depends_on_seed_epoch_and_record_alone() -> None:
    options = {"rotate": 20.0, "brightness": 0.3, "hue": 0.1, "flip_left_right": 0.5}
    features = {"image": tf.constant(noise(10), tf.float32)}
    whole = augment_images(**options)(features, keys_of(10))["image"].numpy()
    part = augment_images(**options)({"image": features["image"][3:5]}, keys_of(10)[3:5])
    assert np.allclose(whole[3:5], part["image"].numpy(), atol=1e-3)
    for other in (
        augment_images(**options)(features, keys_of(10, epoch=1)),
        augment_images(**options, seed=1)(features, keys_of(10)),
    ):
        assert (abs(other["image"].numpy() - whole).max(axis=(1, 2, 3)) > 1).all()


class TestColours:
    image = tf.constant(noise(30)[:, :8, :8] // 2 + 60, tf.float32)

    def changed(self, **options: float) -> np.ndarray:
        augment = augment_images(flip_left_right=0.0, **options)
        return augment({"image": self.image}, keys_of(30))["image"].numpy()

    def test_brightness_is_a_factor(self) -> None:
        factors = self.changed(brightness=0.2) / self.image.numpy()
        each = factors.mean(axis=(1, 2, 3))
        assert np.allclose(factors, each[:, None, None, None], rtol=1e-4)
        assert 0.8 <= each.min() < 0.85
        assert 1.15 < each.max() <= 1.2

    def test_contrast_keeps_the_mean_of_grey(self) -> None:
        luma = np.array([0.299, 0.587, 0.114])
        before, after = self.image.numpy() @ luma, self.changed(contrast=0.3) @ luma
        assert np.allclose(before.mean((1, 2)), after.mean((1, 2)), rtol=1e-4)
        spread = after.std((1, 2)) / before.std((1, 2))
        assert spread.min() < 0.8
        assert spread.max() > 1.2

    @pytest.mark.parametrize("options", [{"saturation": 0.5}, {"hue": 0.1}])
    def test_saturation_and_hue_keep_luma(self, options: dict[str, float]) -> None:
        luma = np.array([0.299, 0.587, 0.114])
        after = self.changed(**options)
        inside = ((after > 0) & (after < 255)).all(axis=-1)
        assert inside.mean() > 0.9
        difference = (after @ luma - self.image.numpy() @ luma)[inside]
        assert abs(difference).max() < 0.2
        assert abs(after - self.image.numpy()).max() > 5

    def test_grey_stays_grey_whatever_the_colour(self) -> None:
        grey = tf.repeat(self.image[..., :1], 3, axis=-1)
        augment = augment_images(flip_left_right=0.0, saturation=0.9, hue=0.5)
        assert np.allclose(augment({"image": grey}, keys_of(30))["image"], grey, atol=0.2)
        one = augment_images(flip_left_right=0.0, contrast=0.2, hue=0.5)
        assert one({"image": grey[..., :1]}, keys_of(30))["image"].shape == (30, 8, 8, 1)

    def test_pixels_stay_in_range(self) -> None:
        after = self.changed(brightness=1.0, contrast=1.0)
        assert after.min() >= 0
        assert after.max() <= 255


class TestNormalise:
    def test_by_numbers_and_by_what_is_stored(self, tmp_path: Path) -> None:
        images = tf.constant(noise(2), tf.float32)
        mean, std = [10.0, 20.0, 30.0], [2.0, 4.0, 8.0]
        (tmp_path / "_meta").mkdir()
        stored = {"train": {"examples": 2, "channel_mean": mean, "channel_std": std}}
        (tmp_path / "_meta/statistics.json").write_text(json.dumps(stored))
        expected = (images.numpy() - mean) / std
        for normalise in (normalise_images(mean=mean, std=std), normalise_images(dataset=tmp_path)):
            found = normalise({"image": images}, keys_of(2))
            assert found["image"].dtype == tf.float32
            assert np.allclose(found["image"], expected, rtol=1e-5)
        with pytest.raises(UsageError, match="channel_mean and channel_std of split 'test'"):
            normalise_images(dataset=tmp_path, split="test")

    @pytest.mark.parametrize(
        "options", [{}, {"mean": 1.0}, {"mean": 1.0, "std": 1.0, "dataset": "d"}]
    )
    def test_one_source_is_needed(self, options: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="needs mean and std, or dataset, and not both"):
            normalise_images(**options)

    def test_a_std_of_zero_is_refused(self) -> None:
        with pytest.raises(UsageError, match="std must be above 0, got"):
            normalise_images(mean=[0, 0], std=[1, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flip_left_right": 1.5}, r"^flip_left_right must be in \[0, 1\], got 1.5"),
        ({"hue": 0.6}, r"hue must be in \[0, 0.5\], got 0.6"),
        ({"zoom": (0.0, 1.0)}, "zoom must be 0 < least <= most"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        augment_images(**options)


def test_images_that_were_not_decoded_are_refused() -> None:
    with pytest.raises(UsageError, match="put decode_images before them"):
        augment_images()({"image": tf.constant(["encoded"])}, keys_of(1))


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
        ({"text": "flop"}, r"^augmentations must be one of .*, got 'flop'; did you mean 'flip'"),
        ({"text": "crop(0.3)"}, r"crop belongs to decoding.*give decode_images\(crop=True\)"),
        ({"text": "rot90(2)"}, "='rot90' must have 0 numbers in its parentheses, got 1$"),
        ({"text": "randaugment(2)"}, "'randaugment' must have 2 numbers in its parentheses, got 1"),
        ({"text": "randaugment(0,9)"}, "'randaugment': operations must be from 1 to 14, got 0"),
        ({"randaugment": (15, 9)}, "^randaugment: operations must be from 1 to 14, got 15$"),
        ({"randaugment": (2.5, 9)}, "^randaugment must have a whole number of operations"),
        ({"text": "randaugment(2.5,9)"}, "must have a whole number of operations, got 2.5"),
        ({"text": "randaugment(2,11)"}, r"magnitude must be in \[0, 10\], got 11"),
        ({"randaugment": 2}, r"^randaugment must be \(operations, magnitude\), got 2$"),
        ({"text": "blur(60)"}, r"^augmentations='blur' must be in \[0, 50\], got 60"),
        ({"text": "cutout(2)"}, r"'cutout' must be in \[0, 1\], got 2"),
        ({"text": "noise", "blur": 1.0}, "names all operations: put blur into it too"),
        ({"text": "flip,flip"}, "^augmentations must name each once, got flip,flip$"),
        ({"text": "rotate(x)"}, "'rotate' must have numbers, got 'x'"),
        ({"text": "rotate("}, r"names with commas .*, such as flip,rotate\(15\), got"),
        ({"text": "flip", "rotate": 5}, "names all operations: put rotate into it too"),
        ({"text": "flip", "zoom": (0.5, 1)}, "names all operations: put zoom into it too"),
        ({"rotate": 200}, r"^rotate must be in \[0, 180\], got 200$"),
        ({"rotate": -1}, r"^rotate must be in \[0, 180\], got -1$"),
        ({"rotate": float("nan")}, "^rotate must be a number, got nan$"),
        ({"scale": 0.95}, r"^scale must be in \[0, 0\.9\], got 0\.95$"),
        ({"min_visible": 2}, r"^min_visible must be in \[0, 1\], got 2$"),
        ({"text": 3}, "^augmentations must be a string, got 3$"),
        ({"text": "rotate(200)"}, r"'rotate' must be in \[0, 180\], got 200"),
        ({"flip": True, "flip_left_right": 0.3}, "flip and flip_left_right are the same"),
        ({"scale": 0.2, "zoom": (0.5, 1)}, "scale and zoom are the same"),
        ({"color": True, "contrast": 0.2}, "color is all of brightness, contrast, saturation"),
        ({"hue": True}, "^hue must be a number, got True$"),
        ({"flip": "yes"}, "^flip must be True or False or a number, got 'yes'$"),
    ],
    ids=str,
)  # fmt: skip
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        changed(**options)


def test_every_augmentation_of_the_writer_has_an_effect_in_the_reader() -> None:
    images = noise(30)
    features = {"image": tf.constant(images, tf.float32)}
    arguments = inspect.signature(augment_images).parameters
    for name in AUGMENTATIONS.keys() - {"crop"}:
        found = augment_images(name, seed=3)(features, keys_of(30))["image"].numpy()
        assert (found != images).any(), name
        assert name in arguments
    with pytest.raises(TypeError, match=r"no argument named rotat; did you mean rotate\?"):
        augment_images(rotat=3)


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
    with pytest.raises(UsageError, match=r"^crop must be in \[0\.01, 1\], got 2$"):
        decode_images(size=(20, 20), crop=2)
