"""`recordmill verify DIR`: reads every byte of a dataset and names what is broken.

A line a defect: file, record and byte offset, what must hold and what was found. Exit status 0:
none; 1: some; 2: wrong usage.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import google_crc32c

from recordmill.pipelines.options import TEMPORARY
from recordmill.pipelines.shard_checks import FileDefects, ShardReport, ShardTask, check_shard
from recordmill.records import manifest as m
from recordmill.records.arguments import Parser
from recordmill.records.errors import UsageError
from recordmill.records.manifest import Manifest, ShardInfo
from recordmill.records.schema import Schema
from recordmill.records.tfds_metadata import tfds_files
from recordmill.transforms import files

_SMALL_BYTES = 256_000_000  # starting a second process takes longer than reading so much in one


@dataclass(slots=True)
class DatasetReport:
    """What was found: the files with defects, in order of finding, and what was read."""

    shards: int = 0
    records: int = 0
    file_bytes: int = 0
    files: list[FileDefects] = field(default_factory=list)

    def add(self, path: str, problem: str) -> None:
        """Adds a defect of a file."""
        defects = FileDefects(path)
        defects.add(problem)
        self.files.append(defects)

    @property
    def defects(self) -> int:
        """The number of defects."""
        return sum(found.count for found in self.files)

    def lines(self) -> list[str]:
        """Returns a line a defect."""
        return [line for found in self.files for line in found.report()]

    def summary(self) -> str:
        """Returns one line: what was read and how many defects there are."""
        return (
            f"{self.shards} shards, {self.records} records, {self.file_bytes} bytes: "
            f"{self.defects or 'no'} defect{'s' * (self.defects != 1)}"
        )


def _read_manifest(dataset: str, report: DatasetReport) -> Manifest | None:
    """Returns the manifest where it can be read, and checks that `_SUCCESS` vouches for it."""
    success, path = (files.join(dataset, name) for name in (m.SUCCESS_PATH, m.MANIFEST_PATH))
    finished = files.exists(success)
    if not finished:
        report.add(m.SUCCESS_PATH, "missing: the dataset is not finished, run its command again")
    if not files.exists(path):
        report.add(m.MANIFEST_PATH, "missing: without it nothing else can be checked")
        return None
    content = files.read_bytes(path)
    if finished and not m.check_success(files.read_bytes(success), content):
        report.add(
            m.MANIFEST_PATH,
            f"must have the checksum in {m.SUCCESS_PATH}, and has another: one of them was changed",
        )
    try:
        manifest = Manifest.from_bytes(content)
        Schema.from_json(manifest.features)
    except (ValueError, TypeError, KeyError) as error:
        report.add(m.MANIFEST_PATH, f"cannot be read: {error}")
        return None
    return manifest


def _check_counts(manifest: Manifest, report: DatasetReport) -> None:
    """Checks that the manifest agrees with itself."""
    total = sum(shard.records for shard in manifest.shards)
    if manifest.counts.get("examples") != total:
        report.add(
            m.MANIFEST_PATH,
            f"counts.examples must be {total}, the sum over the shards, and is "
            f"{manifest.counts.get('examples')}",
        )
    for split, shards in manifest.split_shards().items():
        count = shards[0].count
        if [(s.index, s.count) for s in shards] != [(i, count) for i in range(count)]:
            report.add(
                m.MANIFEST_PATH,
                f"split {split} must list shards 0 to {count - 1} of {count} once each, and lists "
                f"{', '.join(shard.name.stem for shard in shards)}",
            )


def _check_files(dataset: str, manifest: Manifest, report: DatasetReport) -> None:
    """Checks that the listed files are there, and no others where a reader looks for records."""
    prefix = dataset.rstrip("/") + "/"
    present = {path[len(prefix) :] for path in files.list_files(dataset)}
    reported = {shard.name.path for shard in manifest.shards}  # `check_shard` names these
    reported |= {shard.name.index_path for shard in manifest.shards}
    named = {defects.path for defects in report.files}
    for path in sorted(set(manifest.files) - reported):
        if path in named:
            continue  # what is wrong with it has been said
        if path not in present:
            report.add(path, "missing")
        elif google_crc32c.value(files.read_bytes(prefix + path)) != manifest.files[path]:
            report.add(path, "does not match its checksum in the manifest")
    known = {*manifest.paths, *reported, m.SUCCESS_PATH, m.MANIFEST_PATH}
    data_folders = tuple(f"{split}/" for split in manifest.split_shards())
    for path in sorted(present - known):
        if path.startswith(f"{TEMPORARY}/"):
            continue  # of a run that was begun here and not finished; readers do not look there
        if path.startswith(data_folders) or ".tfrecord" in path:
            report.add(path, "is not in the manifest; readers would take it for a shard: remove it")


def _read_json(dataset: str, path: str, report: DatasetReport) -> Any:
    try:
        return json.loads(files.read_bytes(files.join(dataset, path)))
    except ValueError as error:
        report.add(path, f"is not JSON: {error}")
        return None


def _differences(found: Any, expected: Any, place: str = "") -> Iterator[str]:
    """Yields where two JSON values differ: "splits[0].shardLengths[2] must be 7, and is 8"."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted(found.keys() | expected.keys()):
            yield from _differences(
                found.get(key), expected.get(key), f"{place}.{key}" if place else key
            )
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, f"{place}[{i}]")
    elif found != expected:
        yield f"{place} must be {json.dumps(expected)} by the manifest, and is {json.dumps(found)}"


