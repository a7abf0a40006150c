"""Images after the functions of users' own, each with the annotations that these gave it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from recordmill.transforms.dataset.user_functions import ElementError, FunctionChain, MapSpec
from recordmill.transforms.elements import Box, Image
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_elements import (
    read_boxes,
    read_data,
    read_label,
    read_object,
    store_data,
)
from recordmill.transforms.images.image_spec import ImageSpec
from recordmill.transforms.images.references import (
    ImageObject,
    ImageReference,
)


class MappedImage(NamedTuple):
    """An image as functions returned it: its reference, its bytes, and those of its mask.

    Where functions returned pixels, the reference says that the bytes are such, as of an idx file.
    """

    reference: ImageReference
    data: bytes
    mask: bytes | None


class ImageMapper:
    """Hands images to functions.

    Args:
      spec: the functions.
      images: what is done to images afterwards.

    Raises:
      RunError: a function cannot be loaded on this worker.
    """

    def __init__(self, spec: MapSpec, images: ImageSpec) -> None:
        self._spec = spec
        self._chain = FunctionChain(spec, Image)
        self._images = images

    def __call__(
        self, reference: ImageReference, data: bytes, mask: bytes | None
    ) -> list[MappedImage]:
        """Returns what functions make of an image: nothing, one image, or several.

        Raises:
          ImageRejectedError: map_error, where a function raised; or the size of the image is needed
            for its boxes and is not known.
          RunError: a function raised, and that ends the run.
        """
        objects = self._boxes(reference, data)
        boxes = None if objects is None else tuple(box for box, _ in objects)
        image = Image(
            read_data(reference.image, data), reference.name, self._label(reference), boxes,
            None if mask is None or reference.mask is None
            else read_data(reference.mask, mask),
            reference.group or None, reference.split or None,
        )  # fmt: skip
        try:
            results = self._chain(image)
            if any(_is_moved(each, image) for each in results):
                raise ElementError(
                    "a function changed group or split of an image, which are decided before it "
                    "runs: leave them, or give --split_by or --split_from"
                )
            labels = [self._changed_labels(each, image, reference) for each in results]
        except ElementError as error:
            self._spec.check_goes_on(error, f"the image {reference.name}")
            raise ImageRejectedError("map_error", str(error)) from error
        known = {id(box): item for box, item in objects or ()}
        mapped: list[MappedImage] = []
        for result, own_labels in zip(results, labels, strict=True):
            changed = _with_boxes(replace(reference, labels=own_labels), result, image, known)
            changed = replace(changed, name=_name(result, reference.name, len(mapped)))
            own_data, own_mask = data, mask
            if result.data is not image.data:
                stored, own_data = store_data(result.data)
                changed = replace(changed, image=stored)
            if result.mask is None and image.mask is not None:
                has_mask, own_mask = bool(changed.regions), None
                changed = replace(changed, mask=None, has_mask=has_mask)
            elif result.mask is not None and result.mask is not image.mask:
                stored, own_mask = store_data(result.mask)
                changed = replace(changed, mask=stored, regions=(), has_mask=True)
            mapped.append(MappedImage(changed, own_data, own_mask))
        return mapped

    def _label(self, reference: ImageReference) -> str | float | tuple[str, ...] | None:
        labels = reference.labels
        if self._images.multilabel:
            return labels
        if not labels:
            return None
        return float(labels[0]) if self._images.numbers else labels[0]

    def _changed_labels(
        self, result: Image, given: Image, reference: ImageReference
    ) -> tuple[str, ...]:
        """Returns the labels that functions returned.

        Raises:
          ElementError: they are none.
        """
        label = result.label
        if label == given.label and type(label) is type(given.label):
            return reference.labels
        try:
            return () if label is None else read_label(label, numbers=self._images.numbers)
        except TypeError as error:
            raise ElementError(f"{self._spec.functions[-1].name} returned: {error}") from error

    def _boxes(
        self, reference: ImageReference, data: bytes
    ) -> list[tuple[Box, ImageObject]] | None:
        """Returns the boxes of an image in pixels, each with the object that it is of."""
        if self._images.task != "detection":
            return None
        return read_boxes(reference, data, self._images.decode, self._images.drawn_on)


def _is_moved(result: Image, given: Image) -> bool:
    """Tells whether a function changed what decides the split; None is what it has left out."""
    return result.group not in (None, given.group) or result.split not in (None, given.split)


def _with_boxes(
    reference: ImageReference, result: Image, given: Image, known: dict[int, ImageObject]
) -> ImageReference:
    """Returns a reference with the boxes that functions returned."""
    if result.boxes is given.boxes:
        return reference
    objects = tuple(known.get(id(box)) or read_object(box) for box in result.boxes or ())
    return replace(reference, objects=objects)


def _name(result: Image, name: str, number: int) -> str:
    if result.key is not None and result.key != name:
        return result.key
    return f"{name}#{number}" if number else name
