"""Images of any of the record formats, decoded and brought to one size, with masks and boxes.

Formats: TFDS (`image`, `segmentation_mask`, `objects/bbox`), ImageNet, Object Detection API and
Model Garden (`image/encoded`, `image/segmentation/class/encoded`, `image/object/bbox/*`), raw
pixels (`image`, `height`, `width`, `channel`, `mask`) and UNet's floats. What comes out has the
same names for all: "image", "mask", "boxes", "object_masks".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from recordmill.reader import draws
from recordmill.reader.features import Decoder, Features, Transform, in_graph
from recordmill.reader.transforms import boxes as box_ops
from recordmill.records.augmentations import Crop, augmentation_of
from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option, takes

if TYPE_CHECKING:
    import tensorflow as tf

_IMAGES = ("image/encoded", "image")
_MASKS = ("image/segmentation/class/encoded", "segmentation_mask", "mask")
_OBJECT_MASKS = ("image/object/mask", "objects/mask")
_RAW_SHAPE = ("height", "width", "channel")
_TRIES = 10
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True, slots=True)
class RandomCrop:
    """A random part of an image, as in Inception's training (Szegedy et al. 2015, arXiv:1409.4842).

    Attributes:
      area: the least and largest share of the image's area.
      ratio: the least and largest width / height, drawn evenly on a logarithmic scale.

    Raises:
      UsageError: a range is empty or beyond its limits.
    """

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __post_init__(self) -> None:
        if not 0 < self.area[0] <= self.area[1] <= 1:
            raise UsageError(f"RandomCrop.area must be 0 < least <= most <= 1, got {self.area}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise UsageError(f"RandomCrop.ratio must be 0 < least <= most, got {self.ratio}")


class DecodeOptions(Spec, frozen=True, kw_only=True):
    """How images are decoded: the arguments of `decode_images`."""

    size: Annotated[tuple[int, int], option("Height and width of the result.")]
    channels: Annotated[Literal[1, 3], option("1 or 3.")] = 3
    fit: Annotated[Literal["stretch", "crop", "pad"], option(
        '"stretch" changes the shape, "crop" takes the largest middle part of the right shape, '
        '"pad" adds zeros around.'
    )] = "stretch"  # fmt: skip
    random_crop: Annotated[
        RandomCrop | None, option("Takes a random part instead, stretched to `size`.")
    ] = None
    antialias: Annotated[bool, option("Smooths before making smaller, which is slower.")] = False
    min_visibility: Annotated[float, option(
        "Boxes of which less than this share of the area is left are dropped.", ge=0, le=1
    )] = 0.0  # fmt: skip
    seed: Annotated[int, option("The seed of the crops.")] = 0
    crop: Annotated[bool | float | None, option(
        "A random crop by the name of `recordmill images --augmentations`: the least share of the "
        "area, True is 0.25. The same as `random_crop=RandomCrop(area=(crop, 1))`."
    )] = None  # fmt: skip

    def check(self) -> None:
        """Checks the size, and that there is one crop."""
        if min(self.size) < 1:
            raise UsageError(f"size must be (height, width), each 1 or more, got {self.size}")
        if augmentation_of(Crop, self.crop) and self.random_crop:
            raise UsageError("crop and random_crop are the same: give one of them")

    @property
    def window(self) -> RandomCrop | None:
        """What part of an image is taken, if a random one."""
        by_name = augmentation_of(Crop, self.crop)
        return RandomCrop(area=(by_name.area, 1.0)) if by_name else self.random_crop


@takes(DecodeOptions)
def decode_images(**options: Any) -> Transform:
    """Returns a transform that decodes images, for `load(…, transform=…)`.

    It gives

        image   [batch, height, width, channels] float32 in [0, 255]
        mask    [batch, height, width] int32, where the records have masks of the whole image
        boxes   [batch, None, 4] float32 ragged, ymin, xmin, ymax, xmax in [0, 1], where they have
        object_masks   [batch, None, height, width] int32 ragged, where objects have masks

    and passes other features on; the annotations of an object go with its box. Of a JPEG only the
    part that is used is decoded. A crop depends on seed, epoch and record alone.

    Args:
      options: the keyword arguments listed below.

    Raises:
      UsageError: a wrong value.
      TypeError: an argument that there is not, or no `size`.
    """
    spec = DecodeOptions(**options)
    whole = msgspec.structs.replace(spec, fit="stretch", random_crop=None, crop=None)
    return Decoder(in_graph(_ImageDecoding(spec)), in_graph(_ImageDecoding(whole)))


class _ImageDecoding:
    """The transform of `decode_images`."""

    def __init__(self, spec: DecodeOptions) -> None:
        self.spec = spec
        self.crop = spec.window

    def __call__(self, features: Features, keys: tf.Tensor) -> Features:
        import tensorflow as tf

        rest = box_ops.gather_boxes(features)
        image = _take(rest, _IMAGES)
        if image is None:
            raise UsageError(
                f"decode_images needs images in {' or '.join(_IMAGES)}, and the records have "
                f"{', '.join(sorted(features))}"
            )
        mask, shapes = _take(rest, _MASKS), _raw_shapes(rest, image)
        inputs = {
            "image": _without_gaps(image, shapes is not None),
            "mask": _without_gaps(mask, shapes is not None),
            "shape": shapes,
            "units": self._draw(keys),
            box_ops.OBJECT_MASKS: _take(rest, _OBJECT_MASKS),
        }
        given = {name: value for name, value in inputs.items() if value is not None}
        made = tf.map_fn(self._decode_one, given, fn_output_signature=self._signature(given))
        window = made.pop("window")
        masks = {name: made.pop(name) for name in (box_ops.OBJECT_MASKS,) if name in made}
        dense = {
            name: tf.ensure_shape(value, [keys.shape[0], *value.shape[1:]])
            for name, value in made.items()
        }
        result = rest | dense | masks
        if box_ops.BOXES in result:
            result = box_ops.crop_boxes(result, window, min_visibility=self.spec.min_visibility)
        return result

    def _draw(self, keys: tf.Tensor) -> tf.Tensor | None:
        """Returns `[batch, 4, _TRIES] float32` in [0, 1) for random crops, or None without."""
        import tensorflow as tf

        if self.crop is None:
            return None
        state = draws.start(keys, seed=self.spec.seed, purpose="crops")
        return tf.reshape(draws.unit(state, tf.range(4 * _TRIES)), [-1, 4, _TRIES])

    def _signature(self, given: dict[str, Any]) -> dict[str, Any]:
        """Returns what `_decode_one` returns of an image."""
        import tensorflow as tf

        outputs = {
            "image": tf.TensorSpec([*self.spec.size, self.spec.channels], tf.float32),
            "window": tf.TensorSpec([4], tf.float32),
        }
        if "mask" in given:
            outputs["mask"] = tf.TensorSpec([*self.spec.size], tf.int32)
        if box_ops.OBJECT_MASKS in given:
            spec = tf.RaggedTensorSpec([None, *self.spec.size], tf.int32, ragged_rank=0)
            outputs[box_ops.OBJECT_MASKS] = spec
        return outputs

    def _decode_one(self, parts: dict[str, Any]) -> dict[str, Any]:
        """Decodes one image: the elements of `parts` are those of the batch."""
        import tensorflow as tf

        image, raw_shape = parts["image"], parts.get("shape")
        pixels = _stored_pixels(image, raw_shape)
        height, width = _size_of(image) if pixels is None else tf.unstack(tf.shape(pixels)[:2])
        if self.crop is None:
            window = _fitting_window(height, width, self.spec.size, self.spec.fit)
        else:
            window = _random_window(height, width, self.crop, parts["units"])
        if pixels is None:
            part = _decode_part(image, window, self.spec.channels)
        else:
            part = _cut(pixels, window)
        resized = tf.image.resize(part, self.spec.size, antialias=self.spec.antialias)
        extent = tf.stack([height, width, height, width])
        result = {
            "image": _with_channels(resized, self.spec.channels),
            "window": tf.cast(window, tf.float32) / tf.cast(extent, tf.float32),
        }
        if "mask" in parts:
            mask = parts["mask"]
            if mask.dtype == tf.string and raw_shape is not None:
                mask = tf.reshape(tf.io.decode_raw(mask, tf.uint8), [height, width, 1])
            result["mask"] = _decode_mask(mask, window, self.spec.size)
        if box_ops.OBJECT_MASKS in parts:
            result[box_ops.OBJECT_MASKS] = tf.map_fn(
                lambda mask: _decode_mask(mask, window, self.spec.size),
                parts[box_ops.OBJECT_MASKS],
                fn_output_signature=tf.TensorSpec([*self.spec.size], tf.int32),
            )
        return result


def _take(features: Features, names: tuple[str, ...]) -> Any:
    """Removes and returns the first feature of these names, or None."""
    for name in names:
        if name in features:
            return features.pop(name)
    return None


def _raw_shapes(features: Features, image: Any) -> Any:
    """Removes and returns `[batch, 3] int64` where images are raw pixels, or None."""
    import tensorflow as tf

    if image.dtype != tf.string or not set(_RAW_SHAPE) <= features.keys():
        return None
    shapes = tf.stack([tf.cast(features.pop(name), tf.int64) for name in _RAW_SHAPE], axis=1)
    return tf.maximum(shapes, 1)


def _without_gaps(values: Any, raw: bool) -> Any:
    """Returns images with a black pixel for those of `remainder="pad"`, which are empty."""
    import tensorflow as tf

    if values is None or values.dtype != tf.string:
        return values
    pixel = tf.constant(b"\0") if raw else tf.io.encode_png(tf.zeros([1, 1, 1], tf.uint8))
    return tf.where(tf.equal(values, ""), pixel, values)


def _stored_pixels(image: tf.Tensor, raw_shape: tf.Tensor | None) -> tf.Tensor | None:
    """Returns `[height, width, channels]` of an image that is not encoded, else None."""
    import tensorflow as tf

    if image.dtype != tf.string:
        return image
    if raw_shape is not None:
        return tf.reshape(tf.io.decode_raw(image, tf.uint8), raw_shape)
    return None


def _decode_mask(mask: tf.Tensor, window: tf.Tensor, size: tuple[int, ...]) -> tf.Tensor:
    """Returns the window of a mask, a PNG or `[height, width, 1]`, as `size` int32."""
    import tensorflow as tf

    if mask.dtype == tf.string:
        mask = tf.io.decode_png(mask, channels=1)
    nearest = tf.image.resize(_cut(mask, window), size, method="nearest")
    return tf.cast(nearest[..., 0], tf.int32)


def _size_of(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns height and width; of a JPEG without decoding it."""
    import tensorflow as tf

    def decoded() -> tf.Tensor:
        # Not without channels: of an animated WebP that writes beyond what it allocates.
        return tf.shape(tf.io.decode_image(encoded, channels=3, expand_animations=False))

    shape = tf.cond(tf.io.is_jpeg(encoded), lambda: tf.io.extract_jpeg_shape(encoded), decoded)
    return shape[0], shape[1]


