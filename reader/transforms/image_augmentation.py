"""Random changes of decoded images, whole batches at a time, and their normalisation.

Whatever moves pixels moves masks and boxes with them. All draws come from (seed, epoch, record).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.reader import draws
from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.transforms import boxes as box_ops
from recordmill.reader.transforms.augmentation_names import (
    Augmentation,
    Strength,
    make_augmentation,
)
from recordmill.reader.transforms.image_decoding import LUMA
from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.records.statistics_file import read_split_statistics

if TYPE_CHECKING:
    import tensorflow as tf

_TO_YIQ = np.array([LUMA, (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112)])
_DRAWS = 12


def augment_images(
    augmentations: str = "",
    *,
    flip: Strength | None = None,
    vertical_flip: Strength | None = None,
    rotate: Strength = 0.0,
    translate: Strength = 0.0,
    scale: Strength | None = None,
    brightness: Strength = 0.0,
    contrast: Strength = 0.0,
    saturation: Strength = 0.0,
    color: Strength | None = None,
    hue: float = 0.0,
    min_visible: Strength | None = None,
    flip_left_right: float | None = None,
    flip_up_down: float | None = None,
    zoom: tuple[float, float] | None = None,
    min_visibility: float | None = None,
    seed: int = 0,
) -> Transform:
    """Returns a transform that changes decoded images at random, with their masks and boxes.

    It changes what `decode_images` made: "image", "mask", "boxes" and "object_masks". Shapes and
    dtypes stay, and pixels stay in [0, 255]; what comes from beyond the edge is 0. What happens to
    a record depends on seed, epoch and the record alone. Names and strengths are those of
    `recordmill images --augmentations`: True is the strength of a name without one there.

    Args:
      augmentations: such as "flip,rotate(10),color", instead of the operations below; what it does
        not name is not done. `crop` is `decode_images(crop=…)`.
      flip, vertical_flip: probabilities, True is 0.5. Without `augmentations` flip is 0.5.
      rotate: up to so many degrees, either way, about the middle; True is 15.
      translate: up to this share of height and width, each way; True is 0.1.
      scale: the factor is drawn from `[1 - x, 1 + x]`; True is 0.2.
      brightness, contrast, saturation: as scale; `color` is all three.
      hue: the shift is drawn from `[-x, x]`, in turns of the colour circle, at most 0.5.
      min_visible: boxes of which less than this share of the area is left are dropped: by default
        0, with `augmentations` 0.1, which True is too.
      flip_left_right, flip_up_down, min_visibility: other names of flip, vertical_flip and
        min_visible.
      zoom: the least and largest factor, instead of `scale`.
      seed: of the draws.

    Raises:
      UsageError: a wrong value, two names for one thing, or an operation that readers lack.
    """
    spec = make_augmentation(
        augmentations,
        {
            "flip": flip, "vertical_flip": vertical_flip, "rotate": rotate,
            "translate": translate, "scale": scale, "brightness": brightness,
            "contrast": contrast, "saturation": saturation, "color": color, "hue": hue,
            "min_visible": min_visible, "flip_left_right": flip_left_right,
            "flip_up_down": flip_up_down, "min_visibility": min_visibility,
        },
        zoom=zoom,
    )  # fmt: skip

    return in_graph(_Augment(spec, seed))


@dataclass(frozen=True, slots=True)
class _Augment:
    """The transform of `augment_images`."""

    spec: Augmentation
    seed: int

    def __call__(self, features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        spec = self.spec
        _check_decoded(features)
        state = draws.start(keys, seed=self.seed, purpose="augmentation")
        units = tf.unstack(draws.unit(state, tf.range(_DRAWS)), num=_DRAWS, axis=1)
        result = dict(features)
        for axis, (probability, unit) in enumerate(
            zip((spec.flip_up_down, spec.flip_left_right), units[:2], strict=True)
        ):
            if probability:
                result = _flip(result, unit < probability, axis=axis)
        if spec.moves:
            result = _move(result, units[2:6], spec)
        if spec.colours:
            result["image"] = _recolour(result["image"], units[6:10], spec)
        return result


def _check_decoded(features: Features) -> None:
    import tensorflow as tf

    image = features.get("image")
    if image is None or image.dtype != tf.float32:
        raise UsageError(
            "augment_images and normalise_images need decoded images: put decode_images before "
            "them, transform=[decode_images(…), …]"
        )


def _flip(features: Features, flipped: tf.Tensor, *, axis: int) -> Features:
    import tensorflow as tf

    result = dict(features)
    for name in ("image", "mask"):
        if name in features:
            result[name] = _mirror(features[name], flipped, axis=axis)
    if box_ops.OBJECT_MASKS in features:
        masks = features[box_ops.OBJECT_MASKS]
        mirrored = _mirror(masks.flat_values, tf.gather(flipped, masks.value_rowids()), axis=axis)
        result[box_ops.OBJECT_MASKS] = masks.with_flat_values(mirrored)
    if box_ops.BOXES in features:
        result = box_ops.flip_boxes(result, flipped, axis=axis)
    return result


def _mirror(pixels: tf.Tensor, chosen: tf.Tensor, *, axis: int) -> tf.Tensor:
    """Mirrors some images of `[images, height, width, …]`.

    One by one: tf.where on all of them and their mirror images takes six times as long.
    """
    import tensorflow as tf

    def one(parts: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image, is_chosen = parts
        return tf.cond(is_chosen, lambda: tf.reverse(image, [axis]), lambda: image)

    signature = tf.TensorSpec(pixels.shape[1:], pixels.dtype)
    return tf.map_fn(one, (pixels, chosen), fn_output_signature=signature)


def _spread(unit: tf.Tensor, reach: float) -> tf.Tensor:
    """Returns a draw uniform in `[-reach, reach]`."""
    return (2 * unit - 1) * reach


def _move(features: Features, units: Sequence[tf.Tensor], spec: Augmentation) -> Features:
    """Rotates, zooms and shifts."""
    import tensorflow as tf

    height, width = features["image"].shape[1:3]
    angle = _spread(units[0], spec.rotate * math.pi / 180)
    zoom = spec.zoom[0] + units[1] * (spec.zoom[1] - spec.zoom[0])
    down = _spread(units[2], spec.translate * height)
    right = _spread(units[3], spec.translate * width)
    cos, sin = tf.cos(angle), tf.sin(angle)

    # From a pixel of the result to one of the source, about the middle of both.
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    a, b = cos / zoom, sin / zoom
    x0 = middle_x - a * (middle_x + right) - b * (middle_y + down)
    y0 = middle_y + b * (middle_x + right) - a * (middle_y + down)
    nothing = tf.zeros_like(a)
    matrix = tf.stack([a, b, x0, -b, a, y0, nothing, nothing], axis=1)

    def warp(pixels: tf.Tensor, interpolation: str, by: tf.Tensor = matrix) -> tf.Tensor:
        moved = tf.raw_ops.ImageProjectiveTransformV3(
            images=pixels,
            transforms=by,
            output_shape=[height, width],
            fill_value=0.0,
            interpolation=interpolation,
            fill_mode="CONSTANT",
        )
        return tf.ensure_shape(moved, pixels.shape)

    result = {**features, "image": warp(features["image"], "BILINEAR")}
    if "mask" in features:
        result["mask"] = warp(features["mask"][..., None], "NEAREST")[..., 0]
    if box_ops.OBJECT_MASKS in features:
        masks = features[box_ops.OBJECT_MASKS]
        by = tf.gather(matrix, masks.value_rowids())
        warped = warp(masks.flat_values[..., None], "NEAREST", by)[..., 0]
        result[box_ops.OBJECT_MASKS] = masks.with_flat_values(warped)
    if box_ops.BOXES in features:
        boxes = features[box_ops.BOXES]
        rows = boxes.value_rowids()

        def each(values: tf.Tensor) -> tf.Tensor:
            return tf.gather(values, rows)[:, None]

        ymin, xmin, ymax, xmax = tf.unstack(boxes.flat_values, num=4, axis=1)
        xs = tf.stack([xmin, xmax, xmin, xmax], axis=1) * width - width / 2
        ys = tf.stack([ymin, ymin, ymax, ymax], axis=1) * height - height / 2
        forward_x = each(zoom) * (each(cos) * xs - each(sin) * ys) + each(right) + width / 2
        forward_y = each(zoom) * (each(sin) * xs + each(cos) * ys) + each(down) + height / 2
        around = [
            tf.reduce_min(forward_y, axis=1) / height,
            tf.reduce_min(forward_x, axis=1) / width,
            tf.reduce_max(forward_y, axis=1) / height,
            tf.reduce_max(forward_x, axis=1) / width,
        ]
        result[box_ops.BOXES] = boxes.with_flat_values(tf.stack(around, axis=1))
        result = box_ops.clip_boxes(result, min_visibility=spec.min_visibility)
    return result


def _recolour(image: tf.Tensor, units: Sequence[tf.Tensor], spec: Augmentation) -> tf.Tensor:
    """Brightness, contrast, saturation and hue, as one matrix and one shift for each image.

    Saturation and hue leave grey as it is, so the shift that contrast needs, a grey, may come last.
    """
    import tensorflow as tf

    reaches = (spec.brightness, spec.contrast, spec.saturation)
    brightness, contrast, saturation = (
        1 + _spread(unit, reach) for unit, reach in zip(units[:3], reaches, strict=True)
    )
    factor = (brightness * contrast)[:, None, None, None]
    if image.shape[-1] == 3:
        luma = tf.constant(LUMA, tf.float32)
        grey = tf.reduce_mean(tf.tensordot(image, luma, 1), axis=[1, 2])
        matrix = _colour_matrix(saturation, _spread(units[3], spec.hue * 2 * math.pi))
        flat = tf.reshape(image, [-1, image.shape[1] * image.shape[2], 3])
        mixed = tf.reshape(tf.matmul(flat, matrix, transpose_b=True), tf.shape(image))
    else:
        grey = tf.reduce_mean(image, axis=[1, 2, 3])
        mixed = image
    shift = (grey * brightness * (1 - contrast))[:, None, None, None]
    return tf.ensure_shape(tf.clip_by_value(mixed * factor + shift, 0.0, 255.0), image.shape)


def _colour_matrix(saturation: tf.Tensor, angle: tf.Tensor) -> tf.Tensor:
    """Returns `[batch, 3, 3]`: the plane of chroma of YIQ turned and stretched."""
    import tensorflow as tf

    cos, sin = saturation * tf.cos(angle), saturation * tf.sin(angle)
    one, none = tf.ones_like(cos), tf.zeros_like(cos)
    turn = tf.stack([one, none, none, none, cos, -sin, none, sin, cos], axis=1)
    there = tf.constant(_TO_YIQ, tf.float32)
    back = tf.constant(np.linalg.inv(_TO_YIQ), tf.float32)
    return tf.einsum("ij,bjk,kl->bil", back, tf.reshape(turn, [-1, 3, 3]), there)


def normalise_images(
    *,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    dataset: str | os.PathLike[str] | None = None,
    split: str = "train",
) -> Transform:
    """Returns a transform that makes (image - mean) / std of decoded images.

    Args:
      mean, std: of pixel values in [0, 255], one number or one a channel. 127.5 and 127.5 give
        [-1, 1]; 0 and 255 give [0, 1].
      dataset: the folder of a dataset whose `_meta/statistics.json` has them; instead of both.
      split: of that dataset.

    Raises:
      UsageError: neither or both given, a std of 0, or no such statistics.
    """
    if (dataset is None) == (mean is None or std is None) or (
        dataset is not None and mean is not None
    ):
        raise UsageError("normalise_images needs mean and std, or dataset, and not both")
    if dataset is not None:
        mean, std = _stored_statistics(os.fspath(dataset), split)
    shift, scale = np.asarray(mean, np.float32), np.asarray(std, np.float32)
    if not (scale > 0).all():
        raise UsageError(f"std must be above 0, got {std}")

    def transform(features: Features, _: tf.Tensor) -> Features:
        _check_decoded(features)
        return {**features, "image": (features["image"] - shift) / scale}

    return in_graph(transform)


def _stored_statistics(dataset: str, split: str) -> tuple[Any, Any]:
    import tensorflow as tf

    path = f"{dataset.rstrip('/')}/{STATISTICS_PATH}"
    try:
        with tf.io.gfile.GFile(path, "rb") as handle:
            statistics = read_split_statistics(handle.read(), split, dataset.rstrip("/"))
        if statistics.channel_mean is None or statistics.channel_std is None:
            raise ValueError("they are not there")
        return statistics.channel_mean, statistics.channel_std
    except (tf.errors.OpError, ValueError) as error:
        raise UsageError(
            f"{path} must hold channel_mean and channel_std of split {split!r}, and does not: "
            "write it with --statistics=sample, or give mean and std"
        ) from error
