"""Tables of annotations: one row per image, or one row per box."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, cast

from recordmill.records.errors import UsageError, listed
from recordmill.transforms.images.extensions import IMAGE_EXTENSIONS, has_image_extension
from recordmill.transforms.images.listing.boxes import Box, UnitsCheck, box_columns, read_box
from recordmill.transforms.images.listing.byte_rows import (
    byte_images,
    first_byte_columns,
    first_table,
)
from recordmill.transforms.images.listing.entries import (
    Entry,
    Listing,
    folder_label,
    make_reference,
)
from recordmill.transforms.images.listing.image_files import find_files, input_root
from recordmill.transforms.images.listing.joins import (
    Listed,
    Maker,
    NameResolver,
    image_rows,
    join,
    reject_row,
    stem,
    without_annotation,
    without_image,
)
from recordmill.transforms.images.references import ImageObject, ImageReference, ListedReject
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.sources.tables import (
    as_text,
    is_table,
    read_rows,
    table_columns,
)
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row

# Where no flag names a column, the first of these that the table has.
_PATH_FIELDS = (
    "path", "image_path", "filepath", "file_path", "filename", "file_name", "file", "image",
    "ImageId", "image_id", "id",
)  # fmt: skip
_LABEL_FIELDS = ("label", "labels", "class", "class_name", "category")
_SAMPLES = 20


class _TableRow(NamedTuple):
    """The annotation of an image in one row of a table.

    Attributes:
      source: the table's name and the row's number, for messages.
      path: of the image.
      problem: why the row cannot be used, "" where it can.
      labels: None where the table has no label column, or where its field is empty.
      split, group: "" where the table has no such column.
      box: `(xmin, ymin, xmax, ymax)`; None where its fields are empty, as for images without
        objects.
      has_box_columns: whether the table's rows are boxes.
      fields: the text of the columns of --keep_fields.
    """

    source: str
    path: str
    problem: str = ""
    labels: tuple[str, ...] | None = None
    split: str = ""
    group: str = ""
    box: Box | None = None
    has_box_columns: bool = False
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that hold annotations.

    Attributes:
      path, label: the names of columns; "" where there is none.
      boxes: the names of columns, () where there are none.
      spec: names the others.
    """

    path: str
    label: str
    boxes: tuple[str, ...]
    spec: SourceSpec

    @classmethod
    def find(cls, table: str, spec: SourceSpec) -> Columns:
        """Checks a table's columns.

        Raises:
          UsageError: one is missing.
        """
        columns = table_columns(table)
        names = listed(columns)
        for flag, name in (
            ("--path_field", spec.path_field),
            ("--label_field", spec.label_field),
            ("--split_from", spec.split_field),
            ("--split_by", spec.group_field),
            *(("--keep_fields", field.name) for field in spec.kept_fields),
        ):
            if name and name not in columns:
                raise UsageError(f"{flag} must be a column of {table}: {names}; got {name!r}")
        path = spec.path_field or next((name for name in _PATH_FIELDS if name in columns), "")
        label = spec.label_field or next((name for name in _LABEL_FIELDS if name in columns), "")
        if not path:
            raise UsageError(
                f"--path_field must name the column of {table} with the images: {names}"
            )
        if not label and spec.labels_from in ("auto", "field", "number"):
            raise UsageError(
                f"--label_field must name the column of {table} with the labels: {names}; or do "
                "without them by --labels=none"
            )
        return cls(path, label, box_columns(columns, spec, table), spec)

    def read(self, values: dict[str, Any], *, source: str, path: str) -> _TableRow:
        """Returns the annotation of a row.

        Raises:
          ValueError: a field is of the wrong kind.
        """
        spec = self.spec
        labels = self._labels(values.get(self.label)) if self.label else None
        box = _box([values.get(name) for name in self.boxes], spec)
        if box and self.label and not labels:
            raise ValueError(f"a box, and the field {self.label} is empty")
        return _TableRow(
            source,
            path,
            labels=labels,
            split=as_text(values.get(spec.split_field)) if spec.split_field else "",
            group=as_text(values.get(spec.group_field)) if spec.group_field else "",
            box=box,
            has_box_columns=bool(self.boxes),
            fields=tuple(
                field.check(as_text(values.get(field.name))) for field in spec.kept_fields
            ),
        )

    def _labels(self, value: Any) -> tuple[str, ...] | None:
        """Returns the labels in a field; None where it is empty and holds only one."""
        if value in (None, "") and not self.spec.label_delimiter:
            return None
        parts = value if isinstance(value, list) else [value]
        texts = self.spec.split_labels([as_text(part) for part in parts])
        return tuple(dict.fromkeys(filter(None, texts)))


