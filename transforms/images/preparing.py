"""One image: from its bytes and annotations to the content of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.records.hashing import fingerprint64
from recordmill.transforms.images.augmentation import draw, output_matrix
from recordmill.transforms.images.colors import recolour
from recordmill.transforms.images.columns import Prepared
from recordmill.transforms.images.decoding import (
    Header,
    ImageRejectedError,
    OpenImage,
    check_extension,
    decode_mask,
    decode_opened,
    from_pixels,
    open_image,
    rejecting,
    to_pixels,
)
from recordmill.transforms.images.encoding import encode_image, passes_through, to_floats
from recordmill.transforms.images.geometry import (
    Matrix,
    Size,
    render,
    scaling,
    shrink_for,
    upright_matrix,
)
from recordmill.transforms.images.image_spec import NO_CLASS, ImageSpec
from recordmill.transforms.images.mask_classes import chosen_regions, classes_of_image
from recordmill.transforms.images.masks import Mask, class_mask
from recordmill.transforms.images.objects import (
    PixelTransform,
    TransformedObject,
    transform_mask,
    transform_objects,
)
from recordmill.transforms.images.references import ImageReference, Region
from recordmill.transforms.images.source_spec import DrawnOn


class _WrittenImage(NamedTuple):
    """The encoded image of a record, and how its geometry came about.

    Attributes:
      data: the encoded image, or its pixels `[height, width, channels]`, uint8 or float32.
      format: "JPEG", "PNG", "WEBP", "BMP"; "" for pixels.
      matrix: from decoded pixels to written ones.
      size: `(width, height)` of the written image.
      passed: whether `data` are the bytes of the source.
    """

    data: bytes | npt.NDArray[Any]
    format: str
    matrix: Matrix
    size: Size
    passed: bool


def prepare(
    reference: ImageReference,
    image_bytes: bytes,
    mask_bytes: bytes | None,
    spec: ImageSpec,
    *,
    key: int,
    copy: int | None,
) -> Prepared:
    """Makes one record's content.

    Memory: the decoded image (smaller for a JPEG that is shrunk), once more while it is converted,
    and the result.

    Args:
      reference: the image with its annotations.
      image_bytes: the file, or raw pixels where it is of an idx file.
      mask_bytes: the file of its mask, where `reference.mask` is given.
      spec: what is done to images.
      key: of the image, in [0, 2**64).
      copy: which augmented copy, from 1; None or 0 is the image without augmentation.

    Raises:
      ImageRejectedError: the image cannot be used.
    """
    opened = _open(reference, image_bytes, spec)
    header = opened.header
    parameters: dict[str, Any] = {}
    augmented = bool(spec.augmentation and copy)
    if augmented:
        parameters = draw(
            spec.augmentation, header.decoded_size, seed=spec.seed, key=key, copy=copy or 0
        )
    # TensorFlow decodes no BMP to one channel.
    to_grey = spec.channels < header.channels or (spec.channels == 1 and header.format == "BMP")
    changed = augmented or to_grey or spec.transform.size is not None or header.turn != 1
    if passes_through(opened, image_bytes, spec, changed=changed):
        written = _pass_through(opened, image_bytes, spec)
    else:  # without loss where nothing but the form changes
        kept_format = header.format if changed else ""
        written = _render_and_encode(opened, parameters, spec, kept_format)
    transform = _from_annotations(header, written, spec.drawn_on)
    try:
        objects, counts = _objects(reference, spec, transform)
        mask = _mask(reference, mask_bytes, spec, transform)
    except ImageRejectedError as error:
        other: DrawnOn = "stored" if spec.drawn_on == "shown" else "shown"
        if error.size != header.annotated_size(other):
            raise
        hint = f"{error.detail}; EXIF turns the image: see --drawn_on={other}"
        raise ImageRejectedError(error.reason, hint) from error
    counts["images_passed" if written.passed else "images_encoded"] = 1
    if header.orientation != 1:
        counts["images_unturned" if header.turn == 1 else "images_turned"] = 1
        has_boxes = spec.task == "detection" and bool(reference.objects)
        if not spec.drawn_on and (has_boxes or mask is not None):
            counts["images_turned_unclear"] = 1
    return Prepared(
        name=reference.name,
        number=fingerprint64(f"{key}/{copy or 0}".encode()) >> 1,
        data=written.data,
        format=written.format,
        height=written.size[1],
        width=written.size[0],
        channels=spec.channels,
        labels=_labels(reference, spec),
        objects=objects,
        mask=mask,
        augmentation={"copy": copy, **parameters} if augmented else {},
        counts=counts,
        fields=reference.fields,
        source_id="" if augmented else reference.source_id,  # a copy is another image
    )


def _pass_through(opened: OpenImage, image_bytes: bytes, spec: ImageSpec) -> _WrittenImage:
    """Returns the bytes of the source, after a check that they can be decoded."""
    header = opened.header
    if spec.decode.verifies:
        # All of the file is read, but only an eighth of its frequencies become pixels.
        decode_opened(opened, channels=spec.channels, shrink=8)
    return _WrittenImage(image_bytes, header.format, Matrix(), header.decoded_size, True)


def _render_and_encode(
    opened: OpenImage, parameters: Mapping[str, Any], spec: ImageSpec, kept_format: str
) -> _WrittenImage:
    """Decodes an image, applies size and augmentation, and encodes it."""
    header = opened.header
    matrix, size = output_matrix(parameters, header.decoded_size, spec.transform)
    with rejecting():
        image = recolour(_render(opened, spec, matrix, size), parameters, spec.transform.fill)
    data, written_format = _encode(image, kept_format, spec)
    return _WrittenImage(data, written_format, matrix, size, False)


def _from_annotations(header: Header, written: _WrittenImage, drawn_on: DrawnOn) -> PixelTransform:
    """Returns the way from the picture that annotations were drawn on to the one written."""
    stored = header.width, header.height
    matrix = written.matrix.after(upright_matrix(header.turn, *stored))
    if drawn_on == "shown":
        matrix = matrix.after(upright_matrix(header.orientation, *stored).inverse())
    return PixelTransform(matrix, header.annotated_size(drawn_on), written.size)


def untouched(
    reference: ImageReference, image_bytes: bytes, spec: ImageSpec
) -> tuple[Image.Image, list[str]]:
    """Returns an image as `prepare` would encode it without augmentation, and its labels.

    Raises:
      ImageRejectedError: the image cannot be used.
    """
    opened = _open(reference, image_bytes, spec)
    matrix, size = output_matrix({}, opened.header.decoded_size, spec.transform)
    labels = [name for name, _ in _labels(reference, spec)]
    if spec.task == "detection":
        labels += [item.label for item in reference.objects if item.label in spec.labels]
    with rejecting():
        return _render(opened, spec, matrix, size), labels


def _open(reference: ImageReference, data: bytes, spec: ImageSpec) -> OpenImage:
    if reference.image.storage == "idx":
        decoded = from_pixels(data, reference.image.shape, channels=spec.channels)
        return OpenImage(decoded.header, decoded.image)
    opened = open_image(data, spec.decode)
    # What users' functions return is of no file, and its name says nothing of its format.
    if spec.decode.wrong_extension == "reject" and reference.image.path:
        check_extension(reference.name, opened.header.format)
    return opened


def _render(
    opened: OpenImage, spec: ImageSpec, matrix: Matrix, size: tuple[int, int]
) -> Image.Image:
    """Decodes the image and transforms it by `matrix` onto a canvas of `size`."""
    how = spec.transform
    shrink = shrink_for(matrix, how.reducing_gap) if how.resample != "nearest" else 1
    decoded = decode_opened(opened, channels=spec.channels, shrink=shrink)
    if decoded.shrink > 1:
        matrix = matrix.after(scaling(decoded.shrink, decoded.shrink))
    return render(
        decoded.image, matrix, size,
        resample=how.resample, fill=how.fill, reducing_gap=how.reducing_gap,
    )  # fmt: skip


def _encode(
    image: Image.Image, kept_format: str, spec: ImageSpec
) -> tuple[bytes | npt.NDArray[Any], str]:
    written = spec.encode.written_format(kept_format)
    if written == "raw":
        return to_pixels(image), ""
    if written == "float":
        return to_floats(image, spec.encode), ""
    return encode_image(image, written, quality=spec.encode.quality), written


def _labels(reference: ImageReference, spec: ImageSpec) -> tuple[tuple[str, float], ...]:
    if spec.task != "classification" or spec.unlabeled:
        return ()
    if not spec.multilabel and len(reference.labels) != 1:
        raise ImageRejectedError("label_count", f"{len(reference.labels)} labels")
    if spec.numbers:
        return (("", float(reference.labels[0])),)
    for name in reference.labels:
        if name not in spec.labels:
            raise ImageRejectedError("unknown_label", name)
    return tuple((name, spec.labels[name]) for name in reference.labels)


def _objects(
    reference: ImageReference, spec: ImageSpec, transform: PixelTransform
) -> tuple[tuple[TransformedObject, ...], dict[str, int]]:
    if spec.task != "detection":
        return (), {}
    objects, counts = transform_objects(
        reference.objects, spec.labels, transform, min_visible=spec.min_visible, masks=spec.masks,
        max_drawn_pixels=spec.max_drawn_pixels,
    )  # fmt: skip
    if spec.masks:
        counts["objects_without_mask"] = sum(not item.mask for item in objects)
    return tuple(objects), counts


def _mask(
    reference: ImageReference, data: bytes | None, spec: ImageSpec, transform: PixelTransform
) -> Mask | None:
    """Returns the class of each pixel of the written image."""
    if spec.task != "segmentation":
        return None
    width, height = transform.source_size
    regions = reference.regions or _object_regions(reference)
    if not reference.has_mask and reference.mask is None and not regions:
        raise ImageRejectedError("no_mask")
    if reference.mask is None:
        chosen, labels = chosen_regions(regions, spec.labels, spec.mask_classes)
        mask = class_mask(
            chosen, labels, height=height, width=width, max_drawn_pixels=spec.max_drawn_pixels
        )
    else:
        mask = _stored_mask(reference, data or b"", spec)
    if mask.shape != (height, width):
        raise ImageRejectedError(
            "mask_size",
            f"mask of {mask.shape[1]} x {mask.shape[0]}, image of {width} x {height}",
            size=(mask.shape[1], mask.shape[0]),
        )
    return transform_mask(mask, transform)


def _object_regions(reference: ImageReference) -> tuple[tuple[str, Region], ...]:
    """Returns the pixels of each object, in the order in which they are drawn over each other.

    Crowds are below all others, and small objects above large ones, which would hide them.
    """
    objects = [item for item in reference.objects if item.region]
    objects.sort(key=lambda item: (not item.is_crowd, -(item.area or 0.0)))
    return tuple((item.label, item.region) for item in objects if item.region)


def _stored_mask(reference: ImageReference, data: bytes, spec: ImageSpec) -> Mask:
    try:
        if reference.mask is not None and reference.mask.storage == "idx":
            image = from_pixels(data, reference.mask.shape, channels=1).image
        else:
            image = decode_mask(data, spec.decode)[1]
    except ImageRejectedError as error:
        if error.reason == "mask_classes":
            raise
        raise ImageRejectedError("broken_mask", f"{error.reason}: {error.detail}") from error
    last = max(spec.labels.values(), default=NO_CLASS)
    return classes_of_image(np.asarray(image), spec.mask_classes, last)
