"""One run at a time for each output."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.pipelines import run_lock
from recordmill.pipelines.run_lock import LOCK, lock_path, only_run
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


def hold(output: str, **environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, output],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    assert process.stdout
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_run_is_refused_and_the_next_one_is_not(tmp_path: Path) -> None:
    output = tmp_path / "ds"
    with only_run(str(output)):
        assert (output / LOCK).stat().st_mode & 0o777 == 0o600
        refused = pytest.raises(UsageError, match=r"another run is writing to .*ds; wait for its")
        with refused, only_run(f"{tmp_path}/tmp/../ds"):
            pass
        with only_run(str(tmp_path / "other")):
            pass
    assert not output.exists()
    with only_run(str(output)):
        pass
    assert not output.exists()


def test_what_lies_in_the_output_stays(tmp_path: Path) -> None:
    output = tmp_path / "a/b/ds"
    with only_run(str(output)):
        (output / "mine").touch()
    assert [path.name for path in output.iterdir()] == ["mine"]


def test_neither_another_tmpdir_nor_a_link_gets_around_it(tmp_path: Path) -> None:
    output = tmp_path / "ds"
    output.mkdir()
    (tmp_path / "link").symlink_to(output)
    (tmp_path / "slurm").mkdir()
    process = hold(str(tmp_path / "link"), TMPDIR=str(tmp_path / "slurm"))
    try:
        with pytest.raises(UsageError, match="another run is writing"), only_run(str(output)):
            pass
    finally:
        process.kill()
        process.communicate()


def test_a_run_of_another_process_is_noticed_until_it_is_killed(tmp_path: Path) -> None:
    output = str(tmp_path / "ds")
    process = hold(output)
    try:
        with pytest.raises(UsageError, match="another run"), only_run(output):
            pass
    finally:
        process.kill()
        process.communicate()
    assert os.listdir(output) == [LOCK]  # a killed process cannot remove its file
    with only_run(output):
        pass
    assert os.listdir(output) == []


def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), only_run(str(tmp_path / "ds")):
        raise ZeroDivisionError
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("kind", ["link", "second name", "folder", "fifo"])
def test_what_is_no_lock_is_not_followed(tmp_path: Path, kind: str) -> None:
    victim, lock = tmp_path / "victim", tmp_path / "ds" / LOCK
    victim.write_text("precious")
    lock.parent.mkdir()
    if kind == "link":
        lock.symlink_to(victim)
    elif kind == "second name":
        lock.hardlink_to(victim)
    elif kind == "folder":
        lock.mkdir()
    else:
        os.mkfifo(lock)
    refused = pytest.raises(UsageError, match="is no file of recordmill")
    with refused, only_run(str(lock.parent)):
        pass
    assert victim.read_text() == "precious"
    assert os.path.lexists(lock)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_lock_of_another_user_is_named(tmp_path: Path) -> None:
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / LOCK).touch(mode=0o000)
    with pytest.raises(UsageError, match=r"belongs to .*: another run"), only_run(f"{tmp_path}/ds"):
        pass


def test_an_output_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(UsageError, match=r"--output .*/file/ds cannot be written: ")
    with refused, only_run(str(tmp_path / "file/ds")):
        pass


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(run_lock.fcntl, "flock", none)
    with only_run(str(tmp_path / "ds")):
        pass
    assert "has no locks; see that no second run" in capsys.readouterr().err


def test_runs_of_one_machine_on_object_storage(temporary: Path) -> None:
    with only_run("gs://bucket/ds"):
        assert os.path.dirname(lock_path("gs://bucket/ds/")).startswith(str(temporary))
        with pytest.raises(UsageError, match="another run"), only_run("gs://bucket/ds/"):
            pass
    os.chmod(os.path.dirname(lock_path("gs://bucket/ds")), 0o777)
    with pytest.raises(UsageError, match="nobody else can write"), only_run("gs://bucket/ds"):
        pass
