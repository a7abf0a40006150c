"""Images whose bytes are in columns: a row of Parquet, Arrow or Avro is an image.

Such a file cannot be read image by image in any order: a page or a row group holds many. So each of
its row groups is unpacked once, in a worker, to a pack, a file in which images follow each other
(`unpacking.py`), and references name positions in packs. Where an image will be in its pack follows
from the lengths of those before it, so the pack need not be there yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from recordmill.records.errors import UsageError, listed
from recordmill.transforms.images.listing.boxes import read_box
from recordmill.transforms.images.listing.entries import Entry, Listing, make_reference
from recordmill.transforms.images.listing.image_files import find_files, input_boundary
from recordmill.transforms.images.listing.joins import Listed
from recordmill.transforms.images.references import (
    ImageObject,
    ImageReference,
    ListedReject,
    StoredBytes,
)
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.sources.blocks import BrokenFileError
from recordmill.transforms.sources.changes import reading
from recordmill.transforms.sources.document_spec import READ_LIMITS
from recordmill.transforms.sources.formats import COLUMN_FORMATS
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.kept_fields import KeptField
from recordmill.transforms.sources.open_rows import open_rows
from recordmill.transforms.sources.rows import column_type
from recordmill.transforms.sources.tables import as_text, is_table, table_format
from recordmill.transforms.sources.work_items import SourceRange
from recordmill.transforms.storage import files

PACK_BYTES = 1 << 27  # of a pack, about; it does not depend on the number of workers
_IMAGE_FIELDS = ("image", "img", "image_bytes", "image/encoded", "bytes", "jpg", "jpeg", "png")
_LABEL_FIELDS = ("label", "labels", "class", "class_name", "category", "image/class/label")
_BOX_FIELDS = ("objects.bbox", "objects.boxes", "bbox", "boxes")
_BOX_LABEL_FIELDS = ("objects.category", "objects.label", "objects.labels", "category", "labels")


class ByteColumns(NamedTuple):
    """The columns of a file whose rows are images; "" where there is none.

    Attributes:
      image: of the bytes.
      label: of the label, or of the labels of the boxes.
      boxes: a list of boxes for each image.
      split, group: of the row.
      kept: that are carried along.
      names: of the classes that labels are numbers of, as Hugging Face's datasets have them.
    """

    image: str
    label: str
    boxes: str
    split: str
    group: str
    kept: tuple[KeptField, ...]
    names: tuple[str, ...]

    @property
    def all(self) -> list[str]:
        """The columns to read, each once."""
        wanted = (self.image, self.label, self.boxes, self.split, self.group)
        return list(dict.fromkeys([*filter(None, wanted), *(field.name for field in self.kept)]))


def find_byte_columns(path: str, spec: SourceSpec) -> ByteColumns | None:
    """Returns the columns of a file whose rows are images; None where it is a table of paths.

    Raises:
      UsageError: the file cannot be read, or a column that a flag names is not there.
    """
    if table_format(path)[0] not in COLUMN_FORMATS:
        return None
    schema = _read_schema(path)
    image = _image_column(schema, spec.path_field)
    if not image:
        return None
    shown = listed(schema.names)
    for flag, name in (
        ("--label_field", spec.label_field),
        ("--split_from", spec.split_field),
        ("--split_by", spec.group_field),
        *(("--keep_fields", field.name) for field in spec.kept_fields),
    ):
        if name and column_type(schema, name) is None:
            raise UsageError(f"{flag} must be a column of {path}: {shown}; got {name!r}")
    boxes = _first(schema, _BOX_FIELDS, lambda kind: pa.types.is_nested(kind))
    label = spec.label_field or _first(schema, _BOX_LABEL_FIELDS if boxes else _LABEL_FIELDS)
    if spec.labels_from == "none":
        label = ""
    elif not label:
        raise UsageError(
            f"--label_field must name the column of {path} with the labels: {shown}; or do without "
            "them by --labels=none"
        )
    return ByteColumns(
        image, label, boxes, spec.split_field, spec.group_field, spec.kept_fields,
        _class_names(schema, label),
    )  # fmt: skip


def first_table(spec: SourceSpec) -> str:
    """Returns the path of the first table of an input, "" where it has none."""
    found = find_files(spec.patterns, Listing(boundary=input_boundary(spec)))
    return next((file.path for _, file in found if is_table(file.path)), "")


def first_byte_columns(spec: SourceSpec) -> ByteColumns | None:
    """Returns the columns of an input of tables that hold images; None for any other input.

    Raises:
      UsageError: a file cannot be read, or a column that a flag names is not there.
    """
    if spec.layout != "table" or spec.annotation:
        return None
    table = first_table(spec)
    return find_byte_columns(table, spec) if table else None


def _read_schema(path: str) -> pa.Schema:
    try:
        source = SourceRange(path, path, table_format(path)[0], "", files.size(path))
        with open_rows(source) as opened:
            return opened.schema
    except (OSError, BrokenFileError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--input {path} cannot be read: {reason}") from error


def _is_bytes(kind: pa.DataType | None) -> bool:
    return kind is not None and bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


def _image_column(schema: pa.Schema, given: str) -> str:
    """Returns the column of the bytes; a struct of {bytes, path} stands for its bytes."""
    for name in [given] if given else _IMAGE_FIELDS:
        for column in (f"{name}.bytes", name):
            if _is_bytes(column_type(schema, column)):
                return column
    return ""


def _first(schema: pa.Schema, names: tuple[str, ...], fits: Any = lambda _: True) -> str:
    kinds = ((name, column_type(schema, name)) for name in names)
    return next((name for name, kind in kinds if kind is not None and fits(kind)), "")


def _class_names(schema: pa.Schema, label: str) -> tuple[str, ...]:
    """Returns the names of classes that Hugging Face's datasets write beside the schema."""
    try:
        found: Any = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        for step in label.split("."):
            found = found[step]
        for inner in ("feature", 0):  # of a sequence, as they write it
            found = found if "names" in found else found[inner]
        names = tuple(map(str, found["names"]))
    except (KeyError, TypeError, ValueError, IndexError):
        return ()
    return names if len(set(names)) == len(names) else ()


