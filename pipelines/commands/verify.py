"""`recordmill verify DIR`: read every byte of a dataset and name all defects.

Each defect is one line: file, record, byte offset, the rule and the value found. Exit status 0: no
defects; 1: some; 2: wrong usage.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import google_crc32c

from recordmill.pipelines.command_specs import VerifySpec
from recordmill.pipelines.command_table import Call
from recordmill.pipelines.commands.shard_checks import (
    BLOCK_BYTES,
    FileDefects,
    ShardReport,
    ShardToCheck,
    check_shard,
    unread_defect,
)
from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.engines.engine_spec import LOCAL_RUNNERS, EngineSpec, RunnerSpec
from recordmill.pipelines.engines.preloading import preloading
from recordmill.pipelines.faces import aliases_of, refuse_unknown
from recordmill.pipelines.job_request import TEMPORARY
from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError, visible
from recordmill.records.inside import check_inside
from recordmill.records.manifest import Manifest, ShardInfo
from recordmill.records.manifest_checks import (
    count_defects,
    shard_defects,
    unknown_key_defects,
)
from recordmill.records.schema import Schema
from recordmill.records.seqio_metadata import COMPLETED_PATH, seqio_files
from recordmill.records.state import FormatError, decode
from recordmill.records.statistics_file import check_statistics
from recordmill.records.tfds_metadata import tfds_files
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.dataset.run_state import MARKER, new_token
from recordmill.transforms.storage import files

_COPY_AGAIN = "copy the broken files again, or repeat the dataset's own command with --overwrite"
_RUN_AGAIN = "run the dataset's own command again: a run that was stopped goes on where it was"
_IN_PLACE = "copy the broken files again, or make their metadata anew with --overwrite"
_REMOVE = "remove the files that the manifest does not list; the dataset itself is whole"
_UPGRADE = "upgrade recordmill: the dataset is of a later release"

CheckShards = Callable[[list[ShardToCheck]], Iterator[ShardReport]]
_STAGE = "recordmill.pipelines.commands.verify_stage"
_UNREADABLE = object()
_MOST_SHOWN = 200  # characters of a value
_SMALL_BYTES = 256_000_000  # starting a second process takes longer than reading so much in one


@dataclass(slots=True)
class DatasetReport:
    """The files with defects, in the order of the checks, and the amount that was read.

    Attributes:
      shards, records, file_bytes: that were read.
      files: those with defects.
      unlisted: files that the manifest does not list, among the defects.
      advice: the one thing to do about the defects.
    """

    shards: int = 0
    records: int = 0
    file_bytes: int = 0
    files: list[FileDefects] = field(default_factory=list)
    unlisted: int = 0
    advice: str = _COPY_AGAIN

    def add(self, path: str, problem: str) -> None:
        """Adds a defect of a file."""
        defects = FileDefects(path)
        defects.add(problem)
        self.files.append(defects)

    @property
    def defects(self) -> int:
        """The number of defects."""
        return sum(defects.count for defects in self.files)

    def lines(self) -> list[str]:
        """Returns one line for each defect."""
        return [line for defects in self.files for line in defects.report()]

    def summary(self) -> str:
        """Returns one line: what was read and how many defects there are."""
        return (
            f"{self.shards} shards, {self.records} records, {self.file_bytes} bytes: "
            f"{self.defects or 'no'} defect{'s' * (self.defects != 1)}"
        )


def _read(dataset: str, path: str, report: DatasetReport) -> bytes | None:
    """Returns the bytes of a file; None, and a defect of it, where it cannot be read."""
    try:
        return files.read_bytes(files.join(dataset, path))
    except OSError as error:
        report.add(path, unread_defect(error))
        return None


def _read_manifest(dataset: str, report: DatasetReport) -> Manifest | None:
    """Returns the manifest if it can be read; compares it with its checksum in `_SUCCESS`."""
    finished, has_manifest = (
        files.exists(files.join(dataset, name)) for name in (m.SUCCESS_PATH, m.MANIFEST_PATH)
    )
    if not finished:
        _check_is_ours(dataset, has_manifest=has_manifest)
        report.add(m.SUCCESS_PATH, "missing: the dataset is not finished")
        report.advice = _RUN_AGAIN
    if not has_manifest:
        if finished:
            report.add(m.MANIFEST_PATH, "missing: without it nothing else can be checked")
        return None
    content = _read(dataset, m.MANIFEST_PATH, report)
    success = _read(dataset, m.SUCCESS_PATH, report) if finished else None
    if content is None:
        return None
    if success is not None and not m.check_success(success, content):
        report.add(
            m.MANIFEST_PATH,
            f"must have the checksum in {m.SUCCESS_PATH}, and has another: one of them was changed",
        )
    try:
        manifest = Manifest.from_bytes(content)
        Schema.from_json(manifest.features)
    except ValueError as error:
        report.add(m.MANIFEST_PATH, f"cannot be read: {error}")
        if "upgrade recordmill" in str(error):
            report.advice = _UPGRADE
        return None
    for defect in unknown_key_defects(decode(content, dict[str, object])):
        report.add(m.MANIFEST_PATH, defect)
        report.advice = _UPGRADE
    return manifest


def _check_is_ours(dataset: str, *, has_manifest: bool) -> None:
    """Checks that a folder without `_SUCCESS` is of a run of recordmill.

    Raises:
      UsageError: it is not; names the dataset where that is the folder above or one inside.
    """
    if has_manifest or files.exists(files.join(dataset, TEMPORARY, MARKER)):
        return
    hint = "give the folder that --output named"
    above = dataset.rstrip("/").rpartition("/")[0] or ("" if dataset.startswith("/") else ".")
    inside = sorted(Path(dataset).glob(f"*/{m.SUCCESS_PATH}")) if files.is_local(dataset) else []
    if above and files.exists(files.join(above, m.MANIFEST_PATH)):
        hint = f"the dataset is {above}"
    elif inside:
        hint = f"there is one in {inside[0].parent}"
    raise UsageError(
        f"DIR must be the folder of a dataset, and {dataset} has neither {m.SUCCESS_PATH} nor "
        f"{m.MANIFEST_PATH}; {hint}"
    )


def _is_inside(dataset: str, manifest: Manifest, report: DatasetReport) -> bool:
    """Tells whether all files that the manifest lists lie in the dataset: others are not read."""
    indexes = [] if manifest.compression else [s.name.index_path for s in manifest.shards]
    metadata = [*_derived_files(manifest), m.STATISTICS_PATH]
    try:
        check_inside(dataset, [*manifest.paths, *indexes, *metadata], follow=True)
    except RunError as error:
        report.add(m.MANIFEST_PATH, str(error))
        return False
    return True


def _check_counts(manifest: Manifest, report: DatasetReport) -> None:
    """Checks that the manifest agrees with itself."""
    for defect in (*count_defects(manifest), *shard_defects(manifest)):
        report.add(m.MANIFEST_PATH, defect)


def _check_files(dataset: str, manifest: Manifest, report: DatasetReport) -> None:
    """Checks that the listed files are there, and no others where a reader looks for records."""
    prefix = dataset.rstrip("/") + "/"
    present = {path[len(prefix) :] for path in files.list_files(dataset)}
    reported = {shard.name.path for shard in manifest.shards}  # `check_shard` names these
    reported |= {shard.name.index_path for shard in manifest.shards}
    named = {defects.path for defects in report.files}
    for path in sorted(set(manifest.files) - reported):
        if path in named:
            continue  # its defect is in the report already
        content = _read(dataset, path, report)
        if content is not None and google_crc32c.value(content) != manifest.files[path]:
            report.add(path, "does not match its checksum in the manifest")
    if manifest.in_place:  # in a folder of others
        report.advice = _IN_PLACE if report.advice == _COPY_AGAIN else report.advice
        return
    known = {*manifest.paths, *reported, m.SUCCESS_PATH, m.MANIFEST_PATH}
    folders = {shard.name.path.rpartition("/")[0] for shard in manifest.shards}
    data_folders = tuple(f"{folder}/" for folder in folders if folder)
    for path in sorted(present - known):
        if path.startswith(f"{TEMPORARY}/"):
            continue  # of an unfinished run; readers do not look there
        if path.startswith(data_folders) or ".tfrecord" in path:
            report.add(path, "is not in the manifest; readers would take it for a shard: remove it")
            report.unlisted += 1


def _read_json(dataset: str, path: str, report: DatasetReport) -> Any:
    content = _read(dataset, path, report)
    try:
        return _UNREADABLE if content is None else decode(content, object)
    except FormatError as error:
        report.add(path, f"cannot be read: {error}")
        return _UNREADABLE


def _differences(found: Any, expected: Any, path: str = "") -> Iterator[str]:
    """Yields where two JSON values differ: "splits[0].shardLengths[2] must be 7, and is 8"."""
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in sorted(found.keys() | expected.keys()):
            yield from _differences(
                found.get(key), expected.get(key), f"{path}.{key}" if path else key
            )
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, f"{path}[{i}]")
    elif found != expected:
        yield f"{path} must be {_shown(expected)} by the manifest, and is {_shown(found)}"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _derived_files(manifest: Manifest, statistics: object = None) -> dict[str, bytes]:
    """Returns what TFDS and seqio read beside shards, but for empty files.

    Args:
      manifest: of the dataset.
      statistics: the content of `statistics.json`, of any kind.
    """
    sums = statistics if isinstance(statistics, dict) else {}
    known = {split: found for split, found in sums.items() if isinstance(found, dict)}
    derived = tfds_files(manifest, description="") | seqio_files(manifest, known)
    derived.pop(COMPLETED_PATH, None)
    return derived


def _check_metadata(dataset: str, manifest: Manifest, report: DatasetReport) -> None:
    """Compares the files of TFDS and seqio and the statistics with the manifest."""
    statistics: object = _UNREADABLE
    if files.exists(files.join(dataset, m.STATISTICS_PATH)):
        statistics = _read_json(dataset, m.STATISTICS_PATH, report)
    derived = _derived_files(manifest, statistics)
    records_only = {"dataset_info.json", "features.json"}
    for path in sorted(records_only & manifest.files.keys() - derived.keys()):
        report.add(path, "describes records, of which the manifest has no features")
    for path, content in derived.items():
        is_foreign = manifest.in_place and path not in manifest.files
        if is_foreign or not files.exists(files.join(dataset, path)):
            continue  # reported as missing if the manifest lists it
        if not path.endswith(".json"):
            if _read(dataset, path, report) not in (content, None):
                report.add(path, "must name the classes of the manifest's features, in order")
            continue
        found = _read_json(dataset, path, report)
        if found is _UNREADABLE:
            continue
        expected = json.loads(content)
        if "description" in expected and isinstance(found, dict):
            expected["description"] = found.get("description")
        for difference in _differences(found, expected):
            report.add(path, difference)
    if statistics is not _UNREADABLE:
        _check_statistics(statistics, manifest, report)


def _check_statistics(statistics: object, manifest: Manifest, report: DatasetReport) -> None:
    """Checks the types of the statistics, and compares their examples with the manifest."""
    if not isinstance(statistics, dict):
        report.add(m.STATISTICS_PATH, f"must be an object, and is {_shown(statistics)}")
        return
    splits = manifest.split_shards()
    examples = {split: sum(s.records for s in shards) for split, shards in splits.items()}
    known = {
        split: found.get("examples") if isinstance(found, dict) else None
        for split, found in statistics.items()
        if split not in m.STATISTICS_OF_ALL
    }
    for difference in _differences(known, examples):
        report.add(m.STATISTICS_PATH, f"examples of {difference}")
    try:
        check_statistics(statistics)
    except FormatError as error:
        report.add(m.STATISTICS_PATH, str(error))


def _check_rejects(dataset: str, manifest: Manifest, report: DatasetReport) -> None:
    """Compares the number of rejected inputs with the manifest."""
    paths = [path for path in manifest.files if path.startswith(f"{m.REJECTED_PATH}/")]
    listed, complete = 0, True
    for path in paths:
        content = _read(dataset, path, report)
        complete = complete and content is not None
        for number, line in enumerate((content or b"").splitlines()):
            listed += 1
            try:
                decode(line, Reject)
            except FormatError as error:
                report.add(path, f"line {number + 1} cannot be read: {error}")
    rejected = manifest.counts.get("rejected", {})
    if not isinstance(rejected, dict) or not all(type(n) is int for n in rejected.values()):
        return  # reported as a defect of the manifest
    expected = sum(rejected.values())
    if complete and listed != expected:
        report.add(
            m.REJECTED_PATH,
            f"must list {expected} inputs in all by the manifest, and lists {listed}",
        )


def _workers(targets: list[ShardToCheck], asked: int | None) -> int:
    if asked:
        return max(1, min(asked, len(targets)))
    if sum(target.shard.file_bytes for target in targets) < _SMALL_BYTES:
        return 1
    return max(1, min(usable_cores(), len(targets)))


def _shard_with_content_of(
    found: ShardReport, shard: ShardInfo, shards: list[ShardInfo]
) -> ShardInfo | None:
    """Returns the other shard whose content is in this one's file, None where there is none."""
    if found.crc32c == shard.crc32c:
        return None
    same = (s for s in shards if (s.crc32c, s.file_bytes) == (found.crc32c, found.file_bytes))
    return next(same, None)


