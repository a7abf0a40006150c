"""Conditions on records, such as `label==3 and image/width>=640`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.records.errors import UsageError
from recordmill.records.schema import Schema

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*(len\()?\s*([^\s()=!<>~]+)\s*\)?\s*(==|!=|<=|>=|<|>|~)\s*(.+?)\s*")

Condition = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Comparison:
    """A part of a condition: a feature, or the number of its values, compared with something.

    Attributes:
      name: of the feature.
      of_length: not the values are compared, but their number.
      sign: one of the operators, or "~" for a regular expression.
      wanted: what the values are compared with, as it was written.
    """

    name: str
    of_length: bool
    sign: str
    wanted: str

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Tells whether a value of a record fulfils it; `values` is feature -> list or array.

        Raises:
          UsageError: the feature has numbers, and they are compared with text.
        """
        given = values.get(self.name, ())
        if self.of_length and self.sign != "~":
            given = np.array([len(given)])
        if isinstance(given, list) or self.sign == "~":
            return any(map(self.holds_for_text, given))
        return bool(np.any(self.holds_for_numbers(np.asarray(given))))

    def holds_for_text(self, value: object) -> bool:
        """Tells whether a value as text fulfils it."""
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if self._pattern is not None:
            return bool(self._pattern.search(text))
        return bool(_OPERATORS[self.sign](text, self.wanted))

    def holds_for_numbers(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Tells for each number whether it fulfils it.

        Raises:
          UsageError: it compares with text.
        """
        if self._pattern is not None:
            return np.array([self.holds_for_text(value) for value in values.tolist()], np.bool_)
        holds = _OPERATORS[self.sign](values, _number(self.name, self.wanted))
        return np.asarray(holds, np.bool_)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if self.sign != "~":
            return None
        try:
            return re.compile(self.wanted)
        except re.error as error:
            raise UsageError(
                f"--where: {self.wanted!r} is no regular expression: {error}"
            ) from error


def parse_condition(text: str, schema: Schema | None) -> Condition:
    """Returns what tells whether the values of a record fulfil all parts of a condition.

    Args:
      text: of the condition, as `parse_comparisons` takes it.
      schema: see there.

    Raises:
      UsageError: it is no condition, or names a feature that the dataset lacks.
    """
    parts = parse_comparisons(text, schema)
    return lambda values: all(part.holds(values) for part in parts)


def parse_comparisons(text: str, schema: Schema | None) -> tuple[Comparison, ...]:
    """Returns the parts of a condition.

    A part compares a feature, or `len(feature)`, with a number, a text, or the name of a class;
    `~` is a regular expression that the text contains. A feature of several values fulfils a part
    if one of them does. Parts are joined by `and`.

    Args:
      text: of the condition.
      schema: of the dataset; its class names may stand for their numbers, and only its features
        are known. None accepts any feature.

    Raises:
      UsageError: it is no condition, or names a feature that the dataset lacks.
    """
    return tuple(_parse_part(part, schema) for part in re.split(r"\s+and\s+", text))


def _parse_part(text: str, schema: Schema | None) -> Comparison:
    parsed = _CONDITION.fullmatch(text)
    if not parsed:
        raise UsageError(
            "--where must be FEATURE OPERATOR VALUE, such as 'label==3' or 'len(objects/label)>5', "
            f"joined by 'and', got {text!r}"
        )
    length, name, sign, wanted = parsed.groups()
    wanted = wanted.strip("'\"")
    names = [feature.name for feature in schema.features] if schema else None
    if names is not None and name not in names:
        raise UsageError(f"--where must name a feature, got {name!r}; there are {', '.join(names)}")
    if schema and not length and wanted in schema[name].classes:
        wanted = str(schema[name].classes.index(wanted))
    part = Comparison(name, bool(length), sign, wanted)
    part.holds_for_text("")  # finds what is no regular expression
    if part.of_length and sign != "~":
        part.holds_for_numbers(np.zeros(1, np.int64))
    return part


def _number(name: str, text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        raise UsageError(
            f"--where: {name} has numbers, and {text!r} is none, nor a class of it"
        ) from None
