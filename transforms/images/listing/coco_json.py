"""The types of COCO's instances JSON, and reading one.

The file is read at once; each annotation stays as JSON until its image is known, so that a wrong
one rejects this image alone.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from recordmill.records.errors import UsageError
from recordmill.records.state import MAX_INT64, FormatError, convert, explain
from recordmill.transforms.storage import files

_MOST_BYTES = 1 << 34  # of a JSON file
CocoId: TypeAlias = Annotated[int, msgspec.Meta(ge=-MAX_INT64, le=MAX_INT64)] | float | str
CocoNumber: TypeAlias = float | str  # some tools write numbers as text


class CocoImage(msgspec.Struct, gc=False):
    """An image."""

    id: CocoId
    file_name: str


class CocoCategory(msgspec.Struct, gc=False):
    """A class."""

    id: CocoId
    name: str


class CocoCategories(msgspec.Struct):
    """An instances file of which only the categories are read."""

    categories: list[CocoCategory]
    images: msgspec.Raw
    annotations: msgspec.Raw


class CocoInstances(msgspec.Struct):
    """An instances file; each annotation is read on its own."""

    images: list[CocoImage]
    categories: list[CocoCategory]
    annotations: list[msgspec.Raw]


class CocoOwner(msgspec.Struct, gc=False):
    """Whose an annotation is."""

    image_id: CocoId | None = None


class CocoObjectHeader(msgspec.Struct, gc=False):
    """Whose an annotation is, of what, and its region as it is written."""

    image_id: CocoId | None = None
    category_id: CocoId | None = None
    segmentation: msgspec.Raw = msgspec.Raw(b"null")


class CocoRuns(msgspec.Struct, gc=False):
    """The region of an object as run lengths."""

    size: tuple[float, float] | None = None
    counts: str | list[float] | None = None


class CocoAnnotation(msgspec.Struct, gc=False):
    """An object; what else COCO has in it does not matter."""

    bbox: list[CocoNumber] | None = None
    segmentation: list[list[CocoNumber]] | CocoRuns | None = None
    area: CocoNumber | None = None
    iscrowd: bool | int | float | str | None = None


read_kind = msgspec.json.Decoder(CocoObjectHeader).decode
read_owner = msgspec.json.Decoder(CocoOwner).decode
read_annotation = msgspec.json.Decoder(CocoAnnotation).decode
read_annotations = msgspec.json.Decoder(list[tuple[str, CocoAnnotation]]).decode
ERRORS = (msgspec.DecodeError, ValueError, RecursionError)


_Kinds = TypeVar("_Kinds", CocoCategories, CocoInstances)


def load(path: str, kind: type[_Kinds]) -> _Kinds:
    """Reads an instances file.

    Raises:
      UsageError: it cannot be read, is no JSON, or an image or a category is wrong.
    """
    try:
        data = files.read_limited(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(
            f"--annotations {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    try:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if b"NaN" not in data and b"Infinity" not in data:
                raise
            return _load_with_nan(data, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"--annotations {path} must be COCO's instances JSON, with lists of images, "
            f"annotations and categories: {explain(error)}"
        ) from error
    except ERRORS as error:
        raise UsageError(f"--annotations {path} must be JSON; {explain(error)}") from error


def _load_with_nan(data: bytes, kind: type[_Kinds]) -> _Kinds:
    """Reads what Python writes and JSON does not allow: each NaN rejects only its image."""
    content = json.loads(data, parse_constant=str)  # as text, which is no finite number
    parts = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(p), list) for p in parts):
        raise FormatError("a list of images, annotations or categories is missing")
    values: dict[str, Any] = {"categories": convert(content["categories"], list[CocoCategory])}
    if kind is CocoCategories:
        values |= {"images": msgspec.Raw(), "annotations": msgspec.Raw()}
    else:
        values["images"] = convert(content["images"], list[CocoImage])
        values["annotations"] = [msgspec.Raw(json.dumps(item)) for item in content["annotations"]]
    return kind(**values)
