"""The engine for Flink: flags that the user leaves out come from the cluster's own settings."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from apache_beam.options.pipeline_options import FlinkRunnerOptions
from apache_beam.runners.runner import PipelineState

from recordmill.pipelines import beam_internals as compat
from recordmill.pipelines.engines.flink_cluster import (
    FlinkCluster,
    cancel_job,
    find_job,
    job_ids,
    job_state,
    read_cluster,
)
from recordmill.pipelines.engines.remote import (
    UNTOLD_SECONDS,
    RemoteEngine,
    SubmittedJob,
    check_job_server,
    given_options,
)
from recordmill.records.errors import RunError, UsageError

BOOT = "recordmill-worker-boot"
_SUBMISSION_SECONDS = 300
# An idle worker is kept for the next stage: starting a new one takes seconds.
_ENVIRONMENT_CACHE_MILLIS = 20_000


def _note(text: str) -> None:
    print(f"flink: {text}", file=sys.stderr)


def _parallelism(given: dict[str, Any], cluster: FlinkCluster) -> int:
    wanted = int(given.get("parallelism", cluster.slots))
    if wanted < 1:
        raise UsageError(
            f"--parallelism must be at least 1, the number of slots that the job is to use; "
            f"{cluster.url} has {cluster.slots} now"
        )
    if cluster.elastic:
        return wanted
    if wanted > cluster.slots:
        raise UsageError(
            f"--parallelism must be at most {cluster.slots}, the slots of {cluster.url}, got "
            f"{wanted}; the job would wait for ever"
        )
    if wanted > cluster.free_slots:
        _note(f"{cluster.free_slots} of {cluster.slots} slots are free; the job waits for more")
    return wanted


def _job_server(given: dict[str, Any], cluster: FlinkCluster) -> list[str]:
    """Returns the flags for the job server: a running one, a jar from disk, or Beam's download."""
    if given.get("job_endpoint"):
        check_job_server(given, "flink")
        return []
    jar = given.get("flink_job_server_jar", "")
    if jar and not urllib.parse.urlsplit(jar).scheme and not os.path.exists(jar):
        raise UsageError(f"--flink_job_server_jar must be a file or a URL, got {jar}")
    java = given.get("job_server_java_launcher", "java")
    if not given.get("flink_submit_uber_jar") and not shutil.which(java):
        raise UsageError(
            f"{java} is needed for Beam's job server and not in PATH; install a Java runtime, or "
            "give --job_endpoint=HOST:PORT of a job server, or --flink_submit_uber_jar"
        )
    published = FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    if cluster.version in published:
        version = str(given.get("flink_version", cluster.version))
        if version != cluster.version:
            raise UsageError(
                f"--flink_version must be {cluster.version}, which is what {cluster.url} runs, got "
                f"{version}; leave it out"
            )
        return [f"--flink_version={version}"]
    if not jar:
        raise UsageError(
            f"{cluster.url} runs Flink {cluster.version}, and this Beam has job servers for "
            f"{', '.join(published)}; give another cluster, or one with --flink_job_server_jar"
        )
    return []


def _environment(given: dict[str, Any], cluster: FlinkCluster) -> list[str]:
    """Returns the flags for how task managers start workers."""
    kind = given.get("environment_type")
    if kind is None and not cluster.is_here:
        raise UsageError(
            "--environment_type must say how task managers start workers: PROCESS where "
            "recordmill[beam] is installed on each, DOCKER with --environment_config=IMAGE, "
            "or EXTERNAL with the address of a worker pool"
        )
    if kind not in (None, "PROCESS") or "environment_config" in given:
        return []
    command = BOOT
    if cluster.is_here:
        beside = os.path.join(os.path.dirname(sys.executable), BOOT)
        command = beside if os.path.exists(beside) else shutil.which(BOOT) or ""
        if not command:
            raise UsageError(f"{BOOT} is not installed; run pip install 'recordmill[beam]' again")
    config = json.dumps({"command": command})
    return ["--environment_type=PROCESS", f"--environment_config={config}"]


def _finder(cluster: FlinkCluster) -> Callable[[Any, str], SubmittedJob]:
    known: set[str] = set()  # jobs of before, which may have the same name
    with suppress(OSError):
        known.update(job_ids(cluster.url))

    def find(result: Any, name: str) -> SubmittedJob:
        end = time.monotonic() + _SUBMISSION_SECONDS
        while time.monotonic() < end:
            job = find_job(cluster.url, name, known)
            told, ended = "", False
            if not job:
                told = compat.job_state(result, UNTOLD_SECONDS)
                ended = PipelineState.is_terminal(told)
                if ended:
                    result.wait_until_finish(UNTOLD_SECONDS * 1000)  # raises the server's error
                if ended or not told:
                    job = find_job(cluster.url, name, known)  # it may have come meanwhile
            if job:
                known.add(job)
                where = f"{cluster.url}/#/job/running/{job}"
                return SubmittedJob(
                    where,
                    partial(cancel_job, cluster.url, job),
                    state=partial(job_state, cluster.url, job),
                )
            if not told:
                raise RunError(
                    f"Beam's job server does not answer any more, and {cluster.url} has no job "
                    f"{name}; start the job server again"
                )
            if ended:  # clusters forget jobs that have ended
                return SubmittedJob(f"{cluster.url} (the job has ended)", lambda: None)
            time.sleep(0.5)
        raise RunError(f"the job did not reach {cluster.url} within {_SUBMISSION_SECONDS} s")

    return find


def flink_engine(flags: list[str], *, wait: bool) -> RemoteEngine:
    """Returns the engine for a cluster, with flags from the cluster's own settings.

    Raises:
      UsageError: the cluster does not answer, or cannot run the job as it was asked for.
    """
    given = given_options(flags)
    if "flink_master" not in given:
        raise UsageError(
            "--flink_master=HOST:PORT is required for --runner=flink: the address of the cluster's "
            "dashboard"
        )
    cluster = read_cluster(given["flink_master"])
    parallelism = _parallelism(given, cluster)
    defaults: dict[str, Any] = {
        "parallelism": parallelism,
        "sdk_worker_parallelism": cluster.slots_per_task_manager,
        "environment_cache_millis": _ENVIRONMENT_CACHE_MILLIS,
    }
    extra = [f"--{name}={value}" for name, value in defaults.items() if name not in given]
    extra += _job_server(given, cluster) + _environment(given, cluster)
    if not cluster.restart_strategy:
        _note(
            f"{cluster.url} has no restart strategy: the job ends with the first task manager that "
            "dies; set restart-strategy.type: fixed-delay in the cluster's configuration"
        )
    return RemoteEngine(
        name="flink",
        runner="FlinkRunner",
        workers=parallelism,
        flags=(*flags, *extra),
        find=_finder(cluster),
        is_here=cluster.is_here,
        outlives=True,
        wait=wait,
    )
