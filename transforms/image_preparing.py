"""One image: from its bytes, and what is said of it, to what a record holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.records.hashing import fingerprint64
from recordmill.transforms.image_augmentation import draw, place
from recordmill.transforms.image_colours import recolour
from recordmill.transforms.image_columns import Prepared
from recordmill.transforms.image_decoding import (
    Header,
    ImageRejectedError,
    OpenImage,
    check_extension,
    decode_mask,
    decode_opened,
    from_pixels,
    open_image,
    to_pixels,
)
from recordmill.transforms.image_encoding import encode_image, passes_through, to_floats
from recordmill.transforms.image_examples import ImageWork
from recordmill.transforms.image_geometry import (
    Matrix,
    render,
    scaling,
    shrink_for,
    upright_matrix,
)
from recordmill.transforms.image_masks import Mask, class_mask
from recordmill.transforms.image_objects import PlacedObject, Placement, place_mask, place_objects
from recordmill.transforms.image_references import ImageReference

_NO_CLASS = 255  # in masks, a pixel that is not to be learned: Pascal VOC's borders


def prepare(
    reference: ImageReference,
    image_bytes: bytes,
    mask_bytes: bytes | None,
    work: ImageWork,
    *,
    key: int,
    copy: int | None,
) -> Prepared:
    """Makes one record's content.

    Memory: the decoded image (smaller for a JPEG that is shrunk), once more while it is converted,
    and the result.

    Args:
      reference: what is said of the image.
      image_bytes: the file, or raw pixels where it is of an idx file.
      mask_bytes: the file of its mask, where `reference.mask` is given.
      work: what to do.
      key: of the image, in [0, 2**64).
      copy: which augmented copy, from 1; None or 0 is the image without augmentation.

    Raises:
      ImageRejectedError: the image cannot be used.
    """
    opened = _open(reference, image_bytes, work)
    header = opened.header
    augmented = bool(work.augmentation and copy)
    parameters = (
        draw(work.augmentation, header.upright_size, seed=work.seed, key=key, copy=copy or 0)
        if augmented
        else {}
    )
    to_grey = work.channels < header.channels
    changed = augmented or to_grey or work.transform.size is not None
    data: bytes | npt.NDArray[Any]
    if passes_through(header, work.encode, changed=changed):
        if work.decode.check:
            # All of the file is read, but only an eighth of its frequencies become pixels.
            decode_opened(opened, channels=work.channels, shrink=8)
        data, written = image_bytes, header.format
        size, channels = (header.width, header.height), work.channels
        placement = Placement(Matrix(), size, size)
    else:
        matrix, size = place(parameters, header.upright_size, work.transform)
        image = recolour(_draw(opened, work, matrix, size), parameters, work.transform.fill)
        data, written = _encode(image, header, work)
        channels = work.channels
        turned = upright_matrix(header.orientation, header.width, header.height)
        placement = Placement(matrix.after(turned), (header.width, header.height), size)
    objects, counts = _objects(reference, work, placement)
    counts["images_passed" if data is image_bytes else "images_encoded"] = 1
    if data is image_bytes and header.orientation != 1:
        counts["images_passed_unturned"] = 1
    return Prepared(
        name=reference.name,
        number=fingerprint64(f"{key}/{copy or 0}".encode()) >> 1,
        data=data,
        format=written,
        height=size[1],
        width=size[0],
        channels=channels,
        labels=_labels(reference, work),
        objects=objects,
        mask=_mask(reference, mask_bytes, work, placement),
        augmentation={"copy": copy, **parameters} if augmented else {},
        counts=counts,
    )


def untouched(
    reference: ImageReference, image_bytes: bytes, work: ImageWork
) -> tuple[Image.Image, list[str]]:
    """Returns an image as `prepare` would encode it without augmentation, and its labels.

    Raises:
      ImageRejectedError: the image cannot be used.
    """
    opened = _open(reference, image_bytes, work)
    matrix, size = place({}, opened.header.upright_size, work.transform)
    labels = [name for name, _ in _labels(reference, work)]
    if work.task == "detection":
        labels += [item.label for item in reference.objects if item.label in work.labels]
    return _draw(opened, work, matrix, size), labels


def _open(reference: ImageReference, data: bytes, work: ImageWork) -> OpenImage:
    if reference.image.storage == "idx":
        decoded = from_pixels(data, reference.image.shape, channels=work.channels)
        return OpenImage(decoded.header, decoded.image)
    opened = open_image(data, work.decode)
    check_extension(reference.name, opened.header.format)
    return opened


def _draw(opened: OpenImage, work: ImageWork, matrix: Matrix, size: tuple[int, int]) -> Image.Image:
    """Returns the image, moved."""
    spec = work.transform
    shrink = shrink_for(matrix, spec.reducing_gap) if spec.resample != "nearest" else 1
    decoded = decode_opened(opened, channels=work.channels, shrink=shrink)
    if decoded.shrink > 1:
        matrix = matrix.after(scaling(decoded.shrink, decoded.shrink))
    return render(
        decoded.image, matrix, size,
        resample=spec.resample, fill=spec.fill, reducing_gap=spec.reducing_gap,
    )  # fmt: skip


def _encode(
    image: Image.Image, header: Header, work: ImageWork
) -> tuple[bytes | npt.NDArray[Any], str]:
    written = work.encode.written_format(header.format)
    if written == "raw":
        return to_pixels(image), ""
    if written == "float":
        return to_floats(image, work.encode), ""
    return encode_image(image, written, quality=work.encode.quality), written


def _labels(reference: ImageReference, work: ImageWork) -> tuple[tuple[str, int], ...]:
    if work.task != "classification":
        return ()
    if not work.multilabel and len(reference.labels) != 1:
        raise ImageRejectedError("label_count", f"{len(reference.labels)} labels")
    for name in reference.labels:
        if name not in work.labels:
            raise ImageRejectedError("unknown_label", name)
    return tuple((name, work.labels[name]) for name in reference.labels)


def _objects(
    reference: ImageReference, work: ImageWork, placement: Placement
) -> tuple[tuple[PlacedObject, ...], dict[str, int]]:
    if work.task != "detection":
        return (), {}
    objects, counts = place_objects(
        reference.objects, work.labels, placement, min_visible=work.min_visible, masks=work.masks
    )
    if work.masks:
        counts["objects_without_mask"] = sum(not item.mask for item in objects)
    return tuple(objects), counts


def _mask(
    reference: ImageReference, data: bytes | None, work: ImageWork, placement: Placement
) -> Mask | None:
    """Returns the class of each pixel of the image that is written."""
    if work.task != "segmentation":
        return None
    width, height = placement.before
    if not reference.has_mask and reference.mask is None and not reference.regions:
        raise ImageRejectedError("no_mask")
    if reference.mask is None:
        mask = class_mask(reference.regions, work.labels, height=height, width=width)
    else:
        mask = _stored_mask(reference, data or b"", work)
    if mask.shape != (height, width):
        raise ImageRejectedError(
            "mask_size",
            f"mask of {mask.shape[1]} x {mask.shape[0]}, image of {width} x {height}",
        )
    return place_mask(mask, placement)


def _stored_mask(reference: ImageReference, data: bytes, work: ImageWork) -> Mask:
    try:
        if reference.mask is not None and reference.mask.storage == "idx":
            image = from_pixels(data, reference.mask.shape, channels=1).image
        else:
            image = decode_mask(data, work.decode)[1]
    except ImageRejectedError as error:
        if error.reason == "mask_classes":
            raise
        raise ImageRejectedError("broken_mask", f"{error.reason}: {error.detail}") from error
    mask = np.asarray(image)
    if work.binary_masks:
        return (mask > 127).astype(np.uint8)
    most = max(work.labels.values(), default=_NO_CLASS)
    found = int(mask.max(where=mask != _NO_CLASS, initial=0))
    if found > most:
        raise ImageRejectedError("mask_classes", f"class {found}, at most {most}")
    return mask