def read_byte_rows(
    source: SourceRange, columns: ByteColumns, spec: SourceSpec
) -> Iterator[tuple[ImageReference, bytes] | ListedReject]:
    """Yields the images of a range of rows, each with its bytes, and the rejects.

    Memory: a block of rows, and of Parquet a page, which has up to 1,024 rows as pyarrow writes it,
    whatever the size of the row group.

    Raises:
      InputChangedError: the file is another one than was listed.
    """
    try:
        with reading(source.path, source.size, source.modified_ns), open_rows(source) as opened:
            for rows in opened.rows(columns.all, READ_LIMITS.block_bytes):
                for position, _, reason, detail in rows.rejects:
                    yield ListedReject(source.name, reason, " ".join(detail.split()), position)
                if not rows.count:
                    continue
                arrays = rows.columns
                plain = [name for name in columns.all if name != columns.image]
                values = {name: arrays[name].to_pylist() for name in plain}
                for i in range(rows.count):
                    name = f"{source.name}#{rows.first + i + 1}"
                    row = {key: column[i] for key, column in values.items()}
                    data = arrays[columns.image][i].as_py()
                    yield _image_of_row(name, data, row, columns, spec)
    except BrokenFileError as error:
        yield ListedReject(source.name, error.reason, str(error))


def _image_of_row(
    name: str, data: bytes | None, row: dict[str, Any], columns: ByteColumns, spec: SourceSpec
) -> tuple[ImageReference, bytes] | ListedReject:
    if data is None:
        return ListedReject(name, "no_image", f"the field {columns.image} is null")
    try:
        labels = _labels(row.get(columns.label), columns, spec)
        objects = _objects(row, columns, spec) if columns.boxes else ()
        split, group = (
            as_text(row[column]) if column else "" for column in (columns.split, columns.group)
        )
        fields = tuple(field.check(as_text(row[field.name])) for field in columns.kept)
    except (ValueError, TypeError) as error:
        return ListedReject(name, "bad_row", str(error))
    if columns.label and labels is None:
        return ListedReject(name, "no_label", f"the field {columns.label} is empty")
    listed = make_reference(
        spec, Entry(name, ""), labels=labels or (), objects=objects, split=split, group=group
    )
    return listed if isinstance(listed, ListedReject) else (replace(listed, fields=fields), data)


