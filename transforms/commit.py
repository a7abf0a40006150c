"""Commit: check that every shard is there, put them in their place, and write `_SUCCESS` last.

Until here nothing lies in the data folders. On this machine's disk a split appears by one rename of
its folder; on object storage by a copy per shard, which a reader that asks for `_SUCCESS` never
sees half done. Every step may be repeated: a commit that is killed is finished by the next run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

import apache_beam as beam
import google_crc32c

from recordmill.records import manifest as m
from recordmill.records.errors import RunError
from recordmill.records.manifest import Manifest, ShardInfo
from recordmill.records.shards import ShardName
from recordmill.records.tfds_metadata import tfds_files
from recordmill.transforms import files
from recordmill.transforms.job import Conclusion, Job, fail
from recordmill.transforms.plan import plan_path


@dataclass(frozen=True, slots=True)
class CommitSpec:
    """What the manifest says beside what the run found: known before it starts.

    Attributes:
      name: of the dataset, for TFDS.
      description: of the dataset.
      fingerprint: of all that decides the bytes.
      replaces: a finished dataset lies at the output and is to be removed.
      config, versions, sources: see `Manifest`.
    """

    name: str
    description: str
    fingerprint: str
    replaces: bool
    config: dict[str, Any]
    versions: dict[str, str]
    sources: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Staged:
    """A finished file that waits for its place."""

    path: str
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class _Finished:
    """The finished shards, their index files by place, and what they amount to."""

    shards: list[ShardInfo]
    indexes: dict[str, _Staged]
    conclusion: Conclusion


def _finished(job: Job) -> _Finished:
    names = [ShardName(s, i, count) for s, count in job.planned_splits() for i in range(count)]
    shards, indexes, tally = [], {}, job.tally()
    try:
        for name, content in zip(names, files.read_many(map(job.done_path, names)), strict=True):
            done = json.loads(content)
            shards.append(ShardInfo(**done["shard"]))
            if "index" in done:
                indexes[name.index_path] = _Staged(job.index_path(name), *done["index"])
            tally.add(name.split, shards[-1].records, done["found"])
    except FileNotFoundError as error:
        raise RunError(f"{error.filename} is missing; run the same command again") from error
    return _Finished(shards, indexes, tally.conclude())


def _publish(job: Job, staged: dict[str, _Staged]) -> None:
    """Moves staged files to their places, which are relative to the dataset."""
    missing: dict[str, str] = {}
    places = {target: files.join(job.output, target) for target in staged}
    sizes = files.sizes([*(file.path for file in staged.values()), *places.values()])
    for target, file in staged.items():
        # What an interrupted commit has moved is at its place and no longer here.
        waits = sizes[file.path] >= 0
        path = file.path if waits else places[target]
        if sizes[path] != file.size:
            raise RunError(
                f"{path} must have {file.size} bytes, and has {sizes[path]}; check the "
                "storage and start anew with --overwrite"
            )
        if waits:
            missing[target] = path
    folders = {target.rpartition("/")[0] for target in missing}
    for folder in sorted(folders):
        inside = {t: s for t, s in missing.items() if t.rpartition("/")[0] == folder}
        target_folder = files.join(job.output, folder)
        staged_folder = next(iter(inside.values())).rpartition("/")[0]
        if files.is_local(target_folder) and not os.path.exists(target_folder):
            files.make_folder(target_folder.rpartition("/")[0])
            files.rename([staged_folder], [target_folder])
            continue
        files.make_folder(target_folder)
        files.rename(list(inside.values()), [files.join(job.output, t) for t in inside])


def remove_dataset(output: str, manifest: Manifest) -> None:
    """Deletes exactly what the manifest lists, `_SUCCESS` first."""
    files.delete_quietly([files.join(output, m.SUCCESS_PATH)])
    files.delete_quietly([files.join(output, path) for path in manifest.paths])
    files.delete_quietly([files.join(output, m.MANIFEST_PATH)])
    if files.is_local(output):
        folders = {str(folder) for path in manifest.paths for folder in PurePath(path).parents}
        for folder in sorted(folders - {"."}, reverse=True):
            path = files.join(output, folder)
            if os.path.isdir(path) and not os.listdir(path):
                os.rmdir(path)


def read_manifest(output: str) -> Manifest | None:
    """Returns the manifest of a dataset, None where there is none."""
    path = files.join(output, m.MANIFEST_PATH)
    if not files.exists(path):
        return None
    try:
        return Manifest.from_bytes(files.read_bytes(path))
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error


def _manifest_of(output: str) -> Manifest:
    found = read_manifest(output)
    if found is None:
        raise RunError(f"{output} has no {m.MANIFEST_PATH}; run again with --overwrite")
    return found


def commit(job: Job, spec: CommitSpec, records: int) -> Manifest:
    """Finishes a dataset whose shards are all written; returns its manifest.

    Raises:
      RunError: a shard is missing, or they do not hold `records` examples together.
    """
    success = files.join(job.output, m.SUCCESS_PATH)
    if not files.exists(plan_path(job.work)) and files.exists(success):
        return _manifest_of(job.output)  # a second commit of the same run
    finished = _finished(job)
    shards, staged, conclusion = finished.shards, finished.indexes, finished.conclusion
    found = sum(shard.records for shard in shards)
    if found != records:
        raise RunError(f"{records} examples built, {found} in the finished shards")
    removed = files.join(job.staging, "old_dataset_removed")
    if spec.replaces and not files.exists(removed):
        old = read_manifest(job.output)
        if old:
            remove_dataset(job.output, old)
        files.write_bytes(removed, b"\n")
    for number, (size, crc) in conclusion.rejected_files.items():
        target = f"{m.REJECTED_PATH}/rejected-{number:06d}.jsonl"
        staged[target] = _Staged(job.rejected_path(number), size, crc)
    checksums = {path: file.crc32c for path, file in staged.items()}
    for shard in shards:
        path = job.shard_path(shard.name)
        staged[shard.name.path] = _Staged(path, shard.file_bytes, shard.crc32c)
    _publish(job, staged)
    # What follows is small, and written anew by each commit, however far the last one came.
    written = {m.STATISTICS_PATH: m.to_json(conclusion.statistics), **conclusion.extra_files}
    manifest = Manifest(
        name=spec.name,
        config=spec.config,
        fingerprint=spec.fingerprint,
        features=job.schema().to_json(),
        compression=job.compression,
        versions=spec.versions,
        sources=spec.sources,
        counts=conclusion.counts,
        files={},
        shards=sorted(shards, key=lambda shard: shard.name),
    )
    written |= tfds_files(manifest, description=spec.description)
    checksums |= {path: google_crc32c.value(data) for path, data in written.items()}
    manifest = replace(manifest, files=checksums)
    for path, content in written.items():
        files.write_bytes(files.join(job.output, path), content, job.partial_folder)
    content = manifest.to_bytes()
    files.write_bytes(files.join(job.output, m.MANIFEST_PATH), content, job.partial_folder)
    files.write_bytes(success, m.success_bytes(content), job.partial_folder)
    return manifest


def clean_up(job: Job) -> None:
    """Removes all temporary files of a job; the plan first, so that nobody takes up the rest."""
    files.delete_quietly([plan_path(job.work)])
    files.delete_folder(job.work)
    files.delete_folder(job.staging)


class _CommitDoFn(beam.DoFn):
    def __init__(self, job: Job, spec: CommitSpec) -> None:
        self._job = job
        self._spec = spec

    def process(self, records: int) -> Iterator[dict[str, Any]]:
        try:
            manifest = commit(self._job, self._spec, records)
        except RunError as error:
            fail(self._job, error)
        clean_up(self._job)
        yield asdict(manifest)["counts"]


class CommitDataset(beam.PTransform[beam.PCollection[int], beam.PCollection[dict[str, Any]]]):
    """The number of all examples, as one element -> the counts of the finished dataset."""

    def __init__(self, job: Job, spec: CommitSpec) -> None:
        super().__init__()
        self._job = job
        self._spec = spec

    def expand(self, records: beam.PCollection[int]) -> beam.PCollection[dict[str, Any]]:
        """Publishes the shards and writes `_SUCCESS`."""
        return records | "Commit" >> beam.ParDo(_CommitDoFn(self._job, self._spec))
