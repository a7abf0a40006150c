"""Feature schemas: one description of a record, from which everything else is derived.

Encoding (`encoding.py`), parsing (`reader`), TFDS's `features.json`, `verify` and the documentation
read the same `Schema`, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from recordmill.records.state import FormatError, convert

DType = Literal["int64", "float32", "bytes"]
Kind = Literal["values", "image", "pixels", "classes", "boxes", "text"]

_TFDS = "tensorflow_datasets.core.features."
_TFDS_DTYPE = {"int64": "int64", "float32": "float32", "bytes": "object"}
# Columns of MaxText, whose TFDS pipeline takes no int64; TFDS casts to what it is told here.
_TOKENS = {f"{side}{part}" for side in ("inputs", "targets")
           for part in ("", "_segmentation", "_position")}  # fmt: skip
OBJECTS = "objects"
_MOST_VALUES = 1 << 31  # a message of protobuf has fewer bytes


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of a record.

    Attributes:
      name: its key in the record.
      dtype: what the record stores; bool and narrower integers are stored as int64.
      shape: its dimensions; `()` is one value, None as the first is any number of them.
      meaning: a few words for people.
      sequence: True for a feature list of a SequenceExample, one value a step.
      kind: what the values are to a reader: "image" encoded images, "pixels" the raw bytes of one,
        "classes" numbers that `classes` names, "boxes" `(ymin, xmin, ymax, xmax)` in [0, 1],
        "text" UTF-8.
      image_shape: `(height, width, channels)` of images and pixels, None where it varies.
      classes: the names of class 0, 1, …
      optional: a record may lack it, which is read as no values.

    Raises:
      ValueError: the shape does not fit the kind.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...]
    meaning: str
    sequence: bool = False
    kind: Kind = "values"
    image_shape: tuple[int | None, ...] = ()
    classes: tuple[str, ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise ValueError(f"a feature's name must be printable text, got {self.name!r:.80}")
        if any(dimension is not None and dimension < 0 for dimension in self.shape):
            raise ValueError(f"{self.name}: dimensions must be 0 or more, got {self.shape}")
        if (self.values or 0) > _MOST_VALUES:
            raise ValueError(
                f"{self.name}: a record must have at most {_MOST_VALUES} values of a feature, and "
                f"has {self.shape}"
            )
        if None in self.shape[1:]:
            raise ValueError(f"{self.name}: only the first dimension may be None, got {self.shape}")
        if (self.kind in ("image", "pixels")) != (len(self.image_shape) == 3):
            raise ValueError(
                f"{self.name}: images and pixels, and they alone, have a height, width and "
                f"channels, got kind {self.kind!r} and {self.image_shape}"
            )

    @property
    def values(self) -> int | None:
        """The number of values in a record, None where it varies."""
        count = 1
        for dimension in self.shape:
            if dimension is None:
                return None
            count *= dimension
        return count


@dataclass(frozen=True, slots=True)
class Schema:
    """The features of a record, in the order in which the bytes hold them: by name.

    That order is the one of deterministic protobuf serialization, so that the bytes of a record are
    those that `Example.SerializeToString(deterministic=True)` gives.

    Raises:
      ValueError: two features have one name.
      KeyError: from `schema[name]`, if there is no such feature.
    """

    features: tuple[Feature, ...]

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        if len(set(names)) != len(names):
            raise ValueError(f"feature names must differ, got {names}")
        ordered = tuple(sorted(self.features, key=lambda feature: feature.name.encode()))
        object.__setattr__(self, "features", ordered)

    def __getitem__(self, name: str) -> Feature:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(f"no feature {name!r}; there are {[f.name for f in self.features]}")

    @property
    def sequence(self) -> bool:
        """True where records are SequenceExamples."""
        return any(feature.sequence for feature in self.features)

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the form that the manifest stores, without fields that have their defaults."""
        return [
            {
                f.name: list(value) if isinstance(value, tuple) else value
                for f in fields(Feature)
                if (value := getattr(feature, f.name)) != f.default
            }
            for feature in self.features
        ]

    @classmethod
    def from_json(cls, features: list[dict[str, Any]]) -> Schema:
        """Reads what `to_json` returned.

        Raises:
          FormatError: it is something else; names the field. It is a ValueError.
        """
        try:
            return cls(tuple(convert(features, list[Feature])))
        except FormatError as error:
            raise FormatError(f"features: {error}") from error

    def tfds_features(self) -> dict[str, Any]:
        """Returns the content of TFDS's `features.json`.

        Features called `objects/…` are the parts of a sequence `objects`, as in TFDS's own
        detection datasets.
        """
        features: dict[str, Any] = {}
        parts: dict[str, Any] = {}
        for feature in self.features:
            prefix, _, part = feature.name.partition("/")
            if prefix == OBJECTS and part:
                parts[part] = _tfds_feature(feature, each=True)
            else:
                features[feature.name] = _tfds_feature(feature)
        if parts:
            features[OBJECTS] = _tfds_sequence(_tfds_dict(parts))
        return _tfds_dict(features)

    def describe(self) -> str:
        """Returns a line for each feature, for people: name, dtype, shape, meaning."""
        rows = [(f.name, f"{f.dtype} {list(f.shape)}", f.meaning) for f in self.features]
        if not rows:
            return "none"
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(f"{n:<{widths[0]}}  {t:<{widths[1]}}  {m}" for n, t, m in rows)


