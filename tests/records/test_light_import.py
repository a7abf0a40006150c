"""What `pip install recordmill` alone must be able to import: no numba, no Beam, no TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import recordmill.reader
import recordmill.records

BLOCKER = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)

sys.meta_path.insert(0, Blocker())
for name in {modules!r}:
    importlib.import_module(name)
print("imported")
"""


def modules_of(package: str, folder: Path, without: str = "") -> list[str]:
    names = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if parts[0] != without:
            names.append(".".join((package, *(p for p in parts if p != "__init__"))))
    return names


def folder_of(package: object) -> Path:
    return Path(package.__path__[0])  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "blocked"),
    [
        (
            modules_of("recordmill.records", folder_of(recordmill.records), without="codec"),
            ("numba", "llvmlite", "apache_beam", "tensorflow"),
        ),
        (["recordmill.reader"], ("numba", "llvmlite", "apache_beam")),
        (
            modules_of("recordmill.reader", folder_of(recordmill.reader)),
            ("numba", "llvmlite", "apache_beam"),
        ),
    ],
    ids=["records", "reader", "all of reader"],
)
def test_imports_without(modules: list[str], blocked: tuple[str, ...]) -> None:
    assert modules
    code = BLOCKER.format(blocked=blocked, modules=modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "imported"
