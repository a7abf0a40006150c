"""Tables that say what images show: a row an image, or a row a box."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import orjson

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.external_sort import Row
from recordmill.transforms.image_entries import Entry, Listing
from recordmill.transforms.image_files import find_files, input_root
from recordmill.transforms.image_joins import (
    Listed,
    Maker,
    NameResolver,
    image_rows,
    join,
    reject_row,
    without_image,
)
from recordmill.transforms.image_references import ImageObject, ListedReject, box_sides
from recordmill.transforms.image_spec import SourceSpec
from recordmill.transforms.table_rows import is_table, read_columns, read_rows

# Where no flag names a column, the first of these that is there.
_PATH_FIELDS = (
    "path", "image_path", "filepath", "file_path", "filename", "file_name", "file", "image",
    "ImageId",
)  # fmt: skip
_LABEL_FIELDS = ("label", "labels", "class", "class_name", "category")
_BOX_FIELDS = ("xmin", "ymin", "xmax", "ymax")
_SAMPLES = 20


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table say what; "" where none does."""

    path: str
    label: str
    split: str
    group: str
    delimiter: str
    has_boxes: bool

    @classmethod
    def find(cls, table: str, spec: SourceSpec) -> Columns:
        """Checks a table's columns.

        Raises:
          UsageError: one is missing.
        """
        columns = read_columns(table)
        found = ", ".join(columns)
        for flag, name in (
            ("--path_field", spec.path_field),
            ("--label_field", spec.label_field),
            ("--split_from", spec.split_field),
            ("--split_by", spec.group_field),
        ):
            if name and name not in columns:
                raise UsageError(f"{flag} must be a column of {table}: {found}; got {name!r}")
        path = spec.path_field or next((name for name in _PATH_FIELDS if name in columns), "")
        label = spec.label_field or next((name for name in _LABEL_FIELDS if name in columns), "")
        if not path:
            raise UsageError(
                f"--path_field must name the column of {table} with the images: {found}"
            )
        if not label and spec.labels_from in ("auto", "field"):
            raise UsageError(
                f"--label_field must name the column of {table} with the labels: {found}; or leave "
                "them out with --labels=none"
            )
        has_boxes = all(name in columns for name in _BOX_FIELDS)
        return cls(
            path, label, spec.split_field, spec.group_field, spec.label_delimiter, has_boxes
        )  # fmt: skip

    def read(self, values: dict[str, Any]) -> dict[str, Any]:
        """Returns what a row says: labels, split, group, box.

        Raises:
          ValueError: a field is of the wrong kind.
        """
        content: dict[str, Any] = {
            "labels": self._labels(values.get(self.label)) if self.label else None,
            "split": _as_text(values.get(self.split)) if self.split else "",
            "group": _as_text(values.get(self.group)) if self.group else "",
        }
        if self.has_boxes:
            content["box"] = _box([values.get(name) for name in _BOX_FIELDS])
            if content["box"] and self.label and not content["labels"]:
                raise ValueError(f"a box, and the field {self.label} is empty")
        return content

    def _labels(self, found: Any) -> list[str] | None:
        """Returns the labels in a field; None where it is empty and holds only one."""
        if found in (None, "") and not self.delimiter:
            return None
        parts = found if isinstance(found, list) else [found]
        texts = [_as_text(part) for part in parts]
        if self.delimiter:
            texts = [part.strip() for text in texts for part in text.split(self.delimiter)]
        return list(dict.fromkeys(filter(None, texts)))


