"""Sums over the values of features of sampled records, and what a report shows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recordmill.pipelines.inspection.page import Section, Table

_MOST_FEATURES = 200


@dataclass(slots=True)
class Span:
    """Least, mean and greatest of numbers that are added."""

    count: int = 0
    least: float = float("inf")
    most: float = float("-inf")
    total: float = 0.0

    def add(self, numbers: Any) -> None:
        """Adds numbers, of any shape; none may be NaN."""
        if len(numbers):
            self.count += len(numbers)
            self.least = min(self.least, float(np.min(numbers)))
            self.most = max(self.most, float(np.max(numbers)))
            self.total += float(np.sum(numbers, dtype=np.float64))

    def texts(self) -> tuple[str, str, str]:
        """Returns least, mean and greatest, "" where nothing was added."""
        if not self.count:
            return "", "", ""
        return _number(self.least), _number(self.total / self.count), _number(self.most)


@dataclass(slots=True)
class FeatureSums:
    """Of one feature.

    Attributes:
      is_bytes: its values are bytes, of which lengths are added.
      lengths: the number of values of each record that has the feature.
      values: finite numbers, or the lengths of bytes.
      nan, infinite: numbers that are so.
    """

    is_bytes: bool = False
    lengths: Span = field(default_factory=Span)
    values: Span = field(default_factory=Span)
    nan: int = 0
    infinite: int = 0

    def add(self, given: Any) -> None:
        """Adds the values of a record: bytes, or an array of numbers."""
        self.lengths.add([len(given)])
        if isinstance(given, list):
            self.is_bytes |= len(given) > 0  # a list without values may be one of numbers
            self.values.add([len(value) for value in given])
            return
        if given.dtype.kind == "f":
            self.nan += int(np.isnan(given).sum())
            self.infinite += int(np.isinf(given).sum())
            given = given[np.isfinite(given)]
        self.values.add(given)


def add_features(sums: dict[str, FeatureSums], values: Mapping[str, Any]) -> None:
    """Adds the values of a record to the sums of its features, of 200 features at most."""
    for name, given in values.items():
        if name in sums or len(sums) < _MOST_FEATURES:
            sums.setdefault(name, FeatureSums()).add(given)


def values_section(samples: Mapping[str, Any]) -> Section:
    """Returns how long the lists of each feature are, and which numbers they hold.

    Args:
      samples: split -> `SplitSample`.
    """
    section = Section("values", "Values of features")
    several = len(samples) > 1
    rows = []
    for split, sample in samples.items():
        for name, sums in sorted(sample.features.items()):
            least, mean, most = sums.lengths.texts()
            rows.append(
                (
                    f"{split}: {name}" if several else name,
                    f"{sums.lengths.count:,} of {sample.records:,}",
                    least if least == most else f"{least} to {most}, mean {mean}",
                    "bytes of a value" if sums.is_bytes else "numbers",
                    *sums.values.texts(),
                    "" if sums.is_bytes else f"{sums.nan:,}",
                    "" if sums.is_bytes else f"{sums.infinite:,}",
                )
            )
    header = (
        "Feature", "Records with it", "Values in a record", "What", "Least", "Mean", "Most", "NaN",
        "Infinite",
    )  # fmt: skip
    if rows:
        section.tables.append(Table("Values of sampled records", header, rows))
    return section


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:,.5g}"
