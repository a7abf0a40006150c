"""Decoding: every record format gives the same, and boxes stay on what they were drawn around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill.reader.transforms.image_augmentation import augment_images
from recordmill.reader.transforms.image_decoding import RandomCrop, decode_images
from recordmill.records.errors import UsageError

from ...pictures import one_frame_webp

HEIGHT, WIDTH = 48, 64
BOX = (12, 16, 30, 44)  # top, left, bottom, right, in pixels


def keys_of(count: int, epoch: int = 0) -> tf.Tensor:
    return tf.constant([[epoch, record] for record in range(count)], tf.int64)


def noise(count: int, channels: int = 3) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (count, HEIGHT, WIDTH, channels)).astype(np.uint8)


def marked(count: int) -> np.ndarray:
    """Black images with a white box."""
    images = np.zeros((count, HEIGHT, WIDTH, 3), np.uint8)
    images[:, BOX[0] : BOX[2], BOX[1] : BOX[3]] = 255
    return images


def png(images: np.ndarray) -> tf.Tensor:
    return tf.stack([tf.io.encode_png(image) for image in images])


def jpeg(images: np.ndarray) -> tf.Tensor:
    return tf.stack([tf.io.encode_jpeg(image, quality=100) for image in images])


def boxes_in_tfds_form(count: int) -> tf.RaggedTensor:
    box = np.array(BOX) / [HEIGHT, WIDTH, HEIGHT, WIDTH]
    flat = tf.constant(np.tile(box, (count, 1)), tf.float32)
    return tf.RaggedTensor.from_uniform_row_length(flat, 1)


def with_boxes(images: np.ndarray, encode: Any = png) -> dict[str, Any]:
    count = len(images)
    ragged = tf.RaggedTensor.from_row_lengths
    return {
        "image": encode(images),
        "mask": png((images[..., :1] > 0).astype(np.uint8)),
        "objects/bbox": ragged(boxes_in_tfds_form(count).flat_values, [1] * count),
        "objects/label": ragged(tf.range(count), [1] * count),
    }


def around(pixels: np.ndarray) -> np.ndarray:
    """The box around what is bright, as shares of the image."""
    rows, columns = np.nonzero(pixels.max(axis=1))[0], np.nonzero(pixels.max(axis=0))[0]
    found = np.array([rows[0], columns[0], rows[-1] + 1, columns[-1] + 1])
    return found / np.tile(pixels.shape, 2)


def check_boxes(found: dict[str, Any], *, pixels: float = 1.6) -> int:
    """Boxes lie around what is bright in image and mask; returns how many images have one."""
    seen = 0
    for image, mask, boxes in zip(
        found["image"].numpy(), found["mask"].numpy(), found["boxes"].to_list(), strict=True
    ):
        bright = image[..., 0] > 127
        assert abs(bright.astype(int) - mask).mean() < 0.06
        if not boxes:
            assert bright.mean() < 0.01
            continue
        seen += 1
        slack = pixels / min(bright.shape)
        if bright.sum() > 20:
            assert np.allclose(around(bright), boxes[0], atol=slack)
    return seen


class TestFormats:
    def test_each_gives_the_same_pixels(self) -> None:
        images = noise(3)
        masks = noise(3, channels=1)
        encoded, encoded_masks = png(images), png(masks)
        sides = [tf.fill([3], n) for n in (HEIGHT, WIDTH, 3)]
        forms = [
            {"image": encoded, "segmentation_mask": encoded_masks},
            {"image/encoded": encoded, "image/segmentation/class/encoded": encoded_masks},
            {
                "image": tf.constant([image.tobytes() for image in images]),
                "mask": tf.constant([mask.tobytes() for mask in masks]),
                **dict(zip(("height", "width", "channel"), sides, strict=True)),
            },
            {"image": tf.constant(images, tf.float32), "mask": tf.constant(masks, tf.float32)},
        ]
        decode = decode_images(size=(HEIGHT, WIDTH))
        for form in forms:
            found = decode(form | {"label": tf.range(3)}, keys_of(3))
            assert found.keys() == {"image", "mask", "label"}
            assert found["image"].dtype == tf.float32
            assert (found["image"].numpy() == images).all()
            assert (found["mask"].numpy() == masks[..., 0]).all()

    def test_boxes_of_the_object_detection_api_are_those_of_tfds(self) -> None:
        tfds = with_boxes(marked(2))
        sides = tf.unstack(tfds["objects/bbox"].flat_values, axis=1)
        api = {"image/encoded": tfds["image"], "image/object/class/label": tfds["objects/label"]}
        for name, side in zip(("ymin", "xmin", "ymax", "xmax"), sides, strict=True):
            api[f"image/object/bbox/{name}"] = tf.RaggedTensor.from_row_lengths(side, [1, 1])
        decode = decode_images(size=(30, 30), fit="crop")
        boxes = [decode(form, keys_of(2))["boxes"].to_list() for form in (tfds, api)]
        assert boxes[0] == boxes[1]
        assert len(boxes[0][0][0]) == 4

    @pytest.mark.parametrize(("stored", "asked"), [(1, 3), (3, 1), (1, 1)])
    def test_grey_and_colour(self, stored: int, asked: int) -> None:
        images = noise(2, channels=stored)
        raw = {
            "image": tf.constant([image.tobytes() for image in images]),
            "height": tf.fill([2], HEIGHT),
            "width": tf.fill([2], WIDTH),
            "channel": tf.fill([2], stored),
        }
        decode = decode_images(size=(HEIGHT, WIDTH), channels=asked)
        expected = images.astype(np.float32)
        if (stored, asked) == (3, 1):
            expected = (expected * [0.299, 0.587, 0.114]).sum(-1, keepdims=True)
        for form in (raw, {"image": png(images)}):
            found = decode(dict(form), keys_of(2))["image"].numpy()
            assert found.shape == (2, HEIGHT, WIDTH, asked)
            assert np.allclose(found, np.broadcast_to(expected, found.shape), atol=1)

    def test_rows_that_only_pad_a_batch_are_black(self) -> None:
        raw = {"image": tf.constant([""]), "mask": tf.constant([""])}
        raw |= {name: tf.constant([0]) for name in ("height", "width", "channel")}
        decode = decode_images(size=(4, 4), random_crop=RandomCrop())
        for form in ({"image/encoded": tf.constant([""])}, raw):
            found = decode(form, tf.constant([[0, -1]], tf.int64))
            assert found["image"].shape == (1, 4, 4, 3)
            assert not found["image"].numpy().any()

    def test_in_a_dataset_shapes_are_known(self) -> None:
        decode = decode_images(size=(8, 9), random_crop=RandomCrop())
        rows = tf.data.Dataset.from_tensor_slices((jpeg(noise(6)), keys_of(6)))
        images = rows.batch(3, drop_remainder=True).map(lambda i, k: decode({"image": i}, k))
        assert images.element_spec == {"image": tf.TensorSpec([3, 8, 9, 3])}
        assert len(list(images)) == 2


class TestObjectMasks:
    def test_each_object_keeps_its_mask(self) -> None:
        images = marked(40)
        masks = png((images[..., :1] > 0).astype(np.uint8))
        features = with_boxes(images)
        features["objects/mask"] = tf.RaggedTensor.from_row_lengths(masks, [1] * 40)
        decode = decode_images(size=(24, 24), random_crop=RandomCrop(area=(0.02, 0.1)))
        found = decode(features, keys_of(40))
        moved = augment_images(translate=0.2)(found, keys_of(40))
        for result in (found, moved):
            own, boxes = result["object_masks"], result["boxes"]
            assert 5 < int(own.row_lengths().numpy().sum()) < 40
            assert (own.row_lengths() == boxes.row_lengths()).numpy().all()
            for each, whole in zip(own, result["mask"].numpy(), strict=True):
                assert all((mask == whole).all() for mask in each.numpy())

    def test_images_without_objects(self) -> None:
        features = with_boxes(marked(2))
        for name in ("objects/bbox", "objects/label"):
            features[name] = features[name][:, :0]
        none = tf.constant([], tf.string)
        features["objects/mask"] = tf.RaggedTensor.from_row_lengths(none, [0, 0])
        found = decode_images(size=(24, 24))(features, keys_of(2))
        moved = augment_images(rotate=5.0)(found, keys_of(2))
        assert moved["object_masks"].row_lengths().numpy().tolist() == [0, 0]


class TestWindows:
    def test_crop_and_pad_keep_the_shape_of_things(self) -> None:
        features = with_boxes(marked(1))
        crop = decode_images(size=(24, 24), fit="crop")(features, keys_of(1))
        pad = decode_images(size=(32, 32), fit="pad")(features, keys_of(1))
        assert check_boxes(crop) == check_boxes(pad) == 1
        assert not pad["image"].numpy()[0, :4].any()
        box = pad["boxes"].numpy()[0, 0]
        assert np.isclose((box[3] - box[1]) / (box[2] - box[0]), 28 / 18)
        middle = crop["boxes"].numpy()[0, 0]
        assert np.allclose(middle, [12 / 48, 8 / 48, 30 / 48, 36 / 48])

    @pytest.mark.parametrize("encode", [png, jpeg])
    def test_random_crops_take_boxes_and_masks_along(self, encode: Any) -> None:
        decode = decode_images(size=(40, 40), random_crop=RandomCrop(area=(0.05, 1)))
        found = decode(with_boxes(marked(60), encode), keys_of(60))
        assert 30 < check_boxes(found, pixels=3) < 60
        assert found["boxes"].row_lengths().numpy().tolist() == (
            found["objects/label"].row_lengths().numpy().tolist()
        )
        labels = found["objects/label"].to_list()
        assert all(row in ([], [i]) for i, row in enumerate(labels))

    def test_random_crops_have_the_area_and_ratio_asked_for(self) -> None:
        rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
        images = tf.constant(np.stack([rows, columns, 0 * rows], -1)[None].repeat(200, 0))
        crop = RandomCrop(area=(0.2, 0.5), ratio=(0.5, 2.0))
        found = decode_images(size=(HEIGHT, WIDTH), random_crop=crop)(
            {"image": images}, keys_of(200)
        )
        pixels = found["image"].numpy()
        tall = pixels[:, -1, 0, 0] - pixels[:, 0, 0, 0] + 1
        wide = pixels[:, 0, -1, 1] - pixels[:, 0, 0, 1] + 1
        area = tall * wide / (HEIGHT * WIDTH)
        assert 0.18 < area.min() < 0.25
        assert 0.45 < area.max() < 0.53
        assert 0.47 < (wide / tall).min() < 0.65
        assert 1.6 < (wide / tall).max() < 2.12

    def test_where_no_crop_fits_the_middle_is_taken(self) -> None:
        crop = RandomCrop(area=(1.0, 1.0), ratio=(1.0, 1.0))
        found = decode_images(size=(48, 48), random_crop=crop)(with_boxes(marked(1)), keys_of(1))
        assert np.allclose(found["boxes"].numpy()[0, 0], [12 / 48, 8 / 48, 30 / 48, 36 / 48])

    def test_a_crop_depends_on_seed_epoch_and_record_alone(self) -> None:
        images = jpeg(noise(12))
        decode = decode_images(size=(16, 16), random_crop=RandomCrop())
        whole = decode({"image": images}, keys_of(12))["image"].numpy()
        part = decode({"image": images[5:9]}, keys_of(12)[5:9])["image"].numpy()
        later = decode({"image": images}, keys_of(12, epoch=1))["image"].numpy()
        other = decode_images(size=(16, 16), random_crop=RandomCrop(), seed=1)
        assert (whole[5:9] == part).all()
        assert (whole != later).any(axis=(1, 2, 3)).all()
        assert (whole != other({"image": images}, keys_of(12))["image"]).numpy().any()

    def test_boxes_that_are_hardly_visible_are_dropped(self) -> None:
        features = with_boxes(marked(1))
        del features["mask"]
        thin = RandomCrop(area=(0.05, 0.05), ratio=(1.0, 1.0))
        all_seen = decode_images(size=(8, 8), random_crop=thin, min_visibility=0.0)
        whole = decode_images(size=(8, 8), random_crop=thin, min_visibility=0.9)
        records = [tf.constant([[0, record]], tf.int64) for record in range(20)]
        kept = sum(int(all_seen(features, key)["boxes"].row_lengths()[0]) for key in records)
        left = sum(int(whole(features, key)["boxes"].row_lengths()[0]) for key in records)
        assert kept > left == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: decode_images(size=(0, 4)), r"size must be \(height, width\)"),
        (lambda: decode_images(size=(4, 4), channels=4), "channels must be one of 1, 3, got"),
        (lambda: decode_images(size=(4, 4), fit="squeeze"), "fit must be one of"),
        (lambda: RandomCrop(area=(0.5, 0.2)), "RandomCrop.area must be"),
        (lambda: RandomCrop(ratio=(0.0, 0.2)), "RandomCrop.ratio must be"),
        (
            lambda: decode_images(size=(4, 4))({"pixels": tf.zeros([1])}, keys_of(1)),
            "needs images in image/encoded or image, and the records have pixels",
        ),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_a_webp_that_says_to_be_an_animation_is_an_error_and_no_end_of_the_process() -> None:
    features = {"image": tf.constant([one_frame_webp()] * 8)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="WebP Animation must be 4 channel"):
        decode_images(size=(8, 8))(features, keys_of(8))
