"""JSON that any parser reads, and any terminal shows: without NaN, infinity and raw commands."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

_COMMANDS = re.compile(r"[\x7f-\x9f\u2028\u2029]")  # of terminals; JSON itself escapes others


def json_text(content: Any) -> str:
    """Returns a value as indented JSON, in which "NaN", "Infinity" and "-Infinity" are texts, as in
    protobuf's JSON; ASCII where standard output cannot encode all characters."""
    is_ascii = not (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(_finite(content), indent=1, ensure_ascii=is_ascii, allow_nan=False)
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
