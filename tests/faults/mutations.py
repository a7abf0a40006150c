"""Wrong bytes and wrong values, drawn from a seed."""

from __future__ import annotations

import json
import random
from typing import Any

HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63), 1e308, 1e-320, float("nan"), float("inf"),
    "", "\x00", "a\nb", "\u2028", "../../x", "/etc/passwd", "x" * 10_000, "\ud800", [], [[]], {},
    {"a": []}, [None], [1e300, -5], "1e999",
)  # fmt: skip
_HOSTILE_BYTES = (
    b"\x00", b"\xff" * 9, b'"', b"\n", b"\r", b",", b"{", b"[" * 50_000, b"<!--", b"&x;",
    b"\\u0000",
    b"\xef\xbb\xbf", b"\xf0\x9f\x98", b"-1", b"1e999", b"NaN", b"9" * 400, b"<?xml encoding='x'?>",
)  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Returns data with one to four changes; not empty."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(max(1, len(changed)))
        length = rng.choice((1, 4, 16, 512))
        kind = rng.randrange(7)
        if kind == 0 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            changed[at : at + length] = bytes(len(changed[at : at + length]))
        elif kind == 3:
            changed[at:at] = rng.choice(_HOSTILE_BYTES)
        elif kind == 4:
            changed[at : at + length] = rng.randbytes(length)
        elif kind == 5:
            changed[at:at] = changed[at : at + length]
        else:
            del changed[at : at + length]
    return bytes(changed) or b"\x00"


def mutated_json(content: Any, rng: random.Random) -> bytes:
    """Returns JSON text with one value replaced, removed, or nested in itself 100,000 levels."""
    content = json.loads(json.dumps(content))
    places = list(_places(content))
    where, key = rng.choice(places)
    kind = rng.randrange(10)
    if kind == 0:
        del where[key]
    elif kind == 1 and isinstance(where, list):
        where.append(where[key])
    else:
        where[key] = rng.choice(HOSTILE_VALUES)
    text = json.dumps(content)
    if kind == 2:
        text = text.replace("10000", "[" * 100_000, 1) if "10000" in text else "[" * 100_000
    return text.encode("utf-8", "surrogatepass")


def _places(content: Any) -> Any:
    if isinstance(content, dict):
        keys: Any = list(content)
    elif isinstance(content, list):
        keys = range(len(content))
    else:
        return
    for key in keys:
        yield content, key
        yield from _places(content[key])
