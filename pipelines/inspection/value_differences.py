"""Where two values of JSON differ, as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_MOST = 120


def value_differences(first: Any, second: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yields the path of each difference, and the two values there; "-" for one that is missing."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            inside = f"{path}.{key}" if path else str(key)
            if key not in first or key not in second:
                yield inside, _text(first.get(key, ...)), _text(second.get(key, ...))
            else:
                yield from value_differences(first[key], second[key], inside)
    elif first != second:
        yield path, _text(first), _text(second)


def _text(value: Any) -> str:
    if value is ...:
        return "-"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