def _check_metadata(dataset: str, manifest: Manifest, report: DatasetReport) -> None:
    """Checks that TFDS's files and the statistics say what the manifest says."""
    for path, content in tfds_files(manifest, description="").items():
        if not files.exists(files.join(dataset, path)):
            continue  # named with the missing files where the manifest lists it
        if not path.endswith(".json"):
            if files.read_bytes(files.join(dataset, path)) != content:
                report.add(path, "must name the classes of the manifest's features, in order")
            continue
        found = _read_json(dataset, path, report)
        if found is None:
            continue
        expected = json.loads(content)
        if "description" in expected and isinstance(found, dict):
            expected["description"] = found.get("description")
        for difference in _differences(found, expected):
            report.add(path, difference)
    if not files.exists(files.join(dataset, m.STATISTICS_PATH)):
        return
    statistics = _read_json(dataset, m.STATISTICS_PATH, report)
    if isinstance(statistics, dict):
        splits = manifest.split_shards()
        examples = {split: sum(s.records for s in shards) for split, shards in splits.items()}
        known = {
            split: found.get("examples") if isinstance(found, dict) else None
            for split, found in statistics.items()
        }
        for difference in _differences(known, examples):
            report.add(m.STATISTICS_PATH, f"examples of {difference}")


def _check_rejects(dataset: str, manifest: Manifest, report: DatasetReport) -> None:
    """Checks that the rejected inputs are as many as the manifest says."""
    paths = [path for path in manifest.files if path.startswith(f"{m.REJECTED_PATH}/")]
    lines, complete = 0, True
    for path in paths:
        if not files.exists(files.join(dataset, path)):
            complete = False  # named with the missing files
            continue
        for number, line in enumerate(files.read_bytes(files.join(dataset, path)).splitlines()):
            lines += 1
            try:
                json.loads(line)
            except ValueError as error:
                report.add(path, f"line {number + 1} is not JSON: {error}")
    expected = sum(manifest.counts.get("rejected", {}).values())
    if complete and lines != expected:
        report.add(
            m.REJECTED_PATH,
            f"must have {expected} lines in all by the manifest, and has {lines}",
        )


@contextmanager
def _safe_path() -> Iterator[None]:
    """Lets worker processes import no module of the current folder in place of a real one."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _check_shards(tasks: list[ShardTask], workers: int) -> Iterable[ShardReport]:
    if workers == 1:
        yield from map(check_shard, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with _safe_path(), ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(check_shard, tasks)


def _workers(tasks: list[ShardTask], asked: int | None) -> int:
    if asked:
        return max(1, min(asked, len(tasks)))
    if sum(task.shard.file_bytes for task in tasks) < _SMALL_BYTES:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cores, len(tasks)))


def _taken_for(found: ShardReport, shard: ShardInfo, shards: list[ShardInfo]) -> ShardInfo | None:
    """Returns the other shard whose content lies under this one's name."""
    if found.crc32c == shard.crc32c:
        return None
    same = (s for s in shards if (s.crc32c, s.file_bytes) == (found.crc32c, found.file_bytes))
    return next(same, None)


def verify(dataset: str, *, workers: int | None = None) -> DatasetReport:
    """Checks every record, checksum, count and file of a dataset.

    Args:
      dataset: its folder, local or on one of Beam's file systems.
      workers: processes; by default one for small datasets, else one a core.

    Raises:
      UsageError: there is nothing at `dataset`.
    """
    report = DatasetReport()
    if not (os.path.isdir(dataset) if files.is_local(dataset) else files.list_files(dataset)):
        raise UsageError(f"DIR must be the folder of a dataset, and there is none at {dataset}")
    manifest = _read_manifest(dataset, report)
    if manifest is None:
        return report
    _check_counts(manifest, report)
    _check_metadata(dataset, manifest, report)
    _check_rejects(dataset, manifest, report)
    _check_files(dataset, manifest, report)
    schema = Schema.from_json(manifest.features)
    tasks = [ShardTask(dataset, shard, schema, manifest.compression) for shard in manifest.shards]
    for task, found in zip(tasks, _check_shards(tasks, _workers(tasks, workers)), strict=True):
        other = _taken_for(found, task.shard, manifest.shards)
        if other:
            report.add(
                task.shard.name.path,
                f"holds the content of {other.name.path}: put each under its own name",
            )
        else:
            report.files += [found.shard, found.index]
        report.shards += bool(found.file_bytes)
        report.records += found.records
        report.file_bytes += found.file_bytes
    return report


def main(arguments: list[str]) -> int:
    """Runs `recordmill verify`; returns the exit status."""
    parser = Parser(
        prog="recordmill verify", allow_abbrev=False,
        description="Checks every record, count and checksum of a dataset; names what is broken.",
    )  # fmt: skip
    parser.add_argument("dataset", metavar="DIR", help="The folder with _SUCCESS, local or gs://….")
    parser.add_argument("--workers", type=int, help="Processes; as many as cores by default.")
    options = parser.parse_args(arguments)
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers must be 1 or more, got {options.workers}")
    report = verify(options.dataset, workers=options.workers)
    for line in report.lines():
        print(line)
    print(f"{options.dataset}: {report.summary()}")
    if report.defects:
        print(
            "copy what is broken again, or write all anew by its own command with --overwrite",
            file=sys.stderr,
        )
    return 1 if report.defects else 0


if __name__ == "__main__":
    from recordmill.pipelines.command_line import main as command_line

    sys.exit(command_line(["verify", *sys.argv[1:]]))
