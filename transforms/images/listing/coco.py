"""COCO's instances JSON: boxes, polygons, run lengths, crowds; categories by id.

The file is held whole while it is read, about 9 times its size, and its images are joined with the
listed ones through a sort.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson
from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.boxes import Box, UnitsCheck
from recordmill.transforms.images.listing.entries import Entry, Listing
from recordmill.transforms.images.listing.image_files import input_root
from recordmill.transforms.images.listing.joins import (
    Listed,
    NameResolver,
    image_rows,
    join,
    reject_row,
    without_image,
)
from recordmill.transforms.images.listing.source_spec import SourceSpec
from recordmill.transforms.images.references import ImageObject, ListedReject, Region
from recordmill.transforms.storage import files
from recordmill.transforms.storage.external_sort import Row

_SAMPLES = 20
_MOST_BYTES = 1 << 34  # of a JSON file; orjson itself takes fewer
_SAMPLED_BOXES = 1000
_SPLIT_WORD = re.compile(
    r"(?:^|[^a-z])(train|training|val|valid|validation|dev|test|testing)(?![a-z])"
)


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
    is_fraction = spec.box_units == "fraction"

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
            detail = f"{' and '.join(paths)} {'do' if len(paths) > 1 else 'does'} not name it"
            yield ListedReject(images[0].name, "no_label", detail)
            return
        try:
            notes = orjson.loads(named[0].annotations)
            objects = tuple(_object(note, is_fraction=is_fraction) for note in notes)
        except (ValueError, TypeError, KeyError) as error:
            yield ListedReject(images[0].name, "bad_row", f"an annotation is not COCO's: {error}")
            return
        labels = tuple(sorted({item.label for item in objects}))
        labels = () if spec.labels_from == "none" else labels
        first = named[0]
        has_mask = first.has_regions and (not objects or any(item.region for item in objects))
        yield spec.reference(
            images[0], labels=labels, objects=objects, has_mask=has_mask,
            split=first.split, source_id=first.source_id,
        )  # fmt: skip
        for item in named[1:]:
            other = "too" if item.file != first.file else "twice"
            yield ListedReject(item.name, "duplicate", f"{item.file} names it {other}")

    return join(rows(), listing, make)


def annotation_files(spec: SourceSpec) -> tuple[str, ...]:
    """Returns the JSON files of all splits."""
    return (spec.annotations, *spec.more_annotations)


def merged_categories(paths: Sequence[str]) -> dict[Any, str]:
    """Returns the categories of some files, id -> name, in order of their ids.

    Raises:
      UsageError: a file is no instances file, or two disagree.
    """
    merged: dict[Any, str] = {}
    for path in paths:
        for number, name in _categories(_load(path), path).items():
            if merged.setdefault(number, name) != name:
                raise UsageError(
                    f"--annotations must agree on the categories; {path} has {name!r} with id "
                    f"{number}, and another file {merged[number]!r}"
                )
    if len(set(merged.values())) != len(merged):
        raise UsageError(
            f"--annotations {' and '.join(paths)} must have one id a category; one has two"
        )
    return dict(sorted(merged.items()))


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


def _load(path: str) -> dict[str, Any]:
    try:
        content = orjson.loads(files.read_limited(path, _MOST_BYTES))
    except (OSError, BeamIOError) as error:
        raise UsageError(
            f"--annotations {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    except ValueError as error:
        raise UsageError(f"--annotations {path} must be JSON; {error}") from error
    parts = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(p), list) for p in parts):
        raise UsageError(
            f"--annotations {path} must be COCO's instances JSON, with lists of images, "
            "annotations and categories"
        )
    return content


def _categories(content: dict[str, Any], path: str) -> dict[Any, str]:
    try:
        pairs = sorted((item["id"], item["name"]) for item in content["categories"])
    except (TypeError, KeyError) as error:
        raise UsageError(f"--annotations {path} has a category without id or name") from error
    names = [name for _, name in pairs]
    if len(set(names)) != len(names) or len(dict(pairs)) != len(pairs):
        raise UsageError(f"--annotations {path} must have one id and name a category; one is twice")
    return dict(pairs)


def _annotation_rows(path: str, spec: SourceSpec, split: str) -> Iterator[Row]:
    """Yields `(name, "json_image", _JsonImage as a tuple)`."""
    content = _load(path)
    categories = _categories(content, path)
    file = path.rpartition("/")[2]
    by_image: dict[Any, list[dict[str, Any]]] = {}
    for number, item in enumerate(content["images"]):
        try:
            if item["id"] in by_image:
                raise UsageError(f"--annotations {path} must name image {item['id']} once")
            by_image[item["id"]] = []
            item["file_name"].encode()
        except (TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"--annotations {path} must give id and file_name of image {number}"
            ) from error
    for number, item in enumerate(content["annotations"]):
        image, category = (
            (item.get("image_id"), item.get("category_id")) if isinstance(item, dict) else ("", "")
        )
        if image in by_image and category in categories:
            item["category"] = categories[category]
            by_image[image].append(item)
            continue
        unknown = f"image {image}" if image not in by_image else f"category {category}"
        yield reject_row(ListedReject(f"{file}#{number}", "bad_row", f"there is no {unknown}"))
    _check_units(content["annotations"], path, spec.box_units)
    has_regions = any(i.get("segmentation") for i in content["annotations"] if isinstance(i, dict))
    del content["annotations"]
    names = [item["file_name"] for item in content["images"]]
    resolver = NameResolver(
        input_root(spec.patterns), path.rpartition("/")[0] or ".", names[:_SAMPLES],
        image_folders(path),
    )  # fmt: skip
    for item in content["images"]:
        annotations = orjson.dumps(by_image.pop(item["id"])).decode()
        name = item["file_name"]
        image_row = _JsonImage(
            name, annotations, resolver.path(name), split, str(item["id"]), file, has_regions,
            resolver.is_below(resolver.path(name)),
        )  # fmt: skip
        yield resolver.name(name), "json_image", tuple(image_row)


def _check_units(annotations: list[Any], path: str, units_flag: str) -> None:
    """Refuses boxes that look like fractions: COCO's are in pixels by definition.

    Raises:
      UsageError: the first boxes are all within [0, 1].
    """
    units = UnitsCheck(path, units_flag)
    for item in islice(annotations, _SAMPLED_BOXES):
        try:
            box = _corners(item["bbox"])
        except (TypeError, ValueError, KeyError):
            continue  # rejected, or without a box
        units.add(box)
    units.finish()


def _corners(bbox: Any) -> Box:
    x, y, width, height = map(float, bbox)
    return x, y, x + width, y + height


def _object(item: dict[str, Any], *, is_fraction: bool) -> ImageObject:
    box = None
    if item.get("bbox"):
        box = _corners(item["bbox"])
    area = item.get("area")
    return ImageObject(
        item["category"],
        box,
        _region(item.get("segmentation")),
        is_crowd=bool(item.get("iscrowd", 0)),
        area=None if area is None else float(area),
        is_fraction=is_fraction,
    )


def _region(segmentation: Any) -> Region | None:
    if not segmentation:
        return None
    if isinstance(segmentation, list):
        polygons = tuple(tuple(map(float, polygon)) for polygon in segmentation)
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):
            raise ValueError("a polygon has fewer than three corners or half a one")
        return Region("polygons", polygons=polygons)
    height, width = map(int, segmentation["size"])
    counts = segmentation["counts"]
    runs = counts if isinstance(counts, str) else tuple(map(int, counts))
    return Region("coco", runs=runs, size=(height, width))
