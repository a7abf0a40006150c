"""Where two values of JSON differ, as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_MOST = 120
MISSING: Any = ...  # no value of JSON


def value_differences(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields the path of each difference, and the values there; `MISSING` where there is none."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            inside = f"{path}.{key}" if path else str(key)
            if key not in first or key not in second:
                yield inside, first.get(key, MISSING), second.get(key, MISSING)
            else:
                yield from value_differences(first[key], second[key], inside)
    elif first != second:
        yield path, first, second


def value_text(value: Any) -> str:
    """Returns a value in one short line; "-" for one that is missing."""
    if value is MISSING:
        return "-"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
