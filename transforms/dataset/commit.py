"""Commit: check that every shard is there, publish them, and write `_SUCCESS` last.

Until the commit nothing is in the data folders. On this machine's disk a split appears by one
rename of its folder. On object storage each shard is copied, and a reader that asks for `_SUCCESS`
never sees a part of the shards. Every step may be repeated: the next run finishes a commit that was
killed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import google_crc32c
import msgspec
from msgspec.structs import replace

from recordmill.records import manifest as m
from recordmill.records.errors import RunError
from recordmill.records.manifest import Manifest, ShardInfo
from recordmill.records.regular_files import NotRegularError
from recordmill.records.seqio_metadata import COMPLETED_PATH
from recordmill.records.state import encode
from recordmill.transforms.dataset.error_budget import fail
from recordmill.transforms.dataset.first_rejects import first_rejects
from recordmill.transforms.dataset.job import Job, JobSummary
from recordmill.transforms.dataset.removal import remove_dataset
from recordmill.transforms.dataset.run_errors import is_over
from recordmill.transforms.dataset.run_state import LostFoldersError, pipeline_name
from recordmill.transforms.dataset.shard_writer import read_descriptions
from recordmill.transforms.dataset.statistics_warnings import find_warnings
from recordmill.transforms.dataset.workspace import Workspace, read_manifest
from recordmill.transforms.storage import files

_LOGGER = logging.getLogger("recordmill")


class CommitSpec(msgspec.Struct, frozen=True):
    """The part of the manifest that is known before the run starts.

    Attributes:
      name: of the dataset, for TFDS.
      description: of the dataset.
      fingerprint: of all that decides the bytes.
      replaces: whether a finished dataset at the output is to be removed.
      config, versions, sources: see `Manifest`.
      version: of the dataset, for TFDS.
      settings: the content of `_meta/config.yaml`, "" for no such file.
    """

    name: str
    description: str
    fingerprint: str
    replaces: bool
    config: dict[str, Any]
    versions: dict[str, str]
    sources: dict[str, Any]
    version: str = m.DEFAULT_VERSION
    settings: str = ""


@dataclass(frozen=True, slots=True)
class _StagedFile:
    """A finished file that is not published yet."""

    path: str
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class _FinishedShards:
    """The finished shards, their index files by published path, and the job's summary."""

    shards: list[ShardInfo]
    indexes: dict[str, _StagedFile]
    summary: JobSummary


def _read_finished(job: Job) -> _FinishedShards:
    workspace = job.workspace
    shards, indexes, statistics = [], {}, job.statistics()
    for done in read_descriptions(job):
        shards.append(done.shard)
        name = done.shard.name
        if done.index:
            indexes[name.index_path] = _StagedFile(workspace.index_path(name), *done.index)
        statistics.add(name.split, done.shard.records, done.statistics)
    return _FinishedShards(shards, indexes, statistics.summarize())


def _unpublished(output: str, staged: dict[str, _StagedFile]) -> dict[str, str]:
    """Returns target -> path of the staged files that no earlier, interrupted commit has moved.

    Raises:
      RunError: a file has another size than what was written.
    """
    waiting = {}
    targets = {target: files.join(output, target) for target in staged}
    sizes = files.sizes([*(file.path for file in staged.values()), *targets.values()])
    for target, file in staged.items():
        is_staged = sizes[file.path] >= 0
        path = file.path if is_staged else targets[target]
        if sizes[path] != file.size:
            raise RunError(
                f"{path} must have {file.size} bytes, and has {sizes[path]}; check the "
                "storage and run the same command again"
            )
        if is_staged:
            waiting[target] = path
    return waiting


def _publish(output: str, staged: dict[str, _StagedFile]) -> None:
    """Moves staged files to their targets, which are relative to the dataset."""
    waiting = _unpublished(output, staged)
    for folder in sorted({target.rpartition("/")[0] for target in waiting}):
        inside = {t: path for t, path in waiting.items() if t.rpartition("/")[0] == folder}
        target_folder = files.join(output, folder)
        staged_folder = next(iter(inside.values())).rpartition("/")[0]
        if files.is_local(target_folder) and not os.path.exists(target_folder):
            files.make_folder(target_folder.rpartition("/")[0])
            files.rename([staged_folder], [target_folder])
            continue
        files.make_folder(target_folder)
        files.rename(list(inside.values()), [files.join(output, t) for t in inside])