def _labels(value: Any, columns: ByteColumns, spec: SourceSpec) -> tuple[str, ...] | None:
    """Returns the labels of a row, None where its field is empty.

    Raises:
      ValueError: one is neither text nor a number, or no class of the file's.
    """
    if not columns.label or value is None:
        return None
    parts = value if isinstance(value, list) else [value]
    texts = spec.split_labels([_label(part, columns) for part in parts])
    if spec.labels_from == "number":
        for text in texts:
            if not abs(float(text)) < float("inf"):
                raise ValueError(f"the label {text} is no finite number")
    found = tuple(dict.fromkeys(filter(None, texts)))
    return found if found or isinstance(value, list) or spec.label_delimiter else None


def _label(value: Any, columns: ByteColumns) -> str:
    if not columns.names or not isinstance(value, int):
        return as_text(value)
    if not 0 <= value < len(columns.names):
        raise ValueError(f"the label {value} is none of the {len(columns.names)} that the file has")
    return columns.names[value]


def _objects(
    row: dict[str, Any], columns: ByteColumns, spec: SourceSpec
) -> tuple[ImageObject, ...]:
    """Returns the objects of a row, whose boxes and labels are lists of one length.

    Raises:
      ValueError: they are not, or a box is not four finite numbers.
    """
    boxes = row[columns.boxes] or []
    labels = (row[columns.label] or []) if columns.label else [""] * len(boxes)
    if not isinstance(labels, list) or len(labels) != len(boxes):
        count = len(labels) if isinstance(labels, list) else 1
        raise ValueError(f"{len(boxes)} boxes in {columns.boxes}, {count} in {columns.label}")
    return tuple(
        ImageObject(
            _label(label, columns) if columns.label else "",
            read_box(box, spec),
            is_fraction=spec.boxes_are_fractions,
        )
        for box, label in zip(boxes, labels, strict=True)
    )


def list_ranges(spec: SourceSpec, listing: Listing) -> Iterator[tuple[int, list[SourceRange]]]:
    """Yields the ranges of rows of an input, those of one pack together, with its number.

    Raises:
      UsageError: not all files hold images.
    """
    sources = []
    for name, file in find_files(spec.patterns, listing):
        if find_byte_columns(file.path, spec) is None:
            raise UsageError(
                f"--input must be tables that hold images, or tables that name them, not both; "
                f"{file.path} holds none"
            )
        listing.check_inside(file.path)
        listing.on_file(*file)
        kind = table_format(file.path)[0]
        sources.append(
            SourceRange(file.path, name, kind, "", file.size, modified_ns=file.modified_ns)
        )
    yield from enumerate(cut_work_items(sources, PACK_BYTES))


def pack_name(number: int) -> str:
    """Returns the name of a pack, in the job's folder of packs."""
    return f"pack-{number:06d}.bin"


def byte_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields the images of tables that hold them, at their places in packs that are to be written.

    Raises:
      UsageError: a file cannot be read, or lacks a column.
    """
    for number, ranges in list_ranges(spec, listing):
        listing.packs.append(ranges)
        at = 0
        for source in ranges:
            columns = find_byte_columns(source.path, spec)
            if columns is None:
                raise UsageError(f"{source.path} has changed while it was read")
            for item in read_byte_rows(source, columns, spec):
                if isinstance(item, ListedReject):
                    yield item
                    continue
                reference, data = item
                stored = StoredBytes(pack_name(number), "packed", at, len(data))
                at += len(data)
                yield replace(reference, image=stored)
