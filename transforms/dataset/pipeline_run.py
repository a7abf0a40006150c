"""The run of a user's own pipeline at an output: claimed by its first stage, told of in the end.

No command planned it, so nothing can resume it: what a killed pipeline left is removed by the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError, one_of
from recordmill.records.spec import check_type, naming_flags
from recordmill.records.tfds_metadata import name_and_version
from recordmill.transforms.dataset.commit import CommitSpec, old_manifest
from recordmill.transforms.dataset.in_place import check_place
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.output_spec import ShardSpec, SplitSpec, WriteSpec
from recordmill.transforms.dataset.removal import (
    damaged_paths,
    delete_inside,
    remove_dataset,
)
from recordmill.transforms.dataset.run_state import PipelinePlan, is_own, new_token, pipeline_name
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.dataset.writable import check_writable
from recordmill.transforms.storage import files

_METADATA = ("features.json", "dataset_info.json", m.STATISTICS_PATH)


def begin_run(job: Job, transform: str) -> None:
    """Claims the temporary folders of a run, once: a repetition finds them claimed.

    Args:
      job: whose folders they are.
      transform: the name of the PTransform that writes.

    Raises:
      UsageError: something is at the output that this run may not replace.
    """
    workspace = job.workspace
    if is_own(workspace.staging, workspace.token):
        _write_plan(workspace, transform)  # it may have been killed before it did
        return
    check_output(job)
    check_writable(workspace.output, "the output")
    old, damage = old_manifest(workspace.output)
    check_place(workspace, old)
    damaged: list[str] = []
    if damage:  # what may be overwritten, or `check_output` had raised it
        names = [*_METADATA, m.CONFIG_PATH]
        damaged = damaged_paths(workspace.output, names, [job.shard_template], in_place=False)
    if old and _is_cut_short(workspace):
        remove_dataset(workspace.output, old)
        old = None
    if workspace.is_claimed:
        workspace.discard_run(published=old is None, template=job.shard_template)
    else:
        listed = {*old.paths, m.SUCCESS_PATH, *m.RUN_PATHS} if old else set(damaged)
        names = [*_METADATA, m.SUCCESS_PATH, *(split.name for split in job.splits)]
        workspace.check_free(names, listed)
    delete_inside(workspace.output, damaged)
    workspace.claim()
    _write_plan(workspace, transform)


def _write_plan(workspace: Workspace, transform: str) -> None:
    # Until it is gone a commit takes the success mark at the output for that of an older dataset.
    workspace.write_state(workspace.plan_path, PipelinePlan(transform))


def check_output(job: Job) -> None:
    """Checks that nothing is lost at the output.

    Raises:
      UsageError: a dataset or an unfinished run of a command is there.
      RunError: the manifest of a dataset cannot be read.
    """
    workspace = job.workspace
    workspace.check_links((split.name for split in job.splits), job.shard_template)
    old, damage = old_manifest(workspace.output)
    if job.overwrite:
        return
    if damage:
        raise RunError(f"{damage}; choose another output, or overwrite=True") from damage
    if old and not _is_cut_short(workspace):
        raise UsageError(
            f"{workspace.output} holds a dataset; choose another output, or overwrite=True"
        )
    of_command = files.exists(workspace.plan_path) and not pipeline_name(workspace.plan_path)
    if of_command and workspace.can_be_finished:
        raise UsageError(
            f"{workspace.output} holds an unfinished run of a command; finish it, or "
            "overwrite=True to begin anew"
        )


def _is_cut_short(workspace: Workspace) -> bool:
    """Tells whether a pipeline was killed between its manifest and its success mark.

    What it was to replace is gone when it begins to publish: the manifest that is there is its own.
    """
    return (
        workspace.is_claimed
        and files.exists(workspace.publishing_path)
        and bool(pipeline_name(workspace.plan_path))
        and not files.exists(workspace.success_path)
    )


def pipeline_job(
    output: str | os.PathLike[str], spec: WriteSpec, splits: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Returns what the job of a user's own pipeline has of its dataset.

    Args:
      output: the folder of the dataset.
      spec: of the dataset.
      splits: in place of the spec's; one split, called train, by default.

    Raises:
      UsageError: a value is not valid.
    """
    names, num_shards = dict(splits or spec.splits or {"train": 1.0}), spec.num_shards
    counts = num_shards if isinstance(num_shards, Mapping) else {next(iter(names)): num_shards}
    for name in counts:
        one_of("num_shards", name, list(names))
    if counts and (first := next(iter(names))) not in counts:
        # The others' would be in proportion to nothing.
        raise UsageError(f"num_shards must give one for {first}, got {dict(counts)}")
    folder = check_type("output", output, str | os.PathLike[str])
    if not folder:
        raise UsageError("output must be the folder of the dataset, got ''")
    folder = folder.rstrip("/") or "/"
    staging = files.join(folder, "_tmp")
    with naming_flags():  # the transform whose arguments they are names them
        made = tuple(SplitSpec(n, share, counts.get(n)) for n, share in names.items())
        shards = ShardSpec(spec.shard_bytes)
    workspace = Workspace(
        output=folder, work=staging, staging=staging, token=new_token(), of_pipeline=True
    )
    return {
        "workspace": workspace, "splits": made, "shards": shards, "compression": spec.compression,
        "seed": spec.seed, "overwrite": spec.overwrite,
    }  # fmt: skip


def commit_spec(
    job: Job, transform: str, packages: Sequence[str] = (), config: Mapping[str, Any] | None = None
) -> CommitSpec:
    """Returns what the manifest says of a dataset whose input only the user's pipeline knows.

    Args:
      job: that is committed.
      transform: the name of the PTransform that writes.
      packages: whose versions matter, beside those that matter to all.
      config: what decides the bytes, beside the options of the job.
    """
    name, dataset_version = name_and_version(job.workspace.absolute_output)
    of_all = {"pipeline": transform, **(config or {})}
    content = json.dumps(of_all | job.fingerprint_options(), sort_keys=True).encode()
    names = ("recordmill", "apache-beam", "numpy", "numba", *packages)
    return CommitSpec(
        name=name,
        description="records of a Beam pipeline, written by recordmill",
        fingerprint=hashlib.blake2b(content, digest_size=16).hexdigest(),
        replaces=files.exists(files.join(job.workspace.output, m.MANIFEST_PATH)),
        config=json.loads(json.dumps(of_all | job.resolved())),
        versions={name: version(name) for name in names} | {"python": platform.python_version()},
        sources={"pipeline": "elements of a PCollection"},
        version=dataset_version,
    )