def _tfds_shape(shape: tuple[int | None, ...]) -> dict[str, Any]:
    return {"dimensions": [str(-1 if d is None else d) for d in shape]}


def _tfds_tensor(dtype: str, shape: tuple[int | None, ...], encoding: str) -> dict[str, Any]:
    tensor = {"shape": _tfds_shape(shape), "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": _TFDS + "tensor_feature.Tensor", "tensor": tensor}


def _tfds_sequence(feature: dict[str, Any]) -> dict[str, Any]:
    return {
        "pythonClassName": _TFDS + "sequence_feature.Sequence",
        "sequence": {"feature": feature, "length": "-1"},
    }


def _tfds_dict(features: dict[str, Any]) -> dict[str, Any]:
    return {
        "pythonClassName": _TFDS + "features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def _tfds_feature(feature: Feature, each: bool = False) -> dict[str, Any]:
    """Returns TFDS's form of a feature; with `each`, of one of its rows."""
    shape = feature.shape[1:] if each or feature.kind == "text" else feature.shape
    content = _tfds_value(feature, shape)
    several = feature.shape[:1] == (None,) and not each
    if several and feature.kind in ("image", "classes", "boxes", "text"):
        content = _tfds_sequence(content)
    return content | {"description": feature.meaning}


def _tfds_value(feature: Feature, shape: tuple[int | None, ...]) -> dict[str, Any]:
    if feature.kind == "image":
        image = {"shape": _tfds_shape(feature.image_shape), "dtype": "uint8"}
        return {"pythonClassName": _TFDS + "image_feature.Image", "image": image}
    if feature.kind == "classes":
        label = {"numClasses": str(len(feature.classes))}
        return {
            "pythonClassName": _TFDS + "class_label_feature.ClassLabel",
            "classLabel": label,
        }
    if feature.kind == "boxes":
        box = {"shape": _tfds_shape((4,)), "dtype": "float32", "bboxFormat": "REL_YXYX"}
        return {"pythonClassName": _TFDS + "bounding_boxes.BBoxFeature", "boundingBox": box}
    if feature.kind == "text" and not shape:
        return {"pythonClassName": _TFDS + "text_feature.Text", "text": {}}
    if feature.kind == "pixels" and None not in feature.image_shape:
        return _tfds_tensor("uint8", feature.image_shape, "bytes")
    if feature.dtype == "int64" and feature.name in _TOKENS:
        return _tfds_tensor("int32", shape, "none")
    return _tfds_tensor(_TFDS_DTYPE[feature.dtype], shape, "none")
