"""One run at a time for each output."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.pipelines.run_lock import lock_path, only_run
from recordmill.records.errors import UsageError

HOLD = """
import sys, time
from recordmill.pipelines.run_lock import only_run
with only_run(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def hold(output: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, output], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_run_is_refused_and_the_next_one_is_not(tmp_path: Path, temporary: Path) -> None:
    with only_run(str(tmp_path / "ds")):
        refused = pytest.raises(UsageError, match=r"another run is writing to .*ds; wait for its")
        with refused, only_run(f"{tmp_path}/x/../ds"):
            pass
        with only_run(str(tmp_path / "other")):
            assert len(list(temporary.iterdir())) == 2
    assert list(temporary.iterdir()) == []
    with only_run(str(tmp_path / "ds")):
        pass
    assert list(temporary.iterdir()) == []


def test_a_run_of_another_process_is_noticed_until_it_is_killed(
    tmp_path: Path, temporary: Path
) -> None:
    output = str(tmp_path / "ds")
    process = hold(output)
    try:
        with pytest.raises(UsageError, match="another run"), only_run(output):
            pass
    finally:
        process.kill()
        process.communicate()
    assert len(list(temporary.iterdir())) == 1  # a killed process cannot remove its file
    with only_run(output):
        pass
    assert list(temporary.iterdir()) == []


def test_the_lock_is_released_after_an_error(tmp_path: Path, temporary: Path) -> None:
    with pytest.raises(ZeroDivisionError), only_run(str(tmp_path / "ds")):
        raise ZeroDivisionError
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_file_of_another_user_is_no_obstacle(tmp_path: Path) -> None:
    output = str(tmp_path / "ds")
    Path(lock_path(output)).touch(mode=0o000)
    with only_run(output):
        assert Path(f"{lock_path(output)}.{os.getuid()}").exists()


def test_a_folder_that_is_missing_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    refused = pytest.raises(UsageError, match=r"cannot be locked: .*; set TMPDIR")
    with refused, only_run(str(tmp_path / "ds")):
        pass
