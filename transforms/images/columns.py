"""Prepared images to columns for the encoder, one function a record format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.codec.encoding import Column, Ragged, Strings
from recordmill.records.image_formats import ImageContent
from recordmill.transforms.images.encoding import encode_mask
from recordmill.transforms.images.image_spec import ImageSpec
from recordmill.transforms.images.masks import Mask
from recordmill.transforms.images.objects import TransformedObject

_NAMES = {"JPEG": "jpeg", "PNG": "png", "WEBP": "webp", "BMP": "bmp"}
_MODEL_GARDEN_NAMES = _NAMES | {"JPEG": "jpg"}
_IMAGENET_NAMES = {name: name for name in _NAMES}


@dataclass(frozen=True, slots=True)
class Prepared:
    """An image as a record will hold it.

    Attributes:
      name: its path below the input root.
      number: different for any two records, in [0, 2**63).
      data: the encoded image, or its pixels `[height, width, channels]`, uint8 or float32.
      format: "JPEG", "PNG", "WEBP", "BMP"; "" for pixels.
      height, width, channels: of what a reader of `data` gets.
      labels: the classes of the image, by name and number; or a number to be predicted, which
        has the name "".
      objects: for detection.
      mask: `[height, width] uint8`, the class of each pixel, for segmentation.
      augmentation: the drawn parameters, with the copy's number; empty for an untouched image.
      counts: numbers that `statistics.json` adds up.
      source_id: the number that the source gives the image, "" where it gives none.
      fields: the text of the columns that are carried along.
    """

    name: str
    number: int
    data: bytes | npt.NDArray[Any]
    format: str
    height: int
    width: int
    channels: int
    labels: tuple[tuple[str, float], ...]
    objects: tuple[TransformedObject, ...]
    mask: Mask | None
    augmentation: Mapping[str, Any]
    counts: Mapping[str, int]
    source_id: str = ""
    fields: tuple[str, ...] = ()

    @property
    def encoded(self) -> bytes:
        """The encoded image, or its pixels row by row."""
        return self.data if isinstance(self.data, bytes) else self.data.tobytes()

    @property
    def held_bytes(self) -> int:
        """The memory that it takes."""
        data = len(self.data) if isinstance(self.data, bytes) else self.data.nbytes
        mask = 0 if self.mask is None else self.mask.nbytes
        return data + mask + sum(len(item.mask) for item in self.objects)


def augmentations(batch: Sequence[Prepared]) -> Strings:
    """Returns the drawn parameters of each image as JSON."""
    return _strings(json.dumps(dict(i.augmentation), separators=(",", ":")) for i in batch)


def _strings(values: Any) -> Strings:
    return Strings.from_list([v.encode() if isinstance(v, str) else bytes(v) for v in values])


def _numbers(values: Any) -> npt.NDArray[np.int64]:
    return np.array(list(values), np.int64)


def _splits(counts: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def _each(batch: Sequence[Prepared], value: Callable[[TransformedObject, Prepared], Any]) -> Ragged:
    """Returns a number, or a tuple of them, of every object."""
    rows = [np.array([value(o, image) for o in image.objects]).reshape(-1) for image in batch]
    values = np.concatenate(rows) if rows else np.zeros(0)
    return Ragged(values, _splits([len(row) for row in rows]))


def _each_string(rows: Sequence[Sequence[bytes]]) -> Strings:
    flat = Strings.from_list([value for row in rows for value in row])
    return Strings(flat.pool, flat.starts, flat.lengths, _splits([len(row) for row in rows]))


def _object_masks(batch: Sequence[Prepared]) -> Strings:
    return _each_string(
        [
            [o.mask or encode_mask(np.zeros((i.height, i.width), np.uint8)) for o in i.objects]
            for i in batch
        ]
    )


def _label_columns(
    batch: Sequence[Prepared], content: ImageContent, name: str, text: str = ""
) -> dict[str, Column]:
    """Returns one label an image, or with `multilabel` any number."""
    if content.unlabeled:
        return {}
    if content.numbers:
        return {name: np.array([image.labels[0][1] for image in batch], np.float32)}
    if not content.multilabel:
        columns: dict[str, Column] = {name: _numbers(image.labels[0][1] for image in batch)}
        return columns | ({text: _strings(image.labels[0][0] for image in batch)} if text else {})
    rows = [_numbers(number for _, number in image.labels) for image in batch]
    columns = {name: Ragged(np.concatenate(rows), _splits([len(row) for row in rows]))}
    if text:
        columns[text] = _each_string([[n.encode() for n, _ in image.labels] for image in batch])
    return columns


def _masks(batch: Sequence[Prepared]) -> list[Mask]:
    return [image.mask for image in batch if image.mask is not None]


def tfds(batch: Sequence[Prepared], content: ImageContent) -> dict[str, Column]:
    """Returns the columns of `image_formats.tfds`."""
    columns: dict[str, Column] = {
        "image": _strings(image.encoded for image in batch),
        "image/filename": _strings(image.name for image in batch),
    }
    if content.task == "classification":
        return columns | _label_columns(batch, content, "labels" if content.multilabel else "label")
    if content.task == "segmentation":
        return columns | {"segmentation_mask": _strings(map(encode_mask, _masks(batch)))}
    columns |= {
        "objects/bbox": _each(batch, _shares),
        "objects/label": _as_int(_each(batch, lambda o, i: o.number)),
        "objects/is_crowd": _as_int(_each(batch, lambda o, i: o.is_crowd)),
        "objects/area": _each(batch, lambda o, i: o.area),
    }
    return columns | ({"objects/mask": _object_masks(batch)} if content.masks else {})


def _as_int(column: Ragged) -> Ragged:
    return Ragged(column.values.astype(np.int64), column.row_splits)


def _shares(item: TransformedObject, image: Prepared) -> tuple[float, float, float, float]:
    """Returns `ymin, xmin, ymax, xmax` in [0, 1]."""
    x0, y0, x1, y1 = item.box
    return y0 / image.height, x0 / image.width, y1 / image.height, x1 / image.width


def _encoded(batch: Sequence[Prepared], names: Mapping[str, str] = _NAMES) -> dict[str, Column]:
    return {
        "image/encoded": _strings(image.encoded for image in batch),
        "image/format": _strings(names[i.format] for i in batch),
        "image/height": _numbers(image.height for image in batch),
        "image/width": _numbers(image.width for image in batch),
        "image/filename": _strings(image.name for image in batch),
    }


def imagenet(batch: Sequence[Prepared], content: ImageContent) -> dict[str, Column]:
    """Returns the columns of `image_formats.imagenet`."""
    space = "RGB" if content.image_shape[2] == 3 else "Grayscale"
    return (
        _encoded(batch, _IMAGENET_NAMES)
        | {
            "image/channels": _numbers(image.channels for image in batch),
            "image/colorspace": _strings(space for _ in batch),
        }
        | _label_columns(batch, content, "image/class/label", "image/class/synset")
    )


def object_detection(batch: Sequence[Prepared], content: ImageContent) -> dict[str, Column]:
    """Returns the columns of `image_formats.object_detection`."""
    boxes = _each(batch, _shares)
    sides = boxes.values.reshape(-1, 4).T
    columns: dict[str, Column] = _encoded(batch) | {
        "image/source_id": _strings(image.source_id or str(image.number) for image in batch),
        "image/key/sha256": _strings(hashlib.sha256(image.encoded).hexdigest() for image in batch),
        "image/object/class/text": _each_string(
            [[o.label.encode() for o in image.objects] for image in batch]
        ),
        "image/object/class/label": _as_int(_each(batch, lambda o, i: o.number)),
        "image/object/is_crowd": _as_int(_each(batch, lambda o, i: o.is_crowd)),
        "image/object/difficult": _as_int(_each(batch, lambda o, i: o.difficult)),
        "image/object/area": _each(batch, lambda o, i: o.area),
    }
    for name, values in zip(("ymin", "xmin", "ymax", "xmax"), sides, strict=True):
        columns[f"image/object/bbox/{name}"] = Ragged(values, boxes.row_splits // 4)
    return columns | ({"image/object/mask": _object_masks(batch)} if content.masks else {})


def model_garden(batch: Sequence[Prepared], content: ImageContent) -> dict[str, Column]:
    """Returns the columns of `image_formats.model_garden`."""
    if content.task == "detection":
        return object_detection(batch, content) | _encoded(batch, _MODEL_GARDEN_NAMES)
    columns = _encoded(batch, _MODEL_GARDEN_NAMES) | {
        "image/source_id": _strings(image.source_id or str(image.number) for image in batch)
    }
    if content.task == "classification":
        return columns | _label_columns(batch, content, "image/class/label", "image/class/text")
    masks = _strings(map(encode_mask, _masks(batch)))
    return columns | {"image/segmentation/class/encoded": masks}


def raw(batch: Sequence[Prepared], content: ImageContent) -> dict[str, Column]:
    """Returns the columns of `image_formats.raw`."""
    columns: dict[str, Column] = {
        "image": _strings(image.encoded for image in batch),
        "height": _numbers(image.height for image in batch),
        "width": _numbers(image.width for image in batch),
        "channel": _numbers(image.channels for image in batch),
    }
    if content.task == "classification":
        return columns | _label_columns(batch, content, "label")
    return columns | {"mask": _strings(mask.tobytes() for mask in _masks(batch))}


def unet(batch: Sequence[Prepared], content: ImageContent) -> dict[str, Column]:
    """Returns the columns of `image_formats.unet`."""
    masks = np.stack(_masks(batch))[..., None].astype(np.float32)
    return {
        "image": np.stack([np.asarray(image.data) for image in batch]),
        "mask": np.repeat(masks, content.image_shape[2] or 1, axis=-1),
    }


_FORMATS = {
    each.__name__: each for each in (tfds, imagenet, object_detection, model_garden, raw, unet)
}


def record_columns(spec: ImageSpec, batch: Sequence[Prepared]) -> dict[str, Column]:
    """Returns feature -> values of prepared images, for `encode_batch`."""
    columns: dict[str, Column] = _FORMATS[spec.format](batch, spec.content)
    if spec.write_augmentations:
        columns["image/augmentation"] = augmentations(batch)
    for position, kept in enumerate(spec.kept_fields):
        columns[kept.name] = kept.column([image.fields[position] for image in batch])
    return columns
