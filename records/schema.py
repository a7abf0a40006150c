"""Feature schemas: one description of a record from which all else derives.

Encoding (`encoding.py`), parsing (`reader`), TFDS's `features.json`, `verify` and the documentation
read the same `Schema`, so they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

DType = Literal["int64", "float32", "bytes"]

_TFDS = "tensorflow_datasets.core.features."
_TFDS_DTYPE = {"int64": "int64", "float32": "float32", "bytes": "object"}


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of a record.

    Attributes:
      name: its key in the record.
      dtype: what the record stores; bool and narrower integers are stored as int64.
      shape: its dimensions; `()` is one value, None in the first place is any number of them.
      meaning: a few words for people.
      sequence: True for a feature list of a SequenceExample, one value a step.
    """

    name: str
    dtype: DType
    shape: tuple[int | None, ...]
    meaning: str
    sequence: bool = False

    def __post_init__(self) -> None:
        if None in self.shape[1:]:
            raise ValueError(f"{self.name}: only the first dimension may be None, got {self.shape}")

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
        """Returns the form that the manifest stores."""
        return [
            {
                "name": feature.name,
                "dtype": feature.dtype,
                "shape": list(feature.shape),
                "meaning": feature.meaning,
                **({"sequence": True} if feature.sequence else {}),
            }
            for feature in self.features
        ]

    @classmethod
    def from_json(cls, features: list[dict[str, Any]]) -> Schema:
        """Reads what `to_json` returned."""
        return cls(tuple(Feature(**{**f, "shape": tuple(f["shape"])}) for f in features))

    def tfds_features(self) -> dict[str, Any]:
        """Returns the content of TFDS's `features.json`."""
        tensors = {
            feature.name: {
                "pythonClassName": _TFDS + "tensor_feature.Tensor",
                "tensor": {
                    "shape": {
                        "dimensions": [str(-1 if d is None else d) for d in feature.shape],
                    },
                    "dtype": _TFDS_DTYPE[feature.dtype],
                    "encoding": "none",
                },
                "description": feature.meaning,
            }
            for feature in self.features
        }
        return {
            "pythonClassName": _TFDS + "features_dict.FeaturesDict",
            "featuresDict": {"features": tensors},
        }

    def describe(self) -> str:
        """Returns a line a feature for people: name, dtype, shape, meaning."""
        rows = [(f.name, f"{f.dtype} {list(f.shape)}", f.meaning) for f in self.features]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(f"{n:<{widths[0]}}  {t:<{widths[1]}}  {m}" for n, t, m in rows)