def verify(
    dataset: str,
    *,
    workers: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    check: CheckShards | None = None,
) -> DatasetReport:
    """Checks every record, checksum, count and file of a dataset.

    Args:
      dataset: the folder, local or on one of Beam's file systems.
      workers: the number of processes; by default one for a small dataset, else one per core.
      block_bytes: how much of a shard is read at once.
      check: reads the shards instead of processes of this machine.

    Raises:
      UsageError: there is nothing at `dataset`.
      RunError: what reads the shards failed.
    """
    report = DatasetReport()
    if not (os.path.isdir(dataset) if files.is_local(dataset) else files.list_files(dataset)):
        raise UsageError(f"DIR must be the folder of a dataset, and there is none at {dataset}")
    manifest = _read_manifest(dataset, report)
    if manifest is None:
        return report
    if not _is_inside(dataset, manifest, report):
        return report
    _check_counts(manifest, report)
    _check_metadata(dataset, manifest, report)
    _check_rejects(dataset, manifest, report)
    _check_files(dataset, manifest, report)
    schema = Schema.from_json(manifest.features)
    targets = [
        ShardToCheck(dataset, shard, schema, manifest.compression, block_bytes)
        for shard in manifest.shards
    ]
    reports = check(targets) if check else _check_here(targets, _workers(targets, workers))
    for target, found in zip(targets, reports, strict=True):
        if other := _shard_with_content_of(found, target.shard, manifest.shards):
            problem = f"holds the content of {other.name.path}: put each under its own name"
            report.add(target.shard.name.path, problem)
        else:
            report.files += [found.shard, found.index]
        report.shards += bool(found.file_bytes)
        report.records += found.records
        report.file_bytes += found.file_bytes
    if report.advice == _COPY_AGAIN and 0 < report.defects == report.unlisted:
        report.advice = _REMOVE
    return report


