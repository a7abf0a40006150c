"""`recordmill doctor`: report what is installed here, on a cluster and in an image.

The list of what must be installed comes from the requirements of the package itself.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from packaging.requirements import Requirement

from recordmill.pipelines.command_specs import DoctorSpec
from recordmill.pipelines.cores import usable_cores
from recordmill.records.errors import UsageError

# Extra -> its purpose.
_EXTRAS = {
    "": "the tf.data reader",
    "beam": "text, images, vocab and verify; direct, flink and prism",
    "gcp": "gs://, and Dataflow",
}
# Program -> its purpose; each one is optional.
_PROGRAMS = {
    "java": "Beam's job server for Flink; else --job_endpoint or --flink_submit_uber_jar",
    "mvn": "examples/flink, a cluster on this machine",
    "go": "building Prism; else Beam downloads it",
    "docker": "--image, and building the image",
    "gcloud": "building Flex Templates",
}
_IMAGE_SECONDS = 300
# The launching machine and the workers need the same releases of these.
_SAME = ("recordmill", "apache-beam", "python")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
      what: the name of what was checked.
      found: its version or state; "" where it is missing.
      problem: what will not work, and what to do; "" where nothing is wrong.
    """

    what: str
    found: str
    problem: str = ""


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def check_packages() -> list[Finding]:
    """Compares what is installed with what each extra of the package asks for."""
    findings = []
    seen = set()
    for text in requires("recordmill") or []:
        requirement = Requirement(text)
        extras = [
            extra
            for extra in _EXTRAS
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        ]
        if not extras or (requirement.name, *requirement.extras) in seen:
            continue
        seen.add((requirement.name, *requirement.extras))
        findings.append(_check_requirement(requirement, extras[0]))
    return sorted(findings, key=lambda finding: finding.what)


def _check_requirement(requirement: Requirement, extra: str) -> Finding:
    found = _installed(requirement.name)
    name = requirement.name
    if requirement.extras:
        name += f"[{','.join(sorted(requirement.extras))}]"
        found = found if _has_extras(requirement) else ""
    if found and requirement.specifier.contains(found, prereleases=True):
        return Finding(name, found)
    wanted = f"recordmill[{extra}]" if extra else "recordmill"
    return Finding(
        name, found, f"needed {requirement.specifier} for {_EXTRAS[extra]}: pip install '{wanted}'"
    )


def _has_extras(requirement: Requirement) -> bool:
    """Tells whether what an extra of a package brings is there."""
    for text in requires(requirement.name) or [] if _installed(requirement.name) else []:
        part = Requirement(text)
        wanted = part.marker and any(
            part.marker.evaluate({"extra": extra}) and not part.marker.evaluate({"extra": ""})
            for extra in requirement.extras
        )
        if wanted and not _installed(part.name):
            return False
    return bool(_installed(requirement.name))


def check_programs() -> list[Finding]:
    """Looks for the programs that some engines need."""
    return [
        Finding(name, path, "" if path else f"not in PATH; it is for {use}")
        for name, use in _PROGRAMS.items()
        for path in [shutil.which(name) or ""]
    ]


def check_cluster(master: str) -> Finding:
    """Asks a Flink cluster for its release, slots and restart strategy.

    Raises:
      UsageError: it does not answer.
    """
    from apache_beam.options.pipeline_options import FlinkRunnerOptions

    from recordmill.pipelines.engines.flink_cluster import read_cluster

    cluster = read_cluster(master)
    published = FlinkRunnerOptions.PUBLISHED_FLINK_VERSIONS
    problems = []
    if cluster.version not in published:
        problems.append(
            f"this Beam has job servers for {', '.join(published)}: give --flink_job_server_jar"
        )
    if not cluster.slots and not cluster.elastic:
        problems.append("it has no task managers: start some")
    if not cluster.restart_strategy:
        problems.append(
            "a job ends with the first task manager that dies: set restart-strategy.type: "
            "fixed-delay"
        )
    found = (
        f"Flink {cluster.version}, {cluster.free_slots} of {cluster.slots} slots free, restart "
        f"strategy {cluster.restart_strategy or 'none'}"
    )
    return Finding(f"cluster {cluster.url}", found, "; ".join(problems))


def check_image(image: str, here: Mapping[str, str]) -> Finding:
    """Asks the doctor of an image, and compares the releases that must be the same.

    Args:
      image: its name, for docker.
      here: package -> version on this machine.
    """
    command = ["docker", "run", "--rm", "--entrypoint", "recordmill", image, "doctor", "--json"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_IMAGE_SECONDS)
        found = json.loads(run.stdout)["versions"]
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(f"image {image}", "", f"docker cannot run it: {error}")
    except (ValueError, KeyError):
        lines = run.stderr.strip().splitlines() or ["it printed nothing"]
        return Finding(f"image {image}", "", f"its recordmill doctor failed: {lines[0]}")
    return compare_versions(image, found, here)


def compare_versions(image: str, found: Mapping[str, str], here: Mapping[str, str]) -> Finding:
    """Compares the releases in an image with those of this machine."""
    other = [name for name in _SAME if _minor(name, found) != _minor(name, here)]
    problem = ", ".join(f"{name} {found.get(name)} there and {here[name]} here" for name in other)
    if problem:
        problem += ": workers cannot read what another release made; rebuild the image"
    text = ", ".join(f"{name} {found.get(name)}" for name in _SAME)
    return Finding(f"image {image}", text, problem)


def _minor(name: str, versions: Mapping[str, str]) -> str:
    full = versions.get(name, "")
    return ".".join(full.split(".")[:2]) if name == "python" else full


def versions() -> dict[str, str]:
    """Returns the releases that must be the same everywhere."""
    return {
        "recordmill": _installed("recordmill"),
        "apache-beam": _installed("apache-beam"),
        "python": platform.python_version(),
    }


def run(options: DoctorSpec) -> int:
    """Runs `recordmill doctor`; returns 0, or 1 where what was asked about will not work."""
    if options.compile:
        from recordmill.pipelines.commands.compile_kernels import compile_kernels

        compile_kernels()
    required = check_packages()
    asked = []
    if options.flink_master:
        try:
            asked.append(check_cluster(options.flink_master))
        except UsageError as error:
            asked.append(Finding(f"cluster {options.flink_master}", "", str(error)))
    if options.image:
        asked.append(check_image(options.image, versions()))
    findings = [*required, *check_programs(), *asked]
    if options.json:
        content: dict[str, Any] = {"versions": versions(), "findings": [*map(asdict, findings)]}
        print(json.dumps(content, indent=1))
    else:
        _print(findings)
    without_gcp = [f for f in required if "recordmill[gcp]" not in f.problem]
    return 1 if any(f.problem for f in [*without_gcp, *asked]) else 0


def _print(findings: list[Finding]) -> None:
    where = f"{platform.system()} {platform.machine()}, {usable_cores()} cores"
    if hasattr(os, "sysconf"):
        gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
        where += f", {gigabytes:.0f} GB of memory"
    print(f"recordmill {_installed('recordmill')}, Python {platform.python_version()}, {where}")
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        mark = "!" if finding.problem else " "
        text = "; ".join(part for part in (finding.found or "missing", finding.problem) if part)
        print(f"{mark} {finding.what:<{width}}  {text}")
