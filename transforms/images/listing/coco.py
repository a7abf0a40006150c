"""COCO's instances JSON: boxes, polygons, run lengths, crowds; categories by id.

The file is held whole while it is read, some 3 times its size, and its images are joined with the
listed ones through a sort. Images and categories must be right; an annotation that is wrong rejects
its image.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import orjson

from recordmill.records.errors import UsageError
from recordmill.records.state import explain
from recordmill.transforms.images.listing.boxes import Box, UnitsCheck
from recordmill.transforms.images.listing.coco_json import (
    ERRORS,
    CocoAnnotation,
    CocoCategories,
    CocoCategory,
    CocoInstances,
    CocoNumber,
    CocoRuns,
    load,
    read_annotation,
    read_annotations,
    read_kind,
    read_owner,
)
from recordmill.transforms.images.listing.entries import Entry, Listing, make_reference
from recordmill.transforms.images.listing.image_files import input_root
from recordmill.transforms.images.listing.joins import (
    Listed,
    NameResolver,
    image_rows,
    join,
    reject_row,
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
from recordmill.transforms.storage.external_sort import Row

_SAMPLES = 20
_SAMPLED_BOXES = 1000
_SPLIT_WORD = re.compile(
    r"(?:^|[^a-z])(train|training|val|valid|validation|dev|test|testing)(?![a-z])"
)
_MOST_RUN = 1 << 53
_EMPTY = (b"null", b"[]", b"{}", b'""', b"false", b"0")


class _JsonImage(NamedTuple):
    """An image of the JSON: its file name, annotations as JSON, path, split, id, and file.

    `is_below` is true if the path is below a folder that goes with the JSON's own.
    `has_regions` is true if objects of the file have pixels: then an image without any object
    is background.
    """

    name: str
    annotations: str
    path: str
    split: str
    source_id: str
    file: str
    has_regions: bool
    is_below: bool = False


def coco_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields the images that the JSON names with their objects; labels are their categories.

    Raises:
      UsageError: the JSON is no instances file, or a glob matches nothing.
    """
    paths = annotation_files(spec)
    for path in paths:
        listing.report_file(path)
    merged_categories(paths)
    is_fraction = spec.boxes_are_fractions

    def rows() -> Iterator[Row]:
        for path in paths:
            yield from _annotation_rows(path, spec, _split_of(path) if len(paths) > 1 else "")
        yield from image_rows(spec.patterns, listing)

    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        named = [_JsonImage(*content) for content in contents.get("json_image", ())]
        if not images:
            for item in named:
                yield from without_image(item.name, item.path, listing, inside=item.is_below)
            return
        if not named:
            why = f"{' and '.join(paths)} {'do' if len(paths) > 1 else 'does'} not name it"
            yield without_annotation(images[0].name, why)
            return
        try:
            notes = read_annotations(named[0].annotations)
            objects = tuple(_object(label, note, is_fraction=is_fraction) for label, note in notes)
        except ERRORS as error:
            problem = f"an annotation is not COCO's: {explain(error)}"
            yield ListedReject(images[0].name, "bad_row", problem)
            return
        labels = tuple(sorted({item.label for item in objects}))
        labels = () if spec.labels_from == "none" else labels
        first = named[0]
        has_mask = first.has_regions and (not objects or any(item.region for item in objects))
        yield make_reference(
            spec,
            images[0], labels=labels, objects=objects, has_mask=has_mask,
            split=first.split, source_id=first.source_id,
        )  # fmt: skip
        for item in named[1:]:
            other = "too" if item.file != first.file else "twice"
            yield ListedReject(item.name, "duplicate", f"{item.file} names it {other}")

    return join(rows(), listing, make)


def annotation_files(spec: SourceSpec) -> tuple[str, ...]:
    """Returns the JSON files of all splits."""
    return spec.annotations


def merged_categories(paths: Sequence[str]) -> dict[Any, str]:
    """Returns the categories of some files, id -> name, in order of their ids.

    Raises:
      UsageError: a file is no instances file, or two disagree.
    """
    merged: dict[Any, str] = {}
    for path in paths:
        for number, name in _by_id(load(path, CocoCategories).categories, path).items():
            if merged.setdefault(number, name) != name:
                raise UsageError(
                    f"--annotations must agree on the categories; {path} has {name!r} with id "
                    f"{number}, and another file {merged[number]!r}"
                )
    if len(set(merged.values())) != len(merged):
        raise UsageError(
            f"--annotations {' and '.join(paths)} must have one id a category; one has two"
        )
    return _in_order(merged, " and ".join(paths))


def image_folders(path: str) -> list[str]:
    """Returns the folders that may hold the images of a JSON file, the likeliest first.

    Those of `annotations/instances_train2017.json` are in `train2017` or `images/train2017`.
    """
    folder, _, file = path.rpartition("/")
    above = folder.rpartition("/")[0]
    part = file.removesuffix(".json").partition("_")[2]
    names = [part, part.rstrip("0123456789")] if part else []
    bases = [base for base in (above, folder) if base]
    inner = [f"{base}/{name}" for base in bases for n in names for name in (n, f"images/{n}")]
    return [*dict.fromkeys(inner), *(f"{base}/images" for base in bases)]


