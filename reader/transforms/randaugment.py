"""RandAugment (Cubuk et al. 2020, arXiv:1909.13719) while reading, as `recordmill images` has it.

Each image draws some of 14 operations and how much of each. Those of geometry become part of the
image's affine map; the others change one image at a time, because only those drawn are to be done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from recordmill.reader import draws
from recordmill.reader.transforms.affine import Affine, rotation
from recordmill.reader.transforms.image_decoding import LUMA

if TYPE_CHECKING:
    import tensorflow as tf

_MOST_MAGNITUDE = 10


class Drawn(NamedTuple):
    """What each image of a batch draws, both `[batch, operations]`.

    Attributes:
      operations: int32, positions in `NAMES`.
      values: float32, in the units of each.
    """

    operations: tf.Tensor
    values: tf.Tensor


def _ranges(level: float) -> dict[str, tuple[float, float]]:
    """Returns operation -> the least and largest value at a level in [0, 1]."""
    factor = (1 - 0.9 * level, 1 + 0.9 * level)
    shear, share = (-0.3 * level, 0.3 * level), (-0.45 * level, 0.45 * level)
    bits, threshold = 8 - round(4 * level), 256 - round(256 * level)
    return {
        "identity": (0, 0), "autocontrast": (0, 0), "equalize": (0, 0),
        "posterize": (bits, bits), "solarize": (threshold, threshold),
        "saturation": factor, "contrast": factor, "brightness": factor, "sharpness": factor,
        "rotate": (-30 * level, 30 * level), "shear_x": shear, "shear_y": shear,
        "translate_x": share, "translate_y": share,
    }  # fmt: skip


NAMES = tuple(_ranges(0.0))


def draw(state: tf.Tensor, *, count: int, magnitude: float) -> Drawn:
    """Draws `count` operations, of a magnitude in [0, 10], for each of `[batch] uint64` states."""
    import tensorflow as tf

    low, high = zip(*_ranges(magnitude / _MOST_MAGNITUDE).values(), strict=True)
    operations = draws.below(state, 2 * tf.range(count), len(NAMES))
    units = draws.unit(state, 2 * tf.range(count) + 1)
    least = tf.gather(tf.constant(low, tf.float32), operations)
    most = tf.gather(tf.constant(high, tf.float32), operations)
    return Drawn(operations, least + units * (most - least))


def geometry(drawn: Drawn, *, height: int, width: int) -> list[Affine]:
    """Returns the maps of the operations that move pixels, one after the other."""
    import tensorflow as tf

    steps = []
    for operation, value in zip(
        tf.unstack(drawn.operations, axis=1), tf.unstack(drawn.values, axis=1), strict=True
    ):
        chosen = {name: tf.equal(operation, i) for i, name in enumerate(NAMES)}
        turned = rotation(tf.where(chosen["rotate"], value, 0.0))
        steps.append(
            turned._replace(
                b=turned.b + tf.where(chosen["shear_x"], value, 0.0),
                c=tf.where(chosen["translate_x"], value * width, 0.0),
                d=turned.d + tf.where(chosen["shear_y"], value, 0.0),
                f=tf.where(chosen["translate_y"], value * height, 0.0),
            )
        )
    return steps


def recolour(image: tf.Tensor, drawn: Drawn) -> tf.Tensor:
    """Does the operations that change colours, on `[batch, height, width, channels] float32`."""
    import tensorflow as tf

    effects = [_COLOURS.get(name, _unchanged) for name in NAMES]

    def one(parts: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        pixels, operations, values = parts
        for i in range(drawn.operations.shape[1]):
            changes = [functools.partial(effect, pixels, values[i]) for effect in effects]
            pixels = tf.switch_case(operations[i], changes)
        return tf.ensure_shape(pixels, image.shape[1:])

    signature = tf.TensorSpec(image.shape[1:], tf.float32)
    return tf.map_fn(one, (image, *drawn), fn_output_signature=signature)


def _unchanged(pixels: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.identity(pixels)


def _whole(pixels: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.cast(tf.round(pixels), tf.int32)


def _autocontrast(pixels: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Stretches each channel to all of [0, 255]; one of a single value stays."""
    import tensorflow as tf

    low = tf.reduce_min(pixels, axis=[0, 1])
    span = tf.reduce_max(pixels, axis=[0, 1]) - low
    stretched = (pixels - low) * tf.math.divide_no_nan(255.0, span)
    return tf.where(span > 0, stretched, pixels)


def _equalize(pixels: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Gives each channel values that are about equally frequent, as Pillow does."""
    import tensorflow as tf

    whole = _whole(pixels)
    channels = []
    for values in tf.unstack(whole, axis=-1):
        counts = tf.math.bincount(tf.reshape(values, [-1]), minlength=256, maxlength=256)
        last = tf.gather(counts, tf.reduce_max(values))
        step = (tf.reduce_sum(counts) - last) // 255
        table = (step // 2 + tf.cumsum(counts, exclusive=True)) // tf.maximum(step, 1)
        equal = tf.gather(tf.minimum(table, 255), values)
        channels.append(tf.where(step > 0, equal, values))
    return tf.cast(tf.stack(channels, axis=-1), tf.float32)


def _posterize(pixels: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    steps = tf.pow(2.0, 8 - bits)
    return tf.floor(tf.round(pixels) / steps) * steps


def _solarize(pixels: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.where(pixels < threshold, pixels, 255 - pixels)


def _blend(without: tf.Tensor, pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.clip_by_value(without + (pixels - without) * factor, 0.0, 255.0)


def _grey(pixels: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    if pixels.shape[-1] == 1:
        return pixels
    return tf.tensordot(pixels, tf.constant(LUMA, tf.float32), 1)[..., None]


def _saturation(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    return _blend(_grey(pixels), pixels, factor)


def _contrast(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return _blend(tf.round(tf.reduce_mean(_grey(pixels))), pixels, factor)


def _brightness(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return _blend(tf.zeros_like(pixels), pixels, factor)


def _sharpness(pixels: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Away from a smoothed image; pixels at the edge stay, as Pillow's."""
    import tensorflow as tf

    height, width, channels = pixels.shape
    if min(height, width) < 3:
        return tf.identity(pixels)
    smooth = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32) / 13
    kernel = tf.tile(smooth[..., None, None], [1, 1, channels, 1])
    inner = tf.nn.depthwise_conv2d(pixels[None], kernel, strides=[1, 1, 1, 1], padding="VALID")[0]
    middle = _blend(inner, pixels[1:-1, 1:-1], factor)
    rows = tf.concat([pixels[1:-1, :1], middle, pixels[1:-1, -1:]], axis=1)
    return tf.concat([pixels[:1], rows, pixels[-1:]], axis=0)


_COLOURS: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "posterize": _posterize,
    "solarize": _solarize,
    "saturation": _saturation,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": _sharpness,
}
