"""Phase 1: find out in seconds whether a job can run, and write down what its tasks are.

Nothing is written before every check has passed. A plan that is already there, from a run that was
killed, is taken up if it is for the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import PurePath
from typing import Any, Generic, TypeVar

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError

from recordmill.records import manifest as m
from recordmill.records.errors import UsageError
from recordmill.records.shards import ShardName
from recordmill.transforms import files
from recordmill.transforms.commit import CommitSpec, read_manifest
from recordmill.transforms.job import Job, read_json, write_json
from recordmill.transforms.plan import plan_path

_MARKER = "of_recordmill"  # in a folder of temporary files: it may be deleted
_METADATA = ("features.json", "dataset_info.json", m.STATISTICS_PATH)

JobT = TypeVar("JobT", bound=Job)
InventoryT = TypeVar("InventoryT", bound="Inventory")


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a look at the input found, before anything is written.

    Attributes:
      input_bytes: for progress and for cutting tasks; guessed for compressed files.
      sources: for the manifest: number, bytes and checksum of the inputs, names where they are few.
      checksums: name -> checksum of whatever else than flags and sources decides the bytes.
      modified: a checksum of when inputs were last changed.
    """

    input_bytes: int
    sources: dict[str, Any]
    checksums: dict[str, Any]
    modified: str


@dataclass(frozen=True, slots=True)
class Phase:
    """How far a phase of a run is.

    Attributes:
      name: for the person who waits.
      done, total: tasks.
      size_bytes: that all its tasks move; 0 where that says nothing.
    """

    name: str
    done: int
    total: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan(Generic[JobT]):
    """A job that can run.

    Attributes:
      job: what to do.
      commit: what the manifest will say.
      details: what the planner wrote down of its tasks.
      input_bytes: see `Inventory`.
      resumed: a run that was killed is being finished.
      complete: the dataset is already there, written by this very configuration.
    """

    job: JobT
    commit: CommitSpec
    details: dict[str, Any]
    input_bytes: int
    resumed: bool = False
    complete: bool = False


class Planner(ABC, Generic[JobT, InventoryT]):
    """What a kind of job adds to planning and running.

    Attributes:
      kind: its command, such as "text".
      worker_modules: what a worker loads: those of the stages.
      packages: whose versions the manifest names.
      bytes_version: a change of what the bytes are made of, so that no run is finished by a release
        that makes others.
      metadata: files of its own beside those of every dataset.
    """

    kind: str
    worker_modules: tuple[str, ...]
    packages: tuple[str, ...]
    bytes_version: int
    metadata: tuple[str, ...] = ()

    def __init__(self, job: JobT) -> None:
        self.job = job

    @abstractmethod
    def inspect(self) -> AbstractContextManager[InventoryT]:
        """Checks flags against the input; what it holds for `write` goes when the context ends.

        The job may have learned from the input then: its labels, its splits.

        Raises:
          UsageError: one line: what is wrong, what to do.
        """

    @abstractmethod
    def write(self, inventory: InventoryT, *, workers: int) -> dict[str, Any]:
        """Writes the tasks, cut for so many workers; returns the details of the plan."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Returns what the manifest says of the configuration beside the job's own options."""

    def paths(self) -> dict[str, str]:
        """Returns flag -> path of what workers read and write; the first pattern for all input."""
        paths = {"--output": self.job.output, "--temp_dir": self.job.work}
        for pattern in self.config().get("input", [])[:1]:
            paths["--input"] = pattern
        return paths

    @abstractmethod
    def describe(self) -> str:
        """Returns the description of the dataset."""

    @abstractmethod
    def build(self, pipeline: beam.Pipeline, plan: Plan[JobT]) -> object:
        """Applies the stages of the job."""

    @abstractmethod
    def phases(self, plan: Plan[JobT]) -> Iterator[Phase]:
        """Yields the phases in order, up to the one that is not known yet."""

    @abstractmethod
    def summary(self, counts: dict[str, Any]) -> str:
        """Returns one line of what became of the inputs."""


def reason(error: Exception) -> str:
    """Returns what a file system says, without number and path."""
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
        files.write_bytes(probe, b"x")
        files.delete_quietly([probe])
    except (OSError, BeamIOError, ValueError) as error:
        raise UsageError(f"{flag} {folder} cannot be written: {reason(error)}") from error


def is_ours(folder: str) -> bool:
    """Tells whether a folder was made for temporary files, and may be deleted."""
    return files.exists(files.join(folder, _MARKER))


def _other_work(job: Job) -> str:
    """Returns where an unfinished run for this output has its plan, "" where that is not elsewhere.

    That is so if it was begun with another --temp_dir.
    """
    marker = files.join(job.staging, _MARKER)
    if not files.exists(marker):
        return ""
    work = files.read_bytes(marker).decode().strip()
    elsewhere = work not in ("", job.work) and files.exists(plan_path(work))
    return work if elsewhere else ""


def _forget(job: Job, *, published: bool) -> None:
    """Removes what an unfinished run left elsewhere; its temporary files are not all of it.

    Args:
      job: the new one.
      published: there is no manifest, so that shards at their places are of that run.
    """
    work = _other_work(job)
    if work:
        files.delete_folder(work)
    if not published:
        return
    done = files.list_files(files.join(job.staging, "done"))
    names = [ShardName.parse(f"{PurePath(path).stem}.tfrecords") for path in done]
    paths = [path for name in names for path in (name.path, name.index_path)]
    rejected = files.list_files(files.join(job.output, m.REJECTED_PATH))
    files.delete_quietly([*(files.join(job.output, path) for path in paths), *rejected])
    if files.is_local(job.output):
        for folder in {files.join(job.output, name.split) for name in names}:
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)


