"""The rules of the house: layering, what is installed, and what importing costs."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("records", "reader", "transforms", "pipelines")
# What a package may import beside itself; the longest prefix of a module's name decides.
ALLOWED = {
    "records": (),
    "records.codec": ("records",),
    "reader": ("records",),
    "transforms": ("records", "transforms"),
    "transforms.elements": ("records",),
    "transforms.storage": ("records",),
    "transforms.dataset": ("records", "transforms.storage"),
    "transforms.sources": (
        "records", "transforms.elements", "transforms.storage", "transforms.dataset",
        "transforms.shuffle",
    ),
    "transforms.subwords": (
        "records", "transforms.storage", "transforms.dataset", "transforms.sources",
    ),
    "transforms.shuffle": ("records", "transforms.storage", "transforms.dataset"),
    "transforms.examples": (
        "records", "transforms.storage", "transforms.dataset", "transforms.sources",
        "transforms.shuffle",
    ),
    "transforms.text": (
        "records", "transforms.elements", "transforms.storage", "transforms.dataset",
        "transforms.sources", "transforms.subwords", "transforms.shuffle",
    ),
    "transforms.images": (
        "records", "transforms.elements", "transforms.storage", "transforms.dataset",
        "transforms.sources",
    ),
    "transforms.images.listing": (
        "records", "transforms.elements", "transforms.storage", "transforms.dataset",
        "transforms.sources",
        "transforms.images",
    ),
    "transforms.vocabulary": (
        "records", "transforms.storage", "transforms.dataset", "transforms.sources",
        "transforms.subwords", "transforms.shuffle", "transforms.text",
    ),
    "pipelines": ("records", "reader", "transforms"),
}  # fmt: skip
# What may be imported where, of the libraries that are large or belong to one layer.
KEPT_OUT = {
    "records": ("apache_beam", "tensorflow", "numba", "llvmlite"),
    "records.codec": ("apache_beam", "tensorflow"),
    "reader": ("apache_beam", "numba"),
}


def module_files() -> dict[str, Path]:
    """Every module that is installed, by its name without `recordmill.`."""
    found = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = module_files()


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere in it, also late ones and those for types alone."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = (node.module or "").removeprefix("recordmill.")
            for alias in node.names:
                below = f"{module}.{alias.name}"
                names.add(f"recordmill.{below}" if below in MODULES else node.module or "")
    return names


def own_imports(path: Path) -> set[str]:
    """The modules of ours among them, without `recordmill.`."""
    return {
        name.removeprefix("recordmill.")
        for name in imported(path)
        if name.startswith("recordmill.")
    }


def longest_prefix(module: str, prefixes: Iterable[str]) -> str:
    """The longest of `prefixes` that `module` is, or lies below."""
    fitting = [p for p in prefixes if module == p or module.startswith(f"{p}.")]
    return max(fitting, key=len, default="")


@pytest.mark.parametrize("module", sorted(MODULES))
def test_layering(module: str) -> None:
    room = longest_prefix(module, ALLOWED)
    kept_out = KEPT_OUT.get(longest_prefix(module, KEPT_OUT), ())
    for name in imported(MODULES[module]):
        top = name.partition(".")[0]
        assert top not in FOLDERS, f"{module} imports {name} under its bare name"
        assert top not in kept_out, f"{module} imports {name}"
    for name in own_imports(MODULES[module]):
        other = longest_prefix(name, ALLOWED)
        assert other == room or longest_prefix(other, ALLOWED[room]), f"{module} imports {name}"


def test_no_circles() -> None:
    """Packages re-export names by strings, so that only modules import each other."""
    imports = {module: own_imports(path) - {module} for module, path in MODULES.items()}
    while free := [module for module, names in imports.items() if not names & imports.keys()]:
        for module in free:
            del imports[module]
    assert not imports, f"these import each other: {imports}"


def test_no_folder_shadows_the_package() -> None:
    assert not (ROOT / "recordmill").exists()


def test_reader_is_light() -> None:
    code = (
        "import sys, recordmill.reader; "
        "heavy = ('apache_beam', 'tensorflow', 'numba', 'tokenizers'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_a_users_own_folder_of_the_same_name_does_not_matter(tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("raise ImportError('the wrong one')")
    modules = "reader", "transforms.text.build_text_shards", "pipelines.text"
    code = "import " + ", ".join(f"recordmill.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def _distributed() -> set[str]:
    """Returns the files of the packages, relative to the repository."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyi", ".j2", ".json") or path.name == "py.typed"
    }


@pytest.mark.slow
def test_wheel_contents(tmp_path: Path) -> None:
    # setuptools adds to what an earlier build has left there, such as modules that have moved.
    shutil.rmtree(ROOT / "build/lib", ignore_errors=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert names == {f"recordmill/{path}" for path in _distributed()}


@pytest.mark.slow
def test_source_distribution_contents(tmp_path: Path) -> None:
    code = "from setuptools import build_meta; import sys; build_meta.build_sdist(sys.argv[1])"
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, copy)
    for folder in (*FOLDERS, "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    line = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(line, check=True, cwd=copy, capture_output=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {n.name.partition("/")[2] for n in archive if n.isfile()}
    own = {n for n in names if not n.startswith("recordmill.egg-info/")}
    others = {"setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"}
    assert own - {"MANIFEST.in"} == _distributed() | others


def test_a_class_name_exists_once() -> None:
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {name: where for name, where in places.items() if len(where) > 1}
