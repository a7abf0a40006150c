from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordmill.records.errors import UsageError
from recordmill.transforms.sources.formats import CutOptions
from recordmill.transforms.sources.item_cutting import cut_work_items
from recordmill.transforms.sources.work_items import SourceRange, list_sources


def fill(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"text\n" * len(name))
    return folder


class TestListing:
    def test_names_are_relative_to_the_folder_before_the_wildcard(self, tmp_path: Path):
        fill(tmp_path, "in/b.txt", "in/a.txt", "in/c.md")
        found = list(list_sources([f"{tmp_path}/in/*.txt"]))
        assert [source.name for source in found] == ["a.txt", "b.txt"]
        assert [source.path for source in found] == [f"{tmp_path}/in/a.txt", f"{tmp_path}/in/b.txt"]
        assert found[0].size == 40
        found = list_sources([f"{tmp_path}/*/*.txt"])
        assert [source.name for source in found] == ["in/a.txt", "in/b.txt"]
        assert [source.name for source in list_sources([f"{tmp_path}/in/a.txt"])] == ["a.txt"]

    def test_several_patterns_share_a_root_and_files_are_listed_once(self, tmp_path: Path):
        fill(tmp_path, "one/a.txt", "other/a.txt")
        patterns = [f"{tmp_path}/other/*", f"{tmp_path}/one/*", f"{tmp_path}/one/a.txt"]
        for order in (patterns, patterns[::-1]):
            assert [s.name for s in list_sources(order)] == ["one/a.txt", "other/a.txt"]

    def test_moving_the_input_changes_no_name(self, tmp_path: Path):
        fill(tmp_path, "x/in/a.txt", "x/in/sub/b.txt")
        before = list(list_sources([f"{tmp_path}/x/in/*.txt", f"{tmp_path}/x/in/sub/*"]))
        shutil.move(tmp_path / "x", tmp_path / "elsewhere")
        after = list_sources([f"{tmp_path}/elsewhere/in/*.txt", f"{tmp_path}/elsewhere/in/sub/*"])
        assert [s.name for s in before] == [s.name for s in after] == ["a.txt", "sub/b.txt"]

    def test_relative_patterns(self, tmp_path: Path, monkeypatch):
        fill(tmp_path, "in/a.txt")
        monkeypatch.chdir(tmp_path)
        assert [source.name for source in list_sources(["in/*.txt"])] == ["a.txt"]
        monkeypatch.chdir(tmp_path / "in")
        assert [source.name for source in list_sources(["*.txt"])] == ["a.txt"]
        assert [source.name for source in list_sources(["a.txt"])] == ["a.txt"]

    def test_a_file_is_read_once_however_it_is_spelled(self, tmp_path: Path, monkeypatch):
        fill(tmp_path, "in/a.txt", "in/b.txt")
        monkeypatch.chdir(tmp_path)
        spelled = ["in/*.txt", "./in/a.txt", f"{tmp_path}/in//*.txt", f"{tmp_path}/./in/b.txt"]
        assert [source.name for source in list_sources(spelled)] == ["a.txt", "b.txt"]

    @pytest.mark.parametrize(
        ("name", "kind", "compression"),
        [
            ("a.txt", "text", ""),
            ("a", "text", ""),
            ("a.md.GZ", "text", "gz"),
            ("a.jsonl", "jsonl", ""),
            ("a.ndjson.zst", "jsonl", "zst"),
            ("a.CSV.bz2", "csv", "bz2"),
            ("a.tsv.xz", "tsv", "xz"),
            ("a.gz", "text", "gz"),
        ],
    )
    def test_formats_by_ending(self, tmp_path: Path, name, kind, compression):
        fill(tmp_path, name)
        [source] = list_sources([f"{tmp_path}/{name}"])
        assert (source.format, source.compression) == (kind, compression)
        [source] = list_sources([f"{tmp_path}/{name}"], input_format="text")
        assert (source.format, source.compression) == ("text", compression)

    def test_folders_are_no_files(self, tmp_path: Path):
        fill(tmp_path, "in/a.txt", "in/sub/b.txt")
        assert [source.name for source in list_sources([f"{tmp_path}/in/*"])] == ["a.txt"]

    def test_errors(self, tmp_path: Path):
        fill(tmp_path, "in/a.txt")
        (tmp_path / "empty.txt").touch()
        with pytest.raises(UsageError, match=r"--input .*/no\*\.txt matches no file$"):
            next(list_sources([f"{tmp_path}/no*.txt"]))
        (tmp_path / "none").mkdir()
        with pytest.raises(UsageError, match=r"--input .*/none has no file in it$"):
            next(list_sources([f"{tmp_path}/none"]))
        with pytest.raises(UsageError, match=r"--input .*empty\.txt matches only empty files"):
            list(list_sources([f"{tmp_path}/empty.txt"]))
        with pytest.raises(UsageError, match="--input nowhere://x/\\* cannot be listed: "):
            next(list_sources(["nowhere://x/*"]))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.integers(0, 2000), min_size=1, max_size=12),
    target=st.integers(1, 1500),
    splittable=st.booleans(),
    compressed=st.booleans(),
)
def test_tasks_cover_every_byte_once(sizes, target, splittable, compressed):
    kind = "gz" if compressed else ""
    sources = [SourceRange(f"/{i}", f"{i}", "text", kind, size) for i, size in enumerate(sizes)]
    work_items = list(cut_work_items(sources, target, CutOptions(splittable)))
    assert all(work_items)
    pieces = [piece for task in work_items for piece in task]
    for source in sources:
        mine = [piece for piece in pieces if piece.name == source.name]
        if len(mine) == 1:
            assert mine == [source]
            continue
        assert splittable
        assert not compressed
        assert mine[0].start == 0
        assert mine[-1].end == source.size
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert max(piece.text_bytes for piece in mine) <= target
    for task in work_items:
        assert len(task) == 1 or sum(piece.text_bytes for piece in task) <= target
    for before, after in pairwise(work_items):
        assert sum(p.text_bytes for p in before) + after[0].text_bytes > target


def test_text_bytes():
    source = SourceRange("/a.gz", "a.gz", "text", "gz", 100)
    assert source.text_bytes == 400
    assert SourceRange("/a", "a", "text", "", 100).text_bytes == 100
    assert SourceRange("/a", "a", "text", "", 100, 10, 30).text_bytes == 20


def test_csv_ranges_begin_with_records(tmp_path: Path):
    rows = [b"text", b'"a\n\nb"', b'"c\n"', b"d"] * 10
    data = b"\n".join(rows) + b"\n"
    (tmp_path / "a.csv").write_bytes(data)
    begins = {0}
    for row in rows:
        begins.add(max(begins) + len(row) + 1)
    sources = list_sources([f"{tmp_path}/a.csv"])
    work_items = cut_work_items(sources, 16)
    pieces = [piece for task in work_items for piece in task]
    assert len(pieces) > 5
    assert {piece.start for piece in pieces} <= begins
    assert [piece.end for piece in pieces] == [*(p.start for p in pieces[1:]), len(data)]
