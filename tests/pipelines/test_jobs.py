"""What holds for every job: the same bytes always, nothing half-written, a run that can go on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems

from recordmill.pipelines import launch
from recordmill.pipelines.command_line import main
from recordmill.transforms import commit, files, shard_files

from .conftest import Written
from .jobs import manifest, shard_bytes


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder whose path is short, as sockets need it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


class TestSameBytes:
    def test_reference_is_worth_comparing(self, small: Written) -> None:
        splits = [name.partition("/")[0] for name in small.shards]
        assert splits.count("train") == 5
        assert splits.count("validation") >= 1
        assert len(set(small.shards.values())) == len(small.shards)

    def test_two_workers(
        self, small: Written, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        assert small.case.run(small.source, tmp_path / "ds", workers=2) == 0
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert list(temporary.iterdir()) == []

    def test_replayed_bundles(self, small: Written, tmp_path: Path) -> None:
        flags = (*small.flags, "--direct_runner_bundle_repeat=2")
        assert small.case.run(small.source, tmp_path / "ds", *flags) == 0
        assert shard_bytes(tmp_path / "ds") == small.shards

    def test_another_place_and_temp_dir(self, small: Written, tmp_path: Path) -> None:
        moved = Path(shutil.copytree(small.source, tmp_path / "elsewhere"))
        flags = (*small.flags, f"--temp_dir={tmp_path}/temp")
        assert small.case.run(moved, tmp_path / "ds", *flags) == 0
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert list((tmp_path / "temp").rglob("*.*")) == []

    def test_another_seed_is_another_order(self, small: Written, tmp_path: Path) -> None:
        flags = (*small.flags, "--random_seed=7")
        assert small.case.run(small.source, tmp_path / "ds", *flags) == 0
        assert shard_bytes(tmp_path / "ds") != small.shards
        assert shard_bytes(tmp_path / "ds").keys() == small.shards.keys()


class TestRestart:
    def test_same_command_again_says_so(
        self, small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert small.case.run(small.source, tmp_path / "ds") == 0
        assert small.case.run(small.source, tmp_path / "ds") == 0
        assert "complete: nothing to do" in capsys.readouterr().out
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert main(["verify", str(tmp_path / "ds")]) == 0

    def test_finished_shards_are_not_built_again(
        self, small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        output = tmp_path / "ds"
        with monkeypatch.context() as patched:
            patched.setattr(commit, "_publish", lambda *_: 1 / 0)
            assert small.case.run(small.source, output) == 1
        assert not list(output.glob("train*"))
        monkeypatch.setattr(shard_files, "ShardWriter", lambda *_: pytest.fail("built again"))
        assert small.case.run(small.source, output) == 0
        assert shard_bytes(output) == small.shards

    def test_failing_rename(
        self,
        small: Written,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        output = tmp_path / "ds"
        rename = FileSystems.rename

        def failing(sources: list[str], targets: list[str]) -> None:
            if targets[0].endswith("train-00002-of-00005.tfrecords"):
                raise OSError(5, "Input/output error")
            rename(sources, targets)

        monkeypatch.setattr(FileSystems, "rename", failing)
        assert small.case.run(small.source, output) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("recordmill: cannot rename")
        assert "Input/output error" in error
        assert not (output / "_SUCCESS").exists()
        assert not list(output.glob("train*"))
        monkeypatch.setattr(FileSystems, "rename", rename)
        assert small.case.run(small.source, output) == 0
        assert shard_bytes(output) == small.shards

    def test_full_disk(self, small: Written, tmp_path: Path) -> None:
        output = tmp_path / "ds"
        line = small.case.line(small.source, output, workers=1)
        shell = 'ulimit -f 20; trap "" XFSZ; exec "$@"'
        ended = subprocess.run(
            ["bash", "-c", shell, "bash", *line], capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 1, ended.stderr
        assert "no space left while writing" in ended.stderr.splitlines()[-1]
        assert "Traceback" not in ended.stderr
        assert not (output / "_SUCCESS").exists()
        assert not list(output.glob("train*"))
        assert small.case.run(small.source, output) == 0
        assert shard_bytes(output) == small.shards

    def test_another_configuration_is_refused_and_overwrite_replaces(
        self, small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output, case = tmp_path / "ds", small.case
        assert case.run(small.source, output) == 0
        (output / "notes.txt").write_text("mine")
        assert case.run(small.source, output, *case.fewer) == 2
        assert "--overwrite to replace it" in capsys.readouterr().err
        (output / "_SUCCESS").unlink()
        assert case.run(small.source, output, *case.fewer) == 2
        assert "--overwrite to replace it" in capsys.readouterr().err
        assert case.run(small.source, output, *case.fewer, "--overwrite") == 0
        assert sorted(shard_bytes(output)) == [
            f"train/train-0000{i}-of-00002.tfrecords" for i in range(2)
        ]
        assert (output / "notes.txt").read_text() == "mine"
        assert not (output / "validation").exists()
        listed = {*shard_bytes(output), *manifest(output)["files"]}
        listed |= {"_SUCCESS", "_meta/manifest.json", "notes.txt"}
        there = {str(p.relative_to(output)) for p in output.rglob("*") if p.is_file()}
        assert there == listed

    def test_a_broken_shard_does_not_survive_a_second_run(
        self, small: Written, tmp_path: Path
    ) -> None:
        output = tmp_path / "ds"
        assert small.case.run(small.source, output) == 0
        shard = output / "train/train-00001-of-00005.tfrecords"
        data = bytearray(shard.read_bytes())
        data[100] ^= 1
        shard.write_bytes(bytes(data))
        (output / "_SUCCESS").unlink()
        assert small.case.run(small.source, output) == 0
        assert shard_bytes(output) == small.shards

    def test_an_engine_that_fails_behind_the_commit_has_done_its_work(
        self, small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(commit, "clean_up", lambda _: 1 / 0)
        assert small.case.run(small.source, tmp_path / "ds") == 0
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert not (tmp_path / "ds/_tmp").exists()

    @pytest.mark.parametrize("left", ["plan.json", "shards.json", "of_recordmill"])
    def test_killed_while_cleaning_up(
        self, small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
    ) -> None:
        output = tmp_path / "ds"
        with monkeypatch.context() as patched:
            for module in (commit, launch):
                patched.setattr(module, "clean_up", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                small.case.run(small.source, output, *small.flags, "--overwrite")
        assert (output / "_SUCCESS").exists()
        if left != "plan.json":  # the plan goes first, the mark last, and anything may be left
            for path in (output / "_tmp").rglob("*"):
                if path.is_file() and path.name not in (left, "of_recordmill"):
                    path.unlink()
        assert small.case.run(small.source, output) == 0
        assert shard_bytes(output) == small.shards
        assert not (output / "_tmp").exists()

    def test_what_others_put_there_is_not_deleted(
        self, small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        mine = tmp_path / "ds/_tmp/mine.txt"
        mine.parent.mkdir(parents=True)
        mine.write_text("mine")
        assert small.case.run(small.source, tmp_path / "ds") == 2
        assert "is needed for temporary files, and holds others" in capsys.readouterr().err
        assert mine.read_text() == "mine"

    def test_changed_input_is_not_finished(
        self,
        small: Written,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        source = Path(shutil.copytree(small.source, tmp_path / "input"))
        with monkeypatch.context() as patched:
            patched.setattr(commit, "_publish", lambda *_: 1 / 0)
            assert small.case.run(source, tmp_path / "ds") == 1
        path = sorted(source.glob(small.case.pattern))[0]
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(data)
        assert small.case.run(source, tmp_path / "ds") == 2
        assert "the input changed" in capsys.readouterr().err
        flags = (*small.flags, "--overwrite", "--max_rejected=1")
        assert small.case.run(source, tmp_path / "ds", *flags) == 0


def _descendants(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    children = [int(child) for child in found.split()]
    return children + [below for child in children for below in _descendants(child)]


def _kill_at_some_moment(process: subprocess.Popen[str], output: Path, seed: int) -> bool:
    """Kills the driver, or one of its processes; returns whether it was the driver."""
    rng = random.Random(seed)
    kill_driver = seed % 2 == 0
    files_until = rng.randrange(0, 24)
    while process.poll() is None:
        done = sum(
            name.endswith(".json") for _, _, names in os.walk(output / "_tmp") for name in names
        )
        others = _descendants(process.pid)
        if done >= files_until and len(others) > 2:
            time.sleep(rng.random() * 0.3)
            pid = process.pid if kill_driver else rng.choice(_descendants(process.pid) or others)
            subprocess.run(["kill", "-9", str(pid)], capture_output=True)
            break
        time.sleep(0.02)
    return kill_driver


@contextmanager
def _group(line: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command whose processes are all gone at the end, whatever happens."""
    process = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _killed(big: Written, output: Path, seed: int) -> None:
    line = big.case.line(big.source, output, *big.flags, workers=2)
    with _group(line) as process:
        kill_driver = _kill_at_some_moment(process, output, seed)
        text = process.communicate(timeout=240)[0]
    assert "Traceback" not in text
    if process.returncode == 0:  # it was faster than the kill
        assert shard_bytes(output) == big.shards
        return
    if not kill_driver:
        assert process.returncode == 1
        assert "run the same command again" in text.splitlines()[-1]
    if not (output / "_SUCCESS").exists():
        assert not list(output.glob("train/*")) or len(shard_bytes(output)) == 12
    with _group(line) as again:
        text = again.communicate(timeout=400)[0]
    assert again.returncode == 0, text
    assert shard_bytes(output) == big.shards
    assert not (output / "_tmp").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_at_any_moment(
    written: Callable[[str, str], Written], tmp_path: Path, seed: int
) -> None:
    _killed(written("text", "big"), tmp_path / "ds", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_images_killed_at_any_moment(
    written: Callable[[str, str], Written], tmp_path: Path, seed: int
) -> None:
    _killed(written("images", "big"), tmp_path / "ds", seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_ended_by_a_signal(
    written: Callable[[str, str], Written],
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    ending: signal.Signals,
    status: int,
) -> None:
    big, output = written("text", "big"), tmp_path / "ds"
    monkeypatch.setenv("TMPDIR", str(temporary))
    line = big.case.line(big.source, output, *big.flags, workers=2)
    with _group(line) as process:
        while process.poll() is None and not (output / "_tmp/plan.json").exists():
            time.sleep(0.02)
        time.sleep(0.3)
        os.killpg(process.pid, ending)  # as a terminal or a scheduler does
        text = process.communicate(timeout=60)[0]
        assert process.returncode == status, text
    assert "run the same command again to go on" in text.splitlines()[-1]
    assert "Traceback" not in text
    assert list(temporary.iterdir()) == []
    with _group(line) as again:
        text = again.communicate(timeout=400)[0]
    assert again.returncode == 0, text
    assert shard_bytes(output) == big.shards
    assert list(temporary.iterdir()) == []


def test_second_run_at_once_is_refused(
    big: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "ds"
    line = big.case.line(big.source, output, *big.flags, workers=1)
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and not (output / "_tmp/plan.json").exists():
            time.sleep(0.02)
        assert big.case.run(big.source, output, *big.flags) == 2
        assert "another run is writing" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()


def test_temporary_files_of_a_run_that_failed_are_replaced(small: Written, tmp_path: Path) -> None:
    output, case = tmp_path / "ds", small.case
    broken = Path(shutil.copytree(small.source, tmp_path / "input"))
    victim = sorted(broken.glob(case.pattern))[0]
    victim.write_bytes(b"\xff\xfe\xfd\n" * 100)
    assert case.run(broken, output) == 1
    assert case.run(small.source, output) == 2
    assert case.run(small.source, output, *small.flags, "--overwrite") == 0
    assert shard_bytes(output) == small.shards
    assert files.list_files(f"{output}/_tmp") == {}


def test_overwrite_after_too_many_rejects_begins_anew(small: Written, tmp_path: Path) -> None:
    output, case = tmp_path / "ds", small.case
    source = Path(shutil.copytree(small.source, tmp_path / "input"))
    victim = sorted(source.glob(case.pattern))[0]
    whole = victim.read_bytes()
    stamp: Any = victim.stat()
    victim.write_bytes(b"\xff" * len(whole))
    os.utime(victim, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # as on storage without times
    assert case.run(source, output) == 1
    victim.write_bytes(whole)
    os.utime(victim, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert case.run(source, output, *small.flags, "--overwrite") == 0
    assert shard_bytes(output) == small.shards


def test_overwrite_removes_what_a_killed_commit_published(
    small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, case = tmp_path / "ds", small.case
    with monkeypatch.context() as patched:
        patched.setattr(commit, "Manifest", lambda **_: 1 / 0)  # shards are at their places
        assert case.run(small.source, output) == 1
    assert len(shard_bytes(output)) == len(small.shards)
    assert case.run(small.source, output, *case.fewer, "--overwrite") == 0
    assert len(shard_bytes(output)) == 2
    assert not (output / "validation").exists()
    assert main(["verify", str(output)]) == 0


def test_another_temp_dir_does_not_throw_an_unfinished_run_away(
    small: Written,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output, case = tmp_path / "ds", small.case
    one, other = (f"--temp_dir={tmp_path}/{name}" for name in ("one", "other"))
    with monkeypatch.context() as patched:
        patched.setattr(commit, "_publish", lambda *_: 1 / 0)
        assert case.run(small.source, output, *small.flags, one) == 1
    assert case.run(small.source, output, *small.flags, other) == 2
    assert "finish it with its own --temp_dir" in capsys.readouterr().err
    assert case.run(small.source, output, *small.flags, other, "--overwrite") == 0
    assert shard_bytes(output) == small.shards
    assert list((tmp_path / "one").rglob("*.*")) == []
