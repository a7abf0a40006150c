"""Where machine code is kept: never stale, and out of the reach of other users."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from recordmill.records.codec import jit

KERNELS = "from recordmill.records.codec.jit import kernel\n"
SOURCES = {
    "records/hashing.py": "GOLDEN = 1\n",
    "records/codec/framing.py": KERNELS,
    "transforms/text/masking.py": KERNELS,
    "transforms/images/listing/deep.py": KERNELS,
    "transforms/text/job.py": "import json\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "transforms/text/job.py"])
def test_an_edited_kernel_is_compiled_anew(package: Path, name: str) -> None:
    before = jit.kernel_digest(package)
    assert jit.kernel_digest(package) == before
    (package / name).write_text(SOURCES[name] + "# edited\n")
    assert jit.kernel_digest(package) != before


def test_a_module_without_kernels_does_not_matter(package: Path) -> None:
    before = jit.kernel_digest(package)
    (package / "transforms/text/job.py").write_text("import os\n")
    assert jit.kernel_digest(package) == before


def test_the_digest_covers_every_module_with_kernels() -> None:
    root = Path(jit.__file__).parents[2]
    folders = ("records", "transforms")
    kernels = {
        path.relative_to(root).parts[0]
        for folder in ("records", "reader", "transforms", "pipelines")
        for path in (root / folder).rglob("*.py")
        if "\n@kernel\n" in path.read_text(encoding="utf-8")
    }
    assert kernels <= set(folders)


def add_one(value: int) -> int:
    return value + 1


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other"])
def test_damaged_machine_code_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, damage: str
) -> None:
    monkeypatch.setattr(jit, "_CACHE_FOLDER", str(tmp_path))

    def compiled() -> tuple[int, int]:
        function: Any = jit.kernel(add_one)
        assert function(1) == 2
        return sum(function.stats.cache_hits.values()), sum(function.stats.cache_misses.values())

    assert compiled() == (0, 1)
    assert compiled() == (1, 0)
    (path,) = tmp_path.rglob(f"*.{kind}")
    data = path.read_bytes()
    half = len(data) // 2
    path.write_bytes(
        {
            "empty": b"",
            "cut": data[:half],
            "flipped": data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :],
            "other": b"\x80\x04K\x01.",
        }[damage]
    )
    assert compiled() == (0, 1)
    assert compiled() == (1, 0)


def test_machine_code_lies_in_a_folder_of_mode_0700(tmp_path: Path) -> None:
    folder = Path(jit.cache_folder([tmp_path / "a/recordmill"], "digest"))
    assert folder == tmp_path / "a/recordmill/digest"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("case", ["group writes", "a link", "another owner", "a file"])
def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, other = tmp_path / "cache", tmp_path / "other"
    if case == "group writes":
        base.mkdir()
        base.chmod(0o770)
    elif case == "a link":
        other.mkdir(mode=0o700)
        base.symlink_to(other)
    elif case == "another owner":
        base.mkdir(mode=0o700)
        monkeypatch.setattr(os, "geteuid", lambda: base.stat().st_uid + 1)
        assert jit.cache_folder([base], "digest") == ""
        return
    else:
        base.write_text("")
    assert jit.cache_folder([base], "digest") == ""
    second = tmp_path / "second"
    assert jit.cache_folder([base, second], "digest") == str(second / "digest")
