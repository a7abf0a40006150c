"""Affine maps of batches of images: one for each image, composed in the graph.

Coordinates are continuous: pixel (i, j) covers `[j, j + 1) x [i, i + 1)`. All is done number by
number, without matmul, so that an image's map does not depend on the others of its batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import tensorflow as tf


class Affine(NamedTuple):
    """`x' = a x + b y + c`, `y' = d x + e y + f`; each a number or `[images] float32`."""

    a: tf.Tensor | float = 1.0
    b: tf.Tensor | float = 0.0
    c: tf.Tensor | float = 0.0
    d: tf.Tensor | float = 0.0
    e: tf.Tensor | float = 1.0
    f: tf.Tensor | float = 0.0

    def after(self, first: Affine) -> Affine:
        """Returns the map that does `first`, then this."""
        a, b, c, d, e, f = self
        g, h, i, j, k, m = first
        return Affine(
            a * g + b * j, a * h + b * k, a * i + b * m + c,
            d * g + e * j, d * h + e * k, d * i + e * m + f,
        )  # fmt: skip

    def inverse(self) -> Affine:
        """Returns the way back."""
        a, b, c, d, e, f = self
        n = a * e - b * d
        return Affine(e / n, -b / n, (b * f - c * e) / n, -d / n, a / n, (c * d - a * f) / n)

    def broadcast(self, images: tf.Tensor) -> Affine:
        """Returns the same maps, each number `[images] float32`."""
        import tensorflow as tf

        return Affine(*(tf.broadcast_to(value, [images]) for value in self))

    def projective(self) -> tf.Tensor:
        """Returns `[images, 8]` for ImageProjectiveTransformV3, from centre to centre of pixels.

        The numbers must be tensors, as `broadcast` makes them.
        """
        import tensorflow as tf

        between = shift(-0.5, -0.5).after(self.after(shift(0.5, 0.5)))
        nothing = tf.zeros_like(between.a)
        return tf.stack([*between, nothing, nothing], axis=1)


def scaling(x: tf.Tensor | float, y: tf.Tensor | float) -> Affine:
    """Stretches from the origin."""
    return Affine(a=x, e=y)


def shift(x: tf.Tensor | float, y: tf.Tensor | float) -> Affine:
    """Moves right by x and down by y pixels."""
    return Affine(c=x, f=y)


def shearing(x: tf.Tensor | float, y: tf.Tensor | float) -> Affine:
    """Slants by x pixels a row and y pixels a column."""
    return Affine(b=x, d=y)


def rotation(degrees: tf.Tensor) -> Affine:
    """Turns counterclockwise, as visible on a screen, about the origin."""
    import tensorflow as tf

    radians = degrees * (math.pi / 180)
    cos, sin = tf.cos(radians), tf.sin(radians)
    return Affine(a=cos, b=sin, d=-sin, e=cos)


def about_the_middle(steps: Iterable[Affine], *, height: int, width: int) -> Affine:
    """Returns the map that does `steps`, the first one first, about an image's middle."""
    whole = shift(-width / 2, -height / 2)
    for step in steps:
        whole = step.after(whole)
    return shift(width / 2, height / 2).after(whole)
