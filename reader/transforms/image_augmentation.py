"""Random changes of decoded images, whole batches at a time, and their normalisation.

Whatever moves pixels moves masks and boxes with them. All draws come from (seed, epoch, record).
Names, strengths and their ranges are those of `records/augmentations.py`; the effect of each is
found by its name in `_FLIPS`, `_MAPS` or `_PIXELS`, in the order in which they are done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from recordmill.reader import draws
from recordmill.reader.dataset import read_file
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
from recordmill.reader.transforms.image_effects import (
    Colours,
    add_noise,
    blur,
    cut_out,
    recolour,
    spread,
)
from recordmill.reader.transforms.image_geometry import flip, move, turn
from recordmill.records.augmentations import (
    AUGMENTATIONS,
    MIN_VISIBLE,
    Augmentation,
    Crop,
    argument_type,
    augmentation_of,
    parse_augmentations,
)
from recordmill.records.errors import UsageError
from recordmill.records.manifest import STATISTICS_PATH
from recordmill.records.spec import Spec, check_type, naming_arguments, option, takes
from recordmill.records.statistics_file import read_split_statistics

if TYPE_CHECKING:
    import tensorflow as tf


class Zoom(Augmentation, frozen=True, tag="zoom", tag_field="name"):
    """The least and largest factor, instead of `scale`."""

    least: Annotated[float, option("the least factor")]
    most: Annotated[float, option("the largest factor")]

    def check(self) -> None:
        """Checks that factors ascend."""
        if not 0 < self.least <= self.most:
            raise UsageError(f"zoom must be 0 < least <= most, got {self.strengths}")


class Hue(Augmentation, frozen=True, tag="hue", tag_field="name"):
    """The shift is drawn from `[-x, x]`, in turns of the colour circle, at most 0.5."""

    most: Annotated[float, option("the most turns", ge=0, le=0.5)]


_KINDS: dict[str, type[Augmentation]] = {
    name: kind for name, kind in AUGMENTATIONS.items() if kind is not Crop
} | {"zoom": Zoom, "hue": Hue}
_ALIASES = {"flip": ("flip_left_right",), "vertical_flip": ("flip_up_down",)}
# What each name changes of colours, all by one matrix.
_COLOURS = {
    "color": ("brightness", "contrast", "saturation"),
    **{name: (name,) for name in Colours._fields},
}


def _argument(name: str, kind: type[Augmentation]) -> tuple[str, Any, None]:
    """Returns the argument of an augmentation: name, type, default."""
    text, hint = kind.__doc__ or "", argument_type(kind)
    if bool in getattr(hint, "__args__", ()):
        usual = [f"{strength:g}" for strength in kind().strengths]
        pair = f"({', '.join(usual)})" if len(usual) > 1 else "".join(usual)
        text += f" True is {pair}." if pair else ""
    return name, Annotated[hint, option(text, aliases=_ALIASES.get(name, ()))], None


if TYPE_CHECKING:
    _Strengths = Spec
else:
    _Strengths = msgspec.defstruct(
        "_Strengths", [_argument(*item) for item in _KINDS.items()], bases=(Spec,), module=__name__,
        frozen=True, kw_only=True,
    )  # fmt: skip


class AugmentOptions(_Strengths, frozen=True, kw_only=True):
    """The arguments of `augment_images`: one for each augmentation, and these."""

    min_visible: Annotated[
        bool | float | None,
        option(
            "Boxes of which less than this share of the area is left are dropped: by default 0, "
            f"with `augmentations` {MIN_VISIBLE}, which True is too.",
            ge=0,
            le=1,
            aliases=("min_visibility",),
        ),
    ] = None
    seed: Annotated[int, option("The seed of the draws.")] = 0

    def named(self) -> dict[str, Augmentation]:
        """Returns name -> augmentation, of those that are asked for by their argument."""
        found = {name: augmentation_of(kind, getattr(self, name)) for name, kind in _KINDS.items()}
        return {name: each for name, each in found.items() if each}


@takes(AugmentOptions)
def augment_images(augmentations: str = "", **options: Any) -> Transform:
    """Returns a transform that changes decoded images at random, with their masks and boxes.

    It changes what `decode_images` made: "image", "mask", "boxes" and "object_masks". Shapes and
    dtypes stay, and pixels stay in [0, 255]; what comes from beyond the edge is 0, and quarter
    turns stretch images that are not square to their shape. What happens to a record depends on
    seed, epoch and the record alone. Names and strengths are those of `recordmill images
    --augmentations`: True is the strength of a name without one there; False, None and 0 are off.

    Args:
      augmentations: such as "flip,rotate(10),color", instead of the arguments below; what it does
        not name is not done. `crop` is `decode_images(crop=…)`. Geometry comes first, then the rest
        in the order of the text. Without it, and without `flip`, flip is 0.5.
      options: the keyword arguments listed below: what is done, and how strongly.

    Raises:
      UsageError: a wrong value, or two names for one thing.
      TypeError: an argument that there is not.
    """
    spec = AugmentOptions(**options)
    text = check_type("augmentations", augmentations, str | None)
    chosen = spec.named()
    if text:
        if operations := [name for name in chosen if name != "hue"]:
            raise UsageError(
                f"augmentations={text!r} names all operations: put {operations[0]} into it too"
            )
        chosen = _parse(text) | chosen
    elif getattr(spec, "flip") is None:  # noqa: B009 - a field made from the table
        chosen = {"flip": AUGMENTATIONS["flip"](), **chosen}
    least = spec.min_visible
    if least is True or (least is None and text):
        least = MIN_VISIBLE
    return in_graph(_Augment(_effects(chosen, bool(text)), float(least or 0), spec.seed))


def _parse(text: str) -> dict[str, Augmentation]:
    with naming_arguments({}):
        found: dict[str, Augmentation] = {e.name: e for e in parse_augmentations(text)}
    if "crop" in found:
        raise UsageError(
            "crop belongs to decoding, where less is decoded then: give decode_images(crop=True), "
            "and leave it out of augmentations"
        )
    return found


def _effects(chosen: Mapping[str, Augmentation], is_ordered: bool) -> dict[str, Any]:
    """Returns name -> what its effect takes, in order, without those that change nothing.

    Args:
      chosen: name -> augmentation.
      is_ordered: pixels are changed in this order; else in that of `_PIXELS`.

    Raises:
      UsageError: two are one and the same.
    """
    if "color" in chosen and any(name in chosen for name in _COLOURS["color"]):
        raise UsageError(f"color is all of {', '.join(_COLOURS['color'])}: give it, or those")
    if {"scale", "zoom"} <= chosen.keys():
        raise UsageError("scale and zoom are the same: give one of them")
    found: dict[str, Any] = {}
    for name, each in chosen.items():
        if each.strengths and not any(each.strengths):
            continue
        if name in _COLOURS:
            before = found.get("recolour", Colours())
            most = dict.fromkeys(_COLOURS[name], each.strengths[0])
            found["recolour"] = before._replace(**most)
        elif name != "zoom" or each.strengths != (1, 1):
            found[name] = each
    return found if is_ordered else {n: found[n] for n in (*_PIXELS, *found) if n in found}


# Draws that all images take, whatever is done to them.
_SHARED = (
    "vertical_flip", "flip", "rotate", "scale", "down", "right", *Colours._fields
)  # fmt: skip


class _Draws:
    """The draws of a batch."""

    def __init__(self, seed: int, keys: tf.Tensor) -> None:
        import tensorflow as tf

        self._seed, self._keys = seed, keys
        state = draws.start(keys, seed=seed, purpose="augmentation")
        units = tf.unstack(draws.unit(state, tf.range(len(_SHARED))), num=len(_SHARED), axis=1)
        self.shared = dict(zip(_SHARED, units, strict=True))  # each [batch] float32 in [0, 1)

    def state(self, operation: str) -> tf.Tensor:
        """Returns where an operation's own draws begin."""
        return draws.start(self._keys, seed=self._seed, purpose=f"augmentation/{operation}")

    def unit(self, operation: str, counter: int = 0) -> tf.Tensor:
        """Returns an operation's own draw, `[batch] float32` in [0, 1)."""
        import tensorflow as tf

        return draws.unit(self.state(operation), tf.constant([counter]))[:, 0]

    def randaugment(self, spec: Any) -> randaugment.Drawn:
        """Returns what RandAugment does."""
        state = self.state("randaugment")
        return randaugment.draw(state, count=spec.operations, magnitude=spec.magnitude)


