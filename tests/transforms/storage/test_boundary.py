"""What lies inside of an input: links resolved, "..", remote paths, many files of one folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recordmill.transforms.storage.boundary import Boundary


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("in/a/x", "in/y", "out/z", "inside-not/q"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "in/to_a").symlink_to("a")
    (tmp_path / "in/to_y").symlink_to("y")
    (tmp_path / "in/to_out").symlink_to("../out")
    (tmp_path / "in/to_z").symlink_to("../out/z")
    (tmp_path / "in/chain").symlink_to("to_z")
    (tmp_path / "also").symlink_to("in")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("in/y", True),
        ("in/a/x", True),
        ("in/to_a/x", True),
        ("in/to_y", True),
        ("in/none", True),
        ("also/y", True),
        ("in/a/../y", True),
        ("in/to_out/z", False),
        ("in/to_z", False),
        ("in/chain", False),
        ("in/to_a/../../out/z", False),
        ("in/..", False),
        ("in/../out/z", False),
        ("inside-not/q", False),
        ("in/nul\0byte", True),
    ],
)
def test_links_are_resolved(tree: Path, path: str, inside: bool) -> None:
    assert Boundary([f"{tree}/in"]).holds(f"{tree}/{path}") is inside
    assert Boundary([f"{tree}/also"]).holds(f"{tree}/{path}") is inside
    assert Boundary([f"{tree}/in"], [str(tree)]).holds(f"{tree}/{path}")
    assert Boundary(["/"]).holds(f"{tree}/{path}")


def test_remote_paths_are_compared_as_text() -> None:
    boundary = Boundary(["gs://b/in/", "/data"])
    assert boundary.holds("gs://b/in/a.jpg")
    assert not boundary.holds("gs://b/inner/a.jpg")
    assert not boundary.holds("gs://other/in/a.jpg")
    assert not boundary.holds("gs://b/in/../x")
    assert not Boundary(["/data"]).holds("file:///data/x")


def test_a_folder_is_resolved_once(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    resolve = os.path.realpath

    def counted(path: str) -> str:
        asked.append(path)
        return resolve(path)

    monkeypatch.setattr(os.path, "realpath", counted)
    boundary = Boundary([f"{tree}/in"])
    for number in range(1000):
        assert boundary.holds(f"{tree}/in/a/{number}.jpg")
    assert len(asked) == 2
