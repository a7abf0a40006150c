"""Canaries: they fail when a release of another package changes what `compat` relies on."""

from __future__ import annotations

import inspect
import io
import tarfile

import pytest
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.transforms.storage import beam_storage_internals as compat


def test_beam_keeps_the_options_of_its_file_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    assert compat.beam_options() is None
    options = PipelineOptions([])
    FileSystems.set_options(options)
    assert compat.beam_options() is options


def test_every_file_system_of_beam_lists_by_prefix() -> None:
    assert list(inspect.signature(FileSystem._list).parameters) == ["self", "dir_or_prefix"]


def test_google_says_which_errors_may_pass() -> None:
    exceptions = pytest.importorskip("google.api_core.exceptions")
    may_pass = compat.may_pass()
    assert may_pass(exceptions.ServiceUnavailable("503"))
    assert may_pass(ConnectionError())
    assert not may_pass(exceptions.NotFound("404"))


def test_a_batch_of_google_keeps_its_responses() -> None:
    storage = pytest.importorskip("google.cloud.storage")
    credentials = pytest.importorskip("google.auth.credentials")
    client = storage.Client(project="none", credentials=credentials.AnonymousCredentials())
    batch = client.batch()
    assert list(compat.batch_responses(batch)) == []


def test_members_of_a_tar_are_not_kept():
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for number in range(5):
            archive.addfile(tarfile.TarInfo(f"{number}.jpg"))
    target.seek(0)
    with tarfile.open(fileobj=target, mode="r:") as archive:
        names = []
        ends = []
        while (found := compat.next_tar_member(archive))[0]:
            member, end = found
            ends.append(end)
            names.append(member.name)
            assert archive.members == []  # type: ignore[attr-defined]
    assert names == [f"{number}.jpg" for number in range(5)]
    assert ends == [512 * number for number in range(1, 6)]
