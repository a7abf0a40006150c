"""The rules of the house: layering, what is installed, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("records", "reader", "transforms", "pipelines")
ALLOWED = {
    "records": {"records"},
    "reader": {"reader", "records"},
    "transforms": {"transforms", "records"},
    "pipelines": {"pipelines", "transforms", "records", "reader"},
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("folder", FOLDERS)
def test_layering(folder: str) -> None:
    for path in (ROOT / folder).glob("*.py"):
        for name in imported(path):
            top, _, rest = name.partition(".")
            assert top not in FOLDERS, f"{path} imports {name} under its bare name"
            if top == "recordmill":
                assert rest.partition(".")[0] in ALLOWED[folder], f"{path} imports {name}"
            if folder in ("records", "reader"):
                assert top != "apache_beam", f"{path} imports Beam"


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
    code = "import recordmill.reader, recordmill.transforms.build, recordmill.pipelines.text"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


@pytest.mark.slow
def test_wheel_contents(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    wanted = {
        f"recordmill/{folder}/{path.name}"
        for folder in FOLDERS
        for path in (ROOT / folder).iterdir()
        if path.suffix == ".py" or path.name == "py.typed"
    }
    assert names == wanted
