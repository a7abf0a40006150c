"""Read the release, the slots and the restart strategy of a Flink cluster from its REST API.

This is done before a job is submitted, so that no job hangs or fails because of a wrong guess.
"""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from apache_beam.runners.runner import PipelineState

from recordmill.records.errors import UsageError

_TIMEOUT_SECONDS = 20
_ENDS: dict[str, str] = {
    "FINISHED": PipelineState.DONE,
    "CANCELED": PipelineState.CANCELLED,
    "FAILED": PipelineState.FAILED,
}
_NO_RESTARTS = ("", "none", "off", "disable")
# Clusters that start task managers when a job asks for them: their slots are no limit.
_ELASTIC = ("kubernetes.cluster-id", "yarn.application.id")


@dataclass(frozen=True, slots=True)
class FlinkCluster:
    """A cluster that answers.

    Attributes:
      url: the address of the REST API and the dashboard.
      version: major and minor, such as "1.20".
      slots: the slots of all task managers; each slot is one worker.
      free_slots: the slots that no job uses now.
      slots_per_task_manager: the slots of the largest task manager.
      restart_strategy: the reaction to the death of a task manager; "" where the job fails.
      elastic: the cluster starts task managers as jobs need them.
      is_here: the cluster has task managers, and all are on this machine. Its address is no proof:
        a forwarded port looks like this machine.
    """

    url: str
    version: str
    slots: int
    free_slots: int
    slots_per_task_manager: int
    restart_strategy: str
    elastic: bool
    is_here: bool


def _get(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            return json.load(response)
    except http.client.HTTPException as error:  # such as the gRPC port of a job server
        raise OSError("it answers, but not by HTTP") from error


def _is_own_address(host: str) -> bool:
    """Returns whether an address belongs to this machine: only such an address can be bound."""
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def base_url(master: str) -> str:
    """Returns the URL for an address such as localhost:8081."""
    master = master.strip().rstrip("/")
    return master if "://" in master else f"http://{master}"


def read_cluster(master: str) -> FlinkCluster:
    """Reads what a cluster is and has.

    Args:
      master: `HOST:PORT` or a URL, of the REST API.

    Raises:
      UsageError: no Flink cluster answers at the address.
    """
    url = base_url(master)
    try:
        overview = _get(f"{url}/overview")
        version = ".".join(overview["flink-version"].split(".")[:2])
        managers = _get(f"{url}/taskmanagers")["taskmanagers"]
        settings = {item["key"]: item["value"] for item in _get(f"{url}/jobmanager/config")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", error)
        raise UsageError(
            f"--flink_master must be the REST address of a Flink cluster, the one of its "
            f"dashboard, such as localhost:8081; {url} does not answer as one: {reason}"
        ) from error
    strategy = settings.get("restart-strategy.type") or settings.get("restart-strategy", "")
    slots = [int(manager["slotsNumber"]) for manager in managers]
    hosts = {urllib.parse.urlsplit(manager["path"]).hostname or "" for manager in managers}
    return FlinkCluster(
        url=url,
        version=version,
        slots=int(overview["slots-total"]),
        free_slots=int(overview["slots-available"]),
        slots_per_task_manager=max(
            slots, default=int(settings.get("taskmanager.numberOfTaskSlots", 1))
        ),
        restart_strategy="" if strategy.lower() in _NO_RESTARTS else strategy,
        elastic=any(name in settings for name in _ELASTIC),
        is_here=bool(hosts) and all(map(_is_own_address, hosts)),
    )


def _jobs(url: str) -> list[dict[str, Any]]:
    """Returns all jobs that a cluster lists, also those that have ended."""
    return list(_get(f"{url}/jobs/overview")["jobs"])


def job_ids(url: str) -> list[str]:
    """Returns the ids of all jobs that a cluster lists, also of those that have ended."""
    return [str(job["jid"]) for job in _jobs(url)]


def find_job(url: str, name: str, known: Container[str]) -> str | None:
    """Returns the id of the newest job of a name, None while there is none but known ones."""
    jobs = [job for job in _jobs(url) if job["name"] == name and job["jid"] not in known]
    return str(max(jobs, key=lambda job: job["start-time"])["jid"]) if jobs else None


def job_state(url: str, job: str) -> str:
    """Returns Beam's name of a job's state, "" where the cluster does not tell it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return _ENDS.get(_get(f"{url}/jobs/{job}/status")["status"], PipelineState.RUNNING)
    return ""


def cancel_job(url: str, job: str) -> None:
    """Cancels a job; Beam's job server would only stop waiting for it."""
    request = urllib.request.Request(f"{url}/jobs/{job}?mode=cancel", method="PATCH")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS):
        pass
