"""COCO's instances JSON: boxes, polygons, run lengths, crowds; categories by id.

The file is held whole while it is read, about 9 times its size, and its images are joined with the
listed ones through a sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from apache_beam.io.filesystem import BeamIOError

from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.external_sort import Row
from recordmill.transforms.image_entries import Entry, Listing
from recordmill.transforms.image_files import input_root
from recordmill.transforms.image_joins import (
    Listed,
    NameResolver,
    image_rows,
    join,
    reject_row,
    without_image,
)
from recordmill.transforms.image_references import ImageObject, ListedReject, Region
from recordmill.transforms.image_spec import SourceSpec

_SAMPLES = 20


def coco_images(spec: SourceSpec, listing: Listing) -> Iterator[Listed]:
    """Yields the images that the JSON names with their objects; labels are their categories.

    Raises:
      UsageError: the JSON is no instances file, or a glob matches nothing.
    """
    listing.use(spec.annotations)

    def rows() -> Iterator[Row]:
        yield from _annotation_rows(spec)
        yield from image_rows(spec.patterns, listing)

    def make(images: list[Entry], contents: dict[str, list[Any]]) -> Iterator[Listed]:
        said = contents.get("image_of_json", [])
        if not images:
            for name, _, path in said:
                yield from without_image(name, path, listing)
            return
        if not said:
            yield ListedReject(images[0].name, "no_label", f"{spec.annotations} does not name it")
            return
        try:
            objects = tuple(map(_object, orjson.loads(said[0][1])))
        except (ValueError, TypeError, KeyError) as error:
            yield ListedReject(images[0].name, "bad_row", f"an annotation is not COCO's: {error}")
            return
        labels = tuple(sorted({item.label for item in objects}))
        labels = () if spec.labels_from == "none" else labels
        yield spec.reference(images[0], labels=labels, objects=objects)
        for name, _, _ in said[1:]:
            yield ListedReject(name, "duplicate", "the JSON names it twice")

    return join(rows(), listing, make)


def coco_categories(path: str) -> list[str]:
    """Returns the names of the categories in order of their ids.

    Raises:
      UsageError: the JSON is no instances file.
    """
    return list(_categories(_load(path), path).values())


def _load(path: str) -> dict[str, Any]:
    try:
        content = orjson.loads(files.read_bytes(path))
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


def _annotation_rows(spec: SourceSpec) -> Iterator[Row]:
    """Yields `(name, "image_of_json", (file name, annotations as JSON, path))`."""
    path = spec.annotations
    content = _load(path)
    categories = _categories(content, path)
    file = path.rpartition("/")[2]
    of_image: dict[Any, list[dict[str, Any]]] = {}
    for number, item in enumerate(content["images"]):
        try:
            if item["id"] in of_image:
                raise UsageError(f"--annotations {path} must name image {item['id']} once")
            of_image[item["id"]] = []
            item["file_name"].encode()
        except (TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                f"--annotations {path} must give id and file_name of image {number}"
            ) from error
    for number, item in enumerate(content["annotations"]):
        image, category = (
            (item.get("image_id"), item.get("category_id")) if isinstance(item, dict) else ("", "")
        )
        if image in of_image and category in categories:
            item["category"] = categories[category]
            of_image[image].append(item)
            continue
        unknown = f"image {image}" if image not in of_image else f"category {category}"
        place = ListedReject(f"{file}#{number}", "bad_row", f"there is no {unknown}")
        yield reject_row(place)
    del content["annotations"]
    names = [item["file_name"] for item in content["images"]]
    resolver = NameResolver(
        input_root(spec.patterns), path.rpartition("/")[0] or ".", names[:_SAMPLES]
    )
    for item in content["images"]:
        found = orjson.dumps(of_image.pop(item["id"])).decode()
        name = item["file_name"]
        yield resolver.name(name), "image_of_json", (name, found, resolver.path(name))


def _object(item: dict[str, Any]) -> ImageObject:
    box = None
    if item.get("bbox"):
        x, y, width, height = map(float, item["bbox"])
        box = (x, y, x + width, y + height)
    area = item.get("area")
    return ImageObject(
        item["category"],
        box,
        _region(item.get("segmentation")),
        is_crowd=bool(item.get("iscrowd", 0)),
        area=None if area is None else float(area),
    )


def _region(found: Any) -> Region | None:
    if not found:
        return None
    if isinstance(found, list):
        polygons = tuple(tuple(map(float, polygon)) for polygon in found)
        if any(len(polygon) < 6 or len(polygon) % 2 for polygon in polygons):
            raise ValueError("a polygon has fewer than three corners or half a one")
        return Region("polygons", polygons=polygons)
    height, width = map(int, found["size"])
    counts = found["counts"]
    runs = counts if isinstance(counts, str) else tuple(map(int, counts))
    return Region("coco", runs=runs, size=(height, width))
