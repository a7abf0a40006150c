"""Geometry: one affine matrix for an image, its masks, boxes and polygons.

Coordinates are continuous, as in COCO: pixel (i, j) covers `[j, j + 1) x [i, i + 1)`. All that
moves pixels (EXIF turns, resizing, geometric augmentations) is multiplied into one matrix from the
stored image to the one written, and the pixels are resampled once. Sines and cosines are rounded to
12 digits, because the last bits of a machine's own must not show in the output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.transforms.images.image_spec import TransformSpec

Box = tuple[float, float, float, float]
Size = tuple[int, int]
Points = npt.NDArray[np.float64]

RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class Matrix(NamedTuple):
    """`x' = a x + b y + c`, `y' = d x + e y + f`."""

    a: float = 1.0
    b: float = 0.0
    c: float = 0.0
    d: float = 0.0
    e: float = 1.0
    f: float = 0.0

    def after(self, first: Matrix) -> Matrix:
        """Returns the matrix that does `first`, then this."""
        a, b, c, d, e, f = self
        g, h, i, j, k, m = first
        return Matrix(
            a * g + b * j, a * h + b * k, a * i + b * m + c,
            d * g + e * j, d * h + e * k, d * i + e * m + f,
        )  # fmt: skip

    @property
    def determinant(self) -> float:
        """By how much areas grow, negative where it mirrors."""
        return self.a * self.e - self.b * self.d

    @property
    def enlargement(self) -> float:
        """By how much the most enlarged direction grows: the larger singular value."""
        squares = self.a**2 + self.b**2 + self.d**2 + self.e**2
        root = math.sqrt(max(0.0, squares * squares / 4 - self.determinant**2))
        return math.sqrt(squares / 2 + root)

    @property
    def is_axis_aligned(self) -> bool:
        """Whether sides stay along the axes: no rotation but by quarters, no shear."""
        return self.b == self.d == 0 or self.a == self.e == 0

    def inverse(self) -> Matrix:
        """Returns the way back."""
        a, b, c, d, e, f = self
        n = self.determinant
        return Matrix(e / n, -b / n, (b * f - c * e) / n, -d / n, a / n, (c * d - a * f) / n)

    def apply(self, points: Points) -> Points:
        """Moves `[n, 2] float64`."""
        x, y = points[:, 0], points[:, 1]
        # Not by matmul, whose last bits depend on the processor.
        moved = (x * self.a + y * self.b + self.c, x * self.d + y * self.e + self.f)
        return np.stack(moved, axis=1)


def scaling(x: float, y: float) -> Matrix:
    """Stretches from the origin."""
    return Matrix(x, 0.0, 0.0, 0.0, y, 0.0)


def shift(x: float, y: float) -> Matrix:
    """Moves right by x and down by y."""
    return Matrix(1.0, 0.0, x, 0.0, 1.0, y)


def rotation(degrees: float) -> Matrix:
    """Turns counterclockwise, as visible on a screen, around the origin."""
    radians = math.radians(degrees)
    cos, sin = round(math.cos(radians), 12), round(math.sin(radians), 12)
    return Matrix(cos, sin, 0.0, -sin, cos, 0.0)


def shearing(x: float, y: float) -> Matrix:
    """Slants by x pixels a row and y pixels a column."""
    return Matrix(1.0, x, 0.0, y, 1.0, 0.0)


def quarter_turns(count: int, width: float, height: float) -> Matrix:
    """Turns an image of this size by quarters, counterclockwise, its corner back in the origin."""
    count %= 4
    to = ((0.0, 0.0), (0.0, width), (width, height), (height, 0.0))[count]
    cos, sin = ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))[count]
    return Matrix(cos, sin, to[0], -sin, cos, to[1])


def upright_matrix(orientation: int, width: int, height: int) -> Matrix:
    """Returns the way from a stored image `width x height` to it upright, by EXIF's orientation."""
    w, h = float(width), float(height)
    return {
        2: Matrix(-1.0, 0.0, w, 0.0, 1.0, 0.0),
        3: Matrix(-1.0, 0.0, w, 0.0, -1.0, h),
        4: Matrix(1.0, 0.0, 0.0, 0.0, -1.0, h),
        5: Matrix(0.0, 1.0, 0.0, 1.0, 0.0, 0.0),
        6: Matrix(0.0, -1.0, h, 1.0, 0.0, 0.0),
        7: Matrix(0.0, -1.0, h, -1.0, 0.0, w),
        8: Matrix(0.0, 1.0, 0.0, -1.0, 0.0, w),
    }.get(orientation, Matrix())


