"""Every reason that is given is one that is explained, and none is explained that nobody gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from recordmill.transforms.dataset.rejects import REASONS

ROOT = Path(__file__).parents[3]
# Which argument is the reason.
PLACES = {"ImageRejectedError": 0, "ListedReject": 1, "Reject": 3, "reject": 2}


def modules() -> Iterator[ast.Module]:
    for folder in ("transforms", "pipelines"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "rejects.py":
                yield ast.parse(path.read_text(encoding="utf-8"))


def given() -> set[str]:
    """The reasons that stand in calls as they are."""
    found = set()
    for module in modules():
        for node in ast.walk(module):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            for argument in node.args[PLACES.get(name, len(node.args)) :][:1]:
                if isinstance(argument, ast.Constant):
                    found.add(argument.value)
    return found


def test_reasons_given_are_explained() -> None:
    assert len(given()) > 20
    assert given() <= REASONS.keys()


def test_reasons_explained_are_given() -> None:
    constants = {
        node.value.partition(":")[0]  # "reason: detail", as a parser returns them
        for module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert REASONS.keys() <= constants
