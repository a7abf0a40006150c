"""A schema from a file: the `features.json` of TFDS and of our datasets, or our manifest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recordmill.records.schema import DType, Feature, Schema
from recordmill.records.state import decode

MEANING = "as the given schema has it"
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_TEXTS = ("string", "object", "bytes")
_INTS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def read_schema(
    content: bytes, class_names: Callable[[str], tuple[str, ...]] = lambda _: ()
) -> Schema:
    """Reads a schema.

    A dimension that TFDS does not know makes a feature that records may lack, as TFDS reads it.

    Args:
      content: of the file.
      class_names: feature -> the names of its classes, which TFDS has in files beside; () for none.

    Raises:
      ValueError: one line: what is not understood.
    """
    found: Any = decode(content, object)
    if isinstance(found, dict) and isinstance(found.get("features"), list):
        found = found["features"]
    if isinstance(found, list):
        schema = Schema.from_json(found)
    elif isinstance(found, dict) and "featuresDict" in found:
        try:
            schema = Schema(tuple(_of_tfds("", found, class_names)))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is no features.json of TFDS: {error!r}") from error
    else:
        raise ValueError("it is neither a features.json of TFDS nor a manifest of recordmill")
    if not schema.features:
        raise ValueError("it has no features")
    if schema.sequence:
        raise ValueError("it is of SequenceExamples, which cannot be checked")
    return schema


def _of_tfds(
    name: str,
    content: Mapping[str, Any],
    class_names: Callable[[str], tuple[str, ...]],
    *,
    several: bool = False,
) -> Iterator[Feature]:
    """Yields the features of a record that a feature of TFDS is."""
    if "featuresDict" in content:
        for part, inner in content["featuresDict"]["features"].items():
            below = f"{name}/{part}" if name else part
            yield from _of_tfds(below, inner, class_names, several=several)
        return
    if "sequence" in content:
        if several:
            raise ValueError(f"feature {name} is a sequence of sequences, which is not read")
        inner = content["sequence"]["feature"]
        yield from _of_tfds(name, inner, class_names, several=True)
        return
    dtype, shape = _form(name, content)
    classes = class_names(name) if "classLabel" in content else ()
    if several:
        shape = (None, *shape)
    known = None not in shape
    yield Feature(
        name, dtype, shape, content.get("description") or MEANING,
        kind="classes" if classes else "values", classes=classes, optional=not known,
    )  # fmt: skip


def _form(name: str, content: Mapping[str, Any]) -> tuple[DType, tuple[int | None, ...]]:
    """Returns what a record stores of a feature of TFDS: type and shape."""
    if "classLabel" in content:
        return "int64", ()
    if "text" in content or "image" in content or "audio" in content:
        return "bytes", ()
    if "boundingBox" in content:
        return "float32", (4,)
    tensor = content.get("tensor")
    if tensor is None:
        kind = str(content.get("pythonClassName", "")).rpartition(".")[2]
        raise ValueError(f"feature {name} is a {kind or 'feature'} of TFDS, which is not read")
    if tensor.get("encoding", "none") not in ("none", ""):
        return "bytes", ()
    sizes = [int(size) for size in tensor.get("shape", {}).get("dimensions", [])]
    shape = tuple(None if size < 0 else size for size in sizes)
    kind = tensor["dtype"]
    for dtype, names in (("int64", _INTS), ("float32", _FLOATS), ("bytes", _TEXTS)):
        if kind in names:
            return dtype, shape  # type: ignore[return-value]
    raise ValueError(f"feature {name} is of {kind}, which no tf.Example can hold")