def has_boxes(spec: SourceSpec) -> bool:
    """Tells whether the input is a table whose rows are boxes.

    Raises:
      UsageError: the table cannot be read or lacks a column.
    """
    if spec.layout != "table":
        return False
    rows = first_byte_columns(spec)
    if rows:
        return bool(rows.boxes)
    table = spec.annotation or first_table(spec)
    return bool(table) and bool(Columns.find(table, spec).boxes)


def table_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields the images of a table: with --annotations, those that the globs match; where --input
    is the table, those that it names.

    Raises:
      UsageError: a table cannot be read or lacks a column, or a glob matches nothing.
    """
    if first_byte_columns(spec):
        return byte_images(spec, listing)
    if not spec.annotation:
        return join(_named_rows(spec, listing), listing, _maker(spec, listing))
    listing.report_file(spec.annotation)
    by_id = _has_ids(spec.annotation, Columns.find(spec.annotation, spec))
    rows = _joined_rows(spec, listing, stem if by_id else str)
    return join(rows, listing, _maker(spec, listing), only_clear=by_id)


def _has_ids(table: str, columns: Columns) -> bool:
    """Returns whether the first rows name images without extension, as Kaggle's tables do."""
    paths = _first_paths(table, columns)
    return bool(paths) and not any(map(has_image_extension, paths))


def _first_paths(table: str, columns: Columns) -> list[str]:
    return [
        text
        for row in islice(read_rows(table), _SAMPLES)
        if isinstance(text := row.values.get(columns.path), str) and text
    ]


def _joined_rows(spec: SourceSpec, listing: Listing, key: Callable[[str], str]) -> Iterator[Row]:
    yield from image_rows(spec.patterns, listing, key)
    yield from _table_rows(spec.annotation, input_root(spec.patterns), spec)


def _named_rows(spec: SourceSpec, listing: Listing) -> Iterator[Row]:
    """Yields the rows of tables, and the images at the paths that they name."""
    root = input_root(spec.patterns)
    for _, table in find_files(spec.patterns, listing):
        if not is_table(table.path):
            raise UsageError(
                f"--input must be images or tables of images, not both; {table.path} is no table"
            )
        listing.check_inside(table.path)
        listing.on_file(*table)
        for name, tag, content in _table_rows(table.path, root, spec):
            if tag == "row" and (entry := _named_entry(name, _TableRow(*content).path, listing)):
                yield name, "image", tuple(entry)
            yield name, tag, content


def _named_entry(name: str, path: str, listing: Listing) -> Entry | None:
    """Returns the image at a path that a table names, None where there is no such file."""
    if not files.is_local(path):
        if not listing.holds(path):
            return None
        # On an object store each look would cost a call; builders reject what is missing.
        return Entry(name, path)
    try:
        path, name = _with_extension(path, name)
        status = os.lstat(path)
        is_link = stat.S_ISLNK(status.st_mode)
        if not listing.holds(path, is_link=is_link):
            return None
        if is_link:
            status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL byte
        return None
    listing.on_file(path, status.st_size, status.st_mtime_ns)
    return Entry(name, path, size=status.st_size, modified_ns=status.st_mtime_ns)


def _with_extension(path: str, name: str) -> tuple[str, str]:
    """Returns the one image that an id without extension names; the id where it names none."""
    if has_image_extension(path) or os.path.exists(path):
        return path, name
    extensions = [e for e in IMAGE_EXTENSIONS if os.path.exists(path + e)]
    return (path + extensions[0], name + extensions[0]) if len(extensions) == 1 else (path, name)


