"""Boxes of a batch of images, moved with them.

Boxes are a RaggedTensor `[batch, None, 4] float32`: ymin, xmin, ymax, xmax as shares of the image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.reader.features import Features

if TYPE_CHECKING:
    import tensorflow as tf

BOXES = "boxes"
OBJECT_MASKS = "object_masks"
_SIDES = tuple(f"image/object/bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax"))
_TFDS_BOXES = "objects/bbox"
_OBJECTS = ("image/object/", "objects/", OBJECT_MASKS)


def gather_boxes(features: Features) -> Features:
    """Returns the features with the boxes of any record format under one name."""
    import tensorflow as tf

    rest = dict(features)
    if _TFDS_BOXES in rest:
        rest[BOXES] = rest.pop(_TFDS_BOXES)
    elif _SIDES[0] in rest:
        sides = [rest.pop(name) for name in _SIDES]
        flat = tf.stack([side.flat_values for side in sides], axis=1)
        rest[BOXES] = sides[0].with_flat_values(flat)
    return rest


def crop_boxes(features: Features, windows: tf.Tensor, *, min_visibility: float) -> Features:
    """Moves boxes into windows of their images, and drops those that are too little visible.

    Args:
      features: with "boxes".
      windows: `[batch, 4] float32`: ymin, xmin, ymax, xmax as shares of the image; what lies
        beyond 0 or 1 is padding.
      min_visibility: the share of a box's area that must lie in the window.

    Returns:
      The features; other annotations of objects (`objects/…`, `image/object/…`) are dropped
      together with their boxes.
    """
    import tensorflow as tf

    boxes = features[BOXES]
    window = tf.gather(windows, boxes.value_rowids())
    origin = tf.tile(window[:, :2], [1, 2])
    extent = tf.tile(window[:, 2:] - window[:, :2], [1, 2])
    moved = boxes.with_flat_values((boxes.flat_values - origin) / extent)
    return clip_boxes({**features, BOXES: moved}, min_visibility=min_visibility)


def clip_boxes(features: Features, *, min_visibility: float) -> Features:
    """Cuts boxes at the image's edges, and drops those that are too little visible.

    Arguments and result are those of `crop_boxes`.
    """
    import tensorflow as tf

    boxes = features[BOXES]
    clipped = tf.clip_by_value(boxes.flat_values, 0.0, 1.0)
    area = _area(clipped)
    is_visible = (area > 0) & (area >= min_visibility * _area(boxes.flat_values))
    kept = boxes.with_values(is_visible)
    result = {**features, BOXES: boxes.with_flat_values(clipped)}
    objects = [name for name in result if name == BOXES or name.startswith(_OBJECTS)]
    return result | {name: tf.ragged.boolean_mask(result[name], kept) for name in objects}


def flip_boxes(features: Features, flipped: tf.Tensor, *, axis: int) -> Features:
    """Mirrors the boxes of images where `flipped`, `[batch] bool`, is True.

    Axis 0 is up and down, 1 left and right.
    """
    import tensorflow as tf

    boxes = features[BOXES]
    low, high = axis, axis + 2
    sides = tf.unstack(boxes.flat_values, num=4, axis=1)
    sides[low], sides[high] = 1 - sides[high], 1 - sides[low]
    mirrored = tf.stack(sides, axis=1)
    chosen = tf.gather(flipped, boxes.value_rowids())[:, None]
    flat = tf.where(chosen, mirrored, boxes.flat_values)
    return {**features, BOXES: boxes.with_flat_values(flat)}


def turn_boxes(features: Features, quarters: tf.Tensor) -> Features:
    """Turns the boxes of images by `quarters`, `[batch] int32` in [0, 4), counterclockwise."""
    import tensorflow as tf

    boxes = features[BOXES]
    ymin, xmin, ymax, xmax = tf.unstack(boxes.flat_values, num=4, axis=1)
    turned = [
        tf.stack(sides, axis=1)
        for sides in (
            (ymin, xmin, ymax, xmax),
            (1 - xmax, ymin, 1 - xmin, ymax),
            (1 - ymax, 1 - xmax, 1 - ymin, 1 - xmin),
            (xmin, 1 - ymax, xmax, 1 - ymin),
        )
    ]
    chosen = tf.gather(quarters, boxes.value_rowids())
    flat = tf.gather(tf.stack(turned, axis=1), chosen, batch_dims=1)
    return {**features, BOXES: boxes.with_flat_values(flat)}


def _area(boxes: tf.Tensor) -> tf.Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
