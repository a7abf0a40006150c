"""Jobs on engines of other processes: submit one, find it, wait for its end, report why it failed.

An engine is a value: Beam's options, the number of workers, the function that finds a job. Each
engine has a module that makes this value from the flags.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from recordmill.pipelines.beam_internals import (
    BEAM_SERVER_LOGGER,
    cancel_job,
    job_state,
    release_job,
)
from recordmill.pipelines.engines.counters import read_counters
from recordmill.pipelines.engines.local import JobSize
from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.stage_pipeline import DoStages, RunStages
from recordmill.transforms.dataset.stages import Stage
from recordmill.transforms.storage import files

REMOTE_POLL_SECONDS = 10.0  # asking object storage costs requests
UNTOLD_SECONDS = 30  # in which Beam's job server must tell what the engine tells
_CONNECT_SECONDS = 20
_NETWORK = ("nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "gluster", "fuse", "9p")


def given_options(flags: list[str]) -> dict[str, Any]:
    """Returns Beam's options that differ from their defaults."""
    return dict(PipelineOptions(flags).get_all_options(drop_default=True))


def _is_on_network(path: str) -> bool:
    """Returns whether a local path is on a mounted network file system; False except on Linux."""
    best, kind = "", ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, mount, mount_kind, *_ = line.split()
                inside = os.path.commonpath([os.path.realpath(path), mount]) == mount
                if inside and len(mount) >= len(best):
                    best, kind = mount, mount_kind
    except (OSError, ValueError):
        return False
    return kind.startswith(_NETWORK)


def check_shared(engine: str, paths: Mapping[str, str]) -> None:
    """Checks that workers on other machines reach what they must read and write.

    Args:
      engine: the name of the engine.
      paths: flag -> path.

    Raises:
      UsageError: a path is on this machine's own disk.
    """
    for flag, path in paths.items():
        if files.is_local(path) and not _is_on_network(path):
            raise UsageError(
                f"{flag} must be storage that all workers of {engine} share, such as gs://… or a "
                f"network file system mounted at the same path everywhere; {path} is on this "
                "machine's disk"
            )


