"""Augmentations while reading do what the writer's do: the same pixels, and draws of one range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageFilter

from recordmill.reader import draws
from recordmill.reader.transforms import randaugment
from recordmill.reader.transforms.image_augmentation import augment_images
from recordmill.transforms.images.augmentation import Draws, draw, output_matrix
from recordmill.transforms.images.colors import recolour
from recordmill.transforms.images.geometry import render
from recordmill.transforms.images.image_spec import AugmentationSpec, TransformSpec

from ...pictures import drawn
from .test_image_augmentation import decoded
from .test_image_decoding import HEIGHT, WIDTH, keys_of, marked

SEED = 3
SQUARE = 40


def photos(count: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    return np.stack([np.asarray(drawn(width, height, seed=i)) for i in range(count)])


def augmented(images: np.ndarray, text: str, *, seed: int = SEED) -> np.ndarray:
    features = {"image": tf.constant(images, tf.float32)}
    found = augment_images(text, seed=seed)(features, keys_of(len(images)))["image"].numpy()
    assert found.shape == images.shape
    assert found.min() >= 0
    assert found.max() <= 255
    return found


def units(operation: str, count: int, draw: int = 0, *, seed: int = SEED) -> np.ndarray:
    state = draws.start(keys_of(count), seed=seed, purpose=f"augmentation/{operation}")
    return draws.unit(state, tf.constant([draw])).numpy()[:, 0]


def quarters(count: int) -> np.ndarray:
    state = draws.start(keys_of(count), seed=SEED, purpose="augmentation/rot90")
    return draws.below(state, tf.range(1), 4).numpy()[:, 0]


def inner(images: np.ndarray, margin: int = 2) -> np.ndarray:
    return images[..., margin:-margin, margin:-margin, :]


class TestQuarterTurns:
    def test_squares_are_turned_exactly(self) -> None:
        images = photos(24, SQUARE, SQUARE)
        found = augmented(images, "rot90")
        counts = quarters(24)
        assert set(counts) == {0, 1, 2, 3}
        for image, count, result in zip(images, counts, found, strict=True):
            np.testing.assert_array_equal(result, np.rot90(image, count))
            parameters = {"rot90": int(count)}
            matrix, size = output_matrix(parameters, (SQUARE, SQUARE), TransformSpec())
            written = render(
                Image.fromarray(image), matrix, size, resample="bilinear", fill=(0, 0, 0)
            )
            np.testing.assert_array_equal(result, np.asarray(written))

    def test_others_are_stretched_as_the_writer_stretches_them(self) -> None:
        images = photos(12)
        found = augmented(images, "rot90")
        spec = TransformSpec(size=(HEIGHT, WIDTH))
        for image, count, result in zip(images, quarters(12), found, strict=True):
            matrix, size = output_matrix({"rot90": int(count)}, (WIDTH, HEIGHT), spec)
            written = render(
                Image.fromarray(image), matrix, size, resample="bilinear", fill=(0, 0, 0)
            )
            np.testing.assert_allclose(result, np.asarray(written), atol=1.5)

    @pytest.mark.parametrize("square", [True, False])
    def test_masks_and_boxes_turn_with_the_image(self, square: bool) -> None:
        images = marked(24)[:, :, :HEIGHT] if square else marked(24)
        width = images.shape[2]
        box = np.array([12 / HEIGHT, 16 / width, 30 / HEIGHT, 44 / width], np.float32)
        features = decoded(images) | {
            "boxes": tf.RaggedTensor.from_row_lengths(np.tile(box, (24, 1)), [1] * 24),
            "object_masks": tf.RaggedTensor.from_row_lengths(
                tf.constant(images[..., 0] > 0, tf.uint8), [1] * 24
            ),
        }
        found = augment_images("rot90", seed=SEED)(features, keys_of(24))
        boxes = found["boxes"].to_tensor().numpy()[:, 0]
        masks, objects = found["mask"].numpy(), found["object_masks"].to_tensor().numpy()[:, 0]
        assert (masks == objects).all()
        assert len({tuple(box) for box in boxes.round(4)}) == 4
        for mask, (ymin, xmin, ymax, xmax) in zip(masks, boxes, strict=True):
            rows, columns = np.nonzero(mask.any(axis=1))[0], np.nonzero(mask.any(axis=0))[0]
            expected = (rows[0], columns[0], rows[-1] + 1, columns[-1] + 1)
            pixels = np.array([ymin * HEIGHT, xmin * width, ymax * HEIGHT, xmax * width])
            np.testing.assert_allclose(pixels, expected, atol=1e-3 if square else 1.01)
        if square:
            turned = [np.rot90(m, k) for m, k in zip(images[..., 0] > 0, quarters(24), strict=True)]
            np.testing.assert_array_equal(masks, turned)


class TestShear:
    def test_pixels_are_those_of_the_writer(self) -> None:
        images = photos(12)
        found = augmented(images, "shear(0.3)")
        slants = (2 * units("shear", 12) - 1) * 0.3
        for image, slant, result in zip(images, slants, found, strict=True):
            parameters = {"shear": [float(slant), 0.0]}
            matrix, size = output_matrix(parameters, (WIDTH, HEIGHT), TransformSpec())
            moved, there = (
                np.asarray(render(part, matrix, size, resample="bilinear", fill=(0, 0, 0)))
                for part in (Image.fromarray(image), Image.new("RGB", size, (255, 255, 255)))
            )
            within = inner(there == 255) & inner(np.roll(there, 1, 1) == 255)
            within &= inner(np.roll(there, -1, 1) == 255)
            assert within.mean() > 0.6
            np.testing.assert_allclose(inner(result)[within], inner(moved)[within], atol=1.5)

    def test_boxes_hold_what_was_slanted(self) -> None:
        found = augment_images(shear=0.4, flip=False)(decoded(marked(20)), keys_of(20))
        size = np.array([HEIGHT, WIDTH, HEIGHT, WIDTH])
        boxes = found["boxes"].to_tensor().numpy()[:, 0] * size
        for mask, box in zip(found["mask"].numpy(), boxes, strict=True):
            rows, columns = np.nonzero(mask)
            around = (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1)
            np.testing.assert_allclose(box, around, atol=1.5)


@pytest.mark.parametrize("most", [0.3, 1.0, 4.0])
def test_blur_is_pillows(most: float) -> None:
    images = photos(10)
    found = augmented(images, f"blur({most})")
    sigmas = units("blur", 10) * most
    margin = int(3 * most) + 2
    for image, sigma, result in zip(images, sigmas, found, strict=True):
        written = np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(float(sigma))))
        np.testing.assert_allclose(
            inner(result, margin), inner(written, margin), atol=3
        )  # it rounds six times
        assert abs(inner(result, margin) - inner(written, margin)).mean() < 0.5
        np.testing.assert_allclose(result, written, atol=8)  # Pillow repeats the edge each time
    assert abs(found - images).max() > 1


def test_noise_has_the_writers_distribution() -> None:
    images = np.full((60, 40, 40, 3), 127, np.uint8)
    found = augmented(images, "noise(0.1)") - 127
    deviations = found.std(axis=(1, 2, 3)) / 255
    np.testing.assert_allclose(deviations, units("noise", 60) * 0.1, rtol=0.05, atol=1e-4)
    assert (abs(found.mean(axis=(1, 2, 3))) < 5 * 255 * deviations / np.sqrt(4800) + 0.01).all()
    loud, state = found[deviations.argmax()], float(deviations.max())
    written = recolour(Image.fromarray(images[0]), {"noise": [state, 5]}, (0, 0, 0))
    theirs = np.asarray(written).astype(float) - 127
    for share in (5, 25, 75, 95):
        np.testing.assert_allclose(
            np.percentile(loud, share), np.percentile(theirs, share), atol=0.12 * 255 * state
        )
    # Values of a pixel, its channels and its neighbours have nothing to do with each other.
    for one, other in ((loud[1:], loud[:-1]), (loud[..., 0], loud[..., 1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.1


@pytest.mark.parametrize("share", [0.25, 0.9])
def test_cutout_is_the_writers(share: float) -> None:
    images = photos(20)
    found = augmented(images, f"cutout({share})")
    centres = zip(units("cutout", 20), units("cutout", 20, 1), strict=True)
    for image, (x, y), result in zip(images, centres, found, strict=True):
        parameters = {"cutout": [float(x), float(y), share]}
        written = recolour(Image.fromarray(image), parameters, (0, 0, 0))
        np.testing.assert_array_equal(result, np.asarray(written))


@pytest.mark.parametrize("operation", ["rot90", "shear", "blur", "noise", "cutout"])
def test_draws_have_the_writers_range(operation: str) -> None:
    """The same strengths give draws of the same least, middle and largest values."""
    count = 2000
    spec = AugmentationSpec.parse(operation)
    theirs = [
        np.ravel(draw(spec, (WIDTH, HEIGHT), seed=1, key=key, copy=1)[operation])[0]
        for key in range(count)
    ]
    ours = {
        "rot90": lambda: quarters(count),
        "shear": lambda: (2 * units("shear", count) - 1) * 0.1,
        "blur": lambda: units("blur", count),
        "noise": lambda: units("noise", count) * 0.05,
        "cutout": lambda: units("cutout", count),
    }[operation]()
    spread = np.max(theirs) - np.min(theirs)
    for share in (0, 10, 50, 90, 100):
        found, expected = np.percentile(ours, share), np.percentile(theirs, share)
        assert abs(found - expected) < (1e-9 if operation == "rot90" else 0.06 * spread)


class TestRandAugment:
    def test_operations_and_values_are_the_writers(self) -> None:
        state = draws.start(keys_of(6000), seed=1, purpose="augmentation/randaugment")
        found = randaugment.draw(state, count=2, magnitude=9.0)
        operations, values = found.operations.numpy().ravel(), found.values.numpy().ravel()
        spec = AugmentationSpec.parse("randaugment(2,9)")
        theirs: dict[str, list[float]] = {name: [] for name in randaugment.NAMES}
        for key in range(6000):
            for name, value in draw(spec, (9, 9), seed=1, key=key, copy=1)["randaugment"]:
                theirs[name].append(value)
        for i, name in enumerate(randaugment.NAMES):
            ours = values[operations == i]
            assert abs(len(ours) - len(theirs[name])) < 150
            spread = max(theirs[name]) - min(theirs[name])
            for share in (0, 25, 50, 75, 100):
                expected = np.percentile(theirs[name], share)
                assert abs(np.percentile(ours, share) - expected) <= 0.08 * spread

    @pytest.mark.parametrize("name", randaugment.NAMES)
    def test_pixels_are_the_writers(self, name: str) -> None:
        """Every operation alone, on pictures whose colours use a part of the range."""
        images = (photos(6) * 0.6 + 40).astype(np.uint8)
        number = randaugment.NAMES.index(name)
        low, high = randaugment._ranges(0.9)[name]
        values = np.linspace(low, high, len(images)).astype(np.float32)
        chosen = randaugment.Drawn(
            tf.fill([len(images), 1], number), tf.constant(values[:, None], tf.float32)
        )
        (step,) = randaugment.geometry(chosen, height=HEIGHT, width=WIDTH)
        found = randaugment.recolour(tf.constant(images, tf.float32), chosen).numpy()
        for image, value, result, i in zip(images, values, found, range(len(images)), strict=True):
            whole = int(value) if name in ("posterize", "solarize") else float(value)
            parameters = {"randaugment": [[name, whole]]}
            written = np.asarray(recolour(Image.fromarray(image), parameters, (0, 0, 0)))
            np.testing.assert_allclose(result, written, atol=2)
            assert abs(result - written).mean() < 0.7
            matrix, _ = output_matrix(parameters, (WIDTH, HEIGHT), TransformSpec())
            linear = [float(np.ravel(number)[i % np.size(number)]) for number in step]
            np.testing.assert_allclose(
                linear[:2] + linear[3:5], matrix[:2] + matrix[3:5], atol=1e-5
            )
            middle = matrix.apply(np.array([[WIDTH / 2, HEIGHT / 2]]))[0]
            np.testing.assert_allclose(
                [linear[2], linear[5]], middle - [WIDTH / 2, HEIGHT / 2], atol=1e-4
            )

    def test_masks_and_boxes_follow(self) -> None:
        found = augment_images(randaugment=(3, 10), flip=False)(decoded(marked(40)), keys_of(40))
        size = np.array([HEIGHT, WIDTH, HEIGHT, WIDTH])
        moved = 0
        for mask, boxes in zip(found["mask"].numpy(), found["boxes"].to_list(), strict=True):
            rows, columns = np.nonzero(mask)
            if not boxes:
                assert len(rows) == 0
                continue
            around = np.array([rows.min(), columns.min(), rows.max() + 1, columns.max() + 1])
            box = np.array(boxes[0]) * size
            assert (box[:2] - 1.5 <= around[:2]).all()
            assert (box[2:] + 1.5 >= around[2:]).all()
            moved += bool(abs(around - np.array([12, 16, 30, 44])).max() > 2)
        assert moved > 15

    def test_grey_images(self) -> None:
        images = photos(30)[..., :1]
        found = augmented(images, "randaugment(2,9)")
        assert (abs(found - images).max(axis=(1, 2, 3)) > 1).sum() > 15


ALL = "rot90,shear,blur,noise,cutout,randaugment"


def test_a_record_is_changed_alike_in_any_batch() -> None:
    images = photos(10, SQUARE, SQUARE).astype(np.float32)

    def changed(part: slice, seed: int = SEED, epoch: int = 0) -> Any:
        keys = keys_of(10, epoch)[part]
        return augment_images(ALL, seed=seed)({"image": tf.constant(images[part])}, keys)["image"]

    whole = changed(slice(0, 10)).numpy()
    np.testing.assert_allclose(changed(slice(3, 5)).numpy(), whole[3:5], atol=1e-3)
    for other in (changed(slice(0, 10), seed=4), changed(slice(0, 10), epoch=1)):
        assert (abs(other.numpy() - whole).max(axis=(1, 2, 3)) > 5).all()


def test_effects_come_in_the_order_of_the_text() -> None:
    images = photos(8)
    last = augmented(images, "noise(0.3),cutout(0.9)")
    first = augmented(images, "cutout(0.9),noise(0.3)")
    black = (augmented(images, "cutout(0.9)") == 0) & (images > 40)
    assert black.mean() > 0.2
    assert (last[black] == 0).all()
    assert (first[black] > 0).mean() > 0.2


def test_as_a_graph_of_any_batch_size() -> None:
    """Shapes stay known, and the graph is traced once."""
    images, keys = tf.constant(photos(7), tf.float32), keys_of(7)
    transform = augment_images(ALL, seed=SEED)
    dataset = tf.data.Dataset.from_tensor_slices((images, keys)).batch(3)
    changed = dataset.map(lambda image, keys: transform({"image": image}, keys)["image"])
    assert changed.element_spec.shape.as_list() == [None, HEIGHT, WIDTH, 3]
    found = np.concatenate(list(changed.as_numpy_iterator()))
    # Graphs differ in the last bits of floats, which can move a value to the next integer.
    difference = abs(found - transform({"image": images}, keys)["image"])
    assert np.mean(difference > 1e-3) < 0.001


def test_the_writers_draws_are_not_the_readers() -> None:
    """Both are functions of seed and record; neither repeats the other's by accident."""
    written = [Draws(SEED, "blur", key, 1).between(0, 1) for key in range(50)]
    assert abs(np.corrcoef(written, units("blur", 50))[0, 1]) < 0.5