def _check_foreign(planner: Planner[Any, Any], listed: set[str]) -> None:
    """Checks that nothing lies where the dataset and its temporary files go but what is ours."""
    job = planner.job
    taken = [*_METADATA, *planner.metadata, *(split.name for split in job.splits)]
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


def _fingerprint(planner: Planner[Any, Any], inventory: Inventory) -> str:
    content = {
        "kind": planner.kind,
        "version": planner.bytes_version,
        "options": planner.job.decides_bytes(),
        "checksums": inventory.checksums,
        "sources": inventory.sources["checksum"],
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _commit_spec(planner: Planner[Any, Any], inventory: Inventory, replaces: bool) -> CommitSpec:
    job = planner.job
    config = {"pipeline": planner.kind, **job.decides_bytes(), **planner.config()}
    name = "".join(c if c.isalnum() else "_" for c in job.output.rpartition("/")[2]) or "dataset"
    packages = ("recordmill", "apache-beam", "numpy", "numba", *planner.packages)
    versions = {package: version(package) for package in packages}
    return CommitSpec(
        name=name if name[0].isalpha() else f"d_{name}",
        description=planner.describe(),
        fingerprint=_fingerprint(planner, inventory),
        replaces=replaces,
        config=json.loads(json.dumps(config | inventory.checksums)),
        versions=versions | {"python": platform.python_version()},
        sources=inventory.sources,
    )


def plan_job(planner: Planner[JobT, Any], *, workers: int) -> Plan[JobT]:
    """Checks a request and writes its plan, or takes up the one that is there.

    Args:
      planner: of the job that the user asked for.
      workers: for how many the input is cut; it has no influence on the output.

    Raises:
      UsageError: one line: what is wrong, what to do.
    """
    with planner.inspect() as inventory:
        job = planner.job
        old = read_manifest(job.output)
        spec = _commit_spec(planner, inventory, replaces=old is not None)
        plan = _taken_up(job, inventory, old=old, spec=spec)
        if plan:
            return plan
        check_writable(job.output, "--output")
        if is_ours(job.staging):
            _forget(job, published=old is None)
        else:
            _check_foreign(planner, set(old.paths) if old else set())
        for folder in {job.work, job.staging}:
            files.delete_folder(folder)
            flag = "--temp_dir" if folder == job.work != job.staging else "--output"
            check_writable(folder, flag)
            files.write_bytes(files.join(folder, _MARKER), f"{job.work}\n".encode())
        try:
            details = planner.write(inventory, workers=workers)
        except UsageError:
            _leave(job)
            raise
        state = {
            "fingerprint": spec.fingerprint,
            "details": details,
            "commit": {item.name: getattr(spec, item.name) for item in fields(spec)},
            "modified": inventory.modified,
        }
        write_json(plan_path(job.work), state)
        return Plan(job, spec, details, inventory.input_bytes)


def _leave(job: Job) -> None:
    """Removes what planning wrote, and the output's folder if nothing else is in it."""
    for folder in {job.work, job.staging}:
        files.delete_folder(folder)
    if files.is_local(job.output) and not os.listdir(job.output):
        os.rmdir(job.output)


def _taken_up(
    job: JobT, inventory: Inventory, *, old: m.Manifest | None, spec: CommitSpec
) -> Plan[JobT] | None:
    """Returns the plan of a run to finish or of a finished one, None where one must be made."""
    finished = old is not None and files.exists(files.join(job.output, m.SUCCESS_PATH))
    state = read_json(plan_path(job.work)) if files.exists(plan_path(job.work)) else None
    if old and old.fingerprint != spec.fingerprint and not job.overwrite:
        raise UsageError(
            f"--output {job.output} holds a dataset of another configuration or input; choose "
            "another --output, or --overwrite to replace it"
        )
    same = state is not None and state["fingerprint"] == spec.fingerprint
    if state and same and not _starts_anew(job, state, inventory):
        if state["modified"] != inventory.modified:
            raise UsageError(
                "the input changed since the run began that this one would finish; start anew with "
                "--overwrite"
            )
        commit = CommitSpec(**state["commit"])
        return Plan(job, commit, state["details"], inventory.input_bytes, resumed=True)
    if finished and old and old.fingerprint == spec.fingerprint and not job.overwrite:
        return Plan(job, spec, {}, inventory.input_bytes, complete=True)
    elsewhere = _other_work(job)
    if elsewhere and not job.overwrite:
        raise UsageError(
            f"--output {job.output} holds an unfinished run whose other temporary files are in "
            f"{elsewhere}; finish it with its own --temp_dir, or start anew with --overwrite"
        )
    if state and not job.overwrite:
        raise UsageError(
            f"--output {job.output} holds an unfinished run of another configuration or input; "
            "finish it with its own command, or start anew with --overwrite"
        )
    return None


def _starts_anew(job: Job, state: dict[str, Any], inventory: Inventory) -> bool:
    """Tells whether --overwrite means an unfinished run of the very same configuration.

    A killed run that was begun with --overwrite is finished by the same command; one whose input
    has changed since, or that ended over the budget of rejects, is begun anew.
    """
    changed = state["modified"] != inventory.modified
    return job.overwrite and (changed or files.exists(job.over_budget_path))
