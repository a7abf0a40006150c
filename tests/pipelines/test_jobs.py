"""What holds for every job: the same bytes always, nothing half-written, a run that can go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.command_line import main
from recordmill.transforms.dataset import commit, stages
from recordmill.transforms.dataset import shard_writer as shard_files
from recordmill.transforms.dataset.fork_server import socket_folder
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

from .conftest import Written
from .jobs import manifest, shard_bytes, shuffle_listings, twice, unpublished


class TestSameBytes:
    def test_reference_is_worth_comparing(self, small: Written) -> None:
        splits = [name.partition("/")[0] for name in small.shards]
        assert splits.count("train") == 5
        assert splits.count("validation") >= 1
        assert len(set(small.shards.values())) == len(small.shards)

    def test_two_workers(
        self, small: Written, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        socket_folder()  # Python keeps it until this process ends
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        assert small.case.run(small.source, tmp_path / "ds", workers=2) == 0
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert list(temporary.iterdir()) == []

    def test_repeated_items(
        self, small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        do, done = stages.do_item, Counter[str]()

        def repeat(stage: stages.Stage[Any], item: int) -> stages.Done | None:
            do(stage, item)
            done[stage.name] += 1
            return do(stage, item)

        monkeypatch.setattr(stages, "do_item", repeat)
        assert small.case.run(small.source, tmp_path / "ds") == 0
        assert done["Build"] == len(small.shards)
        assert shard_bytes(tmp_path / "ds") == small.shards

    def test_files_in_another_order(
        self, small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listed = shuffle_listings(monkeypatch)
        assert small.case.run(small.source, tmp_path / "ds") == 0
        assert str(small.source) in listed
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


DAMAGES = (
    "deleted", "cut", "no index", "cut index", "half a line", "cut statistics", "no features",
    "other success",
)  # fmt: skip


class TestRestart:
    def test_a_job_of_a_run_that_another_has_committed(
        self, small: Written, tmp_path: Path
    ) -> None:
        with twice():
            assert small.case.run(small.source, tmp_path / "ds") == 0
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert not (tmp_path / "ds/_tmp").exists()

    @pytest.mark.slow
    def test_same_command_again_says_so(
        self, small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        small.copy_dataset(tmp_path / "ds")
        assert small.case.run(small.source, tmp_path / "ds") == 0
        assert "complete: nothing to do" in capsys.readouterr().out
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert main(["verify", str(tmp_path / "ds")]) == 0

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_damaged_dataset_is_not_complete(
        self, small: Written, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "ds"
        small.copy_dataset(output)
        name = "train/train-00002-of-00005.tfrecords"
        index = "_meta/index/train/train-00002-of-00005.idx"
        path = output / name
        size = path.stat().st_size
        problem = f"{name} is missing"
        if damage == "deleted":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:-1])
            problem = f"{name} must have {size} bytes by the manifest, and has {size - 1}"
        elif damage == "no index":
            (output / index).unlink()
            problem = f"{index} is missing"
        elif damage == "cut index":
            lines = (output / index).read_bytes().splitlines(keepends=True)
            (output / index).write_bytes(b"".join(lines[:-1]))
            problem = f"{index} must end where {name} does, and does not"
        elif damage == "half a line":
            (output / index).write_bytes((output / index).read_bytes()[:-1])
            problem = f"{index} must end where {name} does, and does not"
        elif damage == "cut statistics":
            statistics = output / "_meta/statistics.json"
            statistics.write_bytes(statistics.read_bytes()[:-9])
            problem = "_meta/statistics.json does not match its checksum in the manifest"
        elif damage == "no features":
            (output / "features.json").unlink()
            problem = "features.json is missing"
        else:
            (output / "_SUCCESS").write_bytes(b"{}")
            problem = "_SUCCESS does not have the checksum of _meta/manifest.json"
        assert small.case.run(small.source, output) == 1
        assert capsys.readouterr().err.splitlines(keepends=True)[-1] == (
            f"recordmill: {output} is finished but damaged: {problem}; `recordmill verify` names "
            "all defects; copy the broken files again, or repeat this command with --overwrite\n"
        )
        assert small.case.run(small.source, output, *small.flags, "--overwrite") == 0
        assert shard_bytes(output) == small.shards

    def test_another_configuration_is_named(
        self, small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "ds"
        small.copy_dataset(output)
        flags = (*small.flags, "--random_seed=7")
        assert small.case.run(small.source, output, *flags) == 2
        error = capsys.readouterr().err
        assert "another configuration or input (--random_seed was 12345, is 7); choose" in error

    def test_another_configuration_of_an_unfinished_run_is_named(
        self,
        small: Written,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        output = tmp_path / "ds"
        with unpublished():
            assert small.case.run(small.source, output) == 1
        capsys.readouterr()
        assert small.case.run(small.source, output, *small.flags, "--compression=GZIP") == 2
        error = capsys.readouterr().err
        assert "another configuration or input (--compression was NONE, is GZIP); finish" in error

    def test_finished_shards_are_not_built_again(
        self, small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        output = tmp_path / "ds"
        with unpublished():
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
        rename = os.rename

        def failing(source: str, target: str) -> None:
            if target.endswith("train-00002-of-00005.tfrecords"):
                raise OSError(5, "Input/output error")
            rename(source, target)

        monkeypatch.setattr(os, "rename", failing)
        assert small.case.run(small.source, output) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("recordmill: cannot rename")
        assert "Input/output error" in error
        assert not (output / "_SUCCESS").exists()
        assert not list(output.glob("train*"))
        monkeypatch.setattr(os, "rename", rename)
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
        small.copy_dataset(output)
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
        listed |= {"_SUCCESS", "_meta/manifest.json", "_meta/run.json", "notes.txt"}
        there = {str(p.relative_to(output)) for p in output.rglob("*") if p.is_file()}
        assert there == listed

    def test_a_broken_shard_does_not_survive_a_second_run(
        self, small: Written, tmp_path: Path
    ) -> None:
        output = tmp_path / "ds"
        small.copy_dataset(output)
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
        clean_up, driver = Workspace.clean_up, os.getpid()

        def fail_in_workers(workspace: Workspace) -> None:
            if os.getpid() != driver or threading.current_thread() is not threading.main_thread():
                raise ZeroDivisionError
            clean_up(workspace)

        monkeypatch.setattr(Workspace, "clean_up", fail_in_workers)
        assert small.case.run(small.source, tmp_path / "ds") == 0
        assert shard_bytes(tmp_path / "ds") == small.shards
        assert not (tmp_path / "ds/_tmp").exists()

    @pytest.mark.parametrize("left", ["plan.json", "shards.json", "of_recordmill"])
    def test_killed_while_cleaning_up(
        self, small: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
    ) -> None:
        output = tmp_path / "ds"
        with monkeypatch.context() as patched:
            patched.setattr(Workspace, "clean_up", lambda _: 1 / 0)
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
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        source = Path(shutil.copytree(small.source, tmp_path / "input"))
        with unpublished():
            assert small.case.run(source, tmp_path / "ds") == 1
        path = sorted(source.glob(small.case.pattern))[0]
        data = bytearray(path.read_bytes())
        data[-3] ^= 1
        path.write_bytes(data)
        assert small.case.run(source, tmp_path / "ds") == 2
        assert "the input changed" in capsys.readouterr().err
        flags = (*small.flags, "--overwrite", "--max_rejected=1")
        assert small.case.run(source, tmp_path / "ds", *flags) == 0

    def test_input_edited_behind_the_end_is_noticed(
        self, small: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = Path(shutil.copytree(small.source, tmp_path / "input"))
        small.copy_dataset(tmp_path / "ds")
        assert small.case.run(source, tmp_path / "ds") == 0  # elsewhere, and the same files
        path = sorted(source.glob(small.case.pattern))[0]
        data = path.read_bytes()
        path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
        capsys.readouterr()
        assert small.case.run(source, tmp_path / "ds") == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert f"files of the input have changed since --output {tmp_path}/ds was written" in error
        assert "--overwrite" in error


@pytest.mark.slow
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
    victim = sorted(broken.glob(case.pattern))[-1]
    victim.write_bytes(b"\xff\xfe\xfd\n" * 100)
    assert case.run(broken, output) == 1
    assert case.run(small.source, output) == 2
    assert case.run(small.source, output, *small.flags, "--overwrite") == 0
    assert shard_bytes(output) == small.shards
    assert files.list_files(f"{output}/_tmp") == {}


def test_overwrite_after_too_many_rejects_begins_anew(small: Written, tmp_path: Path) -> None:
    output, case = tmp_path / "ds", small.case
    source = Path(shutil.copytree(small.source, tmp_path / "input"))
    victim = sorted(source.glob(case.pattern))[-1]
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
    capsys: pytest.CaptureFixture[str],
) -> None:
    output, case = tmp_path / "ds", small.case
    one, other = (f"--temp_dir={tmp_path}/{name}" for name in ("one", "other"))
    with unpublished():
        assert case.run(small.source, output, *small.flags, one) == 1
    assert case.run(small.source, output, *small.flags, other) == 2
    assert "finish it with its own --temp_dir" in capsys.readouterr().err
    assert case.run(small.source, output, *small.flags, other, "--overwrite") == 0
    assert shard_bytes(output) == small.shards
    assert list((tmp_path / "one").rglob("*.*")) == []