def resizing(spec: TransformSpec, width: float, height: float) -> tuple[Matrix, Size]:
    """Returns the way from an image to the size asked for, and that as `(width, height)`."""
    if spec.size is None:
        return Matrix(), (max(1, round(width)), max(1, round(height)))
    out_height, out_width = spec.size
    if spec.mode == "stretch":
        return scaling(out_width / width, out_height / height), (out_width, out_height)
    if spec.mode == "crop":
        scale = max(out_width / width, out_height / height)
        moved = shift((out_width - width * scale) / 2, (out_height - height * scale) / 2)
        return moved.after(scaling(scale, scale)), (out_width, out_height)
    sides = {"longest": max(width, height), "shortest": min(width, height)}
    if spec.mode == "fit":
        scale = min(out_width / width, out_height / height)
    else:
        scale = out_width / sides[spec.mode]
    within = max(1, round(width * scale)), max(1, round(height * scale))
    scaled = scaling(within[0] / width, within[1] / height)
    if spec.mode != "fit":
        return scaled, within
    centred = shift((out_width - within[0]) // 2, (out_height - within[1]) // 2).after(scaled)
    return centred, (out_width, out_height)


def shrink_for(matrix: Matrix, reducing_gap: float) -> int:
    """Returns 1, 2, 4 or 8: by how much decoding may shrink an image that this matrix shrinks."""
    return next((k for k in (8, 4, 2) if k * reducing_gap * matrix.enlargement <= 1), 1)


def render(
    image: Image.Image,
    matrix: Matrix,
    size: Size,
    *,
    resample: str,
    fill: tuple[int, int, int],
    reducing_gap: float | None = None,
) -> Image.Image:
    """Moves an image of mode "L" or "RGB" by `matrix` onto a canvas of `(width, height)`.

    Resampled once: along the axes by a filter that averages when it shrinks; otherwise by an affine
    warp, before which whole pixels are averaged where it shrinks by two or more.

    Memory: the result, and an intermediate image smaller than the input, never a copy of the input.
    """
    colour = fill if image.mode == "RGB" else fill[0]
    if matrix.is_axis_aligned:
        return _resize(image, matrix, size, RESAMPLING[resample], colour, reducing_gap)
    times = int(1 / matrix.enlargement) if resample != "nearest" else 1
    if times > 1:
        image, matrix = image.reduce(times), matrix.after(scaling(times, times))
    filters = {"nearest": "nearest", "bilinear": "bilinear"}
    return image.transform(
        size, Image.Transform.AFFINE, tuple(matrix.inverse()),
        resample=RESAMPLING[filters.get(resample, "bicubic")], fillcolor=colour,
    )  # fmt: skip


def _resize(
    image: Image.Image,
    matrix: Matrix,
    size: Size,
    resample: Image.Resampling,
    colour: int | tuple[int, int, int],
    reducing_gap: float | None,
) -> Image.Image:
    """Resizes the visible part to whole pixels of the canvas, turns it and pastes it there."""
    moved = box_around(matrix, (0.0, 0.0, float(image.width), float(image.height)))
    left, top = max(0, round(moved[0])), max(0, round(moved[1]))
    right, bottom = min(size[0], round(moved[2])), min(size[1], round(moved[3]))
    if left >= right or top >= bottom:
        return Image.new(image.mode, size, colour)
    part = _clipped(
        box_around(matrix.inverse(), (left, top, right, bottom)), image.width, image.height
    )
    transposed = matrix.a == 0
    visible = (right - left, bottom - top)
    before = visible[::-1] if transposed else visible
    whole = before == image.size and part == (0, 0, image.width, image.height)
    scaled = image if whole else image.resize(before, resample, part, reducing_gap)
    if transposed:
        scaled = scaled.transpose(Image.Transpose.TRANSPOSE)
    if (matrix.b if transposed else matrix.a) < 0:
        scaled = scaled.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if (matrix.d if transposed else matrix.e) < 0:
        scaled = scaled.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    if visible == size:
        return scaled
    canvas = Image.new(image.mode, size, colour)
    canvas.paste(scaled, (left, top))
    return canvas


def box_around(matrix: Matrix, box: Sequence[float]) -> Box:
    """Returns the box around the moved corners of `(xmin, ymin, xmax, ymax)`."""
    a, b, c, d, e, f = matrix
    x0, y0, x1, y1 = box
    corners = ((x0, y0), (x1, y0), (x1, y1), (x0, y1))
    # The sums of `apply`, in its order; arrays of four points cost ten times as much.
    across = [x * a + y * b + c for x, y in corners]
    down = [x * d + y * e + f for x, y in corners]
    return min(across), min(down), max(across), max(down)


def _clipped(box: Box, width: float, height: float) -> Box:
    return max(0.0, box[0]), max(0.0, box[1]), min(width, box[2]), min(height, box[3])


def clip(box: Box, size: Size) -> tuple[Box, float]:
    """Returns the part of a box on the canvas, and its share of the box's area, 0 for none."""
    visible = _clipped(box, float(size[0]), float(size[1]))
    whole = (box[2] - box[0]) * (box[3] - box[1])
    if visible[0] >= visible[2] or visible[1] >= visible[3] or whole <= 0:
        return visible, 0.0
    return visible, (visible[2] - visible[0]) * (visible[3] - visible[1]) / whole


def keeps_all(matrix: Matrix, size_before: Size, size: Size) -> bool:
    """Returns whether the whole image stays on the canvas, along its axes."""
    left, top, right, bottom = box_around(matrix, (0.0, 0.0, *map(float, size_before)))
    within = min(left, top) >= -0.5 and right <= size[0] + 0.5 and bottom <= size[1] + 0.5
    return matrix.is_axis_aligned and within
