"""`ReadImages`: the images of any layout as a PCollection, listed as `recordmill images` does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple

import apache_beam as beam

from recordmill.records.errors import RunError, UsageError, listed
from recordmill.records.spec import (
    check_paths,
    from_arguments,
    naming_arguments,
    python_names,
    takes,
)
from recordmill.records.state import convert
from recordmill.transforms.dataset import counters
from recordmill.transforms.dataset.rejects import REASONS
from recordmill.transforms.dataset.run_errors import one_line_first
from recordmill.transforms.elements import Box, Image
from recordmill.transforms.images.decoding import ImageRejectedError
from recordmill.transforms.images.image_elements import image_size, read_boxes, read_data
from recordmill.transforms.images.image_spec import DecodeSpec
from recordmill.transforms.images.listing.byte_rows import (
    find_byte_columns,
    first_byte_columns,
    list_ranges,
    read_byte_rows,
)
from recordmill.transforms.images.listing.entries import Listing
from recordmill.transforms.images.listing.image_files import input_boundary
from recordmill.transforms.images.listing.list_images import detect_layout, list_images
from recordmill.transforms.images.listing.tables import has_boxes
from recordmill.transforms.images.objects import region_box
from recordmill.transforms.images.references import ImageReference, ListedReject
from recordmill.transforms.images.source_spec import DrawnOn, ReadImagesSpec, SourceSpec
from recordmill.transforms.images.stored_bytes import ImageReader, UnreadableBytesError
from recordmill.transforms.sources.work_items import SourceRange

_BATCH_IMAGES = 64  # references that one worker reads at a time: few, so that all get some
_LAYOUTS_OF_BOXES = ("coco", "voc", "yolo")
_DECODE = DecodeSpec()


class _Form(NamedTuple):
    """What is known of all images of an input.

    Attributes:
      boxes: the objects of each are known, also where there are none.
      several: each may have any number of labels.
      numbers: labels are numbers to be predicted.
      splits: each names its split, if the input does: several of them are read.
      drawn_on: the picture in whose pixels boxes are.
    """

    boxes: bool
    several: bool
    numbers: bool
    splits: bool
    drawn_on: DrawnOn


class ListedImages(NamedTuple):
    """Some images of a listing.

    Attributes:
      form: what is known of all images.
      lines: their references as JSON; or
      ranges: of rows whose columns hold images, as JSON.
    """

    form: tuple[bool, bool, bool, bool, DrawnOn]
    lines: list[str]
    ranges: list[dict[str, Any]]


def list_references(spec: ReadImagesSpec) -> Iterator[ListedImages]:
    """Yields the images of an input, some at a time.

    Raises:
      UsageError: there is no image, or none of that split.
      RunError: listing rejects something.
    """
    source = detect_layout(spec)
    boxes = source.layout in _LAYOUTS_OF_BOXES or has_boxes(source)
    form = _Form(
        boxes, bool(spec.label_delimiter), spec.labels_from == "number", not spec.split,
        spec.drawn_on,
    )  # fmt: skip
    if first_byte_columns(source):
        for _, ranges in list_ranges(source, Listing(boundary=input_boundary(source))):
            yield from (ListedImages(form, [], [asdict(one)]) for one in ranges)
        return
    lines = _lines(source, spec)
    while batch := list(islice(lines, _BATCH_IMAGES)):
        yield ListedImages(form, batch, [])


def _lines(source: SourceSpec, spec: ReadImagesSpec) -> Iterator[str]:
    names: set[str] = set()
    is_empty = True
    for item in list_images(source):
        if isinstance(item, ListedReject):
            _reject(item.source, item.reason, item.detail, skip=spec.skip_rejected)
            continue
        names.add(item.split)
        if spec.split in ("", item.split):
            is_empty = False
            yield item.to_line()
    if spec.split and is_empty:
        found = listed(sorted(names - {""})) or "none"
        raise UsageError(f"split must be one that the input names ({found}), got {spec.split!r}")


def _reject(name: str, reason: str, detail: str, *, skip: bool) -> None:
    if not skip:
        found = f" ({detail})" if detail else ""
        raise RunError(f"{name}: {REASONS[reason]}{found}; correct that, or skip_rejected=True")
    counters.count_rejects({reason: 1})


def read_image(reference: ImageReference, form: _Form, reader: ImageReader) -> Image:
    """Reads an image.

    Raises:
      ImageRejectedError: it cannot be read, or its boxes need a size that it does not tell.
    """
    try:
        data = reader.read(reference.image)
        mask = reader.read(reference.mask) if reference.mask else None
    except UnreadableBytesError as error:
        raise ImageRejectedError("unreadable_file", str(error)) from error
    return _image(reference, data, mask, form)


def read_range(
    content: dict[str, Any], source: ReadImagesSpec
) -> Iterator[tuple[ImageReference, bytes] | ListedReject]:
    """Yields the images of a range of rows that hold them, with their bytes, and the rejects.

    Raises:
      RunError: the file has changed.
    """
    one = convert(content, SourceRange)
    columns = find_byte_columns(one.path, source)
    if columns is None:
        raise RunError(f"{one.path} has changed since it was listed; run the pipeline again")
    for item in read_byte_rows(one, columns, source):
        if isinstance(item, ListedReject) or source.split in ("", item[0].split):
            yield item


def _image(reference: ImageReference, data: bytes, mask: bytes | None, form: _Form) -> Image:
    return Image(
        read_data(reference.image, data), reference.name, _label(reference.labels, form),
        _boxes(reference, data, form),
        None if mask is None or reference.mask is None else read_data(reference.mask, mask),
        reference.group or None, (reference.split or None) if form.splits else None,
    )  # fmt: skip


def _label(labels: tuple[str, ...], form: _Form) -> str | float | tuple[str, ...] | None:
    if form.several or len(labels) > 1:
        return labels
    if not labels:
        return None
    return float(labels[0]) if form.numbers else labels[0]


def _boxes(reference: ImageReference, data: bytes, form: _Form) -> tuple[Box, ...] | None:
    if reference.objects or form.boxes:
        return tuple(box for box, _ in read_boxes(reference, data, _DECODE, form.drawn_on))
    if reference.regions:
        size = image_size(reference.image, data, _DECODE, form.drawn_on)
        found = ((label, region, region_box(region, size)) for label, region in reference.regions)
        return tuple(
            Box(label, *(sides or (0.0, 0.0, 0.0, 0.0)), pixels=region)
            for label, region, sides in found
        )
    # A known segmentation without mask and regions is that of an image without defects.
    return () if reference.has_mask and reference.mask is None else None


class _ListImagesDoFn(beam.DoFn):
    def __init__(self, source: ReadImagesSpec) -> None:
        self._source = source

    def process(self, impulse: bytes) -> Iterator[ListedImages]:
        del impulse
        with one_line_first(), naming_arguments(python_names(ReadImagesSpec)):
            yield from list_references(self._source)


class _ReadImagesDoFn(beam.DoFn):
    def __init__(self, source: ReadImagesSpec) -> None:
        self._source = source
        self._skip = source.skip_rejected

    def setup(self) -> None:
        self._reader = ImageReader()

    def teardown(self) -> None:
        self._reader.close()

    def process(self, listed: ListedImages) -> Iterator[Image]:
        with one_line_first(), naming_arguments(python_names(ReadImagesSpec)):
            yield from self._read(listed)

    def _read(self, listed: ListedImages) -> Iterator[Image]:
        form = _Form(*listed.form)
        for line in listed.lines:
            reference = ImageReference.from_line(line)
            try:
                yield self._counted(read_image(reference, form, self._reader))
            except ImageRejectedError as error:
                _reject(reference.name, error.reason, error.detail, skip=self._skip)
        for content in listed.ranges:
            yield from self._read_rows(content, form)

    def _read_rows(self, content: dict[str, Any], form: _Form) -> Iterator[Image]:
        for item in read_range(content, self._source):
            if isinstance(item, ListedReject):
                _reject(item.source, item.reason, item.detail, skip=self._skip)
                continue
            try:
                yield self._counted(_image(*item, None, form))
            except ImageRejectedError as error:
                _reject(item[0].name, error.reason, error.detail, skip=self._skip)

    def _counted(self, image: Image) -> Image:
        counters.count("images_read")
        return image


class ReadImages(beam.PTransform[beam.pvalue.PBegin, beam.PCollection[Image]]):
    """Images with their annotations, of any layout that `recordmill images` knows, as `Image`s.

    The key of an image is its path below the input, so that `WriteImages` gives it the position
    that the command gives it. Images are listed in one worker and read in all. Memory: an image,
    and what listing needs.
    """

    @takes(ReadImagesSpec)
    @naming_arguments(python_names(ReadImagesSpec))
    def __init__(self, *patterns: str | os.PathLike[str], **options: Any) -> None:
        """Images are listed when the pipeline runs. Options mean what the command's flags mean.

        Args:
          patterns: globs or folders of images, archives or idx files, or tables of them, local or
            gs://….
          options: the keyword arguments listed below.

        Raises:
          UsageError: a value is not valid, or has no meaning for the layout.
          TypeError: an argument that there is not.
        """
        super().__init__()
        if not patterns:
            raise UsageError(
                "patterns must be a glob or folder of images, or a table that names them, got none"
            )
        annotations = options.get("annotations", ())
        if isinstance(annotations, str | os.PathLike):
            options["annotations"] = (annotations,)
        given = {**options, "patterns": check_paths(patterns)}
        self._source = from_arguments(ReadImagesSpec, given)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Image]:
        """Lists images, and reads them."""
        read = beam.ParDo(_ReadImagesDoFn(self._source))
        return (
            begin
            | "Impulse" >> beam.Impulse()
            | "ListImages" >> beam.ParDo(_ListImagesDoFn(self._source))
            | "SpreadImages" >> beam.Reshuffle()
            | "ReadImages" >> read.with_output_types(Image)
        )
