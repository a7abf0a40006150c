"""JSON that any parser reads: JSON has no NaN and no infinity."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(content: Any) -> str:
    """Returns a value as indented JSON, in which "NaN", "Infinity" and "-Infinity" are texts, as in
    protobuf's JSON."""
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
