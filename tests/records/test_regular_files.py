"""Nothing blocks that is opened: fifos, devices, sockets and files of the kernel are told first."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from recordmill.records.regular_files import NotRegularError
from recordmill.transforms.storage import files
from recordmill.transforms.storage.globs import NOT_REGULAR, Finder


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    os.mkfifo(tmp_path / "fifo.txt")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    (tmp_path / "memory.txt").symlink_to("/proc/self/mem")
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.txt")
    (tmp_path / "a.txt").write_text("words")
    return tmp_path


KINDS = {
    "fifo.txt": "a fifo",
    "zero.txt": "a device",
    "memory.txt": "a file of the kernel",
    "socket.txt": "a socket",
}


@pytest.mark.parametrize("name", KINDS)
def test_opening_says_what_it_is(odd: Path, name: str) -> None:
    path = f"{odd}/{name}"
    for read in (files.open_read, files.read_bytes):
        with pytest.raises(NotRegularError, match=f"{KINDS[name]}.*only regular files are read"):
            read(path)


def test_regular_files_and_folders_open_as_ever(odd: Path) -> None:
    with files.open_read(f"{odd}/a.txt", 1) as handle:
        assert handle.read() == b"ords"
        assert os.get_blocking(handle.fileno()) or handle.read() == b""
    with pytest.raises(NotRegularError, match="a folder, and only regular files are read"):
        files.open_read(str(odd))
    with pytest.raises(FileNotFoundError):
        files.open_read(f"{odd}/none")


def test_globs_mark_them(odd: Path) -> None:
    sizes = {os.path.basename(f.path): f.size for f in Finder().find(f"{odd}/*")}
    assert sizes == {"a.txt": 5} | dict.fromkeys(KINDS, NOT_REGULAR)


@pytest.mark.parametrize("name", KINDS)
def test_one_that_is_named_is_refused(odd: Path, name: str) -> None:
    with pytest.raises(NotRegularError, match=KINDS[name]):
        list(Finder().find(f"{odd}/{name}"))
