"""Phase 1: find out in seconds whether a job can run, and write its work plan.

Nothing is written before every check has passed. The plan of a killed run is resumed where it is
for the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from recordmill.pipelines.planning.existing_output import check_whole, describe_difference
from recordmill.pipelines.planning.work_plan import (
    Inventory,
    InventoryT,
    JobT,
    Planner,
    StagesT,
    WorkPlan,
)
from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.records.tfds_metadata import name_and_version
from recordmill.records.typed_json import FormatError, convert
from recordmill.transforms.dataset.commit import CommitSpec
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.workspace import (
    Workspace,
    check_writable,
    damaged,
    read_manifest,
    write_json,
)
from recordmill.transforms.storage import files

_METADATA = ("features.json", "dataset_info.json", m.STATISTICS_PATH)


@dataclass(frozen=True, slots=True)
class _State:
    """The content of `plan.json`.

    Attributes:
      fingerprint: of all that decides the bytes.
      stages: the stage plan, as JSON.
      commit: what the manifest will say.
      modified: see `Inventory`.
    """

    fingerprint: str
    stages: dict[str, Any]
    commit: CommitSpec
    modified: str

    @classmethod
    def read(cls, workspace: Workspace, *, overwrite: bool) -> _State | None:
        """Returns the state of the run at the output, None where there is none.

        Args:
          workspace: of the run.
          overwrite: take a file that cannot be used for none.

        Raises:
          RunError: the file is cut, or not of this kind.
        """
        try:
            content = workspace.read_plan()
            return None if content is None else convert(content, cls)
        except (RunError, FormatError) as error:
            if overwrite:
                return None
            if isinstance(error, RunError):
                raise
            raise damaged(workspace.plan_path, error) from error


def plan_job(
    planner: Planner[JobT, StagesT, InventoryT], *, workers: int
) -> WorkPlan[JobT, StagesT] | None:
    """Checks a request and writes its plan, or resumes the one that is there.

    Returns None where the dataset is already complete, written by this very configuration.

    Args:
      planner: of the job that the user asked for.
      workers: for how many the input is cut; it has no influence on the output.

    Raises:
      UsageError: one line: what is wrong, what to do.
      RunError: the dataset is complete by its manifest, and files of it are missing or cut; or the
        plan of an unfinished run is damaged.
    """
    with planner.inspect() as inventory:
        job = planner.job  # which may have learned labels and splits from the input
        workspace = job.workspace
        old = read_manifest(workspace.output)
        commit = _commit_spec(planner, inventory, replaces=old is not None)
        if old and old.fingerprint != commit.fingerprint and not job.overwrite:
            raise UsageError(
                f"--output {workspace.output} holds a dataset of another configuration or input "
                f"({describe_difference(old, commit)}); choose another --output, or --overwrite to "
                "replace it"
            )
        state = _State.read(workspace, overwrite=job.overwrite)
        if state and _is_resumed(job, inventory, state, commit.fingerprint):
            try:
                stages = convert(state.stages, planner.stages_type)
            except FormatError as error:
                raise damaged(workspace.plan_path, error) from error
            return WorkPlan(job, state.commit, stages, inventory.input_bytes, resumed=True)
        if not job.overwrite:
            if old and workspace.is_complete(commit.fingerprint):
                check_whole(workspace.output, old)
                return None
            _refuse_other_run(workspace, state, commit)
        _begin(planner, old)
        try:
            stages = planner.write(inventory, workers=workers)
        except UsageError:
            workspace.abandon()
            raise
        begun = _State(commit.fingerprint, asdict(stages), commit, inventory.modified)
        write_json(workspace.plan_path, asdict(begun))
        return WorkPlan(job, commit, stages, inventory.input_bytes)


def _is_resumed(job: Job, inventory: Inventory, state: _State, fingerprint: str) -> bool:
    """Tells whether the run whose plan is there is resumed, and not begun anew.

    A killed run that was begun with --overwrite is finished by the same command; one whose input
    has changed since, or that ended over the budget of rejects, is begun anew by --overwrite.

    Raises:
      UsageError: it would be resumed, but its input has changed.
    """
    if state.fingerprint != fingerprint:
        return False
    changed = state.modified != inventory.modified
    if job.overwrite and (changed or files.exists(job.workspace.over_budget_path)):
        return False
    if changed:
        raise UsageError(
            "the input changed since the run began that this one would finish; start anew with "
            "--overwrite"
        )
    return True


def _refuse_other_run(workspace: Workspace, state: _State | None, commit: CommitSpec) -> None:
    """Checks that no unfinished run of another configuration lies at the output.

    Raises:
      UsageError: says where it lies and how to finish it.
    """
    elsewhere = workspace.other_work()
    if elsewhere:
        raise UsageError(
            f"--output {workspace.output} holds an unfinished run whose other temporary files are "
            f"in {elsewhere}; finish it with its own --temp_dir, or start anew with --overwrite"
        )
    if state:
        raise UsageError(
            f"--output {workspace.output} holds an unfinished run of another configuration or "
            f"input ({describe_difference(state.commit, commit)}); finish it with its own command, "
            "or start anew with --overwrite"
        )


def _begin(planner: Planner[JobT, StagesT, InventoryT], old: m.Manifest | None) -> None:
    """Makes the workspace ready for a new run: empty temporary folders, claimed by a marker."""
    workspace = planner.job.workspace
    check_writable(workspace.output, "--output")
    if workspace.is_claimed:
        workspace.discard_run(published=old is None)
    else:
        names = [*_METADATA, *planner.metadata, *(split.name for split in planner.job.splits)]
        listed = {*old.paths, m.SUCCESS_PATH} if old else set()
        workspace.check_free([m.SUCCESS_PATH, *names], listed)
        splits = [split.name for split in planner.job.splits]
        workspace.check_no_shards(splits, planner.job.shard_template, listed)
    workspace.claim()


def _fingerprint(planner: Planner[JobT, StagesT, InventoryT], inventory: Inventory) -> str:
    content = {
        "kind": planner.kind,
        "version": planner.bytes_version,
        "options": planner.job.fingerprint_options(),
        "checksums": inventory.checksums,
        "sources": inventory.sources["checksum"],
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _commit_spec(
    planner: Planner[JobT, StagesT, InventoryT], inventory: Inventory, *, replaces: bool
) -> CommitSpec:
    job = planner.job
    config = {"pipeline": planner.kind, **job.fingerprint_options(), **planner.config()}
    name, dataset_version = name_and_version(job.workspace.absolute_output)
    packages = ("recordmill", "apache-beam", "numpy", "numba", *planner.packages)
    versions = {package: version(package) for package in packages}
    return CommitSpec(
        name=name,
        description=planner.describe(),
        fingerprint=_fingerprint(planner, inventory),
        replaces=replaces,
        config=json.loads(json.dumps(config | inventory.checksums)),
        versions=versions | {"python": platform.python_version()},
        sources=inventory.sources,
        version=dataset_version,
    )
