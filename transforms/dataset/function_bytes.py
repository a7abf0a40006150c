"""Functions as bytes, for processes that have another `__main__` than the one that made them."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle


def function_bytes(function: Any) -> bytes:
    """Returns a function, also of a notebook or script, with what it refers to there.

    Raises:
      Exception: of any type: something that it refers to cannot be pickled.
    """
    data: bytes = cloudpickle.dumps(function)
    return data


def function_of(data: bytes) -> Any:
    """Returns what `function_bytes` took."""
    return pickle.loads(data)