def table_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields the images of a table: those that are listed too, or where only the table is given,
    those it names.

    Raises:
      UsageError: a table cannot be read or lacks a column, or a glob matches nothing.
    """
    if spec.annotations:
        listing.use(spec.annotations)
        rows = _joined_rows(spec, listing)
    else:
        rows = _named_rows(spec, listing)
    return join(rows, listing, _maker(spec, listing))


def _joined_rows(spec: SourceSpec, listing: Listing) -> Iterator[Row]:
    yield from image_rows(spec.patterns, listing)
    yield from _table_rows(spec.annotations, input_root(spec.patterns), spec)


def _named_rows(spec: SourceSpec, listing: Listing) -> Iterator[Row]:
    """Yields the rows of tables, with their images as they are found where they are named."""
    root = input_root(spec.patterns)
    for _, found in find_files(spec.patterns, listing):
        if not is_table(found.path):
            raise UsageError(
                f"--input must be images or tables of images, not both; {found.path} is no table"
            )
        listing.saw(*found)
        for name, tag, content in _table_rows(found.path, root, spec):
            if tag == "row" and (entry := _look(name, content[2], listing)):
                yield name, "image", tuple(entry)
            yield name, tag, content


def _look(name: str, path: str, listing: Listing) -> Entry | None:
    if not files.is_local(path):
        return Entry(name, path)  # who builds will find out; here it would cost a call for each
    try:
        status = os.stat(path)
    except OSError:
        return None
    listing.saw(path, status.st_size, status.st_mtime_ns)
    return Entry(name, path, size=status.st_size)


def _table_rows(table: str, root: str, spec: SourceSpec) -> Iterator[Row]:
    """Yields `(name, "row", (row number, what it says as JSON, path, problem))`."""
    columns = Columns.find(table, spec)
    samples = [
        text
        for row in islice(read_rows(table), _SAMPLES)
        if isinstance(text := row.values.get(columns.path), str) and text
    ]
    resolver = NameResolver(root, table.rpartition("/")[0] or ".", samples)
    for row in read_rows(table):
        place = f"{table.rpartition('/')[2]}#{row.number}"
        path = row.values.get(columns.path)
        problem = row.problem
        if not problem and not (isinstance(path, str) and path.strip()):
            problem = f"the field {columns.path} is empty"
        if problem:
            yield reject_row(ListedReject(place, "bad_row", problem))
            continue
        content = ""
        try:
            content = orjson.dumps(columns.read(row.values)).decode()
        except ValueError as error:
            problem = str(error)
        whole = cast(str, path).strip()
        yield resolver.name(whole), "row", (place, content, resolver.path(whole), problem)


def _maker(spec: SourceSpec, listing: Listing) -> Maker:
    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        rows = contents.get("row", [])
        if not images:
            for place, _, path, _ in rows:
                yield from without_image(place, path, listing)
            return
        image = images[0]
        if not rows:
            yield ListedReject(image.name, "no_label", "no row of the table names it")
            return
        for place, _, _, problem in rows:
            if problem:  # half of an image's boxes would be wrong ones
                yield ListedReject(image.name, "bad_row", f"{place}: {problem}")
                return
        said = [orjson.loads(content) for _, content, _, _ in rows]
        if "box" in said[0]:
            yield _image_of_boxes(spec, image, said)
            return
        yield _image_of_row(spec, image, said[0])
        for place, _, path, _ in rows[1:]:
            yield ListedReject(place, "duplicate", f"an earlier row names {path} too")

    return make


def _image_of_row(spec: SourceSpec, image: Entry, said: dict[str, Any]) -> Listed:
    labels = () if said["labels"] is None else tuple(said["labels"])
    if spec.labels_from == "folder":
        labels = spec.folder_label(image)
    elif spec.labels_from == "none":
        labels = ()
    elif said["labels"] is None:
        return ListedReject(image.name, "no_label", "the row's label is empty")
    return spec.reference(image, labels=labels, split=said["split"], group=said["group"])


def _image_of_boxes(spec: SourceSpec, image: Entry, said: list[dict[str, Any]]) -> Listed:
    if len({(row["split"], row["group"]) for row in said}) > 1:
        return ListedReject(image.name, "bad_row", "its rows name several splits or groups")
    objects = tuple(
        ImageObject(" ".join(row["labels"] or ()), tuple(row["box"])) for row in said if row["box"]
    )
    labels = set() if spec.labels_from == "none" else {item.label for item in objects} - {""}
    return spec.reference(
        image,
        labels=tuple(sorted(labels)),
        objects=objects,
        split=said[0]["split"],
        group=said[0]["group"],
    )


def _box(found: list[Any]) -> tuple[float, ...] | None:
    """Returns a row's box, None where its fields are empty, as for images without objects."""
    if all(value in (None, "") for value in found):
        return None
    try:
        return box_sides(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the box is {', '.join(map(str, found))}") from error


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float):
        return json.dumps(value)
    raise ValueError(f"neither text nor number: {str(value)[:100]}")
