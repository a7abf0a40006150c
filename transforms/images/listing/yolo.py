"""YOLO: a text file an image, a line an object, in fractions of the image's sides.

Images are in folders called `images`, texts of the same names in folders called `labels`; classes
are numbers, whose names `data.yaml` or `classes.txt` has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.boxes import to_corners
from recordmill.transforms.images.listing.entries import (
    Entry,
    Listing,
    is_split_name,
    make_reference,
)
from recordmill.transforms.images.listing.image_files import find_files, input_root
from recordmill.transforms.images.listing.joins import Listed, image_rows, join, stem
from recordmill.transforms.images.listing.voc import AnnotationFile, read_ahead
from recordmill.transforms.images.references import ImageObject, ListedReject, Region
from recordmill.transforms.images.source_spec import SourceSpec
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row
from recordmill.transforms.storage.globs import FoundFile

_NAME_FILES = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")
_LINE = re.compile(r"(?:-|(\d+)\s*:)\s*(.*)")

_MOST_BYTES = 1 << 26  # of the names of classes


def yolo_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields images with the objects of the text file of the same name; without one they have none,
    and are background to a segmentation.

    Splits are folders so called, above or below `images`.

    Raises:
      UsageError: there is no text file, a glob matches nothing, or the names cannot be used.
    """
    names = class_names(spec, listing)

    def texts() -> Iterator[tuple[str, FoundFile]]:
        for name, file in find_files(spec.patterns, Listing(boundary=listing.boundary)):
            if _is_label_file(name):
                listing.on_file(*file)
                yield name, file

    listing.is_annotation = _is_label_file

    def rows() -> Iterator[Row]:
        yield from image_rows(spec.patterns, listing, lambda name: _key(name, "images"))
        count = 0
        for text in read_ahead(texts()):
            count += 1
            yield _key(text.name, "labels"), "text", tuple(text)
        if not count:
            raise UsageError(
                f"--layout=yolo needs folders called labels with text files below --input "
                f"{' '.join(spec.patterns)}; there is none"
            )

    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        annotations = [AnnotationFile(*content) for content in contents.get("text", ())]
        if not images:
            for text in annotations:
                yield ListedReject(text.name, "no_image", "there is no image of that name")
            return
        image = images[0]
        try:
            objects = _objects(annotations[0], names) if annotations else ()
        except ValueError as error:
            first = annotations[0]
            yield ListedReject(image.name, first.reason, f"{first.name}: {error}")
            return
        labels = tuple(sorted({item.label for item in objects}))
        split = next(filter(is_split_name, image.folders), "") if not spec.split_from else ""
        labels = () if spec.labels_from == "none" else labels
        yield make_reference(
            spec, image, labels=labels, objects=objects, has_mask=not objects, split=split
        )

    return join(rows(), listing, make)


def class_names(spec: SourceSpec, listing: Listing | None = None) -> list[str]:
    """Returns the names of the classes by number; [] where no file has them.

    Raises:
      UsageError: a file has no names that can be read.
    """
    root = input_root(spec.patterns) or "."
    for folder in (root, files.join(root, "labels")):
        for path in (files.join(folder, name) for name in _NAME_FILES):
            if files.exists(path):
                if listing:
                    listing.check_inside(path)
                    listing.report_file(path)
                try:
                    data = files.read_limited(path, _MOST_BYTES)
                except OSError as error:
                    raise UsageError(f"{path} cannot be read: {error.strerror}") from error
                text = data.decode("utf-8-sig", errors="replace")
                is_yaml = path.endswith((".yaml", ".yml"))
                return _yaml_names(text, path) if is_yaml else _lines(text)
    return []


def parse_yolo(text: str, names: list[str]) -> tuple[ImageObject, ...]:
    """Returns the objects of a text file: `class cx cy w h`, or `class` and a polygon's corners.

    Args:
      text: of the file; boxes are fractions of the image's sides.
      names: of the classes; [] takes the numbers themselves.

    Raises:
      ValueError: a line is neither.
    """
    return tuple(_object(line.split(), names) for line in text.splitlines() if line.strip())


def _object(fields: list[str], names: list[str]) -> ImageObject:
    number, sides = fields[0], [float(field) for field in fields[1:]]
    if not number.isdecimal() or (names and int(number) >= len(names)):
        raise ValueError(f"the class is {number}, of {len(names) or 'unnamed'} classes")
    region = None
    if len(sides) == 4:
        box = to_corners(sides, "cxcywh")
    elif len(sides) >= 6 and len(sides) % 2 == 0:  # a polygon; its box is what detection needs
        box = to_corners([min(sides[::2]), min(sides[1::2]), max(sides[::2]), max(sides[1::2])])
        region = Region("polygons", polygons=(tuple(sides),), is_fraction=True)
    else:
        raise ValueError(f"a line has {len(fields)} fields; class cx cy w h are 5")
    label = names[int(number)] if names else str(int(number))
    return ImageObject(label, box, region, is_fraction=True)


def _objects(text: AnnotationFile, names: list[str]) -> tuple[ImageObject, ...]:
    if text.problem:
        raise ValueError(text.problem)
    return parse_yolo(text.data.decode("utf-8-sig"), names)


def _is_label_file(name: str) -> bool:
    return (
        name.endswith(".txt")
        and "labels" in name.split("/")[:-1]
        and (name.rpartition("/")[2] not in _NAME_FILES)
    )


def _key(name: str, folder: str) -> str:
    """Returns what an image and its text have in common: the name without `images` or `labels`."""
    parts = stem(name).split("/")
    for position in range(len(parts) - 2, -1, -1):
        if parts[position] == folder:
            return "/".join(parts[:position] + parts[position + 1 :])
    return "/".join(parts)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in _split(text) if line.strip()]


def _split(text: str) -> list[str]:
    """Returns lines; not splitlines, which makes two names of one with a rarer separator in it."""
    return text.replace("\r\n", "\n").split("\n")


def _yaml_names(text: str, path: str) -> list[str]:
    """Reads `names:` of a YAML file: a list in one line, a list, or a mapping from numbers.

    Raises:
      UsageError: it is none of these.
    """
    lines = [re.sub(r"\s+#.*", "", line).rstrip() for line in _split(text)]
    start = next((i for i, line in enumerate(lines) if re.match(r"names\s*:", line)), None)
    names: list[str] = []
    if start is not None:
        inline = lines[start].partition(":")[2].strip()
        rest = [line.strip() for line in lines[start + 1 :]]
        if inline.startswith("["):
            names = _inline_list(" ".join([inline, *rest]))
        else:
            for line in filter(None, rest):
                item = _LINE.fullmatch(line)
                if item is None or (item[1] and item[1].lstrip("0") != str(len(names) or "")):
                    break
                names.append(item[2].strip("'\""))
    if not names or len(set(names)) != len(names):
        raise UsageError(
            f"{path} must have `names:` as a list, or as numbers from 0 with one name each; give a "
            "file of --labels, or write classes.txt with a name a line"
        )
    return names


def _inline_list(text: str) -> list[str]:
    inner = text[1 : text.index("]")] if "]" in text else ""
    try:
        values = orjson.loads(f"[{inner}]")
        if all(type(value) in (str, int, float, bool) for value in values):
            return [str(value) for value in values]
        return []
    except ValueError:
        return [name.strip().strip("'\"") for name in inner.split(",") if name.strip()]
