"""Phase 1: find out in seconds whether a job can run, and write down what its tasks are.

Nothing is written before every check has passed. A plan that is already there, from a run that was
killed, is taken up if it is for the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import unicodedata
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from recordmill.pipelines.options import TextRequest
from recordmill.records import manifest as m
from recordmill.records.errors import UsageError
from recordmill.transforms import files
from recordmill.transforms.commit import CommitSpec, read_manifest
from recordmill.transforms.documents import read_header
from recordmill.transforms.job import TextJob, read_json, write_json
from recordmill.transforms.plan import MAX_FAN_IN, RunTree, choose_tree, plan_path, write_tasks
from recordmill.transforms.shard_plan import count_shards
from recordmill.transforms.sources import SourceRange, list_sources, plan_tasks
from recordmill.transforms.tokenization import Vocabulary

_MARKER = "of_recordmill"  # in a folder of temporary files: it may be deleted
_METADATA = ("features.json", "dataset_info.json", m.STATISTICS_PATH)
_MIN_TASK_BYTES = 1 << 20
_USUAL_TASK_BYTES = 1 << 25
_MAX_TASK_BYTES = 1 << 28
_TASKS_PER_WORKER = 8
_MOST_LISTED_SOURCES = 1000
# A change of what the bytes are made of, so that no run is finished by a release that makes others.
_BYTES_VERSION = 1


@dataclass(frozen=True, slots=True)
class TextPlan:
    """A job that can run.

    Attributes:
      job: what to do.
      commit: what the manifest will say.
      tree: the runs.
      input_bytes: of text, guessed for compressed files.
      resumed: a run that was killed is being finished.
      complete: the dataset is already there, written by this very configuration.
    """

    job: TextJob
    commit: CommitSpec
    tree: RunTree
    input_bytes: int
    resumed: bool = False
    complete: bool = False


def read_vocabulary(path: str) -> tuple[bytes, Vocabulary]:
    """Reads --vocab_file.

    Raises:
      UsageError: it is missing, empty or no vocabulary.
    """
    try:
        data = files.read_bytes(path)
    except (OSError, BeamIOError) as error:
        raise UsageError(
            f"--vocab_file {path} cannot be read: {_reason(error)}; `recordmill vocab` makes one"
        ) from error
    return data, Vocabulary.from_bytes(data, path)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def check_writable(folder: str, flag: str = "--output") -> None:
    """Writes and deletes a small file.

    Raises:
      UsageError: the folder cannot be written to.
    """
    probe = files.join(folder, f".recordmill-probe-{os.getpid()}")
    try:
        files.make_folder(folder)
        with FileSystems.create(probe) as handle:
            handle.write(b"x")
        FileSystems.delete([probe])
    except (OSError, BeamIOError, ValueError) as error:
        raise UsageError(f"{flag} {folder} cannot be written: {_reason(error)}") from error


def task_bytes(total: int, workers: int) -> int:
    """Returns the size of a read task: enough of them for all workers, and runs not too many."""
    wanted = total // (workers * _TASKS_PER_WORKER)
    wanted = max(_MIN_TASK_BYTES, min(wanted, _USUAL_TASK_BYTES))
    return max(wanted, min(total // MAX_FAN_IN, _MAX_TASK_BYTES))


def _build_reads(job: TextJob, input_bytes: int) -> float:
    """Returns about how many ranges all shards together read from each run."""
    output_bytes = 2 * input_bytes * job.task.copies
    splits, spec = job.splits, job.shards
    weights = [int(output_bytes * split.share) for split in splits]
    return float(sum(count_shards(weights, splits, spec)) * job.task.copies)


def _check_columns(request: TextRequest, sources: list[SourceRange]) -> None:
    spec = request.job.documents
    formats = {source.format for source in sources}
    if spec.split_by and "text" in formats:
        raise UsageError("--split_by needs fields: JSONL, CSV or TSV, and there is plain text")
    for kind in ("csv", "tsv"):
        first = next((source for source in sources if source.format == kind and source.size), None)
        if first is None:
            continue
        header = read_header(first, spec)
        for flag, name in (("--text_field", spec.text_field), ("--split_by", spec.split_by)):
            if name and name not in header:
                raise UsageError(
                    f"{flag} must be a column of {first.path}: {', '.join(header)}; got {name!r}"
                )


def _fingerprint(job: TextJob, sources: list[SourceRange], checksum: str) -> str:
    content = {
        "version": _BYTES_VERSION,
        "options": job.decides_bytes(),
        "vocabulary": checksum,
        "sources": sources_summary(sources)["checksum"],
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def sources_summary(sources: list[SourceRange]) -> dict[str, Any]:
    """Returns number, bytes and checksum of the inputs, and their names where they are few."""
    digest = hashlib.blake2b(digest_size=16)
    for source in sources:
        digest.update(f"{source.name}\t{source.format}\t{source.size}\n".encode())
    summary: dict[str, Any] = {
        "files": len(sources),
        "bytes": sum(source.size for source in sources),
        "checksum": digest.hexdigest(),
    }
    if len(sources) <= _MOST_LISTED_SOURCES:
        summary["names"] = {source.name: source.size for source in sources}
    return summary


def _versions() -> dict[str, str]:
    packages = ("recordmill", "apache-beam", "tokenizers", "numpy", "numba")
    found = {name: version(name) for name in packages}
    return found | {"python": platform.python_version(), "unicode": unicodedata.unidata_version}


def _commit_spec(
    request: TextRequest, sources: list[SourceRange], vocabulary: Vocabulary, replaces: bool
) -> CommitSpec:
    job = request.job
    config = job.decides_bytes() | {
        "pipeline": "text",
        "input": request.patterns,
        "vocabulary_blake2b": vocabulary.checksum,
        "vocabulary_size": len(vocabulary),
    }
    name = "".join(c if c.isalnum() else "_" for c in job.output.rpartition("/")[2]) or "dataset"
    return CommitSpec(
        name=name if name[0].isalpha() else f"d_{name}",
        description=f"{job.task.name} examples written by recordmill",
        fingerprint=_fingerprint(job, sources, vocabulary.checksum),
        replaces=replaces,
        config=json.loads(json.dumps(config)),
        versions=_versions(),
        sources=sources_summary(sources),
    )


def is_ours(folder: str) -> bool:
    """Tells whether a folder was made for temporary files, and may be deleted."""
    return files.exists(files.join(folder, _MARKER))


def _check_foreign(job: TextJob, listed: set[str]) -> None:
    """Checks that nothing lies where the dataset and its temporary files go but what is ours."""
    taken = [*_METADATA, *(split.name for split in job.splits)]
    for name in taken:
        path = files.join(job.output, name)
        there = files.list_files(path) or ([path] if files.exists(path) else [])
        foreign = [p for p in there if p[len(job.output) :].lstrip("/") not in listed]
        if foreign and not (files.is_local(path) and os.path.isdir(foreign[0])):
            raise UsageError(
                f"{path} already holds {len(foreign)} files that no dataset of recordmill lists, "
                f"such as {foreign[0]}; move them away or choose another --output"
            )
    for folder in {job.work, job.staging}:
        if files.list_files(folder) and not is_ours(folder):
            raise UsageError(f"{folder} is needed for temporary files, and holds others; move them")


def plan_text(request: TextRequest, *, workers: int) -> TextPlan:
    """Checks a request and writes its plan, or takes up the one that is there.

    Args:
      request: what the user asked for.
      workers: for how many the input is cut; it has no influence on the output.

    Raises:
      UsageError: one line: what is wrong, what to do.
    """
    job = request.job
    vocabulary_bytes, vocabulary = read_vocabulary(request.vocab_file)
    job.task.bind(vocabulary, job.seed)
    sources = list_sources(request.patterns, input_format=request.input_format)
    _check_columns(request, sources)
    input_bytes = sum(source.text_bytes for source in sources)
    old = read_manifest(job.output)
    finished = old is not None and files.exists(files.join(job.output, m.SUCCESS_PATH))
    spec = _commit_spec(request, sources, vocabulary, replaces=old is not None)
    state = read_json(plan_path(job.work)) if files.exists(plan_path(job.work)) else None
    same = state is not None and state["fingerprint"] == spec.fingerprint
    changed = state is not None and state["modified"] != _modified(sources)
    if old and old.fingerprint != spec.fingerprint and not job.overwrite:
        raise UsageError(
            f"--output {job.output} holds a dataset of another configuration or input; choose "
            "another --output, or --overwrite to replace it"
        )
    if state and same and not (changed and job.overwrite):
        if changed:
            raise UsageError(
                "the input changed since the run began that this one would finish; start anew with "
                "--overwrite"
            )
        return TextPlan(
            job, CommitSpec(**state["commit"]), RunTree(**state["tree"]), input_bytes, resumed=True
        )
    if finished and old and old.fingerprint == spec.fingerprint and not job.overwrite:
        return TextPlan(job, spec, RunTree(0), input_bytes, complete=True)
    if state and not job.overwrite:
        raise UsageError(
            f"--output {job.output} holds an unfinished run of another configuration or input; "
            "finish it with its own command, or start anew with --overwrite"
        )
    check_writable(job.output, "--output")
    if state is None:
        _check_foreign(job, set(old.paths) if old else set())
    for folder in {job.work, job.staging}:
        files.delete_folder(folder)
        check_writable(folder, "--temp_dir" if folder == job.work != job.staging else "--output")
        files.write_bytes(files.join(folder, _MARKER), b"")
    tasks = plan_tasks(
        sources,
        target_bytes=task_bytes(input_bytes, workers),
        splittable=job.documents.splittable,
    )
    tree = choose_tree(len(tasks), _build_reads(job, input_bytes), input_bytes / 2)
    files.write_bytes(job.vocabulary_path, vocabulary_bytes)
    write_tasks(job.work, tasks)
    state = {
        "fingerprint": spec.fingerprint,
        "tree": {"tasks": tree.tasks, "max_fan_in": tree.max_fan_in, "fan_in": tree.fan_in},
        "commit": {name: getattr(spec, name) for name in CommitSpec.__dataclass_fields__},
        "modified": _modified(sources),
    }
    write_json(plan_path(job.work), state)
    return TextPlan(job, spec, tree, input_bytes)


def _modified(sources: list[SourceRange]) -> str:
    """Returns a checksum of when local inputs were last changed."""
    digest = hashlib.blake2b(digest_size=16)
    for source in sources:
        if files.is_local(source.path):
            digest.update(f"{source.name}\t{os.stat(source.path).st_mtime_ns}\n".encode())
    return digest.hexdigest()
