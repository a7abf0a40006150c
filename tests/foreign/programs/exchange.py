"""How a program of this folder takes its calls, and how it hands back what the readers gave."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""


def stack(rows: Iterable[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Returns `[rows, ...]` for each name; shorter lists of objects get zeros behind them."""
    columns: dict[str, list[np.ndarray]] = {}
    for row in rows:
        for name, value in row.items():
            array = np.asarray(value)
            if array.dtype == object:  # lists of bytes, which numpy stores without pickling as S
                array = array.astype(np.bytes_)
            columns.setdefault(name, []).append(array)
    return {name: np.stack(_same_length(values)) for name, values in columns.items()}


def _same_length(values: list[np.ndarray]) -> list[np.ndarray]:
    if len({value.shape for value in values}) == 1:
        return values
    longest = max(map(len, values))
    rest = [(0, 0)] * (values[0].ndim - 1)
    return [np.pad(value, [(0, longest - len(value)), *rest]) for value in values]


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Returns arrays by path: a pair of image and labels has the names "0/…" and "1/…"."""
    if isinstance(value, dict | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for key, item in items for k, v in flatten(item, f"{name}/{key}").items()}
    # numpy has no bfloat16 of its own, and cannot store it.
    return {name.removeprefix("/"): value.astype(np.float32) if _is_bfloat16(value) else value}


def _is_bfloat16(value: Any) -> bool:
    return str(getattr(value, "dtype", "")) == "bfloat16"


def serve(prepare: Callable[[str], None], read: Callable[..., dict[str, Any]]) -> None:
    """Answers every call of the request; one that raises does not stop the others.

    Args:
      prepare: gets the path of the checkout, "" for an installed package, before the first call.
      read: gets a call's values as keywords, and returns arrays by name.
    """
    with open(sys.argv[1]) as file:
        request = json.load(file)
    prepare(request["checkout"])
    answers: dict[str, Any] = {}
    for number, call in enumerate(request["calls"]):
        try:
            found = read(**call)
        except Exception as error:
            traceback.print_exc()
            found = {"error": np.array(f"{type(error).__name__}: {error}")}
        for name, array in found.items():
            answers[f"{number}/{name}"] = np.asarray(array)
    np.savez(sys.argv[2], **answers)
