"""Finding files: the order of names, what wildcards match, links and circles."""

from __future__ import annotations

import os
import random
import re
import subprocess
import warnings
from pathlib import Path

import pytest
from apache_beam.io.filesystem import FileSystem

from recordmill.records.errors import UsageError
from recordmill.transforms.storage.boundary import Boundary
from recordmill.transforms.storage.globs import (
    BROKEN_LINK,
    OUTSIDE,
    Finder,
    FoundFile,
    Glob,
    common_root,
    glob_root,
    matches_output,
    parse_glob,
    relative,
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for i, name in enumerate(
        ["b/2.txt", "b/10.txt", "a.txt", "b.txt", "b/c/1.txt", ".hidden/x.txt"]
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(i))
    return tmp_path


def names(root: Path, pattern: str, finder: Finder | None = None) -> list[str]:
    found = (finder or Finder()).find(f"{root}/{pattern}")
    return [os.path.relpath(file.path, root) for file in found]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("b/*.txt", ["b/10.txt", "b/2.txt"]),
        ("*/*.txt", [".hidden/x.txt", "b/10.txt", "b/2.txt"]),
        ("**", [".hidden/x.txt", "a.txt", "b.txt", "b/10.txt", "b/2.txt", "b/c/1.txt"]),
        ("b/[0-9]*.txt", ["b/10.txt", "b/2.txt"]),
        ("b/c/1.txt", ["b/c/1.txt"]),
        ("b", []),
        ("none/*.txt", []),
    ],
)
def test_matches_come_in_order_of_path(tree: Path, pattern: str, wanted: list[str]) -> None:
    assert names(tree, pattern) == wanted


def test_patterns_mean_what_beam_takes_them_for() -> None:
    """Random patterns, and for each random paths, most of which are near the pattern."""
    rng = random.Random(7)
    letters = "ab-!^]\\/.*?[\n&|~$"
    compared = matched = refused = 0
    for _ in range(20_000):
        pattern = "".join(rng.choices(letters + "[[]]**", k=rng.randint(1, 9)))
        glob = Glob("s3://c", pattern)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sets that a later Python may read otherwise
            try:
                theirs = re.compile(FileSystem.translate_pattern(glob.pattern)).match
            except re.error:
                refused += 1
                with pytest.raises(UsageError, match="must end behind its beginning"):
                    glob.matches()
                continue
            ours = glob.matches()
        for _ in range(6):
            near = [
                rng.choice(letters) if c in "*?[]!^" or rng.random() < 0.1 else c for c in pattern
            ]
            inside = "".join(c for c in near if rng.random() < 0.8)
            path = f"s3://c/{inside}"
            assert bool(ours(path)) == bool(theirs(path)), (pattern, path)
            compared += 1
            matched += bool(theirs(path))
    assert compared > 100_000
    assert matched > 5_000
    assert refused > 20


def test_a_set_with_special_characters_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matches = Glob("s3://c", "[[a&&b~~||]").matches()
    assert [c for c in "[ab&~|c" if matches(f"s3://c/{c}")] == list("[ab&~|")


def test_sizes_and_times_are_those_of_the_file(tree: Path) -> None:
    path = tree / "b/10.txt"
    (found,) = Finder().find(str(path))
    assert found == FoundFile(str(path), 1, path.stat().st_mtime_ns)


def test_the_order_does_not_depend_on_the_file_system(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = names(tree, "**")
    scandir = os.scandir

    class Shuffled:
        def __init__(self, folder: str) -> None:
            with scandir(folder) as entries:
                self._entries = list(entries)
            random.Random(3).shuffle(self._entries)
            self._entries.reverse()

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self._entries

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Shuffled)
    assert names(tree, "**") == wanted


