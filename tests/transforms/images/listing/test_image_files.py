from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.images.listing.entries import Entry, Listing
from recordmill.transforms.images.listing.image_files import find_entries, find_files
from recordmill.transforms.images.references import ListedReject
from recordmill.transforms.sources.work_items import list_sources

from ..image_trees import Shelf, fill


def names(*patterns: str, listing: Listing | None = None) -> list[str]:
    return [name for name, _ in find_files(patterns, listing or Listing())]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    paths=st.sets(
        st.lists(st.sampled_from(["a", "b", "a-b", "ab.x", "[c]"]), min_size=1, max_size=4).map(
            "/".join
        ),
        min_size=1,
    ),
    patterns=st.lists(
        st.sampled_from(
            ["*", "**", "*/*", "a/*", "a*/b*", "*/?/*", "[ab]*", "**/b", "a/**", "*b/*/*", "a/b"]
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_globs_mean_what_they_mean_in_the_text_job(tmp_path_factory, paths, patterns):
    folder = tmp_path_factory.mktemp("tree")
    taken: set[str] = set()
    for path in sorted(paths):
        if not any(
            f"{other}/".startswith(f"{path}/") or path.startswith(f"{other}/") for other in taken
        ):
            fill(folder, path)
            taken.add(path)
    globs = [f"{folder}/{pattern}" for pattern in patterns if not (folder / pattern).is_dir()]
    try:
        expected = [source.name for source in list_sources(globs)]
    except (UsageError, IndexError):
        return
    assert sorted(names(*globs)) == expected
    found = [file.path for _, file in find_files(globs, Listing())]
    assert found == sorted(set(found))


def test_files_are_found_with_size_and_stamp_in_order_of_path(tmp_path: Path):
    fill(tmp_path, "b/x.jpg", "a/y.jpg", "a-b/z.jpg", "a.jpg")
    os.utime(tmp_path / "a.jpg", ns=(5, 7))
    found = dict(find_files([f"{tmp_path}/**"], Listing()))
    assert list(found) == ["a-b/z.jpg", "a.jpg", "a/y.jpg", "b/x.jpg"]
    assert found["a.jpg"] == (f"{tmp_path}/a.jpg", 5, 7)


def test_a_folder_stands_for_all_below_it(tmp_path: Path, monkeypatch):
    fill(tmp_path, "in/a.jpg", "in/sub/b.jpg")
    for pattern in (f"{tmp_path}/in", f"{tmp_path}/in/"):
        assert names(pattern) == ["a.jpg", "sub/b.jpg"]
    monkeypatch.chdir(tmp_path)
    assert names("in") == ["a.jpg", "sub/b.jpg"]
    assert names(".") == ["in/a.jpg", "in/sub/b.jpg"]
    monkeypatch.chdir(tmp_path / "in")
    assert names("*.jpg") == ["a.jpg"]


def test_several_globs_share_a_root_and_find_each_file_once(tmp_path: Path):
    fill(tmp_path, "one/a.jpg", "other/a.jpg")
    patterns = [f"{tmp_path}/other/*", f"{tmp_path}/one/*", f"{tmp_path}/one/a.jpg"]
    for order in (patterns, patterns[::-1]):
        assert names(*order) == ["one/a.jpg", "other/a.jpg"]


def test_hidden_files_and_other_endings_are_counted(tmp_path: Path):
    fill(tmp_path, "a.jpg", ".DS_Store", "Thumbs.db", "README", "a.txt", ".git/x.jpg", "B.JPEG")
    listing = Listing()
    entries = list(find_entries([str(tmp_path)], listing))
    assert [entry.name for entry in entries] == ["B.JPEG", "a.jpg"]
    assert listing.filtered == {"hidden": 3, "no_image_extension": 2}


def test_what_is_used_is_told(tmp_path: Path):
    fill(tmp_path, "a.jpg", "b.txt")
    seen = []
    listing = Listing(on_file=lambda *file: seen.append(file))
    list(find_entries([str(tmp_path)], listing))
    stamp = (tmp_path / "a.jpg").stat().st_mtime_ns
    assert seen == [(f"{tmp_path}/a.jpg", 5, stamp)]


def test_links_are_followed_but_not_in_circles(tmp_path: Path):
    fill(tmp_path, "in/a/x.jpg", "far/y.jpg")
    (tmp_path / "in/b").symlink_to(tmp_path / "far")
    (tmp_path / "in/a/up").symlink_to(tmp_path / "in")
    (tmp_path / "in/gone.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "in/self.jpg").symlink_to(tmp_path / "in/self.jpg")
    entries = list(find_entries([f"{tmp_path}/in"], Listing()))
    assert [e.name for e in entries if isinstance(e, Entry)] == ["a/x.jpg", "b/y.jpg"]
    rejects = [e for e in entries if isinstance(e, ListedReject)]
    assert rejects == [
        ListedReject(name, "no_image", "a link to nothing") for name in ("gone.jpg", "self.jpg")
    ]


def test_a_name_that_is_no_text_is_rejected(tmp_path: Path):
    (tmp_path / os.fsdecode(b"a\xff.jpg")).touch()
    fill(tmp_path, "b.jpg")
    first, second = find_entries([str(tmp_path)], Listing())
    assert isinstance(first, ListedReject)
    assert (first.source, first.reason) == ("a\\udcff.jpg", "bad_name")
    assert isinstance(second, Entry)


def test_folders_that_cannot_match_are_not_opened(tmp_path: Path, monkeypatch):
    fill(tmp_path, "a/x.jpg", "b/x.jpg", "a/deep/x.jpg", "ab/x.jpg")
    opened: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: opened.append(path) or scandir(path))
    assert names(f"{tmp_path}/a*/*.jpg") == ["a/x.jpg", "ab/x.jpg"]
    assert opened == [f"{tmp_path}", f"{tmp_path}/a", f"{tmp_path}/ab"]


def test_large_folders_are_sorted_through_files(tmp_path: Path):
    fill(tmp_path, *(f"{i}/{j}.jpg" for i in range(3) for j in range(20)))
    expected = names(str(tmp_path))
    assert names(str(tmp_path), listing=Listing(held_bytes=1)) == expected
    nowhere = Listing(held_bytes=1, scratch=f"{tmp_path}/nowhere")
    with pytest.raises(RunError, match="cannot sort the listing of the input"):
        names(str(tmp_path), listing=nowhere)


def test_errors(tmp_path: Path):
    fill(tmp_path, "in/a.jpg")
    for pattern in (f"{tmp_path}/no*.jpg", f"{tmp_path}/nowhere/*", f"{tmp_path}/in/b.jpg"):
        with pytest.raises(UsageError, match=r"^--input .* matches no file$"):
            names(f"{tmp_path}/in/*", pattern)
    with pytest.raises(UsageError, match=r"--input nowhere://x/\* cannot be listed: "):
        names("nowhere://x/*")


class TestOtherFileSystems:
    @pytest.fixture(autouse=True)
    def objects(self, monkeypatch):
        stored = {
            f"shelf://b/in/{name}": b"abc" for name in ("z/b.jpg", "a.jpg", "z/.x.jpg", "a.txt")
        }
        monkeypatch.setattr(Shelf, "objects", stored)

    @pytest.mark.parametrize("pattern", ["shelf://b/in/**", "shelf://b/in", "shelf://b/in/"])
    def test_objects_are_listed_in_order_of_path(self, pattern):
        listing = Listing()
        assert names(pattern, listing=listing) == ["a.jpg", "a.txt", "z/b.jpg"]
        assert listing.filtered == {"hidden": 1}

    def test_globs(self):
        assert names("shelf://b/in/*.jpg") == ["a.jpg"]
        assert names("shelf://b/in/*/*.jpg") == ["z/b.jpg"]
        assert names("shelf://b/in/a.jpg") == ["a.jpg"]
        [(_, found)] = find_files(["shelf://b/in/a.jpg"], Listing())
        assert found == ("shelf://b/in/a.jpg", 3, 7_500_000_000)
        with pytest.raises(UsageError, match="matches no file"):
            names("shelf://b/out/*")
