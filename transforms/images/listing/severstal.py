"""Severstal's steel defects: `train.csv` with the runs of defect pixels of each image and class.

Columns are ImageId, ClassId, EncodedPixels, or ImageId_ClassId as in the competition's first form.
An image may have several rows, an empty one, or none where it has no defect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from recordmill.records.errors import UsageError, listed
from recordmill.transforms.images.listing.entries import Entry, Listing, make_reference
from recordmill.transforms.images.listing.image_files import input_root
from recordmill.transforms.images.listing.joins import (
    Listed,
    image_rows,
    join,
    reject_row,
    without_image,
)
from recordmill.transforms.images.references import ListedReject, Region
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.sources.tables import TableRow, read_rows, table_columns
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row

_MOST_PIXELS = 1 << 53
_RUNS = "EncodedPixels"
_JOINED = "ImageId_ClassId"


class _SeverstalRow(NamedTuple):
    """A row of the table: its position, its image and class, and the runs as text."""

    source: str
    image: str
    label: str
    runs: str


def is_severstal(columns: Sequence[str]) -> bool:
    """Returns whether a table has Severstal's columns."""
    return _RUNS in columns and ({"ImageId", "ClassId"} <= set(columns) or _JOINED in columns)


def severstal_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields images with the regions of their defects; labels are the classes among them.

    An image with a row that cannot be read is rejected whole: a part of its mask would be wrong.

    Raises:
      UsageError: the table cannot be read or is another, or a glob matches nothing.
    """
    columns = table_columns(spec.annotation)
    if not is_severstal(columns):
        raise UsageError(
            f"--annotations {spec.annotation} must have the columns ImageId, ClassId, "
            f"EncodedPixels; got {listed(columns)}"
        )
    listing.report_file(spec.annotation)

    def rows() -> Iterator[Row]:
        yield from image_rows(spec.patterns, listing)
        yield from _table_rows(spec.annotation)

    root = input_root(spec.patterns) or "."

    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        table_rows = [_SeverstalRow(*content) for content in contents.get("row", ())]
        if not images:
            for row in table_rows:
                yield from without_image(row.source, files.join(root, row.image), listing)
            return
        regions: list[tuple[str, Region]] = []
        for row in table_rows:
            try:
                regions += _regions(row)
            except ValueError as error:
                yield ListedReject(images[0].name, "bad_row", f"{row.source}: {error}")
                return
        labels = set() if spec.labels_from == "none" else {label for label, _ in regions}
        yield make_reference(
            spec, images[0], labels=tuple(sorted(labels)), regions=tuple(regions), has_mask=True
        )

    return join(rows(), listing, make)


def _table_rows(table: str) -> Iterator[Row]:
    """Yields `(image, "row", _SeverstalRow as a tuple)`."""
    for row in read_rows(table):
        source = f"{table.rpartition('/')[2]}#{row.number}"
        if row.problem:
            yield reject_row(ListedReject(source, "bad_row", row.problem))
            continue
        image, label = _image_and_class(row)
        if image:
            runs = str(row.values.get(_RUNS, "")).strip()
            yield image, "row", tuple(_SeverstalRow(source, image, label, runs))
        else:
            yield reject_row(ListedReject(source, "bad_row", "the row names no image"))


def _image_and_class(row: TableRow) -> tuple[str, str]:
    if _JOINED in row.values:
        image, _, label = str(row.values[_JOINED]).rpartition("_")
    else:
        image, label = str(row.values.get("ImageId", "")), str(row.values.get("ClassId", ""))
    return image.strip(), label.strip()


def _regions(row: _SeverstalRow) -> list[tuple[str, Region]]:
    """Returns the class and pixels of a row's defect, [] for an empty row.

    Raises:
      ValueError: the runs are no pairs of start and length, or have no class.
    """
    if not row.runs:
        return []
    numbers = tuple(map(int, row.runs.split()))
    if len(numbers) % 2:
        raise ValueError(f"runs must be pairs of start and length, got {len(numbers)} numbers")
    if min(numbers) < 1 or max(numbers) > _MOST_PIXELS:
        raise ValueError("starts and lengths of runs must be 1 or more, and pixels of an image")
    if not row.label:
        raise ValueError("there are runs, and no class")
    return [(row.label, Region("runs", runs=numbers))]