def test_skipped_names_and_links(tree: Path) -> None:
    (tree / "linked").symlink_to(tree / "b", target_is_directory=True)
    (tree / "b/circle").symlink_to(tree, target_is_directory=True)
    (tree / "broken.txt").symlink_to(tree / "nowhere")
    assert ".hidden/x.txt" not in names(tree, "**", Finder(skip=lambda name: name[0] == "."))
    assert "linked/2.txt" not in names(tree, "**")
    followed = names(tree, "**", Finder(follow_links=True))
    assert "linked/2.txt" in followed
    assert len(followed) < 30  # a circle ends
    sizes = {Path(file.path).name: file.size for file in Finder().find(f"{tree}/*.txt")}
    assert sizes["broken.txt"] == BROKEN_LINK


def test_roots_and_relative_names() -> None:
    assert glob_root("/data/corpus/*/x-?.txt") == "/data/corpus"
    assert glob_root("/data/corpus/a.txt") == "/data/corpus"
    assert common_root(["/data/corpus/a", "/data/corpus/b"]) == "/data/corpus"
    assert relative("/data/corpus/a/1.txt", "/data/corpus") == "a/1.txt"
    assert parse_glob("x/*.txt").pattern == f"{os.getcwd()}/x/*.txt"
    assert parse_glob("gs://bucket/x").pattern == "gs://bucket/x"


@pytest.mark.parametrize(
    ("pattern", "output", "wanted"),
    [("/data/**", "/data/ds", True), ("/data/*.txt", "/data/ds", False), ("/in/**", "/out", False)],
)
def test_an_output_inside_the_input_is_noticed(pattern: str, output: str, wanted: bool) -> None:
    assert matches_output(pattern, output) is wanted


def test_folders_may_be_deeper_than_pythons_stack(tmp_path: Path) -> None:
    depth, here = 1500, os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("a.txt", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    (found,) = Finder().find(f"{tmp_path}/**")
    assert found.path == f"{tmp_path}{'/d' * depth}/a.txt"
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)  # as pytest cannot


@pytest.fixture
def odd_names(tmp_path: Path) -> Path:
    for name in ("set[12]/a.txt", "set1/b.txt", "f[ab].txt", "fa.txt", "q?/c.txt", "qx/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "*.txt").write_bytes(b"x")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("set[12]/*.txt", ["set[12]/a.txt"]),
        ("set[12]/a.txt", ["set[12]/a.txt"]),
        ("set[1-2]/*.txt", ["set1/b.txt"]),
        ("set[12]/**", ["set[12]/a.txt"]),
        ("f[ab].txt", ["f[ab].txt"]),
        ("f[a].txt", ["fa.txt"]),
        ("q?/*", ["q?/c.txt"]),
        ("*.txt", ["*.txt", "f[ab].txt", "fa.txt"]),
    ],
)
def test_a_path_that_exists_wins_over_a_glob(
    odd_names: Path, pattern: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names(odd_names, pattern) == wanted
    monkeypatch.chdir(odd_names)
    relative_ones = [os.path.relpath(file.path, odd_names) for file in Finder().find(pattern)]
    assert relative_ones == wanted
    monkeypatch.chdir(odd_names / "set[12]")  # where we are is no pattern
    assert [os.path.basename(file.path) for file in Finder().find("*.txt")] == ["a.txt"]


def test_links_that_leave_the_boundary_are_marked(tree: Path) -> None:
    root = tree / "b"
    (root / "up").symlink_to(tree, target_is_directory=True)
    (root / "out.txt").symlink_to(tree / "a.txt")
    (root / "in.txt").symlink_to(root / "2.txt")
    (root / "in").symlink_to(root / "c", target_is_directory=True)
    finder = Finder(follow_links=True, boundary=Boundary([str(root)]))
    found = {os.path.relpath(f.path, root): f.size for f in finder.find(f"{root}/**")}
    assert found == {
        "10.txt": 1, "2.txt": 0, "c/1.txt": 4, "in/1.txt": 4, "in.txt": 0, "out.txt": OUTSIDE,
        "up": OUTSIDE,
    }  # fmt: skip