def _check_here(targets: list[ShardToCheck], workers: int) -> Iterator[ShardReport]:
    """Yields the report of each shard, in order, by processes of this machine."""
    if workers == 1:
        yield from map(check_shard, targets)
        return
    with TemporaryDirectory() as folder, preloading((_STAGE,)):
        # Beam is not loaded for a small dataset.
        from recordmill.pipelines.commands.verify_stage import check_on
        from recordmill.pipelines.engines.local import LocalEngine

        yield from check_on(LocalEngine(processes=workers), targets, folder)


def _engine_check(call: Call, spec: VerifySpec) -> CheckShards | None:
    """Returns what reads the shards on the engine asked for; None for this machine.

    Raises:
      UsageError: the engine cannot be used, or has no folder for its reports.
    """
    where = call.make(RunnerSpec)
    if where.runner in LOCAL_RUNNERS:
        refuse_unknown(call.given.beam, (f"--{name}" for name in call.command.options()))
        if spec.temp_dir:
            raise UsageError("--temp_dir has no effect with --runner=direct; leave it out")
        return None
    from recordmill.pipelines.commands.verify_stage import check_on
    from recordmill.pipelines.engines.choice import check_beam_flags, choose_engine

    check_beam_flags(call.given.beam, aliases_of(call.command.options()))
    if spec.workers:
        raise UsageError("--workers has no effect with --runner; leave it out")
    if not spec.temp_dir:
        raise UsageError(
            f"--runner={where.runner} needs --temp_dir, a folder for reports that all workers reach"
        )
    engine = choose_engine(EngineSpec(runner=where.runner), call.given.beam)
    engine.check({"--temp_dir": spec.temp_dir, "DIR": spec.dataset})
    folder = files.join(spec.temp_dir, f"recordmill-verify-{new_token()}")

    def check(targets: list[ShardToCheck]) -> Iterator[ShardReport]:
        files.make_folder(folder)
        try:
            yield from check_on(engine, targets, folder)
        finally:
            files.delete_folder(folder)

    return check


def run(call: Call) -> int:
    """Runs `recordmill verify`; returns the exit status.

    Raises:
      UsageError: wrong flags, or no dataset.
      RunError: the engine failed.
    """
    options = call.make(VerifySpec)
    check = _engine_check(call, options)
    report = verify(options.dataset, workers=options.workers, check=check)
    for line in report.lines():
        print(visible(line))
    print(visible(f"{options.dataset}: {report.summary()}"))
    if report.defects:
        print(report.advice, file=sys.stderr)
    elif files.exists(files.join(options.dataset, TEMPORARY, MARKER)):
        print(
            f"{files.join(options.dataset, TEMPORARY)} holds temporary files of a run that was "
            "stopped, or still works: the dataset's own command removes or finishes them",
            file=sys.stderr,
        )
    return 1 if report.defects else 0
