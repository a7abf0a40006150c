"""Pascal VOC: an XML file an image, with the boxes of its objects, and lists of the splits.

Box coordinates are used unchanged, as the Object Detection API's and TFDS's own readers take them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.boxes import UnitsCheck
from recordmill.transforms.images.listing.entries import Entry, Listing, make_reference
from recordmill.transforms.images.listing.image_files import find_files, input_root
from recordmill.transforms.images.listing.joins import (
    Listed,
    image_rows,
    join,
    stem,
    without_annotation,
    without_image,
)
from recordmill.transforms.images.references import (
    ImageObject,
    ListedReject,
    Region,
    box_sides,
)
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.storage import files
from recordmill.transforms.storage.boundary import leaves
from recordmill.transforms.storage.external_sort import Row
from recordmill.transforms.storage.globs import OUTSIDE, FoundFile

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_USUAL_EXTENSIONS = (".jpg", ".jpeg", ".png")
_READERS = 16
_MOST_BYTES = 1 << 26  # of the annotations of one image
_MOST_SET_BYTES = 1 << 30
_SETS = ("train", "val", "test")


class AnnotationFile(NamedTuple):
    """A file of annotations.

    Attributes:
      name: below the input root.
      data: its content.
      problem: why it cannot be read, "" where it can.
      reason: of the reject where it cannot.
    """

    name: str
    data: bytes
    problem: str
    reason: str = "bad_row"


def voc_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:  # noqa: C901 - a case for each way to be wrong
    """Yields images with the objects of the XML file of the same name; labels are their classes.

    To a segmentation, an image whose file has no object is background.
    Where `ImageSets/Main` beside the annotations has train.txt, val.txt or test.txt, these name
    the splits, and images in none of them are counted as filtered "in_no_set".

    Raises:
      UsageError: there is no XML, or a glob matches nothing.
    """
    sets = {} if spec.split_from else _read_sets(spec.annotation, listing)
    units = UnitsCheck(spec.annotation, spec)
    root = input_root(spec.patterns) or "."

    def xml_files() -> Iterator[tuple[str, FoundFile]]:
        for name, file in find_files([spec.annotation], listing, flag="--annotations"):
            if file.path.lower().endswith(".xml"):
                listing.on_file(*file)
                yield name, file

    def rows() -> Iterator[Row]:
        yield from image_rows(spec.patterns, listing, stem)
        count = 0
        for xml in read_ahead(xml_files()):
            count += 1
            yield stem(xml.name), "xml", tuple(xml)
        if not count:
            raise UsageError(f"--annotations {spec.annotation} must hold XML files, and has none")

    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        xml_files = [AnnotationFile(*content) for content in contents.get("xml", ())]
        if not images:
            for xml in xml_files:
                yield from without_image(xml.name, _image_of(xml.name, root), listing)
            return
        image = images[0]
        key = stem(image.name).rpartition("/")[2]
        if sets and key not in sets:
            listing.pass_over("in_no_set", image.name)
        elif not xml_files:
            yield without_annotation(image.name, "there is no XML file of that name")
        else:
            xml = xml_files[0]
            try:
                if xml.problem:
                    raise ValueError(xml.problem)
                objects = parse_voc(xml.data, is_fraction=spec.boxes_are_fractions)
            except ValueError as error:
                yield ListedReject(image.name, xml.reason, f"{xml.name}: {error}")
                return
            for box in filter(None, (item.box for item in objects)):
                units.add(box)
            labels = () if spec.labels_from == "none" else {item.label for item in objects}
            yield make_reference(
            spec,
                image, labels=tuple(sorted(labels)), objects=objects, has_mask=not objects,
                split=sets.get(key, ""),
            )  # fmt: skip

    yield from join(rows(), listing, make)
    units.finish()


def _image_of(name: str, root: str) -> str:
    """Returns the path that the image of an XML file has, or would have."""
    paths = [files.join(root, stem(name) + extension) for extension in _USUAL_EXTENSIONS]
    return next(filter(files.exists, paths), paths[0])


def parse_voc(data: bytes, *, is_fraction: bool = False) -> tuple[ImageObject, ...]:
    """Returns the objects of an annotation.

    Args:
      data: the XML.
      is_fraction: boxes are in shares of the image's sides, not in pixels.

    Raises:
      ValueError: it is no XML of Pascal VOC, or defines entities.
    """
    root = _parse_xml(data)
    if root.tag != "annotation":
        raise ValueError(f"the first element must be <annotation>, got <{root.tag}>")
    return tuple(_object(item, is_fraction=is_fraction) for item in root.iterfind("object"))


def _object(element: Element, *, is_fraction: bool) -> ImageObject:
    label = (element.findtext("name") or "").strip()
    if not label:
        raise ValueError("an <object> has no <name>")
    box = element.find("bndbox")
    if box is None:
        raise ValueError(f"the object {label} has no <bndbox>")
    sides = [box.findtext(side) or "" for side in _SIDES]
    try:
        corners = box_sides(sides)
    except ValueError as error:
        raise ValueError(f"the box of {label} is {', '.join(sides)}") from error
    difficult = (element.findtext("difficult") or "0").strip() == "1"
    region = _polygon(element, label)
    if region and is_fraction:
        raise ValueError(f"the polygon of {label} is in pixels, and --box_units=fraction is given")
    return ImageObject(label, corners, region, difficult=difficult, is_fraction=is_fraction)


def _polygon(element: Element, label: str) -> Region | None:
    """Returns the corners `<x1>`, `<y1>`, `<x2>`, … of a <polygon>, None where there is none.

    Raises:
      ValueError: it has fewer than three corners, or one is no number.
    """
    polygon = element.find("polygon")
    if polygon is None:
        return None
    sides = {child.tag: float(child.text or "") for child in polygon}
    corners = len(sides) // 2
    names = [f"{axis}{number}" for number in range(1, corners + 1) for axis in "xy"]
    if corners < 3 or set(names) != set(sides) or not all(map(math.isfinite, sides.values())):
        raise ValueError(f"the polygon of {label} must be x1, y1, x2, …, of 3 corners or more")
    return Region("polygons", polygons=(tuple(sides[name] for name in names),))


def _parse_xml(data: bytes) -> Element:
    """Parses XML in which no entity is defined: those can grow without end, or read other files."""
    try:
        return ElementTree.fromstring(data, forbid_entities=True, forbid_external=True)
    except DefusedXmlException as error:
        raise ValueError("XML that defines entities is not read") from error
    except (ParseError, LookupError) as error:  # LookupError: an unknown encoding
        raise ValueError(f"no XML: {error}") from error


def read_ahead(found: Iterable[tuple[str, FoundFile]]) -> Iterator[AnnotationFile]:
    """Reads files in order; those of an object store several at a time, links outside not."""
    pending: deque[tuple[str, Future[tuple[bytes, str]]]] = deque()
    with ThreadPoolExecutor(_READERS) as pool:
        for name, file in found:
            path = file.path
            if file.size == OUTSIDE:
                yield AnnotationFile(name, b"", leaves(path), "outside_input")
            elif files.is_local(path):
                yield AnnotationFile(name, *_try_read(path))
            else:
                pending.append((name, pool.submit(_try_read, path)))
                if len(pending) > 2 * _READERS:
                    name, reading = pending.popleft()
                    yield AnnotationFile(name, *reading.result())
        for name, reading in pending:
            yield AnnotationFile(name, *reading.result())


def _try_read(path: str) -> tuple[bytes, str]:
    try:
        return files.read_limited(path, _MOST_BYTES), ""
    except OSError as error:
        return b"", getattr(error, "strerror", None) or str(error)


def _read_sets(annotations: str, listing: Listing) -> dict[str, str]:
    """Returns the split of each image that ImageSets/Main names; held, some 100 bytes a name."""
    folder = input_root([annotations]).rpartition("/")[0]
    splits: dict[str, str] = {}
    for name in _SETS:
        path = files.join(folder or "/", "ImageSets", "Main", f"{name}.txt")
        if not files.exists(path):
            continue
        listing.check_inside(path, folder)
        listing.report_file(path)
        for line in files.read_limited(path, _MOST_SET_BYTES).decode(errors="replace").split():
            if splits.setdefault(line, name) != name:
                raise UsageError(
                    f"{path} must name other images than {splits[line]}.txt; both name {line}"
                )
    return splits