def _flip(axis: int, name: str) -> Callable[[Features, Any, _Draws], Features]:
    return lambda images, spec, drawn: flip(
        images, drawn.shared[name] < spec.probability, axis=axis
    )


def _turn(images: Features, _: Any, drawn: _Draws) -> Features:
    import tensorflow as tf

    return turn(images, draws.below(drawn.state("rot90"), tf.range(1), 4)[:, 0])


# Name -> images with masks and boxes, its struct, draws -> the same after it.
_FLIPS: dict[str, Callable[[Features, Any, _Draws], Features]] = {
    "vertical_flip": _flip(0, "vertical_flip"),
    "flip": _flip(1, "flip"),
    "rot90": _turn,
}


def _zoom(low: float, high: float, drawn: _Draws) -> list[Affine]:
    factor = low + drawn.shared["scale"] * (high - low)
    return [scaling(factor, factor)]


def _translate(spec: Any, drawn: _Draws, height: int, width: int) -> list[Affine]:
    right = spread(drawn.shared["right"], spec.most * width)
    return [shift(right, spread(drawn.shared["down"], spec.most * height))]


# Name -> its struct, draws, height, width -> how pixels move.
_MAPS: dict[str, Callable[[Any, _Draws, int, int], list[Affine]]] = {
    "scale": lambda spec, drawn, *_: _zoom(1 - spec.most, 1 + spec.most, drawn),
    "zoom": lambda spec, drawn, *_: _zoom(spec.least, spec.most, drawn),
    "shear": lambda spec, drawn, *_: [shearing(spread(drawn.unit("shear"), spec.most), 0.0)],
    "rotate": lambda spec, drawn, *_: [rotation(spread(drawn.shared["rotate"], -spec.degrees))],
    "translate": _translate,
    "randaugment": lambda spec, drawn, height, width: randaugment.geometry(
        drawn.randaugment(spec), height=height, width=width
    ),
}


