"""Fields of the input, of `--keep_fields`, that are carried into the records as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from recordmill.records.codec.encoding import Column, Strings
from recordmill.records.errors import UsageError, one_of
from recordmill.records.schema import Feature

KINDS = ("bytes", "float", "int")


@dataclass(frozen=True, slots=True)
class KeptField:
    """A field or column and what it becomes.

    Attributes:
      name: of the field, and of the feature.
      kind: "bytes" its text, "int" an int64, "float" a float32.
    """

    name: str
    kind: Literal["bytes", "float", "int"] = "bytes"

    def feature(self, meaning: str) -> Feature:
        """Returns the feature that holds it."""
        if self.kind == "bytes":
            return Feature(self.name, "bytes", (), meaning, kind="text")
        return Feature(self.name, "int64" if self.kind == "int" else "float32", (), meaning)

    def column(self, texts: Sequence[str]) -> Column:
        """Returns the values of some records, from their text."""
        if self.kind == "bytes":
            return Strings.from_list([text.encode() for text in texts])
        if self.kind == "int":
            return np.array([int(text) for text in texts], np.int64)
        return np.array([float(text) for text in texts], np.float32)

    def check(self, text: str) -> str:
        """Returns a value as it is.

        Raises:
          ValueError: it is not of this kind.
        """
        if self.kind == "int" and not -(1 << 63) <= int(text) < 1 << 63:
            raise ValueError(f"{self.name} is {text}, beyond 64 bits")
        if self.kind == "float" and not math.isfinite(float(text)):
            raise ValueError(f"{self.name} is {text}")
        return text


def parse_fields(text: str) -> tuple[KeptField, ...]:
    """Reads `caption,year:int,score:float`.

    Raises:
      UsageError: a kind is unknown, or a name is empty or there twice.
    """
    fields = []
    for part in filter(None, text.split(",")):
        name, _, kind = part.strip().partition(":")
        fields.append(KeptField(name, one_of("--keep_fields", kind or "bytes", KINDS)))  # type: ignore[arg-type]
    names = [field.name for field in fields]
    if "" in names or len(set(names)) != len(names):
        raise UsageError(
            f"--keep_fields must name each column once, as caption,year:int; got {text}"
        )
    return tuple(fields)