def _decode_part(encoded: tf.Tensor, window: tf.Tensor, channels: int) -> tf.Tensor:
    """Returns the window of an encoded image, `[height, width, channels] uint8`."""
    import tensorflow as tf

    def jpeg() -> tf.Tensor:
        shape = tf.io.extract_jpeg_shape(encoded)[:2]
        inside = _inside(window, shape)
        box = tf.concat([inside[:2], inside[2:] - inside[:2]], axis=0)
        part = tf.io.decode_and_crop_jpeg(
            # The default, INTEGER_FAST, turns black into white at quality 100.
            encoded,
            box,
            channels=channels,
            dct_method="INTEGER_ACCURATE",
        )
        return _pad(part, window, shape)

    def other() -> tf.Tensor:
        # Not channels=1: PNG's own grey has other weights of colours than JPEG's.
        pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        part = _cut(tf.ensure_shape(pixels, [None, None, 3]), window)
        if channels == 3:
            return part
        return tf.cast(tf.round(_with_channels(tf.cast(part, tf.float32), channels)), tf.uint8)

    return tf.ensure_shape(tf.cond(tf.io.is_jpeg(encoded), jpeg, other), [None, None, channels])


def _inside(window: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    limits = tf.concat([shape, shape], axis=0)
    return tf.clip_by_value(window, 0, limits)


def _cut(pixels: tf.Tensor, window: tf.Tensor) -> tf.Tensor:
    """Returns the window of `pixels`, `[height, width, channels]`, zeros beyond their edges."""
    import tensorflow as tf

    shape = tf.shape(pixels)[:2]
    top, left, bottom, right = tf.unstack(_inside(window, shape))
    return _pad(pixels[top:bottom, left:right], window, shape)


def _pad(part: tf.Tensor, window: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Adds what a window has beyond the edges of an image of `shape`."""
    import tensorflow as tf

    before = tf.maximum(-window[:2], 0)
    after = tf.maximum(window[2:] - shape, 0)
    sides = tf.concat([tf.stack([before, after], axis=1), [[0, 0]]], axis=0)
    return tf.cond(tf.reduce_any(sides > 0), lambda: tf.pad(part, sides), lambda: part)


def _fitting_window(
    height: tf.Tensor, width: tf.Tensor, size: tuple[int, ...], fit: str
) -> tf.Tensor:
    """Returns `[4] int32`, in pixels: what becomes the result; it may lie beyond the image."""
    import tensorflow as tf

    if fit == "stretch":
        return tf.stack([0, 0, height, width])
    tall = tf.cast(height, tf.float32) / size[0]
    wide = tf.cast(width, tf.float32) / size[1]
    scale = tf.minimum(tall, wide) if fit == "crop" else tf.maximum(tall, wide)
    rows = tf.maximum(tf.cast(tf.round(scale * size[0]), tf.int32), 1)
    columns = tf.maximum(tf.cast(tf.round(scale * size[1]), tf.int32), 1)
    top, left = (height - rows) // 2, (width - columns) // 2
    return tf.stack([top, left, top + rows, left + columns])


def _random_window(
    height: tf.Tensor, width: tf.Tensor, crop: RandomCrop, units: tf.Tensor
) -> tf.Tensor:
    """Returns `[4] int32`: the first of ten random windows that lies within the image.

    Where none does, the largest middle part whose shape is allowed.
    """
    import tensorflow as tf

    tall, wide = tf.cast(height, tf.float32), tf.cast(width, tf.float32)
    low, high = (math.log(ratio) for ratio in crop.ratio)
    area = (crop.area[0] + units[0] * (crop.area[1] - crop.area[0])) * tall * wide
    ratio = tf.exp(low + units[1] * (high - low))
    middle = tf.clip_by_value(wide / tall, crop.ratio[0], crop.ratio[1])
    rows = tf.concat([tf.sqrt(area / ratio), [tf.minimum(tall, wide / middle)]], axis=0)
    columns = tf.concat([tf.sqrt(area * ratio), [tf.minimum(wide, tall * middle)]], axis=0)
    fits = (tf.round(rows) <= tall) & (tf.round(columns) <= wide)
    chosen = tf.argmax(tf.cast(fits, tf.int32))
    down, right = (tf.pad(units[i], [[0, 1]], constant_values=0.5)[chosen] for i in (2, 3))
    size = tf.maximum(tf.cast(tf.round(tf.stack([rows[chosen], columns[chosen]])), tf.int32), 1)
    room = tf.cast(tf.stack([height, width]) - size + 1, tf.float32)
    corner = tf.cast(tf.floor(tf.stack([down, right]) * room), tf.int32)
    return tf.concat([corner, corner + size], axis=0)


def _with_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Makes one channel of three, or three of one, where the record has the other."""
    import tensorflow as tf

    if image.shape[-1] == channels:
        return image
    if channels == 1:
        return tf.reduce_sum(image * tf.constant(LUMA), axis=-1, keepdims=True)
    shape = tf.concat([tf.shape(image)[:-1], [channels]], axis=0)
    return tf.ensure_shape(tf.broadcast_to(image, shape), [None, None, channels])
