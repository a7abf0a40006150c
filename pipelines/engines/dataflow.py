"""The engine for Dataflow: check its flags before submission, and choose machines for the job.

Workers run the given image, so that only the job's graph is staged and nothing is installed at
their start. Dataflow starts a process for each core; each has one thread, since a work item takes
a core and a known amount of memory.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from recordmill.pipelines.beam_internals import dataflow_errors
from recordmill.pipelines.engines.local import JobSize
from recordmill.pipelines.engines.remote import RemoteEngine, SubmittedJob, given_options
from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.writable import check_writable

IMAGE_VARIABLE = "RECORDMILL_IMAGE"  # set in the image: its own name

_FAMILY = "e2-standard"  # 4 GB a core, the cheapest, in every region
_CORES = (2, 4, 8)
_USUAL_MACHINES = 100  # where the user sets no limit
_USUAL_WORKERS = 32  # processes that an input is cut for where no flag gives their number
_DISK_GB = 30  # the system, the image unpacked, logs
_DISK_STEP_GB = 10


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines for a job.

    Attributes:
      cores: the cores of a machine; each runs one worker process.
      most: the largest number of machines that have work.
      disk_gb: the disk of a machine.
    """

    cores: int
    most: int
    disk_gb: int


def choose_machines(size: JobSize) -> Machines:
    """Returns machines such that each gets several work items, and scratch space for two a core."""
    cores = next((cores for cores in _CORES if size.work_items <= 8 * cores), _CORES[-1])
    most = max(1, min(_USUAL_MACHINES, -(-size.work_items // cores)))
    scratch_gb = 2 * cores * size.input_bytes / max(1, size.work_items) / 1e9
    disk_gb = _DISK_GB + _DISK_STEP_GB * int(-(-scratch_gb // _DISK_STEP_GB))
    return Machines(cores, most, disk_gb)


def _flags_for(given: dict[str, Any], size: JobSize) -> list[str]:
    machines = choose_machines(size)
    most = max(machines.most, int(given.get("num_workers", 0)))
    defaults = {
        "machine_type": f"{_FAMILY}-{machines.cores}",
        "disk_size_gb": machines.disk_gb,
        "max_num_workers": most,
    }
    return [f"--{name}={value}" for name, value in defaults.items() if name not in given]


def _workers(given: dict[str, Any]) -> int:
    """Returns how many processes the user's flags give, or a usual number."""
    machines = int(given.get("max_num_workers", 0) or given.get("num_workers", 0))
    cores = re.search(r"-([0-9]+)$", given.get("machine_type", ""))
    return machines * int(cores[1] if cores else _CORES[-1]) or _USUAL_WORKERS


def _check_installed() -> None:
    try:
        spec = importlib.util.find_spec("google.cloud.dataflow_v1beta3")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise UsageError("--runner=dataflow needs pip install 'recordmill[gcp]'")


def _check_locations(given: dict[str, Any]) -> None:
    if not given.get("project"):
        raise UsageError("--project is required for --runner=dataflow: the project's id")
    region = given.get("region", "")
    if not re.fullmatch(r"[a-z]+-[a-z]+[0-9]+", region):
        got = repr(region) if region else "none"
        zone = re.fullmatch(r"([a-z]+-[a-z]+[0-9]+)-[a-z]", region)
        hint = f"; a zone is --region={zone[1]} --worker_zone={region}" if zone else ""
        raise UsageError(
            f"--region must be a region for --runner=dataflow, such as europe-west1, got "
            f"{got}{hint}"
        )
    for flag in ("temp_location", "staging_location", "template_location"):
        if (flag in given or flag == "temp_location") and not re.fullmatch(
            r"gs://[^/]+(/.*)?", given.get(flag, "")
        ):
            raise UsageError(
                f"--{flag} must be a folder or file on gs:// for --runner=dataflow, got "
                f"{given.get(flag, 'none')}"
            )


def _image_flag(given: dict[str, Any]) -> list[str]:
    if "sdk_container_image" in given:
        return []
    image = os.environ.get(IMAGE_VARIABLE)
    if not image:
        raise UsageError(
            "--sdk_container_image is required for --runner=dataflow: the image with recordmill "
            "that workers run; `make image IMAGE=…` builds it"
        )
    return [f"--sdk_container_image={image}"]


def _last_error(result: Any) -> str:
    """Returns the last error that Dataflow has of a job; the first ones are those of retries."""
    errors = dataflow_errors(result)
    return errors[-1] if errors else ""


def _finder(given: dict[str, Any]) -> Callable[[Any, str], SubmittedJob]:
    def find(result: Any, name: str) -> SubmittedJob:
        if given.get("dry_run"):
            return SubmittedJob("the job is valid; nothing was submitted", str)
        if not result.has_job:
            return SubmittedJob(f"the job was written to {given['template_location']}", str)
        job = result.job_id()
        link = (
            f"https://console.cloud.google.com/dataflow/jobs/{given['region']}/{job}"
            f"?project={given['project']}"
        )
        return SubmittedJob(f"job {job}, {link}", result.cancel, partial(_last_error, result))

    return find


def dataflow_engine(flags: list[str], *, wait: bool) -> RemoteEngine:
    """Returns the engine for Google's Dataflow.

    Raises:
      UsageError: a flag is missing or wrong; nothing has been submitted.
    """
    _check_installed()
    given = given_options(flags)
    _check_locations(given)
    extra = _image_flag(given)
    if not given.get("dry_run"):
        check_writable(given["temp_location"], "--temp_location")
    if "save_main_session" not in given:
        extra.append("--no_save_main_session")
    if "number_of_worker_harness_threads" not in given:
        extra.append("--number_of_worker_harness_threads=1")
    submits = not given.get("dry_run") and "template_location" not in given
    return RemoteEngine(
        name="dataflow",
        runner="DataflowRunner",
        workers=_workers(given),
        flags=(*flags, *extra),
        find=_finder(given),
        is_here=False,
        mounts=False,
        outlives=True,
        wait=wait and submits,
        flags_for=partial(_flags_for, given),
    )
