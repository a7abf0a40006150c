"""Files made wrong, for property tests: another type at some path, cut, nested, or other bytes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_DEPTH = 100_000
_DEEP: Any = object()  # stands for a list of 100,000 levels
_GONE: Any = object()  # stands for a key or item that is taken out
WRONG_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, -1e308, 1e300, 2**31, 2**62, 2**64, 10**400,
    float("nan"), float("inf"), "", "x", "-1", "nan", "a\nb", "\u2028", "\0", "../x", "\ud800",
    [], [[]], [None], ["x"], [1e300] * 6, {}, {"": None}, {"size": [1e300, -1], "counts": [1e300]},
    _DEEP, _GONE,
)  # fmt: skip


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the paths of all values inside of a JSON value, and its own."""
    yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from paths_of(inner, (*path, key))


def with_value(content: Any, path: tuple[Any, ...], value: Any) -> bytes:
    """Returns JSON with another value at a path."""
    content = copy.deepcopy(content)
    deep = value is _DEEP
    value = "DEEP" if deep else value
    if not path:
        content = None if value is _GONE else value
    else:
        parent = content
        for key in path[:-1]:
            parent = parent[key]
        if value is _GONE:
            del parent[path[-1]]
        else:
            parent[path[-1]] = value
    data = json.dumps(content).encode()
    return data.replace(b'"DEEP"', b"[" * _DEPTH + b"]" * _DEPTH) if deep else data


@st.composite
def wrong_json(draw: st.DrawFn, content: Any) -> bytes:
    """Draws a file that is wrong, or at least another one."""
    kind = draw(st.sampled_from(("value", "value", "value", "value", "cut", "bytes")))
    if kind == "value":
        path = draw(st.sampled_from(list(paths_of(content))))
        return with_value(content, path, draw(st.sampled_from(WRONG_VALUES)))
    return draw(wrong_bytes(json.dumps(content).encode()))


@st.composite
def wrong_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Draws some bytes cut, or with others in them."""
    at = draw(st.integers(0, len(data)))
    if draw(st.booleans()):
        return data[:at]
    return data[:at] + draw(st.binary(max_size=8)) + data[at + draw(st.integers(0, 8)) :]
