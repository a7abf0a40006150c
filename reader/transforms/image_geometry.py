"""Geometry of augmentations: what moves pixels moves masks and boxes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recordmill.reader.features import Features
from recordmill.reader.transforms import boxes as box_ops
from recordmill.reader.transforms.affine import Affine

if TYPE_CHECKING:
    import tensorflow as tf


def flip(features: Features, flipped: tf.Tensor, *, axis: int) -> Features:
    """Mirrors the images where `flipped`, `[batch] bool`, is True; axis 0 is up and down."""
    import tensorflow as tf

    def mirror(pixels: tf.Tensor, chosen: tf.Tensor, _: bool) -> tf.Tensor:
        """One by one: tf.where on all images and their mirror images takes six times as long."""

        def one(parts: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            image, is_chosen = parts
            return tf.cond(is_chosen, lambda: tf.reverse(image, [axis]), lambda: image)

        signature = tf.TensorSpec(pixels.shape[1:], pixels.dtype)
        return tf.map_fn(one, (pixels, chosen), fn_output_signature=signature)

    result = _each_pixels(features, flipped, mirror)
    return box_ops.flip_boxes(result, flipped, axis=axis) if box_ops.BOXES in result else result


def turn(features: Features, quarters: tf.Tensor) -> Features:
    """Turns images by `quarters`, `[batch] int32` in [0, 4), counterclockwise.

    Images that are not square are stretched to the shape they had, as `--image_size` does it:
    pixels bilinearly, masks by the nearest.
    """
    result = _each_pixels(features, quarters, _turned)
    return box_ops.turn_boxes(result, quarters) if box_ops.BOXES in result else result


def _turned(pixels: tf.Tensor, quarters: tf.Tensor, is_mask: bool) -> tf.Tensor:
    """Turns `[images, height, width, channels]`, one by one as in `flip`."""
    import tensorflow as tf

    height, width, _ = shape = pixels.shape[1:]

    def stretched(image: tf.Tensor) -> tf.Tensor:
        if height == width:
            return image
        method = "nearest" if is_mask else "bilinear"
        return tf.image.resize(image, (height, width), method, antialias=not is_mask)

    def one(parts: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image, count = parts
        turns: list[Callable[[], tf.Tensor]] = [
            lambda: image,
            lambda: stretched(tf.reverse(tf.transpose(image, [1, 0, 2]), [0])),
            lambda: tf.reverse(image, [0, 1]),
            lambda: stretched(tf.reverse(tf.transpose(image, [1, 0, 2]), [1])),
        ]
        return tf.switch_case(count, turns)

    return tf.map_fn(
        one, (pixels, quarters), fn_output_signature=tf.TensorSpec(shape, pixels.dtype)
    )


def move(features: Features, forward: Affine, *, min_visibility: float) -> Features:
    """Moves images, bilinearly, masks by the nearest pixel, and boxes; 0 comes from beyond.

    Args:
      features: with decoded images.
      forward: from pixels of each image to those of the result.
      min_visibility: the share of a box's area below which it is dropped.
    """
    import tensorflow as tf

    forward = forward.broadcast(tf.shape(features["image"])[0])
    height, width = features["image"].shape[1:3]

    def warp(pixels: tf.Tensor, by: tf.Tensor, is_mask: bool) -> tf.Tensor:
        moved = tf.raw_ops.ImageProjectiveTransformV3(
            images=pixels,
            transforms=by,
            output_shape=[height, width],
            fill_value=0.0,
            interpolation="NEAREST" if is_mask else "BILINEAR",
            fill_mode="CONSTANT",
        )
        return tf.ensure_shape(moved, pixels.shape)

    result = _each_pixels(features, forward.inverse().projective(), warp)
    if box_ops.BOXES in result:
        boxes = result[box_ops.BOXES]
        rows = boxes.value_rowids()
        a, b, c, d, e, f = (tf.gather(value, rows)[:, None] for value in forward)
        ymin, xmin, ymax, xmax = tf.unstack(boxes.flat_values, num=4, axis=1)
        xs = tf.stack([xmin, xmax, xmin, xmax], axis=1) * width
        ys = tf.stack([ymin, ymin, ymax, ymax], axis=1) * height
        down, right = (d * xs + e * ys + f) / height, (a * xs + b * ys + c) / width
        around = [
            tf.reduce_min(down, axis=1), tf.reduce_min(right, axis=1),
            tf.reduce_max(down, axis=1), tf.reduce_max(right, axis=1),
        ]  # fmt: skip
        result[box_ops.BOXES] = boxes.with_flat_values(tf.stack(around, axis=1))
        result = box_ops.clip_boxes(result, min_visibility=min_visibility)
    return result


def _each_pixels(
    features: Features,
    by: tf.Tensor,
    change: Callable[[tf.Tensor, tf.Tensor, bool], tf.Tensor],
) -> Features:
    """Changes images, masks and masks of objects.

    Args:
      features: with decoded images.
      by: one row for each image, which its objects share.
      change: takes `[images, height, width, channels]`, their rows of `by`, and whether they are
        masks.
    """
    import tensorflow as tf

    result = {**features, "image": change(features["image"], by, False)}
    if "mask" in features:
        result["mask"] = change(features["mask"][..., None], by, True)[..., 0]
    if box_ops.OBJECT_MASKS in features:
        masks = features[box_ops.OBJECT_MASKS]
        rows = tf.gather(by, masks.value_rowids())
        changed = change(masks.flat_values[..., None], rows, True)[..., 0]
        result[box_ops.OBJECT_MASKS] = masks.with_flat_values(changed)
    return result
