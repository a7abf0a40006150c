"""Severstal's steel defects: `train.csv` with the runs of defect pixels of each image and class.

Columns are ImageId, ClassId, EncodedPixels, or ImageId_ClassId as in the competition's first form.
An image may have several rows, an empty one, or none where it has no defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.external_sort import Row
from recordmill.transforms.image_entries import Entry, Listing
from recordmill.transforms.image_files import input_root
from recordmill.transforms.image_joins import Listed, image_rows, join, reject_row, without_image
from recordmill.transforms.image_references import ListedReject, Region
from recordmill.transforms.image_spec import SourceSpec
from recordmill.transforms.table_rows import TableRow, read_columns, read_rows

_RUNS = "EncodedPixels"
_JOINED = "ImageId_ClassId"


def is_severstal(columns: Sequence[str]) -> bool:
    """Tells whether a table has Severstal's columns."""
    return _RUNS in columns and ({"ImageId", "ClassId"} <= set(columns) or _JOINED in columns)


def severstal_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields images with the regions of their defects; labels are the classes among them.

    An image with a row that cannot be read is rejected whole: half a mask would be a wrong one.

    Raises:
      UsageError: the table cannot be read or is another, or a glob matches nothing.
    """
    columns = read_columns(spec.annotations)
    if not is_severstal(columns):
        raise UsageError(
            f"--annotations {spec.annotations} must have the columns ImageId, ClassId, "
            f"EncodedPixels; got {', '.join(columns)}"
        )
    listing.use(spec.annotations)

    def rows() -> Iterator[Row]:
        yield from image_rows(spec.patterns, listing)
        yield from _table_rows(spec.annotations)

    root = input_root(spec.patterns) or "."

    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        if not images:
            for place, image, _, _ in contents["row"]:
                yield from without_image(place, files.join(root, image), listing)
            return
        regions: list[tuple[str, Region]] = []
        for place, _, label, runs in contents.get("row", ()):
            try:
                regions += _region(label, runs)
            except ValueError as error:
                yield ListedReject(images[0].name, "bad_row", f"{place}: {error}")
                return
        labels = set() if spec.labels_from == "none" else {label for label, _ in regions}
        yield spec.reference(
            images[0], labels=tuple(sorted(labels)), regions=tuple(regions), has_mask=True
        )

    return join(rows(), listing, make)


def _table_rows(table: str) -> Iterator[Row]:
    """Yields `(image, "row", (row number, image, class, runs))`."""
    for row in read_rows(table):
        place = f"{table.rpartition('/')[2]}#{row.number}"
        if row.problem:
            yield reject_row(ListedReject(place, "bad_row", row.problem))
            continue
        image, label = _image_and_class(row)
        if image:
            yield image, "row", (place, image, label, str(row.values[_RUNS]).strip())
        else:
            yield reject_row(ListedReject(place, "bad_row", "the row names no image"))


def _image_and_class(row: TableRow) -> tuple[str, str]:
    if _JOINED in row.values:
        image, _, label = str(row.values[_JOINED]).rpartition("_")
    else:
        image, label = str(row.values["ImageId"]), str(row.values["ClassId"])
    return image.strip(), label.strip()


def _region(label: str, runs: str) -> list[tuple[str, Region]]:
    if not runs:
        return []
    numbers = tuple(map(int, runs.split()))
    if len(numbers) % 2:
        raise ValueError(f"runs must be pairs of start and length, got {len(numbers)} numbers")
    if min(numbers) < 1:
        raise ValueError("starts and lengths of runs must be 1 or more")
    if not label:
        raise ValueError("there are runs, and no class")
    return [(label, Region("runs", runs=numbers))]
