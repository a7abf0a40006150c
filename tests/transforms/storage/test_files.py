from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from backports import zstd

from recordmill.records.errors import RunError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.array_files import write_array
from recordmill.transforms.storage.unpacking import open_decompressed


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestWriting:
    def test_appears_whole_when_it_is_finished(self, tmp_path: Path):
        path = str(tmp_path / "a" / "b.bin")
        with files.writing(path) as handle:
            handle.write(b"one")
            assert not os.path.exists(path)
            handle.write(b"two")
        assert Path(path).read_bytes() == b"onetwo"
        assert names(tmp_path) == ["a/b.bin"]

    def test_waits_in_the_partial_folder(self, tmp_path: Path):
        with files.writing(str(tmp_path / "a.bin"), str(tmp_path / "partial")) as handle:
            handle.write(b"x")
            handle.flush()
            [name] = names(tmp_path)
            assert name.startswith("partial/.a.bin.")
        assert names(tmp_path) == ["a.bin"]

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
    def test_an_error_leaves_nothing_but_what_was_there(self, tmp_path: Path, error):
        path = tmp_path / "a.bin"
        for before in (None, b"old"):
            if before:
                path.write_bytes(before)
            with pytest.raises(error):
                self.write_and_fail(str(path), error)
            assert names(tmp_path) == (["a.bin"] if before else [])
        assert path.read_bytes() == b"old"

    @staticmethod
    def write_and_fail(path: str, error: type[BaseException]) -> None:
        with files.writing(path) as handle:
            handle.write(b"new")
            raise error

    def test_replaces_an_older_file(self, tmp_path: Path):
        path = str(tmp_path / "a.bin")
        files.write_bytes(path, b"old")
        files.write_bytes(path, b"new")
        assert files.read_bytes(path) == b"new"

    def test_a_name_without_a_folder(self, tmp_path: Path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        files.write_bytes("a.bin", b"x")
        assert names(tmp_path) == ["a.bin"]

    def test_a_rename_that_fails_says_why(self, tmp_path: Path):
        target = tmp_path / "a.bin"
        (target / "full").mkdir(parents=True)
        with pytest.raises(RunError, match=r"cannot rename .*\.tmp to .*a\.bin: .*irectory.*again"):
            files.write_bytes(str(target), b"x")
        assert names(tmp_path) == []

    def test_a_full_disk_is_one_line_and_leaves_nothing(self, tmp_path: Path):
        script = """
            import resource, signal, sys
            from recordmill.records.errors import RunError
            from recordmill.transforms.storage import files
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            try:
                files.write_bytes(sys.argv[1], b"x" * 3_000_000)
            except RunError as error:
                print(error)
        """
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "a.bin")],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert result.stdout.startswith(f"no space left while writing {tmp_path}/a.bin: free some")
        assert result.stdout.count("\n") == 1
        assert names(tmp_path) == []


class TestReading:
    def test_ranges(self, tmp_path: Path):
        path = str(tmp_path / "a")
        files.write_bytes(path, b"0123456789")
        assert files.read_bytes(path) == b"0123456789"
        assert files.read_bytes(path, 3) == b"3456789"
        assert files.read_bytes(path, 3, 4) == b"3456"
        assert files.read_bytes(path, 8, 9) == b"89"
        assert files.size(path) == 10
        assert files.size(path + "x") == -1

    @pytest.mark.parametrize(
        ("kind", "compress"),
        [("", bytes), ("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress),
         ("zst", zstd.compress)],
    )  # fmt: skip
    def test_decompression(self, kind, compress):
        rng = np.random.default_rng(1)
        parts = [rng.integers(97, 105, 300_000).astype(np.uint8).tobytes(), b"end"]
        for data in (compress(parts[0] + parts[1]), compress(parts[0]) + compress(parts[1])):
            assert open_decompressed(io.BytesIO(data), kind).read() == b"".join(parts)
            stream = open_decompressed(io.BytesIO(data), kind)
            found = []
            while block := stream.read(7919):
                found.append(block)
            assert b"".join(found) == b"".join(parts)

    @pytest.mark.parametrize("cut", [1, 3, 9, 1000, -1, -5])
    def test_a_cut_zstandard_file_is_an_error(self, cut):
        rng = np.random.default_rng(1)
        data = zstd.compress(rng.integers(0, 255, 300_000).astype(np.uint8).tobytes())
        with pytest.raises(EOFError, match="Compressed file ended before the end-of-stream marker"):
            open_decompressed(io.BytesIO(data[:cut]), "zst").read()


def test_write_array(tmp_path: Path):
    array = np.arange(3_000_000, dtype=np.uint16)
    with files.writing(str(tmp_path / "a")) as handle:
        write_array(handle, array)
        write_array(handle, array[:0])
    assert np.array_equal(np.fromfile(tmp_path / "a", np.uint16), array)


@pytest.mark.parametrize(
    ("base", "parts", "joined"),
    [
        ("/a", ["b", "c"], "/a/b/c"),
        ("/a/", ["b"], "/a/b"),
        ("/", ["b"], "/b"),
        ("gs://bucket", ["b"], "gs://bucket/b"),
        ("a", ["b"], "a/b"),
    ],
)
def test_join(base, parts, joined):
    assert files.join(base, *parts) == joined


def test_folders(tmp_path: Path):
    folder = str(tmp_path / "f")
    assert files.list_files(folder) == {}
    files.delete_folder(folder)
    files.write_bytes(f"{folder}/a", b"1")
    files.write_bytes(f"{folder}/b/c", b"22")
    assert files.list_files(folder) == {f"{folder}/a": 1, f"{folder}/b/c": 2}
    files.delete_quietly([f"{folder}/a", f"{folder}/gone"])
    assert files.list_files(folder) == {f"{folder}/b/c": 2}
    files.delete_folder(folder)
    assert not os.path.exists(folder)
