"""Random changes of decoded images, whole batches at a time, and their normalisation.

Whatever moves pixels moves masks and boxes with them. All draws come from (seed, epoch, record).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recordmill.reader import draws
from recordmill.reader.features import Features, Transform, in_graph
from recordmill.reader.transforms import randaugment
from recordmill.reader.transforms.affine import (
    Affine,
    about_the_middle,
    rotation,
    scaling,
    shearing,
    shift,
)
from recordmill.reader.transforms.augmentation_names import (
    Augmentation,
    Strength,
    make_augmentation,
)
from recordmill.reader.transforms.image_effects import add_noise, blur, cut_out, recolour, spread
from recordmill.reader.transforms.image_geometry import flip, move, turn
from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.records.statistics_file import read_split_statistics

if TYPE_CHECKING:
    import tensorflow as tf

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
    rot90: bool = False,
    shear: Strength = 0.0,
    blur: Strength = 0.0,
    noise: Strength = 0.0,
    cutout: Strength = 0.0,
    randaugment: bool | tuple[float, float] | None = None,
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
        not name is not done. `crop` is `decode_images(crop=…)`. Geometry comes first, then the rest
        in the order of the text.
      flip, vertical_flip: probabilities, True is 0.5. Without `augmentations` flip is 0.5.
      rotate: up to so many degrees, either way, about the middle; True is 15.
      translate: up to this share of height and width, each way; True is 0.1.
      scale: the factor is drawn from `[1 - x, 1 + x]`; True is 0.2.
      brightness, contrast, saturation: as scale; `color` is all three.
      rot90: 0 to 3 quarter turns; images that are not square are stretched to their shape.
      shear: each row is moved by up to this share of its distance from the middle; True is 0.1.
      blur: the Gaussian's deviation is drawn from 0 to this many pixels; True is 1.
      noise: its deviation is drawn from 0 to this share of 255; True is 0.05.
      cutout: the side of a black square, as a share of the shorter side; True is 0.25.
      randaugment: how many operations, and their magnitude in [0, 10]; True is (2, 9).
      hue: the shift is drawn from `[-x, x]`, in turns of the colour circle, at most 0.5.
      min_visible: boxes of which less than this share of the area is left are dropped: by default
        0, with `augmentations` 0.1, which True is too.
      flip_left_right, flip_up_down, min_visibility: as flip, vertical_flip, min_visible.
      zoom: the least and largest factor, instead of `scale`.
      seed: of the draws.

    Raises:
      UsageError: a wrong value, or two names for one thing.
    """
    given = {k: v for k, v in locals().items() if k not in ("augmentations", "zoom", "seed")}
    return in_graph(_Augment(make_augmentation(augmentations, given, zoom=zoom), seed))


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
                result = flip(result, unit < probability, axis=axis)
        if spec.rot90:
            quarters = draws.below(self._state("rot90", keys), tf.range(1), 4)[:, 0]
            result = turn(result, quarters)
        if spec.moves:
            forward = self._forward(result["image"].shape[1:3], units[2:6], keys)
            result = move(result, forward, min_visibility=spec.min_visibility)
        for effect in spec.effects:
            result["image"] = self._apply(effect, result["image"], units[6:10], keys)
        return result

    def _state(self, operation: str, keys: tf.Tensor) -> tf.Tensor:
        """Returns where an operation's own draws begin."""
        return draws.start(keys, seed=self.seed, purpose=f"augmentation/{operation}")

    def _unit(self, operation: str, keys: tf.Tensor, counter: int = 0) -> tf.Tensor:
        import tensorflow as tf

        return draws.unit(self._state(operation, keys), tf.constant([counter]))[:, 0]

    def _randaugment(self, keys: tf.Tensor) -> randaugment.Drawn:
        count, magnitude = self.spec.randaugment or (0, 0)
        state = self._state("randaugment", keys)
        return randaugment.draw(state, count=int(count), magnitude=magnitude)

    def _forward(self, shape: tuple[int, int], units: Any, keys: tf.Tensor) -> Affine:
        """Returns how pixels move: zoom, shear, rotation, shift, then RandAugment's."""
        spec, (height, width) = self.spec, shape
        zoom = spec.zoom[0] + units[1] * (spec.zoom[1] - spec.zoom[0])
        steps = [scaling(zoom, zoom)]
        if spec.shear:
            steps.append(shearing(spread(self._unit("shear", keys), spec.shear), 0.0))
        steps.append(rotation(spread(units[0], -spec.rotate)))
        right = spread(units[3], spec.translate * width)
        steps.append(shift(right, spread(units[2], spec.translate * height)))
        if spec.randaugment:
            steps += randaugment.geometry(self._randaugment(keys), height=height, width=width)
        return about_the_middle(steps, height=height, width=width)

    def _apply(self, effect: str, image: tf.Tensor, units: Any, keys: tf.Tensor) -> tf.Tensor:
        """Returns the images after an effect, or as they are where it is not asked for."""
        spec = self.spec
        if effect == "recolour" and spec.colours:
            return recolour(image, units, spec)
        if effect == "blur" and spec.blur:
            return blur(image, self._unit("blur", keys) * spec.blur, most=spec.blur)
        if effect == "noise" and spec.noise:
            deviations = self._unit("noise", keys) * spec.noise
            return add_noise(image, deviations, self._state("noise of pixels", keys))
        if effect == "cutout" and spec.cutout:
            across, down = self._unit("cutout", keys), self._unit("cutout", keys, 1)
            return cut_out(image, across, down, share=spec.cutout)
        if effect == "randaugment" and spec.randaugment:
            return randaugment.recolour(image, self._randaugment(keys))
        return image


def _check_decoded(features: Features) -> None:
    import tensorflow as tf

    image = features.get("image")
    if image is None or image.dtype != tf.float32:
        raise UsageError(
            "augment_images and normalise_images need decoded images: put decode_images before "
            "them, transform=[decode_images(…), …]"
        )


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
