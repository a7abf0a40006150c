"""Text from a stranger: compressed to nothing, without content, outside of the input, no file."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import random
from contextlib import closing
from pathlib import Path

import pytest
from backports import zstd

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import FILTERS
from recordmill.transforms.sources.document_spec import DocumentLimits, DocumentSpec
from recordmill.transforms.sources.documents import read_documents
from recordmill.transforms.sources.source_list import SourceList
from recordmill.transforms.sources.tables import read_rows
from recordmill.transforms.sources.work_items import SourceRange, list_sources

COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress}
DENSE = b"some words\n\n" + bytes(70 << 20)


def source_of(path: Path, data: bytes, compression: str = "") -> SourceRange:
    path.write_bytes(data)
    return SourceRange(str(path), path.name, "text", compression, len(data))


@pytest.mark.parametrize("compression", COMPRESS)
def test_a_bomb_is_read_up_to_its_limit_and_rejected(tmp_path: Path, compression: str) -> None:
    source = source_of(tmp_path / "x.txt", COMPRESS[compression](DENSE), compression)
    assert source.size < 100_000
    batches = list(read_documents(source, DocumentSpec()))
    [reject] = [reject for batch in batches for reject in batch.rejects]
    assert reject.reason == "decompression_bomb"
    assert "see --max_compression_ratio" in reject.detail
    read = sum(int((batch.lines.ends - batch.lines.starts).sum()) for batch in batches)
    assert read == (64 << 20) - 2  # without line ends
    spec = DocumentSpec(max_compression_ratio=10_000_000)
    assert not any(batch.rejects for batch in read_documents(source, spec))


def test_the_limit_does_not_depend_on_blocks(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x.txt", zstd.compress(DENSE), "zst")
    found = set()
    for block in (1 << 20, 3_000_001):
        batches = read_documents(source, DocumentSpec(), limits=DocumentLimits(block_bytes=block))
        rejects = [(r.position, r.reason, r.detail) for batch in batches for r in batch.rejects]
        found.add(tuple(rejects))
    assert len(found) == 1


def test_the_ratio_must_be_a_number() -> None:
    with pytest.raises(UsageError, match="max_compression_ratio must be at least 1, got 0"):
        DocumentSpec(max_compression_ratio=0)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [(bytes(1 << 20), 12), (b" " * (1 << 20), 12), ((bytes(100) + b"\n") * 10_000, 12),
     ((b" \n") * 500_000, 1)],
    ids=["nul", "space", "short", "blank"],
)  # fmt: skip
def test_text_without_content_is_not_held(tmp_path: Path, line: bytes, wanted: int) -> None:
    source = source_of(tmp_path / "x.txt", b"word\n" + line * 20)
    spec = DocumentSpec(documents="file")
    batches = list(read_documents(source, spec))
    longest = max(len(batch.lines.buffer) for batch in batches)
    assert longest <= 9 << 20
    assert sum(len(batch.keys) for batch in batches) >= min(wanted, 2)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("documents", ["blank_line", "file", "line"])
def test_groups_of_such_text_do_not_depend_on_blocks(
    tmp_path: Path, seed: int, documents: str
) -> None:
    draw = random.Random(seed)
    parts = [b"\0" * 9, b"   ", b"ab c", b"\n", b"\n\n", b"d" * 20, b"\0\n", "\u2003\n".encode()]
    data = b"".join(draw.choice(parts) for _ in range(200))
    source = source_of(tmp_path / "x.txt", data)
    found = set()
    for block, held in itertools.product((7, 64, 5000), (1, 60, 5000)):
        limits = DocumentLimits(
            block_bytes=block, open_document_bytes=held, line_bytes=24, paragraph_lines=3,
            hashed_bytes=16, hashed_within_bytes=40,
        )  # fmt: skip
        groups: dict[int, int] = {}
        for batch in read_documents(source, DocumentSpec(documents=documents), limits=limits):
            for key, group in zip(batch.keys.tolist(), batch.groups.tolist(), strict=True):
                assert groups.setdefault(key, group) == group
        found.add(tuple(sorted(groups.items())))
    assert len(found) == 1


def test_empty_lines_of_json_cost_nothing_each(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n" * 3_000_000 + b'{"text": "a b"}\n\n\r\n')
    source = SourceRange(str(path), "x", "jsonl", "", path.stat().st_size)
    assert sum(len(batch.keys) for batch in read_documents(source, DocumentSpec())) == 1


class TestListing:
    def test_links_outside_are_rejects(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        (tmp_path / "in/a.txt").write_text("a")
        (tmp_path / "b.txt").write_text("b")
        (tmp_path / "in/b.txt").symlink_to("../b.txt")
        (tmp_path / "in/c.txt").symlink_to("a.txt")
        with closing(SourceList(list_sources([f"{tmp_path}/in/*.txt"]))) as sources:
            found = {source.name: source for source in sources}
        assert {name: bool(source.outside) for name, source in found.items()} == {
            "a.txt": False, "b.txt": True, "c.txt": False,
        }  # fmt: skip
        [batch] = read_documents(found["b.txt"], DocumentSpec())
        assert [(r.reason, len(batch.keys)) for r in batch.rejects] == [("outside_input", 0)]
        assert f"--allow_outside={str(tmp_path)[:40]}" in batch.rejects[0].detail  # a detail is cut
        allowed = list_sources([f"{tmp_path}/in/*.txt"], allow_outside=[str(tmp_path)])
        assert [source.outside for source in allowed] == ["", "", ""]
        [named] = list_sources([f"{tmp_path}/in/b.txt"])  # the user knows what it is
        assert not named.outside

    def test_odd_files_are_counted_or_refused(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "f.txt")
        (tmp_path / "a.txt").write_text("a")
        passed: list[tuple[str, str]] = []
        found = list_sources([f"{tmp_path}/*.txt"], pass_over=lambda *each: passed.append(each))
        assert [source.name for source in found] == ["a.txt"]
        assert passed == [("not_regular", f"{tmp_path}/f.txt")]
        with pytest.raises(UsageError, match=r"--input .*f.txt is a fifo, and only regular files"):
            list(list_sources([f"{tmp_path}/f.txt"]))
        assert "not_regular" in FILTERS

    def test_one_that_became_a_fifo_is_a_reject(self, tmp_path: Path) -> None:
        source = source_of(tmp_path / "x.txt", b"words\n")
        os.remove(source.path)
        os.mkfifo(source.path)
        [batch] = read_documents(source, DocumentSpec())
        assert [reject.reason for reject in batch.rejects] == ["unreadable_file"]

    def test_a_folder_that_exists_wins_over_a_glob(self, tmp_path: Path) -> None:
        for name in ("set[12]", "set1"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.txt").write_text(name)
        [found] = list_sources([f"{tmp_path}/set[12]/*.txt"])
        assert found.path == f"{tmp_path}/set[12]/a.txt"
        [found] = list_sources([f"{tmp_path}/set[12]"])
        assert found.path == f"{tmp_path}/set[12]/a.txt"

    @pytest.mark.parametrize("end", ["", "/"])
    def test_a_folder_is_all_files_below_it(self, tmp_path: Path, end: str) -> None:
        for name in ("b.txt", "deep/er/a.jsonl", ".git/config", "deep/.hidden", "Thumbs.db"):
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / name).write_text(name)
        passed: list[tuple[str, str]] = []
        listed = list_sources([f"{tmp_path}/in{end}"], pass_over=lambda *each: passed.append(each))
        found = list(listed)
        assert [each.name for each in found] == ["b.txt", "deep/er/a.jsonl"]
        assert sorted(passed) == [("hidden", name) for name in (".git", ".hidden", "Thumbs.db")]


class TestTables:
    @pytest.mark.parametrize("name", ["t.csv.zst", "t.jsonl.gz"])
    def test_a_bomb_is_refused(self, tmp_path: Path, name: str) -> None:
        compress = COMPRESS[name.rpartition(".")[2]]
        lines = b"path,label\n" + (b"x" * 999 + b"\n") * 70_000
        (tmp_path / name).write_bytes(compress(lines))
        with pytest.raises(UsageError, match="unpack to more than"):
            list(read_rows(f"{tmp_path}/{name}"))

    def test_a_line_without_end_is_refused(self, tmp_path: Path) -> None:
        with (tmp_path / "t.csv").open("wb") as handle:
            handle.write(b"path,label\n")
            handle.truncate(1 << 30)  # sparse
        with pytest.raises(UsageError, match="has a line of more than 64 MiB"):
            list(read_rows(f"{tmp_path}/t.csv"))


def test_columns_count_as_compressed(tmp_path: Path) -> None:
    """So that the flag has an effect where they are all that there is."""
    for name, counts in (("a.parquet", True), ("a.arrow", True), ("a.txt", False)):
        path = tmp_path / name
        path.write_bytes(b"x")
        sources = SourceList(list_sources([str(path)]))
        assert sources.is_compressed is counts
        sources.close()
