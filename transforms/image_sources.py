"""Listing the images of an input, whatever it looks like: a sorted stream of references.

Nothing is held but what sorting needs (`external_sort.py`), with these exceptions: COCO's JSON and
a zip's directory are held whole, and Pascal VOC's lists of splits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.image_coco import coco_categories, coco_images
from recordmill.transforms.image_dagm import dagm_images
from recordmill.transforms.image_entries import Listing
from recordmill.transforms.image_files import find_entries
from recordmill.transforms.image_idx import idx_images
from recordmill.transforms.image_joins import Listed
from recordmill.transforms.image_layouts import detect_layout
from recordmill.transforms.image_pairs import pair_masks
from recordmill.transforms.image_references import ImageReference, ListedReject
from recordmill.transforms.image_severstal import severstal_images
from recordmill.transforms.image_spec import SourceSpec
from recordmill.transforms.image_tables import table_images
from recordmill.transforms.image_voc import voc_images

__all__ = [
    "Listing", "SourceSpec", "detect_layout", "label_names", "labels_of", "list_images",
    "read_labels",
]  # fmt: skip


def list_images(spec: SourceSpec, listing: Listing | None = None) -> Iterator[Listed]:
    """Yields every image of the input, in order of name for each archive or folder, and rejects.

    What is yielded depends on the names and contents of files only, not on the order in which a
    file system gives them.

    Args:
      spec: where images are; `layout="auto"` is resolved.
      listing: is told of files used and passed over.

    Raises:
      UsageError: nothing is found, or annotations cannot be used.
    """
    listing = listing or Listing()
    spec = detect_layout(spec)
    images = _LISTERS[spec.layout](spec, listing)
    if spec.masks:
        images = pair_masks(images, spec, listing)
    known = frozenset(spec.labels)
    found = False
    for item in images:
        found = True
        yield _checked(item, known) if known else item
    if not found:
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


def label_names(spec: SourceSpec, seen: Collection[str]) -> list[str]:
    """Returns the labels in order of their ids.

    These are the given ones; or COCO's categories by id; or those seen, in order, as numbers where
    all are whole numbers.

    Raises:
      UsageError: --annotations cannot be read any more.
    """
    if spec.labels:
        return list(spec.labels)
    spec = detect_layout(spec)
    if spec.layout == "coco":
        return coco_categories(spec.annotations)
    if all(name.isascii() and name.isdigit() for name in seen):
        return sorted(seen, key=lambda name: (int(name), name))
    return sorted(seen)


def read_labels(path: str) -> tuple[str, ...]:
    """Reads a file of labels, one a line, in order of their ids.

    Raises:
      UsageError: it cannot be read or is empty.
    """
    try:
        lines = files.read_bytes(path).decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--labels must be from_folder, from_field, none or a file of labels; {path}: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error
    labels = tuple(line.strip() for line in lines if line.strip())
    if not labels:
        raise UsageError(f"--labels {path} must have a label a line; it is empty")
    return labels


def _folder_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    for item in find_entries(spec.patterns, listing):
        if isinstance(item, ListedReject):
            yield item
        elif spec.layout == "folders" and spec.labels_from != "none":
            labels = spec.folder_label(item)
            if labels:
                yield spec.reference(item, labels=labels)
            else:
                yield ListedReject(item.name, "no_label", "it lies in no folder that names one")
        else:
            yield spec.reference(item)


_LISTERS: dict[str, Callable[[SourceSpec, Listing], Iterator[Listed]]] = {
    "coco": coco_images,
    "dagm": dagm_images,
    "flat": _folder_images,
    "folders": _folder_images,
    "idx": idx_images,
    "pairs": _folder_images,
    "severstal": severstal_images,
    "table": table_images,
    "voc": voc_images,
}


def _checked(item: Listed, known: frozenset[str]) -> Listed:
    """Returns the image, or a reject where one of its labels is not among those given."""
    if isinstance(item, ImageReference):
        for label in labels_of(item):
            if label not in known:
                return ListedReject(item.name, "unknown_label", f"{label!r} is not in --labels")
    return item