def check_job_server(given: Mapping[str, Any], engine: str = "") -> None:
    """Checks that the job server of --job_endpoint, if any, answers: Beam waits for five minutes.

    Args:
      given: Beam's options.
      engine: what the job must run on, "" for any.

    Raises:
      UsageError: it does not, or the job would run on another engine.
    """
    where = given.get("job_endpoint", "")
    if where == "embed" and engine:
        raise UsageError(
            f"--job_endpoint=embed runs the job in this process, not on --runner={engine}; leave "
            "it out, or give HOST:PORT of a job server"
        )
    if where in ("", "embed"):
        return
    seconds = max(1, given.get("job_server_timeout", _CONNECT_SECONDS))
    try:
        with grpc.insecure_channel(where) as channel:
            grpc.channel_ready_future(channel).result(timeout=seconds)
    except (grpc.FutureTimeoutError, ValueError):
        raise UsageError(
            f"--job_endpoint must be HOST:PORT of a job server of Beam that runs; {where!a} does "
            f"not answer as one within {seconds} s"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps an engine from logging pages about an error that we report in one line."""
    # Beam warns when it stops the job server that it has started itself.
    logging.getLogger(BEAM_SERVER_LOGGER).setLevel(logging.ERROR)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _read_failure(path: str) -> str:
    """Returns the reason that a task wrote why the job must fail, "" where there is none."""
    with suppress(RunError, OSError):  # storage that fails here may work for the job
        if files.exists(path):
            return files.read_bytes(path).decode()
    return ""


def _failure(path: str, text: str) -> RunError:
    """Returns the error of a job, by the reason that a task wrote, else by a text."""
    return RunError(_read_failure(path) or text)


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job that the engine has accepted.

    Attributes:
      where: the link to the job, or its name.
      cancel: cancels the job.
      why: returns the engine's reason for a failure, "" where it has none.
      state: returns the engine's own word of the job as one of Beam's `PipelineState`, "" where it
        does not answer, or only Beam knows.
    """

    where: str
    cancel: Callable[[], object]
    why: Callable[[], str] = str
    state: Callable[[], str] = str


def find_by_name(result: Any, name: str) -> SubmittedJob:
    """Returns a job by its name alone, as Beam can for all engines."""
    return SubmittedJob(f"job {name}", partial(cancel_job, result, UNTOLD_SECONDS))


def _no_flags(size: JobSize) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteEngine:
    """An engine that a job is submitted to.

    Attributes:
      name: as in `--runner`.
      runner: the name of Beam's runner.
      workers: the number of workers that the input is cut for.
      flags: Beam's options, without the runner and the job's name.
      find: (Beam's result, job's name) -> the job, once the engine has accepted it.
      is_here: all workers are on this machine.
      mounts: workers elsewhere may have the network file systems of this machine.
      outlives: the job continues when this process ends.
      wait: wait for the end of the job.
      flags_for: size of the job -> more of Beam's options.

    Raises:
      UsageError: `wait` is not set, and the job would end with this process.
    """

    name: str
    runner: str
    workers: int
    flags: tuple[str, ...]
    find: Callable[[Any, str], SubmittedJob]
    is_here: bool
    outlives: bool
    mounts: bool = True
    wait: bool = True
    flags_for: Callable[[JobSize], list[str]] = _no_flags

    def __post_init__(self) -> None:
        if not self.wait and not self.outlives:
            raise UsageError(
                f"--no_wait has no meaning for --runner={self.name}, whose job ends with this "
                "process; leave it out"
            )

    def workers_for(self, size: JobSize) -> int:
        """Returns the number of workers that the input is cut for; engines may scale it."""
        return self.workers

    def check(self, paths: Mapping[str, str]) -> None:
        """Checks, before anything is written, that the job can run here.

        Args:
          paths: flag -> path of what workers read and write.

        Raises:
          UsageError: what is wrong, what to do.
        """
        for flag, path in paths.items():
            if files.is_local(path) and not (self.is_here or self.mounts):
                raise UsageError(
                    f"{flag} must be object storage, such as gs://…, for --runner={self.name}, "
                    f"whose workers have no file system of this machine, got {path}"
                )
            if files.is_local(path) and not os.path.isabs(path):
                raise UsageError(
                    f"{flag} must be an absolute path for --runner={self.name}, whose workers have "
                    f"another current folder, got {path}"
                )
        if not self.is_here:
            check_shared(self.name, paths)

    @contextmanager
    def started(
        self, warm_up: Callable[[], None] | None = None, *, at_once: bool = True
    ) -> Iterator[None]:
        """Does nothing: these engines start their workers themselves."""
        yield

    def prepare(
        self, size: JobSize, compile_kernels: Callable[[], None], release: Callable[[], None]
    ) -> None:
        """Does nothing: workers compile for themselves, one of a machine for all of it."""

    def run(
        self,
        stages: Sequence[Stage[Any]],
        commit: CommitSpec | None = None,
        *,
        folder: str,
        failure_path: str,
        size: JobSize,
    ) -> dict[str, int]:
        """Submits the stages of a job and its commit, see `submit`; returns Beam's counters.

        Args:
          stages: in order.
          commit: what its manifest says; None where the stages are all.
          folder, failure_path, size: see `submit`.
        """

        def build(pipeline: beam.Pipeline) -> object:
            if commit:
                return pipeline | "RunStages" >> RunStages(stages, commit)
            return pipeline | "DoStages" >> DoStages(stages)

        return self.submit(build, folder=folder, failure_path=failure_path, size=size)

    def submit(
        self,
        build: Callable[[beam.Pipeline], object],
        *,
        folder: str,
        failure_path: str,
        size: JobSize,
    ) -> dict[str, int]:
        """Submits a job, and waits for its end if `wait` is set; returns Beam's counters then.

        Args:
          build: applies transforms to the pipeline.
          folder: the folder of the job's temporary files.
          failure_path: the file in which a task writes why the job must fail.
          size: the size of the job.

        Raises:
          RunError: a task wrote why the job must fail.
          Exception: the error of the engine.
        """
        named = "job_name" in given_options(list(self.flags))
        name = () if named else (f"--job_name=recordmill-{secrets.token_hex(6)}",)
        options = PipelineOptions(
            [f"--runner={self.runner}", *self.flags, *self.flags_for(size), *name]
        )
        with _quiet():
            pipeline = beam.Pipeline(options=options)
            build(pipeline)
            result = pipeline.run()
            job = self.find(result, str(options.get_all_options()["job_name"]))
            try:
                print(f"{self.name}: {job.where}", file=sys.stderr, flush=True)
                if not self.wait:
                    return {}
                return self._await(result, job, failure_path)
            except KeyboardInterrupt:
                if not self.outlives:
                    raise
                raise KeyboardInterrupt(
                    f"no longer waiting; the job goes on and can be cancelled there: {job.where}"
                ) from None
            finally:
                if self.wait:
                    release_job(result)

    def _await(self, result: Any, job: SubmittedJob, failure_path: str) -> dict[str, int]:
        every = 1.0 if files.is_local(failure_path) else REMOTE_POLL_SECONDS
        known_at = time.monotonic()  # when it was last clear that the job goes on
        ended = ""  # the engine's own word of the job's end
        while not PipelineState.is_terminal(told := job_state(result, UNTOLD_SECONDS)):
            time.sleep(every)
            # Engines repeat failed tasks; a task that wrote a reason would fail again.
            reason = _read_failure(failure_path)
            if reason:
                with suppress(Exception):  # it has ended meanwhile
                    job.cancel()
                raise RunError(reason)
            # Beam's job server can end, or fail while it handles the end of a job: it never tells
            # that end then, and what the engine itself says counts.
            own = job.state()
            if PipelineState.is_terminal(own):
                ended = own
            if (own or told) and not ended:
                known_at = time.monotonic()
            if time.monotonic() - known_at <= UNTOLD_SECONDS:
                continue
            if ended == PipelineState.DONE:
                return {}
            lost = f"the job ended as {ended}: {job.where}"
            raise _failure(
                failure_path,
                lost if ended else f"{self.name} does not answer any more; see {job.where}",
            )
        if told == PipelineState.DONE:
            return read_counters(result)
        why = job.why()
        if why:
            raise RuntimeError(why)
        result.wait_until_finish(UNTOLD_SECONDS * 1000)  # raises the reason that Beam has
        raise _failure(failure_path, f"the job ended as {told}: {job.where}")
