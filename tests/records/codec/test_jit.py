"""Where machine code is kept: never stale, and out of the reach of other users."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numba
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
        if re.search(r"\n@(kernel|subroutine)\n", path.read_text(encoding="utf-8"))
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


def test_machine_code_of_a_shared_folder_is_read_and_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"

    def compiled(folder: Path, readable: str) -> int:
        monkeypatch.setattr(jit, "_CACHE_FOLDER", str(folder))
        monkeypatch.setattr(jit, "_SHARED_FOLDER", readable)
        function: Any = jit.kernel(add_one)
        assert function(1) == 2
        return sum(function.stats.cache_misses.values())

    assert compiled(shared, "") == 1
    jit.remember("text-bert")
    before = {path: path.read_bytes() for path in shared.rglob("*") if path.is_file()}
    assert compiled(own, str(shared)) == 0
    assert jit.is_compiled("text-bert")
    assert not list(own.rglob("*.nb?"))
    (code,) = shared.rglob("*.nbc")
    code.write_bytes(code.read_bytes()[:-1])
    assert compiled(own, str(shared)) == 1
    assert compiled(own, "") == 0
    code.write_bytes(before[code])
    assert {path: path.read_bytes() for path in shared.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("case", ["own", "group writes", "a link", "another owner", "missing"])
def test_a_shared_folder_is_one_that_only_its_owner_and_root_write_to(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels" / "digest"
    if case == "a link":
        (tmp_path / "other").mkdir(mode=0o755)
        folder.parent.mkdir(mode=0o755)
        folder.symlink_to(tmp_path / "other")
    elif case != "missing":
        folder.mkdir(mode=0o755, parents=True)
        folder.chmod(0o775 if case == "group writes" else 0o755)
    if case == "another owner":
        os.chown(folder, os.geteuid() + 1, -1)
    found = jit.shared_folder(folder.parent, "digest")
    assert found == (str(folder) if case == "own" else "")


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


def test_a_number_that_begins_as_0_compiles_no_second_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "_CACHE_FOLDER", str(tmp_path))

    @jit.subroutine
    def step(at: int) -> int:
        return at + 2

    @jit.kernel
    def walk(end: int) -> int:
        at = 0
        while at < end:
            at = step(at)
        return at

    assert walk(5) == 6
    assert cast(Any, step).signatures == [(numba.int64,)]


def _decorators(part: ast.stmt) -> set[str]:
    listed = part.decorator_list if isinstance(part, ast.FunctionDef) else []
    return {ast.unparse(each) for each in listed}


def test_only_kernels_call_subroutines() -> None:
    """Python that calls one ends by a segmentation fault."""
    root = Path(jit.__file__).parents[2]
    paths = [path for part in ("records", "transforms") for path in (root / part).rglob("*.py")]
    trees = {
        "recordmill." + ".".join(path.relative_to(root).with_suffix("").parts): ast.parse(
            path.read_text(encoding="utf-8")
        )
        for path in paths
    }
    own = {
        module: {
            part.name
            for part in tree.body
            if isinstance(part, ast.FunctionDef) and "subroutine" in _decorators(part)
        }
        for module, tree in trees.items()
    }
    assert sum(map(len, own.values())) > 100
    called = []
    for module, tree in trees.items():
        names = set(own[module])
        for part in tree.body:
            if isinstance(part, ast.ImportFrom):
                names |= {
                    each.name for each in part.names if each.name in own.get(str(part.module), ())
                }
        outside = [part for part in tree.body if not _decorators(part) & {"kernel", "subroutine"}]
        called += [
            f"{module}:{node.lineno} {node.id}"
            for part in outside
            for node in ast.walk(part)
            if isinstance(node, ast.Name) and node.id in names
        ]
    assert not called


_COMPILES = """
import sys, time
from pathlib import Path
from recordmill.records.codec import jit
jit._CACHE_FOLDER = sys.argv[1]

@jit.kernel
def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

Path(sys.argv[2]).touch()
while len(list(Path(sys.argv[1]).glob("ready*"))) < 2:
    time.sleep(0.001)
assert fib(10) == 55
print(sum(fib.stats.cache_misses.values()))
"""


def test_of_processes_at_once_one_compiles(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_COMPILES)
    line = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    begun = [
        subprocess.Popen([*line, f"{tmp_path}/ready{i}"], stdout=subprocess.PIPE) for i in range(2)
    ]
    assert sorted(process.communicate()[0] for process in begun) == [b"0\n", b"1\n"]


def test_a_failed_compilation_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "_CACHE_FOLDER", str(tmp_path))
    function: Any = jit.kernel(add_one)
    with pytest.raises(numba.TypingError):
        function("a text")
    (lock,) = tmp_path.rglob("*.lock")
    with lock.open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_was_compiled_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_CACHE_FOLDER", str(tmp_path))
    assert not jit.is_compiled("text-bert")
    jit.remember("text-bert")
    assert jit.is_compiled("text-bert")
    assert not jit.is_compiled("text-gpt")
    monkeypatch.setattr(jit, "_CACHE_FOLDER", "")
    jit.remember("text-gpt")  # nothing is kept, so nothing is shared
    assert jit.is_compiled("text-gpt")
