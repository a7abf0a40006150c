"""Conditions on records, such as `label==3 and image/width>=640`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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


def parse_condition(text: str, schema: Schema | None) -> Condition:
    """Returns what tells whether the values of a record fulfil all parts of a condition.

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
    parts = [_parse_part(part, schema) for part in re.split(r"\s+and\s+", text)]
    return lambda values: all(part(values) for part in parts)


def _parse_part(text: str, schema: Schema | None) -> Condition:
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
    if sign == "~":
        pattern = _pattern(wanted)
        return lambda values: any(pattern.search(_text(v)) for v in values.get(name, ()))
    compare = _OPERATORS[sign]

    def holds(values: Mapping[str, Any]) -> bool:
        given = values.get(name, ())
        if length:
            given = np.array([len(given)])
        if isinstance(given, list):
            return any(compare(_text(value), wanted) for value in given)
        return bool(np.any(compare(np.asarray(given), _number(name, wanted))))

    return holds


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--where: {text!r} is no regular expression: {error}") from error


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(name: str, text: str) -> float:
    try:
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    except ValueError:
        raise UsageError(
            f"--where: {name} has numbers, and {text!r} is none, nor a class of it"
        ) from None
