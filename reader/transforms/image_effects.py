"""Effects of augmentations that move no pixel: colours, blur, noise, cutout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recordmill.reader import draws
from recordmill.reader.transforms.image_decoding import LUMA

if TYPE_CHECKING:
    import tensorflow as tf

_TO_YIQ = np.array([LUMA, (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112)])
# The sum of four uniform 16-bit numbers has this standard deviation.
_SUM_DEVIATION = 65536 / 3**0.5
_BOXES = 3  # so many box filters, one after the other, are near to a Gaussian


class Colours(NamedTuple):
    """How much brightness, contrast, saturation and hue change; the units are their arguments'."""

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0


def spread(unit: tf.Tensor, reach: float) -> tf.Tensor:
    """Returns a draw uniform in `[-reach, reach]` of one in [0, 1)."""
    return (2 * unit - 1) * reach


def recolour(image: tf.Tensor, units: Sequence[tf.Tensor], reaches: Colours) -> tf.Tensor:
    """Brightness, contrast, saturation and hue, as one matrix and one shift for each image.

    Saturation and hue leave grey as it is, so the shift that contrast needs, a grey, may come last.

    Args:
      image: `[batch, height, width, channels] float32`.
      units: four draws in [0, 1), each `[batch]`.
      reaches: how much of each.
    """
    import tensorflow as tf

    brightness, contrast, saturation = (
        1 + spread(unit, reach) for unit, reach in zip(units[:3], reaches[:3], strict=True)
    )
    factor = (brightness * contrast)[:, None, None, None]
    if image.shape[-1] == 3:
        luma = tf.constant(LUMA, tf.float32)
        grey = tf.reduce_mean(tf.tensordot(image, luma, 1), axis=[1, 2])
        matrix = _colour_matrix(saturation, spread(units[3], reaches.hue * 2 * math.pi))
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


def blur(image: tf.Tensor, sigmas: tf.Tensor, *, most: float) -> tf.Tensor:
    """Blurs each image by its own Gaussian, the one of Pillow's GaussianBlur.

    That is three box filters of a fractional width (Gwosdek et al. 2011), here as one filter along
    each axis. All images and channels go through one depthwise convolution: that takes half the
    time of one for each image.

    Args:
      image: `[batch, height, width, channels] float32`.
      sigmas: `[batch] float32` in [0, most].
      most: their limit, which sets the width of the filter.
    """
    import tensorflow as tf

    _, height, width, channels = image.shape
    kernels = _gaussian_kernels(sigmas, most)
    reach = kernels.shape[1] // 2
    filters = tf.repeat(tf.transpose(kernels), channels, axis=1)
    planes = tf.reshape(tf.transpose(image, [1, 2, 0, 3]), [1, height, width, -1])
    for axis, side in ((1, height), (2, width)):
        # Beyond the edge is what lies at the edge.
        beyond = tf.clip_by_value(tf.range(-reach, side + reach), 0, side - 1)
        along = filters[:, None, :, None] if axis == 1 else filters[None, :, :, None]
        planes = tf.nn.depthwise_conv2d(
            tf.gather(planes, beyond, axis=axis), along, strides=[1, 1, 1, 1], padding="VALID"
        )
    blurred = tf.transpose(tf.reshape(planes, [height, width, -1, channels]), [2, 0, 1, 3])
    return tf.ensure_shape(tf.clip_by_value(blurred, 0.0, 255.0), image.shape)


def _gaussian_kernels(sigmas: tf.Tensor, most: float) -> tf.Tensor:
    """Returns `[batch, taps] float32`, each row with the sum 1."""
    import tensorflow as tf

    widest = math.floor((math.sqrt(12 * most * most / _BOXES + 1) - 1) / 2) + 1
    taps = 2 * widest * _BOXES + 1
    variance = sigmas * sigmas / _BOXES
    whole = tf.floor((tf.sqrt(12 * variance + 1) - 1) / 2)
    rest = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance)
    rest /= 6 * (variance - (whole + 1) * (whole + 1))
    away = tf.abs(tf.range(-widest, widest + 1, dtype=tf.float32))
    inside, edge = away <= whole[:, None], tf.equal(away, whole[:, None] + 1)
    box = tf.where(inside, 1.0, tf.where(edge, rest[:, None], 0.0))
    box /= (2 * (whole + rest) + 1)[:, None]
    frequencies = tf.signal.rfft(box, [taps])
    kernels = tf.signal.irfft(frequencies**_BOXES, [taps])
    return tf.ensure_shape(kernels, [None, taps])


def add_noise(image: tf.Tensor, deviations: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
    """Adds noise to each value, near to normal: sums of four uniform numbers.

    Args:
      image: `[batch, height, width, channels] float32`.
      deviations: `[batch] float32`, standard deviations as shares of 255.
      state: `[batch] uint64`, from `draws.start`.
    """
    import tensorflow as tf

    shape = image.shape[1:]
    values = int(np.prod(shape))

    def one(parts: tuple[tf.Tensor, tf.Tensor, tf.Tensor]) -> tf.Tensor:
        """One image at a time: its draws take twice the memory of its pixels."""
        pixels, deviation, own = parts
        halves = tf.bitcast(draws.bits(own[None], tf.range(values)), tf.uint16)
        sums = tf.reduce_sum(tf.cast(halves, tf.int32), axis=-1) - 2 * 65535
        scale = deviation * (255 / _SUM_DEVIATION)
        noisy = pixels + tf.reshape(tf.cast(sums, tf.float32), shape) * scale
        return tf.clip_by_value(noisy, 0.0, 255.0)

    signature = tf.TensorSpec(shape, tf.float32)
    return tf.map_fn(one, (image, deviations, state), fn_output_signature=signature)


def cut_out(image: tf.Tensor, across: tf.Tensor, down: tf.Tensor, *, share: float) -> tf.Tensor:
    """Makes a square of each image black (DeVries and Taylor 2017, arXiv:1708.04552).

    Args:
      image: `[batch, height, width, channels] float32`.
      across, down: `[batch] float32` in [0, 1): its centre, as shares of width and height.
      share: its side, as a share of the image's shorter one.
    """
    import tensorflow as tf

    height, width = image.shape[1:3]
    half = share * min(height, width) / 2

    def inside(centre: tf.Tensor, side: int) -> tf.Tensor:
        place = tf.range(side, dtype=tf.float32)
        middle = centre[:, None] * side
        return (place >= tf.round(middle - half)) & (place < tf.round(middle + half))

    is_cut = inside(down, height)[:, :, None] & inside(across, width)[:, None, :]
    return tf.where(is_cut[..., None], 0.0, image)