def _begin_publishing(workspace: Workspace, shards: Iterable[ShardInfo]) -> None:
    """Marks that shards are published, once: before, no file may have the name of one.

    Raises:
      RunError: one has, and so somebody else wrote it since this run was planned.
    """
    if files.exists(workspace.publishing_path):
        return  # an earlier commit of this run, which may have published some
    paths = [files.join(workspace.output, shard.name.path) for shard in shards if not shard.file]
    found = files.sizes(paths)
    for path in paths:
        # A second commit at the same time may have begun to publish meanwhile.
        if found[path] >= 0 and not files.exists(workspace.publishing_path):
            raise RunError(
                f"{path} is there, and this run did not write it; move it away and run the same "
                "command again"
            )
    files.write_bytes(workspace.publishing_path, b"\n")


def _committed(workspace: Workspace, spec: CommitSpec) -> Manifest:
    manifest = read_manifest(workspace.output)
    if manifest is None:
        raise RunError(f"{workspace.output} has no {m.MANIFEST_PATH}; run again with --overwrite")
    if manifest.fingerprint != spec.fingerprint:
        raise LostFoldersError(
            f"{workspace.work} was deleted while the run worked, and {workspace.output} holds "
            "another dataset; see that nothing else writes there, and run the same command again"
        )
    return manifest


def _completed(job: Job, spec: CommitSpec) -> tuple[Job, CommitSpec]:
    """Returns both with what only the first stages of the job found out."""
    whole = job.completed()
    if whole is job:
        return job, spec
    options = json.loads(json.dumps(whole.resolved()))
    return whole, replace(spec, config={**spec.config, **options})


def commit(job: Job, spec: CommitSpec, records: int) -> Manifest:
    """Finishes a dataset whose shards are all written; returns its manifest.

    Raises:
      RunError: a shard is missing, or they do not hold `records` examples together.
    """
    workspace = job.workspace
    if is_over(workspace):
        return _committed(workspace, spec)  # a second commit of the same run
    workspace.check_own()
    job, spec = _completed(job, spec)
    finished = _read_finished(job)
    in_shards = sum(shard.records for shard in finished.shards)
    if in_shards != records:
        raise RunError(f"{records} examples built, {in_shards} in the finished shards")
    statistics = _judged(job, finished.summary)
    job.check_kept()
    _remove_replaced(workspace, spec)
    staged = dict(finished.indexes)
    for number, (size, crc) in finished.summary.rejected_files.items():
        target = f"{m.REJECTED_PATH}/rejected-{number:06d}.jsonl"
        staged[target] = _StagedFile(workspace.rejected_path(number), size, crc)
    for number, (size, crc) in finished.summary.dropped_files.items():
        target = f"{m.DROPPED_PATH}/dropped-{number:06d}.jsonl.gz"
        staged[target] = _StagedFile(workspace.dropped_path(number), size, crc)
    checksums = {path: file.crc32c for path, file in staged.items()}
    for shard in finished.shards:
        if shard.file:
            continue  # it stays where it is
        path = workspace.shard_path(shard.name)
        staged[shard.name.path] = _StagedFile(path, shard.file_bytes, shard.crc32c)
    # After a power loss, marker and descriptions say whose the published files are.
    state = [workspace.done_folder, workspace.work, workspace.staging, workspace.output]
    _begin_publishing(workspace, finished.shards)
    files.sync_folders([*state, files.join(workspace.output, "..")])
    _publish(workspace.output, staged)
    return _write_metadata(job, spec, finished, checksums, statistics)


def _judged(job: Job, summary: JobSummary) -> dict[str, Any]:
    """Returns the content of `statistics.json`, with warnings.

    Raises:
      RunError: there are warnings, and the job fails on them.
    """
    rejected = first_rejects(job.workspace, summary.rejected_files, summary.counts["rejected"])
    statistics = summary.statistics | {"inputs": summary.inputs | {"rejected": rejected}}
    warnings = [replace(one, text=job.worded(one.text)) for one in find_warnings(statistics)]
    of_pipeline = pipeline_name(job.workspace.plan_path)
    if warnings and job.warnings == "error":
        more = len(warnings) - 1
        advice = "the same command with --warnings=print finishes the dataset as it is"
        if of_pipeline:
            advice = f"{of_pipeline} with warnings='print' writes the dataset as it is"
        raise RunError(
            f"--warnings=error: {warnings[0].text}"
            + (f"; and {more} more warnings" if more else "")
            + f"; {advice}"
        )
    if of_pipeline and job.warnings == "print":  # a command prints them itself
        for warning in warnings:
            _LOGGER.warning("%s: %s", job.workspace.output, warning.text)
    return statistics | {"warnings": warnings}