def _table_rows(table: str, root: str, spec: SourceSpec) -> Iterator[Row]:
    """Yields `(name, "row", _TableRow as a tuple)`, and rows without a path as rejects."""
    columns = Columns.find(table, spec)
    samples = _first_paths(table, columns)
    resolver = NameResolver(root, table.rpartition("/")[0] or ".", samples)
    units = UnitsCheck(table, spec)
    for row in read_rows(table):
        source = f"{table.rpartition('/')[2]}#{row.number}"
        text = row.values.get(columns.path)
        problem = row.problem
        if not problem and not (isinstance(text, str) and text.strip()):
            problem = f"the field {columns.path} is empty"
        if problem:
            yield reject_row(ListedReject(source, "bad_row", problem))
            continue
        given = cast(str, text).strip()
        path = resolver.path(given)
        try:
            annotation = columns.read(row.values, source=source, path=path)
            if annotation.box:
                units.add(annotation.box)
        except UsageError:  # a ValueError too
            raise
        except ValueError as error:
            annotation = _TableRow(source, path, str(error))
        yield resolver.name_of(path), "row", tuple(annotation)
    units.finish()


def _maker(spec: SourceSpec, listing: Listing) -> Maker:
    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        rows = [_TableRow(*content) for content in contents.get("row", ())]
        if not images:
            for row in rows:
                yield from without_image(row.source, row.path, listing)
            return
        image = images[0]
        if not rows:
            yield without_annotation(image.name, "no row of the table names it")
            return
        for row in rows:
            if row.problem:  # an image with some of its boxes would be annotated wrongly
                yield ListedReject(image.name, "bad_row", f"{row.source}: {row.problem}")
                return
        if rows[0].has_box_columns:
            yield _image_of_boxes(spec, image, rows)
            return
        yield _image_of_row(spec, image, rows[0])
        for row in rows[1:]:
            yield ListedReject(row.source, "duplicate", f"an earlier row names {row.path} too")

    return make


def _image_of_row(spec: SourceSpec, image: Entry, row: _TableRow) -> Listed:
    labels = row.labels or ()
    if spec.labels_from == "folder":
        labels = folder_label(spec, image)
    elif spec.labels_from == "none":
        labels = ()
    elif row.labels is None:
        return ListedReject(image.name, "no_label", "the row's label is empty")
    elif spec.labels_from == "number" and not _are_numbers(labels):
        detail = f"{row.source}: the label {', '.join(labels)} is no finite number"
        return ListedReject(image.name, "bad_row", detail)
    return _with_fields(
        make_reference(spec, image, labels=labels, split=row.split, group=row.group), row
    )


def _image_of_boxes(spec: SourceSpec, image: Entry, rows: list[_TableRow]) -> Listed:
    if len({(row.split, row.group, row.fields) for row in rows}) > 1:
        detail = "its rows name several splits, groups or values of --keep_fields"
        return ListedReject(image.name, "bad_row", detail)
    is_fraction = spec.boxes_are_fractions
    objects = tuple(
        ImageObject(" ".join(row.labels or ()), row.box, is_fraction=is_fraction)
        for row in rows
        if row.box
    )
    labels = set() if spec.labels_from == "none" else {item.label for item in objects} - {""}
    reference = make_reference(
        spec,
        image,
        labels=tuple(sorted(labels)),
        objects=objects,
        split=rows[0].split,
        group=rows[0].group,
    )
    return _with_fields(reference, rows[0])


def _with_fields(image: Listed, row: _TableRow) -> Listed:
    if not row.fields or not isinstance(image, ImageReference):
        return image
    return replace(image, fields=row.fields)


def _are_numbers(labels: tuple[str, ...]) -> bool:
    try:
        return all(math.isfinite(float(label)) for label in labels)
    except ValueError:
        return False


def _box(values: list[Any], spec: SourceSpec) -> Box | None:
    """Returns a row's box, None where its fields are empty.

    Raises:
      ValueError: a field is no finite number.
    """
    if all(value in (None, "") for value in values):
        return None
    try:
        return read_box(values, spec)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the box is {', '.join(map(str, values))}") from error
