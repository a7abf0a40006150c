"""Listing the images of an input of any layout: a sorted stream of references.

Memory: what sorting needs (`external_sort.py`); beside that, COCO's JSON and a zip's directory are
held whole, and Pascal VOC's lists of splits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.labels import check_printable, named_label, sorted_labels
from recordmill.transforms.images.listing.byte_rows import first_byte_columns
from recordmill.transforms.images.listing.coco import (
    annotation_files,
    coco_images,
    merged_categories,
)
from recordmill.transforms.images.listing.common_folders import skip_common_folders
from recordmill.transforms.images.listing.dagm import dagm_images
from recordmill.transforms.images.listing.entries import Listing, image_label, make_reference
from recordmill.transforms.images.listing.fixed_records import fixed_images
from recordmill.transforms.images.listing.idx import idx_images
from recordmill.transforms.images.listing.image_files import find_entries, input_boundary
from recordmill.transforms.images.listing.joins import Listed
from recordmill.transforms.images.listing.layouts import detect_layout
from recordmill.transforms.images.listing.pairs import pair_masks
from recordmill.transforms.images.listing.severstal import severstal_images
from recordmill.transforms.images.listing.tables import table_images
from recordmill.transforms.images.listing.voc import voc_images
from recordmill.transforms.images.listing.webdataset import webdataset_images
from recordmill.transforms.images.listing.yolo import class_names, yolo_images
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.source_spec import SourceSpec

__all__ = [
    "Listing", "SourceSpec", "category_ids", "detect_layout", "label_names", "labels_of",
    "list_images",
]  # fmt: skip


def list_images(spec: SourceSpec, listing: Listing | None = None) -> Iterator[Listed]:
    """Yields every image of the input, in order of name for each archive or folder, and rejects.

    What is yielded depends on the names and contents of files only, not on the order in which a
    file system gives them.

    Args:
      spec: where images are; `layout="auto"` is resolved.
      listing: collects the files used and passed over.

    Raises:
      UsageError: there is no image, or annotations cannot be used.
    """
    listing = listing or Listing()
    spec = detect_layout(spec)
    listing.boundary = input_boundary(spec)
    images = _LISTERS[spec.layout](spec, listing)
    if spec.masks:
        images = pair_masks(images, spec, listing)
    known = frozenset(spec.labels)
    is_empty = True
    for item in images:
        is_empty = False
        yield _checked(item, known) if known else item
    listing.boundary.check_skipped()
    if is_empty:
        passed = sum(listing.filtered.values())
        raise UsageError(
            f"--input {' '.join(spec.patterns)} holds no image: {passed} files were passed over "
            f"({', '.join(f'{reason} {n}' for reason, n in sorted(listing.filtered.items()))})"
        )


def labels_of(image: ImageReference) -> Iterator[str]:
    """Yields the labels of an image, its objects and its regions."""
    yield from image.labels
    yield from (item.label for item in image.objects if item.label)
    yield from (label for label, _ in image.regions)


def label_names(spec: SourceSpec, occurring: Collection[str]) -> list[str]:
    """Returns the labels in order of their ids.

    These are the given ones; or COCO's categories by id; or those that occur, sorted, as
    numbers where all are whole numbers.

    Raises:
      UsageError: --annotations cannot be read any more, or a label cannot be a line of text.
    """
    names = _ordered_labels(spec, occurring)
    check_printable(names)
    return names


def category_ids(spec: SourceSpec) -> dict[str, object]:
    """Returns the ids of COCO's categories by name; {} where the input is not COCO's, or where
    the labels are given.

    Raises:
      UsageError: --annotations cannot be read any more.
    """
    spec = detect_layout(spec)
    if spec.labels or spec.layout != "coco":
        return {}
    return {name: number for number, name in merged_categories(annotation_files(spec)).items()}


def _ordered_labels(spec: SourceSpec, occurring: Collection[str]) -> list[str]:
    if spec.labels:
        return list(spec.labels)
    spec = detect_layout(spec)
    if spec.layout == "coco":
        return list(merged_categories(annotation_files(spec)).values())
    if (rows := first_byte_columns(spec)) and rows.names:
        return list(rows.names)
    if spec.layout == "yolo" and (classes := class_names(spec)):
        return classes
    return sorted_labels(occurring)


def _folder_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    spec = skip_common_folders(spec)
    for item in find_entries(spec.patterns, listing):
        if isinstance(item, ListedReject):
            yield item
        elif spec.label_pattern or (spec.layout == "folders" and spec.labels_from != "none"):
            labels = image_label(spec, item)
            if labels:
                yield make_reference(spec, item, labels=labels)
            else:
                detail = "it is in no folder that names one"
                if spec.label_pattern:
                    detail = f"its name does not match --label_pattern {spec.label_pattern}"
                yield ListedReject(item.name, "no_label", detail)
        else:
            yield make_reference(spec, item)


_LISTERS: dict[str, Callable[[SourceSpec, Listing], Iterator[Listed]]] = {
    "coco": coco_images,
    "dagm": dagm_images,
    "fixed": fixed_images,
    "flat": _folder_images,
    "folders": _folder_images,
    "idx": idx_images,
    "pairs": _folder_images,
    "severstal": severstal_images,
    "table": table_images,
    "voc": voc_images,
    "webdataset": webdataset_images,
    "yolo": yolo_images,
}


def _checked(item: Listed, known: frozenset[str]) -> Listed:
    """Returns the image with labels as they are given, or a reject where one of them is not."""
    if isinstance(item, ImageReference):
        item = replace(item, labels=tuple(named_label(label, known) for label in item.labels))
        for label in labels_of(item):
            if label not in known:
                return ListedReject(item.name, "unknown_label", f"{label!r} is not in --labels")
    return item