def old_manifest(output: str) -> tuple[Manifest | None, RunError | None]:
    """Returns the manifest of the dataset that is there, or why it cannot be read.

    Raises:
      RunError: `_SUCCESS` vouches for a manifest that this release cannot read.
    """
    try:
        return read_manifest(output), None
    except RunError as error:
        with suppress(FileNotFoundError, NotADirectoryError, NotRegularError):
            success = files.read_bytes(files.join(output, m.SUCCESS_PATH))
            if m.check_success(success, files.read_bytes(files.join(output, m.MANIFEST_PATH))):
                raise
        return None, error


def _remove_replaced(workspace: Workspace, spec: CommitSpec) -> None:
    """Removes the dataset that this run replaces, once: a repeated commit finds its own."""
    removed = workspace.old_dataset_removed_path
    if spec.replaces and not files.exists(removed):
        old = read_manifest(workspace.output)
        if old:
            remove_dataset(workspace.output, old)
            # The mark must not survive a power loss that brings the old dataset back.
            files.sync_folders([workspace.output])
        files.write_bytes(removed, b"\n")


def _write_metadata(
    job: Job,
    spec: CommitSpec,
    finished: _FinishedShards,
    checksums: dict[str, int],
    statistics: dict[str, Any],
) -> Manifest:
    """Writes statistics, metadata of TFDS and seqio, the manifest and, last, `_SUCCESS`.

    All of it is small, and is written anew by each commit, however far an earlier one came.
    """
    workspace, summary = job.workspace, finished.summary
    written = {m.STATISTICS_PATH: encode(statistics), **summary.extra_files}
    if spec.settings:
        written[m.CONFIG_PATH] = spec.settings.encode()
    manifest = Manifest(
        name=spec.name,
        config=spec.config,
        fingerprint=spec.fingerprint,
        features=(summary.schema or job.schema()).to_json(),
        compression=job.compression,
        versions=spec.versions,
        sources=spec.sources,
        counts=summary.counts,
        files={},
        shards=sorted(finished.shards, key=lambda shard: shard.name),
        version=spec.version,
        shard_template=job.shard_template,
        format_version=m.IN_PLACE_VERSION if workspace.in_place else m.FORMAT_VERSION,
    )
    written |= job.files_of_readers(manifest, description=spec.description, statistics=statistics)
    checksums = checksums | {path: google_crc32c.value(data) for path, data in written.items()}
    manifest = replace(manifest, files=checksums)
    content = manifest.to_bytes()
    written[m.MANIFEST_PATH] = content
    if workspace.of_pipeline:  # a command writes it at its end, with what it has seen
        written[m.RUN_PATH] = encode({"run": workspace.token})
    completed = written.pop(COMPLETED_PATH, None)
    for path, data in written.items():
        files.write_bytes(files.join(workspace.output, path), data, workspace.partial_folder)
    # What `_SUCCESS` promises must be on the disk before it is.
    folders = {str(folder) for path in manifest.paths for folder in PurePath(path).parents}
    files.sync_folders(files.join(workspace.output, folder) for folder in sorted(folders))
    files.sync_folders([files.join(workspace.output, "..")])  # which has the output's own name
    workspace.check_own()
    job.check_kept()
    if completed is not None:  # before `_SUCCESS`, behind which a run that is killed is finished
        path = files.join(workspace.output, COMPLETED_PATH)
        files.write_bytes(path, completed, workspace.partial_folder)
        files.sync_folders([workspace.output])
    files.write_bytes(workspace.success_path, m.success_bytes(content), workspace.partial_folder)
    files.sync_folders([workspace.output])
    return manifest


def commit_run(job: Job, spec: CommitSpec, records: int) -> Manifest:
    """Finishes a dataset, see `commit`, and removes the temporary files of its run.

    Raises:
      RunError: one line, which the launching process finds in a file, too.
    """
    try:
        manifest = commit(job, spec, records)
    except RunError as error:
        fail(job, error)
    job.workspace.clean_up()
    job.workspace.remove_revived()  # by tasks of a job that another one has overtaken
    return manifest