def _split_of(path: str) -> str:
    """Returns the split that a file's name says, or its folder's.

    Raises:
      UsageError: neither says one.
    """
    for text in path.lower().removesuffix(".json").split("/")[:-3:-1]:
        if named := _SPLIT_WORD.findall(text):
            return str(named[-1])
    raise UsageError(
        f"--annotations must say the split of each file by its name, as instances_train.json; got "
        f"{path}"
    )


def _by_id(categories: Sequence[CocoCategory], path: str) -> dict[Any, str]:
    named = {item.id: item.name for item in categories}
    if len(named) != len(categories) or len(set(named.values())) != len(named):
        raise UsageError(f"--annotations {path} must have one id and name a category; one is twice")
    return _in_order(named, path)


def _in_order(categories: dict[Any, str], path: str) -> dict[Any, str]:
    try:
        return dict(sorted(categories.items()))
    except TypeError as error:
        raise UsageError(
            f"--annotations {path} must have ids of categories that are all numbers or all text"
        ) from error


def _annotation_rows(path: str, spec: SourceSpec, split: str) -> Iterator[Row]:
    """Yields `(name, "json_image", _JsonImage as a tuple)`."""
    content = load(path, CocoInstances)
    categories = {
        number: orjson.dumps(name) for number, name in _by_id(content.categories, path).items()
    }
    file = path.rpartition("/")[2]
    by_image: dict[Any, list[bytes]] = {image.id: [] for image in content.images}
    if len(by_image) != len(content.images):
        twice = Counter(image.id for image in content.images).most_common(1)[0][0]
        raise UsageError(f"--annotations {path} must name image {twice} once")
    has_regions = False
    for number, item in enumerate(content.annotations):
        try:
            kind = read_kind(item)
        except ERRORS as error:
            image = _owner(item)
            if image in by_image:  # which is rejected when its annotations are read
                by_image[image].append(b'["",0]')
            else:
                yield reject_row(ListedReject(f"{file}#{number}", "bad_row", explain(error)))
            continue
        has_regions = has_regions or not _is_empty(kind.segmentation)
        image, category = kind.image_id, kind.category_id
        if image in by_image and category in categories:
            by_image[image].append(b"[%b,%b]" % (categories[category], bytes(item)))
            continue
        unknown = f"image {image}" if image not in by_image else f"category {category}"
        yield reject_row(ListedReject(f"{file}#{number}", "bad_row", f"there is no {unknown}"))
    _check_units(content.annotations, path, spec)
    content.annotations.clear()
    names = [image.file_name for image in content.images]
    resolver = NameResolver(
        input_root(spec.patterns), path.rpartition("/")[0] or ".", names[:_SAMPLES],
        image_folders(path),
    )  # fmt: skip
    for named in content.images:
        annotations = b"[%b]" % b",".join(by_image.pop(named.id))
        name = named.file_name
        image_row = _JsonImage(
            name, annotations.decode(errors="replace"), resolver.path(name), split, str(named.id),
            file, has_regions, resolver.is_below(resolver.path(name)),
        )  # fmt: skip
        yield resolver.name(name), "json_image", tuple(image_row)


def _owner(annotation: msgspec.Raw) -> Any:
    try:
        return read_owner(annotation).image_id
    except ERRORS:
        return None


def _is_empty(value: msgspec.Raw) -> bool:
    text = bytes(value)
    return len(text) < 16 and text.translate(None, b" \t\r\n") in _EMPTY


def _check_units(annotations: Sequence[msgspec.Raw], path: str, spec: SourceSpec) -> None:
    """Refuses boxes that look like fractions: COCO's are in pixels by definition.

    Raises:
      UsageError: the first boxes are all within [0, 1].
    """
    units = UnitsCheck(path, spec)
    for item in islice(annotations, _SAMPLED_BOXES):
        try:
            bbox = read_annotation(item).bbox
            box = _corners(bbox) if bbox else None
        except ERRORS:
            continue  # rejected
        if box:
            units.add(box)
    units.finish()


def _corners(bbox: Sequence[CocoNumber]) -> Box:
    x, y, width, height = map(float, bbox)
    return box_sides((x, y, x + width, y + height))


def _object(label: str, item: CocoAnnotation, *, is_fraction: bool) -> ImageObject:
    return ImageObject(
        label,
        _corners(item.bbox) if item.bbox else None,
        _region(item.segmentation),
        is_crowd=bool(item.iscrowd),
        area=None if item.area is None else _finite(item.area),
        is_fraction=is_fraction,
    )


def _finite(value: CocoNumber) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is no finite number")
    return number


def _region(segmentation: list[list[CocoNumber]] | CocoRuns | None) -> Region | None:
    if not segmentation:
        return None
    if isinstance(segmentation, list):
        polygons = tuple(tuple(map(float, polygon)) for polygon in segmentation)
        if not math.isfinite(sum(map(sum, polygons))):
            raise ValueError("a polygon has a corner that is no finite number")
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):
            raise ValueError("a polygon has fewer than three corners or half a one")
        return Region("polygons", polygons=polygons)
    size, counts = segmentation.size, segmentation.counts
    if size is None and counts is None:
        return None
    if size is None or counts is None:
        raise ValueError("a region of runs must have size and counts")
    height, width = map(_whole, size)
    runs = counts if isinstance(counts, str) else tuple(map(_whole, counts))
    return Region("coco", runs=runs, size=(height, width))


def _whole(value: float) -> int:
    if not abs(value) <= _MOST_RUN:
        raise ValueError(f"{value} is no number of pixels")
    return int(value)
