"""Pascal VOC: an XML file an image, with the boxes of its objects, and lists of the splits.

Boxes are taken as they stand, as the Object Detection API's and TFDS's own readers take them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.external_sort import Row
from recordmill.transforms.image_entries import Entry, Listing
from recordmill.transforms.image_files import find_files, input_root
from recordmill.transforms.image_joins import Listed, image_rows, join, stem, without_image
from recordmill.transforms.image_references import ImageObject, ListedReject, box_sides
from recordmill.transforms.image_spec import SourceSpec

_SIDES = ("xmin", "ymin", "xmax", "ymax")
_USUAL_ENDINGS = (".jpg", ".jpeg", ".png")
_READERS = 16
_SETS = ("train", "val", "test")


def voc_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields images with the objects of the XML file of the same name; labels are their classes.

    Where `ImageSets/Main` beside the annotations has train.txt, val.txt or test.txt, these say the
    splits, and images in none of them are counted as filtered "in_no_set".

    Raises:
      UsageError: there is no XML, or a glob matches nothing.
    """
    sets = {} if spec.split_from else _read_sets(spec.annotations, listing)

    root = input_root(spec.patterns) or "."

    def xml_files() -> Iterator[tuple[str, str]]:
        for name, found in find_files([spec.annotations], listing, flag="--annotations"):
            if found.path.lower().endswith(".xml"):
                listing.saw(*found)
                yield name, found.path

    def rows() -> Iterator[Row]:
        yield from image_rows(spec.patterns, listing, stem)
        count = 0
        for name, data, problem in _read_ahead(xml_files()):
            count += 1
            yield stem(name), "xml", (name, data, problem)
        if not count:
            raise UsageError(f"--annotations {spec.annotations} must hold XML files, and has none")

    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        found = contents.get("xml", [])
        if not images:
            for name, _, _ in found:
                places = [files.join(root, stem(name) + ending) for ending in _USUAL_ENDINGS]
                path = next(filter(files.exists, places), places[0])
                yield from without_image(name, path, listing)
            return
        image = images[0]
        key = stem(image.name).rpartition("/")[2]
        if sets and key not in sets:
            listing.filtered["in_no_set"] += 1
        elif not found:
            yield ListedReject(image.name, "no_label", "there is no XML file of that name")
        else:
            name, data, problem = found[0]
            try:
                if problem:
                    raise ValueError(problem)
                objects = parse_voc(data)
            except ValueError as error:
                yield ListedReject(image.name, "bad_row", f"{name}: {error}")
                return
            labels = tuple(sorted({item.label for item in objects}))
            labels = () if spec.labels_from == "none" else labels
            yield spec.reference(image, labels=labels, objects=objects, split=sets.get(key, ""))

    return join(rows(), listing, make)


def parse_voc(data: bytes) -> tuple[ImageObject, ...]:
    """Returns the objects of an annotation.

    Raises:
      ValueError: it is no XML of Pascal VOC, or defines entities.
    """
    root = _parse_xml(data)
    if root.tag != "annotation":
        raise ValueError(f"the first element must be <annotation>, got <{root.tag}>")
    return tuple(map(_object, root.iterfind("object")))


def _object(element: Element) -> ImageObject:
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
    return ImageObject(label, corners, difficult=difficult)


def _parse_xml(data: bytes) -> Element:
    """Parses XML in which no entity is defined: those can grow without end, or read other files."""
    builder = TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def refuse(*_: Any) -> None:
        raise ValueError("XML that defines entities is not read")

    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ValueError(f"no XML: {error}") from error
    return builder.close()


def _read_ahead(named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, bytes, str]]:
    """Yields `(name, bytes, problem)` of files in order; several of an object store's at a time."""
    pending: deque[tuple[str, Future[tuple[bytes, str]]]] = deque()
    with ThreadPoolExecutor(_READERS) as pool:
        for name, path in named:
            if files.is_local(path):
                yield name, *_try_read(path)
                continue
            pending.append((name, pool.submit(_try_read, path)))
            if len(pending) > 2 * _READERS:
                name, reading = pending.popleft()
                yield name, *reading.result()
        for name, reading in pending:
            yield name, *reading.result()


def _try_read(path: str) -> tuple[bytes, str]:
    try:
        return files.read_bytes(path), ""
    except (OSError, BeamIOError) as error:
        return b"", getattr(error, "strerror", None) or str(error)


def _read_sets(annotations: str, listing: Listing) -> dict[str, str]:
    """Returns the split of each image that ImageSets/Main names; held, some 100 bytes a name."""
    folder = re.sub(r"/?[*?\[].*", "", annotations).rstrip("/").rpartition("/")[0]
    splits: dict[str, str] = {}
    for name in _SETS:
        path = files.join(folder or ".", "ImageSets", "Main", f"{name}.txt")
        if not files.exists(path):
            continue
        listing.use(path)
        for line in files.read_bytes(path).decode(errors="replace").split():
            if splits.setdefault(line, name) != name:
                raise UsageError(
                    f"{path} must name other images than {splits[line]}.txt; both name {line}"
                )
    return splits
