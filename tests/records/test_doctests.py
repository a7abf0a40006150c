"""Runs the examples in the docstrings of `records`."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import recordmill.records

FOLDER = Path(recordmill.records.__file__).parent
MODULES = sorted(
    ".".join(("recordmill.records", *path.relative_to(FOLDER).with_suffix("").parts))
    for path in FOLDER.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


def test_there_are_examples() -> None:
    assert "recordmill.records.shards" in MODULES


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
