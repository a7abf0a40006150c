"""The run of a user's own pipeline at an output: claimed by its first stage, told of in the end.

No command planned it, so nothing can resume it: what a killed pipeline left is removed by the next.
"""

from __future__ import annotations

import hashlib
import json
import platform
from contextlib import suppress
from importlib.metadata import version

from recordmill.records import manifest as m
from recordmill.records.errors import UsageError
from recordmill.records.tfds_metadata import name_and_version
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.run_state import is_own, read_json
from recordmill.transforms.dataset.workspace import Workspace, read_manifest
from recordmill.transforms.dataset.writable import check_writable
from recordmill.transforms.storage import files

_PIPELINE = "WriteExamples"


def begin_run(job: Job) -> None:
    """Claims the temporary folders of a run, once: a repetition finds them claimed.

    Raises:
      UsageError: something is at the output that this run may not replace.
    """
    workspace = job.workspace
    if is_own(workspace.staging, workspace.token):
        return
    check_output(job)
    check_writable(workspace.output, "the output")
    old = read_manifest(workspace.output)
    if workspace.is_claimed:
        workspace.discard_run(published=old is None, template=job.shard_template)
    else:
        listed = {*old.paths, m.SUCCESS_PATH, *m.RUN_PATHS} if old else set()
        names = ["features.json", "dataset_info.json", m.STATISTICS_PATH, m.SUCCESS_PATH]
        workspace.check_free([*names, *(split.name for split in job.splits)], listed)
    workspace.claim()
    # Until it is gone a commit takes the success mark at the output for that of an older dataset.
    workspace.write_state(workspace.plan_path, {"pipeline": _PIPELINE})


def check_output(job: Job) -> None:
    """Checks that nothing is lost at the output.

    Raises:
      UsageError: a dataset or an unfinished run of a command is there.
    """
    workspace = job.workspace
    if job.overwrite:
        return
    if read_manifest(workspace.output):
        raise UsageError(
            f"{workspace.output} holds a dataset; choose another output, or overwrite=True"
        )
    if files.exists(workspace.plan_path) and not _is_of_pipeline(workspace):
        raise UsageError(
            f"{workspace.output} holds an unfinished run of a command; finish it, or "
            "overwrite=True to begin anew"
        )


def _is_of_pipeline(workspace: Workspace) -> bool:
    """Tells whether an unfinished run is one of a pipeline, which nobody can finish."""
    with suppress(ValueError, AttributeError):
        return bool(read_json(workspace.plan_path).get("pipeline") == _PIPELINE)
    return False


def commit_spec(job: Job) -> CommitSpec:
    """Returns what the manifest says of a dataset whose input only the user's pipeline knows."""
    name, dataset_version = name_and_version(job.workspace.absolute_output)
    config = {"pipeline": _PIPELINE, **job.fingerprint_options()}
    content = json.dumps(config, sort_keys=True).encode()
    packages = ("recordmill", "apache-beam", "numpy", "numba")
    return CommitSpec(
        name=name,
        description="records of a Beam pipeline, written by recordmill",
        fingerprint=hashlib.blake2b(content, digest_size=16).hexdigest(),
        replaces=read_manifest(job.workspace.output) is not None,
        config=json.loads(content),
        versions={p: version(p) for p in packages} | {"python": platform.python_version()},
        sources={"pipeline": "elements of a PCollection"},
        version=dataset_version,
    )