def _recolour(image: tf.Tensor, reaches: Colours, drawn: _Draws) -> tf.Tensor:
    return recolour(image, [drawn.shared[name] for name in Colours._fields], reaches)


def _blur(image: tf.Tensor, spec: Any, drawn: _Draws) -> tf.Tensor:
    return blur(image, drawn.unit("blur") * spec.pixels, most=spec.pixels)


def _noise(image: tf.Tensor, spec: Any, drawn: _Draws) -> tf.Tensor:
    return add_noise(image, drawn.unit("noise") * spec.most, drawn.state("noise of pixels"))


def _cutout(image: tf.Tensor, spec: Any, drawn: _Draws) -> tf.Tensor:
    return cut_out(image, drawn.unit("cutout"), drawn.unit("cutout", 1), share=spec.side)


def _randaugment(image: tf.Tensor, spec: Any, drawn: _Draws) -> tf.Tensor:
    return randaugment.recolour(image, drawn.randaugment(spec))


# Name -> images, its struct, draws -> images of other pixels.
_PIXELS: dict[str, Callable[[Any, Any, _Draws], Any]] = {
    "recolour": _recolour,  # all of _COLOURS
    "blur": _blur,
    "noise": _noise,
    "cutout": _cutout,
    "randaugment": _randaugment,
}


@dataclass(frozen=True, slots=True)
class _Augment:
    """The transform of `augment_images`; `effects` is name -> its struct, in order."""

    effects: Mapping[str, Any]
    min_visible: float
    seed: int

    def __call__(self, features: Features, keys: tf.Tensor) -> Features:
        _check_decoded(features)
        effects, drawn = self.effects, _Draws(self.seed, keys)
        result = dict(features)
        for name, turned in _FLIPS.items():
            if name in effects:
                result = turned(result, effects[name], drawn)
        height, width = result["image"].shape[1:3]
        steps = [
            step
            for name, moved in _MAPS.items()
            if name in effects
            for step in moved(effects[name], drawn, height, width)
        ]
        if steps:
            forward = about_the_middle(steps, height=height, width=width)
            result = move(result, forward, min_visibility=self.min_visible)
        for name, spec in effects.items():
            if name in _PIXELS:
                result["image"] = _PIXELS[name](result["image"], spec, drawn)
        return result


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
    path = f"{dataset.rstrip('/')}/{STATISTICS_PATH}"
    content = read_file(path)
    statistics = content and read_split_statistics(content, split, dataset.rstrip("/"))
    if not statistics or not statistics.channel_mean or not statistics.channel_std:
        raise UsageError(
            f"{path} must hold channel_mean and channel_std of split {split!r}, and does not: "
            "write it with --statistics=sample, or give mean and std"
        )
    return statistics.channel_mean, statistics.channel_std
