"""Folders in TMPDIR: those of dead processes go, others stay."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from recordmill.pipelines import temporary_folders

MAKE = """
import time
from recordmill.pipelines.temporary_folders import make_folder
print(make_folder(), flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def dead() -> int:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    return int(ended.stdout)


def test_the_folder_of_a_killed_process_goes_when_it_is_dead(temporary: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    folder = Path(process.stdout.readline().strip())
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "inside").mkdir()
    temporary_folders.remove_leftovers()
    assert folder.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    temporary_folders.remove_leftovers()
    assert not folder.exists()


def test_what_a_dead_process_does_not_own_stays(temporary: Path) -> None:
    pid = dead()
    victim = temporary / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    (temporary / f"recordmill-{pid}-link").symlink_to(victim)
    (temporary / f"recordmill-{pid}-file").touch()
    (temporary / "recordmill-notes").mkdir()
    (temporary / f"recordmill-{os.getpid()}-mine").mkdir()
    held = temporary / f"recordmill-{pid}-held"  # as of another container, whose pids are others
    held.mkdir()
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if os.geteuid() == 0:
        (temporary / f"recordmill-{pid}-others").mkdir()
        os.chown(temporary / f"recordmill-{pid}-others", 65534, 65534)
    before = sorted(temporary.iterdir())
    temporary_folders.remove_leftovers()
    assert sorted(temporary.iterdir()) == before
    assert (victim / "precious").exists()
    os.close(descriptor)
    temporary_folders.remove_leftovers()
    assert not held.exists()


def test_a_folder_is_removed_with_its_lock(temporary: Path) -> None:
    folder = temporary_folders.make_folder()
    descriptors = len(os.listdir("/proc/self/fd"))
    temporary_folders.remove_folder(folder)
    assert list(temporary.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
