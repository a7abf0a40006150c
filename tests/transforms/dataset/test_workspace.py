"""The workspace: nothing outside of it is touched, nothing of others is overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from recordmill.records.errors import RunError, UsageError
from recordmill.records.inside import check_inside
from recordmill.records.manifest import Manifest
from recordmill.transforms.dataset.commit import commit
from recordmill.transforms.dataset.removal import remove_dataset
from recordmill.transforms.dataset.workspace import (
    Workspace,
    read_manifest,
)
from recordmill.transforms.storage import files

from .small_job import build_all, commit_spec, small_job


@pytest.fixture
def dataset(tmp_path: Path) -> tuple[Path, Manifest]:
    job = small_job(tmp_path / "ds")
    commit(job, commit_spec(), build_all(job))
    job.workspace.clean_up()
    manifest = read_manifest(str(tmp_path / "ds"))
    assert manifest is not None
    return tmp_path / "ds", manifest


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "path",
    ["../victim.txt", "train/../../victim.txt", "/etc/passwd", "linked/victim.txt", "train/.."],
)
def test_a_manifest_cannot_name_files_outside_of_its_dataset(
    dataset: tuple[Path, Manifest], path: str
) -> None:
    folder, manifest = dataset
    (folder.parent / "victim.txt").write_text("precious")
    (folder / "linked").symlink_to(folder.parent, target_is_directory=True)
    before = contents(folder.parent)
    tampered = replace(manifest, files={**manifest.files, path: 0})
    with pytest.raises(RunError, match="which is not inside of it"):
        remove_dataset(str(folder), tampered)
    assert contents(folder.parent) == before


def test_a_dataset_reached_by_a_link_is_removed_and_nothing_else(
    dataset: tuple[Path, Manifest],
) -> None:
    folder, manifest = dataset
    (folder / "notes.txt").write_text("mine")
    (folder.parent / "other").symlink_to(folder, target_is_directory=True)
    remove_dataset(str(folder.parent / "other"), manifest)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_remote_paths_are_checked_by_name() -> None:
    check_inside("gs://bucket/ds", ["train/train-00000-of-00001.tfrecords"])
    with pytest.raises(RunError, match="not inside"):
        check_inside("gs://bucket/ds", ["../other/x"])
    with pytest.raises(RunError, match="not inside"):
        check_inside("gs://bucket/ds", ["gs://bucket/other/x"])


def test_the_success_file_of_another_tool_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("")  # as Spark and Hadoop write it
    work = str(tmp_path / "_tmp")
    workspace = Workspace(output=str(tmp_path), work=work, staging=work)
    with pytest.raises(UsageError, match="_SUCCESS already holds 1 files"):
        workspace.check_free(["_SUCCESS", "train"], set())
    workspace.check_free(["_SUCCESS", "train"], {"_SUCCESS"})


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, files.rename

    def log_fsync(descriptor: int) -> None:
        events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def log_rename(sources: list[str], targets: list[str]) -> None:
        for source, target in zip(sources, targets, strict=True):
            events.append((source, target))
        rename(sources, targets)

    monkeypatch.setattr(os, "fsync", log_fsync)
    monkeypatch.setattr(files, "rename", log_rename)
    job = small_job(tmp_path / "ds")
    commit(job, commit_spec(), build_all(job))
    synced = {path for event, path in events if event == "sync"}
    for source, _ in events:
        if source != "sync" and Path(source).name.endswith(".tmp"):
            assert source in synced
    last = next(i for i, (_, to) in enumerate(events) if to == f"{tmp_path}/ds/_SUCCESS")
    before = [path for event, path in events[:last] if event == "sync"]
    after = [path for event, path in events[last:] if event == "sync"]
    for folder in ("train", "test", "_meta", "_meta/index/train"):
        assert f"{tmp_path}/ds/{folder}" in before
    assert after == [f"{tmp_path}/ds"]
    # What a run after a power loss must know: whose the published shards are.
    first = next(i for i, (_, to) in enumerate(events) if to.startswith(f"{tmp_path}/ds/train"))
    known = {path for event, path in events[:first] if event == "sync"}
    assert {f"{tmp_path}/ds", f"{tmp_path}/ds/_tmp", f"{tmp_path}/ds/_tmp/done"} <= known
